"""Speculative decoding: what comes out of a step, what it costs, what is refused."""

from dataclasses import replace

import numpy as np
import pytest

from firstlight import schedule
from firstlight.errors import ScheduleError
from validation.test_queueing import TOKEN_PS, table

COUNT = 40


def run(*, osl=60, count=COUNT, speculation=None, pool=None, fleet=None, spread=0):
    """Requests of 10 prompt tokens; a step takes a token time for each token in it."""
    one = schedule.Pool(
        name="one",
        role="mixed",
        replicas=1,
        table=table(16),
        token_budget=256,
        max_seqs=16,
        kv_blocks=400,
        speculation=speculation,
    )
    rows = np.full(count, 1, np.uint32)
    arrivals = schedule.Arrivals(
        arrival_ps=np.arange(count, dtype=np.uint64) * np.uint64(spread * TOKEN_PS),
        isl_tok=rows * 10,
        cached_tok=rows * 0,
        osl_tok=rows * osl,
    )
    whole = schedule.Fleet(pools=(replace(one, **(pool or {})),), block_tok=4, **(fleet or {}))
    return schedule.run(whole, arrivals)


def drafts(drafts=4, accept=0.7, **more):
    return schedule.Speculation(drafts=drafts, accept_frac=accept, **more)


@pytest.mark.parametrize(("accept", "steps"), [(1.0, 12), (0.0, 59)])
def test_all_or_nothing_by_hand(accept, steps):
    """59 tokens after the prompt: five at a time, or one by one, each step five tokens long."""
    outcome = run(count=1, speculation=drafts(accept=accept))
    assert outcome.total[0]["steps"] == 1 + steps
    assert outcome.last_ps[0] == (10 + 5 * steps) * TOKEN_PS
    assert outcome.total[0]["drafted_tok"] == 4 * steps
    assert outcome.total[0]["accepted_tok"] == 59 - steps
    # Tokens of a step come together: the first after a step, the others at once.
    counts = {i: int(c) for i, c in enumerate(outcome.gap_counts) if c}
    assert sum(counts.values()) == 59
    assert counts.get(0, 0) == 59 - steps
    assert outcome.gap_sum_ps == 5 * steps * TOKEN_PS


@pytest.mark.parametrize("accept", [0.3, 0.7, 0.9])
@pytest.mark.parametrize("number", [1, 4, 8])
def test_tokens_a_step_are_those_of_leviathan(accept, number):
    """(1 − a^(k+1)) / (1 − a) tokens a step, within four standard errors."""
    outcome = run(osl=2000, count=8, speculation=drafts(number, accept), pool={"kv_blocks": 9000})
    total = outcome.total[0]
    steps = total["drafted_tok"] / number
    mean = (1 - accept ** (number + 1)) / (1 - accept)
    # An end of an answer cuts at most the drafts of one step of it.
    bound = 4 * number / 2 / np.sqrt(steps) + 8 * number / steps
    assert 1 + total["accepted_tok"] / steps == pytest.approx(mean, abs=bound)


def test_shares_measured_by_position_mean_what_a_server_counts():
    measured = (0.8, 0.5, 0.2)
    outcome = run(osl=2000, count=8, speculation=drafts(3, measured), pool={"kv_blocks": 9000})
    total = outcome.total[0]
    steps = total["drafted_tok"] / 3
    assert total["accepted_tok"] / steps == pytest.approx(sum(measured), abs=0.1)


def test_an_answer_is_drafted_alike_under_every_load():
    crowd = run(speculation=drafts())
    one_by_one = run(speculation=drafts(), pool={"max_seqs": 1})
    spread = run(speculation=drafts(), spread=77)
    for other in (one_by_one, spread):
        for name in ("drafted_tok", "accepted_tok", "emitted_tok"):
            assert other.total[0][name] == crowd.total[0][name], name
    again = run(speculation=drafts(seed=1))
    assert again.total[0]["accepted_tok"] != crowd.total[0]["accepted_tok"]


def test_nothing_is_lost_where_drafts_lack_room():
    outcome = run(speculation=drafts(8, 0.9), pool={"kv_blocks": 60}, count=30)
    total = outcome.total[0]
    assert total["preemptions"] > 0
    assert (outcome.state == schedule.STATES.index("done")).all()
    assert total["emitted_tok"] == 30 * 60
    assert total["blocks_taken"] == total["blocks_freed"]
    assert outcome.free_blocks == (60,)


def test_drafts_need_room_beyond_the_end_of_an_answer():
    """10 + 60 tokens fill 18 blocks of 4; with four drafts 19 are needed."""
    for speculation, blocks, state in (
        (None, 18, "done"),
        (drafts(), 18, "rejected"),
        (drafts(), 19, "done"),
    ):
        outcome = run(count=1, speculation=speculation, pool={"kv_blocks": blocks})
        assert outcome.state[0] == schedule.STATES.index(state), (speculation, blocks)


def test_a_draft_costs_its_share_of_a_plain_step():
    """Alone, a plain step is a token long: four drafts of a quarter make a step one longer."""
    free = run(count=1, speculation=drafts(accept=1.0))
    paid = run(count=1, speculation=drafts(accept=1.0, draft_frac=0.25))
    assert paid.total[0]["draft_ps"] == 12 * TOKEN_PS
    assert paid.last_ps[0] - free.last_ps[0] == 12 * TOKEN_PS
    assert free.total[0]["draft_ps"] == 0
    busy = paid.total[0]["prefill_ps"] + paid.total[0]["decode_ps"]
    assert busy == paid.last_ps[0]


def test_where_a_step_costs_the_same_whatever_is_in_it_drafts_pay():
    """Weights read once a step: 2.77 times as many tokens a step, and as many a second."""
    flat = table(16)
    flat.linear_ps[1:] = TOKEN_PS
    times = [
        run(
            osl=2000,
            count=8,
            speculation=speculation,
            pool={"table": flat, "kv_blocks": 9000},
        ).gap_sum_ps
        for speculation in (None, drafts())
    ]
    assert times[0] / times[1] == pytest.approx((1 - 0.7**5) / 0.3, rel=0.03)


@pytest.mark.parametrize(
    ("speculation", "pool", "said"),
    [
        (drafts(0), {}, "drafts=0 is not allowed; 1 to 32"),
        (drafts(33), {"token_budget": 4096}, "drafts=33 is not allowed; 1 to 32"),
        (drafts(2.5), {}, "drafts=2.5 is not allowed"),
        (drafts(accept=1.2), {}, "0 to 1"),
        (drafts(accept=-0.1), {}, "0 to 1"),
        (drafts(accept=float("nan")), {}, "0 to 1"),
        (drafts(accept=(0.5, 0.4)), {}, "2 shares are not allowed; one, or 4"),
        (drafts(2, (0.4, 0.5)), {}, "not rising"),
        (drafts(draft_frac=1.5), {}, "draft_frac=1.5 is not allowed; 0 to 1"),
        (drafts(seed=-1), {}, "seed=-1 is not allowed"),
        (drafts(), {"policy": "sglang"}, "mixed or decode pool under vllm"),
        (drafts(), {"policy": "orca"}, "mixed or decode pool under vllm"),
        (drafts(), {"chunk_tok": 8}, "without chunk_tok"),
        (drafts(), {"token_budget": 79}, "80 .max_seqs times one and the drafts. or more"),
    ],
)
def test_impossible_drafts_are_refused(speculation, pool, said):
    with pytest.raises(ScheduleError, match=said) as raised:
        run(speculation=speculation, pool=pool)
    assert "\n" not in str(raised.value)


def test_a_prefill_pool_drafts_nothing_and_dynosim_is_not_imitated_with_drafts():
    def pool(role, speculation):
        return schedule.Pool(
            name=role,
            role=role,
            replicas=1,
            table=table(16),
            token_budget=256,
            max_seqs=16,
            kv_blocks=400,
            speculation=speculation,
        )

    wrong = schedule.Fleet(pools=(pool("prefill", drafts()), pool("decode", None)))
    with pytest.raises(ScheduleError, match="mixed or decode pool"):
        schedule.engine(wrong)
    right = schedule.Fleet(pools=(pool("prefill", None), pool("decode", drafts())))
    assert schedule.engine(right).now_ps == 0
    # Who emits the first token is not a password, but one check would think so of a literal.
    emits = "decode"
    with pytest.raises(ScheduleError, match="speculation"):
        schedule.engine(replace(right, imitate_dynosim=True, first_token=emits))


def test_a_head_that_would_take_forever_beyond_its_table_is_refused():
    head_ps = np.zeros(17, np.uint64)
    head_ps[-1] = 10**14
    steep = replace(table(16), head_ps=head_ps)
    with pytest.raises(ScheduleError, match="last rise of head_ps"):
        run(speculation=drafts(), pool={"table": steep})
