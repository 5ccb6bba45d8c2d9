"""Random fleets, traffic and faults: tight enough that everything that can happen does."""

from dataclasses import replace

import numpy as np

from firstlight import schedule
from firstlight.steps import MixedAttention, StepTable


def make_table(rng, max_tok, max_seqs, scale):
    """A random table: monotone in tokens, like real ones, but with rough edges."""

    def rising(length, step):
        return np.concatenate([[0], np.cumsum(rng.integers(1, step + 1, length))]).astype(np.uint64)

    def flat(length, high):
        return rng.integers(0, high, length + 1).astype(np.uint64)

    floor = rising(max_seqs, scale)
    return StepTable(
        linear_ps=rising(max_tok, scale * 10),
        head_ps=rising(max_seqs, scale),
        prefill_attn_floor_ps=int(rng.integers(0, scale * 3)),
        prefill_attn_pair_fs=flat(max_tok, scale * 100),
        decode_attn_floor_ps=floor,
        decode_attn_ctx_ps=flat(max_seqs, max(2, scale // 8)),
        mix_1024=int(rng.integers(0, 1500)),
        linear_pj=rising(max_tok, 5000),
        head_pj=rising(max_seqs, 500),
        prefill_attn_pair_fj=flat(max_tok, 90_000),
        decode_attn_floor_pj=rising(max_seqs, 300),
        decode_attn_ctx_pj=flat(max_seqs, 40),
        mixed=make_mixed(rng, max_tok, max_seqs, scale) if rng.random() < 0.2 else None,
    )


def make_mixed(rng, max_tok, max_seqs, scale):
    def axis(last, count):
        inner = rng.integers(1, max(last, 2), count)
        return np.unique([0, *inner, last]).astype(np.uint64)

    axes = axis(max_tok, 3), axis(60, 2), axis(max_seqs, 2), axis(90, 3)
    times = rng.integers(0, scale * 20, [len(points) for points in axes]).astype(np.uint64)
    return MixedAttention(axes=axes, attn_ps=times, skew_frac=float(rng.choice([0, 0.25])))


def make_governor(rng, pools, scale, longest):
    levels = int(rng.integers(2, 5))
    below = int(rng.integers(0, longest))
    return schedule.Governor(
        tick_ps=int(rng.integers(1_000_000, 1_000_000 + scale * longest * 10)),
        caps_w=tuple(tuple(float(rng.choice([0.3, 3, 40])) for _ in pools) for _ in range(levels)),
        first=int(rng.integers(0, levels)),
        above_tok=below + int(rng.integers(0, longest)),
        below_tok=below,
    )


def speculating(fleet, seed):
    """The same fleet with drafts wherever a pool may have them, and what room they need."""
    rng = np.random.default_rng([seed, 1])
    pools = []
    for pool in fleet.pools:
        if pool.role == "prefill" or pool.policy != "vllm":
            pools.append(pool)
            continue
        drafts = int(rng.integers(1, 7))
        accept = float(rng.choice([0.0, 0.5, 0.8, 0.95, 1.0]))
        if rng.random() < 0.3:
            accept = tuple(np.sort(rng.random(drafts))[::-1].tolist())
        most = pool.table.linear_ps.size - 1
        # Few sequences, so that their drafts fit the budget that the table allows.
        max_seqs = min(pool.max_seqs, most // (1 + drafts))
        if max_seqs == 0:
            pools.append(pool)
            continue
        pools.append(
            replace(
                pool,
                chunk_tok=0,
                max_seqs=max_seqs,
                token_budget=max(pool.token_budget, max_seqs * (1 + drafts)),
                speculation=schedule.Speculation(
                    drafts=drafts,
                    accept_frac=accept,
                    draft_frac=float(rng.choice([0.0, 0.02, 0.3])),
                    seed=int(rng.integers(0, 2**63)),
                ),
            )
        )
    return replace(fleet, pools=tuple(pools))


def make_case(seed, only=None):
    """A random fleet and what arrives; of one mixed pool under the policy `only`, if given."""
    rng = np.random.default_rng(seed)
    block_tok = int(rng.choice([1, 4, 16]))
    split = bool(rng.integers(2)) and only is None
    longest = int(rng.choice([12, 60, 200]))
    scale = int(rng.choice([3, 200, 10_000]))
    pools = []
    for role in ("prefill", "decode") if split else ("mixed",):
        max_seqs = int(rng.integers(1, 9))
        # Mostly tight, sometimes so wide that several prompts fit in one step.
        budget = int(rng.integers(max_seqs, max_seqs + longest)) * int(rng.choice([1, 1, 4]))
        # Tight memory, so that preemption and blocked queues are common.
        fewest = -(-2 * longest // block_tok)
        kv_blocks = int(rng.integers(fewest, fewest * 3 + 2))
        pools.append(
            schedule.Pool(
                name=role,
                role=role,
                replicas=int(rng.integers(1, 4)),
                table=make_table(
                    rng, max(budget, block_tok) + int(rng.integers(0, 3)), max_seqs, scale
                ),
                token_budget=max(budget, block_tok),
                max_seqs=max_seqs,
                watermark_blocks=int(rng.integers(0, 2)),
                window_ps=0 if role == "decode" else int(rng.choice([0, 0, scale * 50])),
                fill_tok=int(rng.integers(1, longest)),
                **{"kv_blocks": kv_blocks} | make_policy(rng, role, longest, fewest, only),
                cap_w=float(rng.choice([0.3, 3, 40])) if rng.random() < 0.3 else None,
            )
        )
    governor = None
    if rng.random() < 0.25:
        governor = make_governor(rng, pools, scale, longest)
        pools = [replace(pool, cap_w=None) for pool in pools]
    unit_blocks = int(rng.integers(1, 3))
    fleet = schedule.Fleet(
        pools=tuple(pools),
        block_tok=block_tok,
        unit_tok=unit_blocks * block_tok,
        governor=governor,
        link_tok_ps=int(rng.integers(0, scale * 3)),
        link_latency_ps=int(rng.integers(0, scale * 30)),
        link_layers=int(rng.choice([1, 1, 4])),
        first_token=str(rng.choice(["prefill", "decode"])),
        routing=schedule.Routing(
            policy=str(rng.choice(["least-load", "round-robin", "prefix-aware", "least-ttft"])),
            weight=float(rng.choice([0.5, 1.0, 2.0])),
        ),
        disaggregation=schedule.Disaggregation(
            policy=str(rng.choice(["always", "always", "never", "conditional"])),
            local_below_tok=int(rng.integers(1, longest)),
            queue_tok=int(rng.integers(0, 2) * rng.integers(1, longest)),
            busy_seqs=int(rng.integers(0, 2) * rng.integers(1, 9)),
        ),
    )
    count = int(rng.integers(1, 40))
    isl = rng.integers(1, longest + 1, count)
    osl = np.where(rng.random(count) < 0.3, 1, rng.integers(1, longest + 1, count))
    cached = (isl * rng.random(count) * rng.integers(0, 2)).astype(np.int64)
    spread = scale * longest * int(rng.choice([0, 1, 40]))
    arrival = np.sort(rng.integers(0, spread + 1, count))
    if rng.random() < 0.3:  # in bursts, so that equal prompts are computed side by side
        arrival = arrival // (spread // 4 + 1) * (spread // 4 + 1)
    units = [[] for _ in range(count)]
    if rng.random() < 0.6:
        units = make_units(rng, isl, osl, unit_blocks * block_tok)
        cached[:] = 0
    parents = [[] for _ in range(count)]
    if rng.random() < 0.4:
        parents = [
            rng.permutation(i)[: int(rng.choice([0, 1, 1, 2]))].tolist() for i in range(count)
        ]
    arrivals = schedule.Arrivals(
        arrival_ps=arrival.astype(np.uint64),
        isl_tok=isl.astype(np.uint32),
        cached_tok=np.minimum(cached, isl - 1).astype(np.uint32),
        osl_tok=osl.astype(np.uint32),
        unit_from=np.cumsum([0, *map(len, units)]).astype(np.uint64),
        unit_of=np.concatenate([[], *units]).astype(np.uint32),
        follow_from=np.cumsum([0, *map(len, parents)]).astype(np.uint64),
        follow_of=np.concatenate([[], *parents]).astype(np.uint32),
        think_ps=rng.integers(0, scale * 40, count).astype(np.uint64) * int(rng.integers(0, 2)),
        in_flight=int(rng.choice([0, 0, 1, 5])),
    )
    return fleet, arrivals, make_faults(rng, fleet, spread + 20 * scale * longest)


def make_faults(rng, fleet, span):
    """Often none; else some, early enough to hit a run that is under way."""
    replicas = [pool for pool in fleet.pools for _ in range(pool.replicas)]
    faults = []
    for _ in range(int(rng.choice([0, 0, 1, 3, 6]))):
        number = int(rng.integers(0, len(replicas)))
        pool = replicas[number]
        kinds = ["down", "down", "slow"] + ["link-down", "link-slow"] * (pool.role == "decode")
        kind = str(rng.choice(kinds))
        begin = int(rng.integers(0, span))
        table = None
        if kind == "slow":
            table = schedule.slower_table(pool.table, factor=float(rng.choice([1.2, 2.0])))
        faults.append(
            schedule.Fault(
                kind=kind,
                replica=number,
                from_ps=begin,
                until_ps=begin + int(rng.integers(1, span // 4 + 2)),
                table=table,
                slower=float(rng.choice([1.0, 2.5])) if kind == "link-slow" else 1.0,
            )
        )
    return tuple(faults)


def make_policy(rng, role, longest, fewest, only):
    policy = only or str(rng.choice(["vllm", "vllm", "sglang", "sglang", "orca", "static"]))
    if role == "mixed" and policy == "sglang":
        return {
            "policy": policy,
            "kv_blocks": fewest + 1 + int(rng.choice([0, 0, fewest])),
            "cache": make_cache(rng, longest) if rng.random() < 0.7 else None,
            "sglang": schedule.SGLang(
                order=str(rng.choice(["fcfs", "lpm", "lpm"])),
                conservativeness=float(rng.choice([0, 0, 0.05, 0.3, 1.0, 1.5])),
                most_new_tok=int(rng.choice([0, 0, 0, 9, 2 * longest, 8000])),
            ),
        }
    if role != "mixed" or policy == "vllm":
        return {
            "cache": make_cache(rng, longest) if rng.random() < 0.6 else None,
            "chunk_tok": int(rng.choice([0, rng.integers(1, longest)])),
        }
    return {"policy": policy}


def make_cache(rng, longest):
    def tier():
        if rng.random() < 0.4:
            return None
        return schedule.Tier(
            units=int(rng.integers(1, longest)),
            read_tok_ps=int(rng.choice([0, 5, 900])),
            latency_ps=int(rng.choice([0, 0, 4000])),
            read_tok_pj=int(rng.integers(0, 50)),
            write_tok_pj=int(rng.integers(0, 50)),
        )

    return schedule.Cache(
        dram=tier(), storage=tier(), write_back=str(rng.choice(["all", "all", "reused"]))
    )


def make_units(rng, isl, osl, unit_tok):
    """Chained ids: each request goes on from a random point of an earlier one, or starts anew."""
    units, fresh = [], 0
    for i in range(len(isl)):
        # Some traces name only the prompt, some the answer too.
        named = int(isl[i] + (osl[i] if rng.random() < 0.5 else 0)) // unit_tok
        start = []
        if i and rng.random() < 0.7:
            parent = units[int(rng.integers(0, i))]
            kept = len(parent) if rng.random() < 0.3 else int(rng.integers(0, len(parent) + 1))
            start = parent[:kept][:named]
        own = list(range(fresh, fresh + named - len(start)))
        fresh += len(own)
        units.append(start + own)
    return units
