"""The discrete-event simulation of serving, one step at a time, in plain Python.

A second opinion, written from the step rule alone: it visits every request in every step, keeps every
count as a plain integer, and imports nothing of the package. `tests/parity` demands that the
compiled engine agrees to the last picosecond and picojoule.

Rules, in the order they apply at one instant `t`:

1. every replica whose step ends at `t` ends it, lowest number first; a prompt that ends on a prefill
   replica goes to the queue of the decode replica with the fewest unfinished requests;
2. pulls that end at `t` are taken: the prefill side frees its blocks, the request is ready;
3. requests that arrive at `t` are routed to the entry replica with the least load (unfinished
   requests; on prefill replicas: prompt tokens still to compute);
4. every replica that does nothing plans a step.

Planning a step: the running list in order, one token for each that decodes and what is left of the
token budget for an unfinished prompt; when blocks do not suffice, the last of the running list is
preempted (all blocks freed, back to the head of the queue), and if that is the request itself, the
stage ends. Then, only if nothing was preempted: ready requests in order, then the queue in order,
stopping at the first whose whole sequence does not fit. If everything that ran was preempted the
queue is tried at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

NEVER = 2**64 - 1
GAP_SUB_BITS = 7


@dataclass
class Table:
    linear_ps: list
    head_ps: list
    prefill_attn_floor_ps: int
    prefill_attn_pair_fs: list
    decode_attn_floor_ps: list
    decode_attn_ctx_ps: list
    mix_1024: int
    linear_pj: list
    head_pj: list
    prefill_attn_pair_fj: list
    decode_attn_floor_pj: list
    decode_attn_ctx_pj: list


@dataclass
class Pool:
    role: str
    replicas: int
    table: Table
    token_budget: int
    max_seqs: int
    kv_blocks: int
    watermark_blocks: int = 0


@dataclass
class Request:
    number: int
    arrival_ps: int
    isl: int
    cached: int
    osl: int
    state: str = "queued"
    computed: int = 0
    generated: int = 0
    held: int = 0
    first_ps: int = NEVER
    last_ps: int = NEVER
    emitted_ps: int = 0
    preemptions: int = 0
    decoding: bool = False  # its cache is complete: one token a step
    prefill: Replica | None = None
    decode: Replica | None = None

    @property
    def tokens(self):
        return self.isl + self.generated


@dataclass
class Replica:
    pool: Pool
    number: int
    free: int
    running: list = field(default_factory=list)
    waiting: list = field(default_factory=list)
    ready: list = field(default_factory=list)
    pulling: int = 0
    link_free: int = 0
    load: int = 0
    ends: int = NEVER
    started: int = 0
    plan: list = field(default_factory=list)


COUNTERS = [
    "steps",
    "prefill_ps",
    "decode_ps",
    "prefill_tok",
    "recomputed_tok",
    "decode_tok",
    "emitted_tok",
    "preemptions",
    "blocks_taken",
    "blocks_freed",
    "pulled_tok",
    "link_ps",
    "prefill_linear_pj",
    "prefill_attn_pj",
    "prefill_head_pj",
    "decode_linear_pj",
    "decode_attn_pj",
    "decode_head_pj",
]


class Simulation:
    def __init__(self, pools, block_tok, link_tok_ps, link_latency_ps, first_token):
        self.pools = pools
        self.block = block_tok
        self.link_tok_ps = link_tok_ps
        self.link_latency_ps = link_latency_ps
        self.first_token = first_token
        self.replicas = []
        for pool in pools:
            for _ in range(pool.replicas):
                self.replicas.append(Replica(pool, len(self.replicas), pool.kv_blocks))
        self.count = {id(pool): dict.fromkeys(COUNTERS, 0) for pool in pools}
        self.gaps = {}
        self.gap_sum = 0
        self.pulls = []
        self.requests = []

    # --- small words -----------------------------------------------------------------------------

    def blocks(self, tokens):
        return -(-tokens // self.block)

    def counters(self):
        return [self.count[id(pool)] for pool in self.pools]

    def take(self, replica, request, blocks):
        assert blocks <= replica.free
        replica.free -= blocks
        request.held += blocks
        self.count[id(replica.pool)]["blocks_taken"] += blocks

    def free_all(self, replica, request):
        replica.free += request.held
        self.count[id(replica.pool)]["blocks_freed"] += request.held
        request.held = 0

    def gap(self, ps):
        if ps < 1 << GAP_SUB_BITS:
            bucket = ps
        else:
            octave = ps.bit_length() - 1 - GAP_SUB_BITS
            bucket = ((octave + 1) << GAP_SUB_BITS) + ((ps >> octave) & ((1 << GAP_SUB_BITS) - 1))
        self.gaps[bucket] = self.gaps.get(bucket, 0) + 1
        self.gap_sum += ps

    def emits_at_prompt_end(self, replica):
        return replica.pool.role != "prefill" or self.first_token == "prefill"

    def emit(self, replica, request, now):
        if request.generated == 0:
            request.first_ps = now
        else:
            self.gap(now - request.emitted_ps)
        request.emitted_ps = now
        request.generated += 1
        self.count[id(replica.pool)]["emitted_tok"] += 1

    # --- the loop --------------------------------------------------------------------------------

    def run(self, arrivals):
        """`arrivals`: (arrival_ps, isl, cached, osl), sorted."""
        self.requests = [Request(i, *row) for i, row in enumerate(arrivals)]
        coming = list(self.requests)
        while True:
            now = min(replica.ends for replica in self.replicas)
            if coming:
                now = min(now, coming[0].arrival_ps)
            if self.pulls:
                now = min(now, min(self.pulls)[0])
            if now == NEVER:
                return
            for replica in self.replicas:
                if replica.ends == now:
                    self.end(replica, now)
            while self.pulls and min(self.pulls)[0] == now:
                _, number = self.pulls.pop(self.pulls.index(min(self.pulls)))
                self.pulled(self.requests[number])
            while coming and coming[0].arrival_ps == now:
                self.arrive(coming.pop(0))
            for replica in self.replicas:
                if replica.ends == NEVER:
                    self.start(replica, now)

    def arrive(self, request):
        for pool in self.pools:
            tokens = request.isl if pool.role == "prefill" else request.isl + request.osl
            if self.blocks(tokens) > pool.kv_blocks:
                request.state = "rejected"
                return
        entry = [r for r in self.replicas if r.pool.role != "decode"]
        replica = min(entry, key=lambda r: (r.load, r.number))
        is_prefill = replica.pool.role == "prefill"
        replica.load += request.isl - request.cached if is_prefill else 1
        request.prefill = replica
        replica.waiting.append(request)

    def hand_over(self, request):
        request.state = "handed"
        decode = [r for r in self.replicas if r.pool.role == "decode"]
        request.decode = min(decode, key=lambda r: (r.load, r.number))
        request.decode.load += 1
        request.decode.waiting.append(request)

    def pulled(self, request):
        count = self.count[id(request.prefill.pool)]
        held = self.blocks(request.isl)
        request.prefill.free += held
        count["blocks_freed"] += held
        request.state = "ready"
        request.decode.pulling -= 1
        request.decode.ready.append(request)

    # --- planning --------------------------------------------------------------------------------

    def start(self, replica, now):
        while True:
            replica.plan = []
            preempted = self.plan_running(replica)
            if not preempted:
                self.plan_waiting(replica, now)
            if replica.plan:
                replica.started = now
                replica.ends = now + self.price(replica)[0]
                return
            if not preempted:
                return

    def plan_running(self, replica):
        budget = replica.pool.token_budget
        preempted = False
        for request in list(replica.running):
            if request not in replica.running:
                continue  # preempted by an earlier one
            want = min(request.tokens - request.computed, budget)
            new = self.blocks(request.computed + want) - self.blocks(request.computed)
            while new > replica.free:
                victim = replica.running[-1]
                self.preempt(replica, victim)
                preempted = True
                if victim is request:
                    return True
            self.take(replica, request, new)
            if want:
                replica.plan.append((request, want))
                budget -= want
        return preempted

    def plan_waiting(self, replica, now):
        pool = replica.pool
        budget = pool.token_budget - sum(q for _, q in replica.plan)
        while budget > 0 and replica.ready:
            request = replica.ready[0]
            new = self.blocks(request.computed + 1) - self.blocks(request.computed)
            if not self.make_room(replica, new, request):
                break
            self.take(replica, request, new)
            replica.ready.pop(0)
            replica.running.append(request)
            request.state = "running"
            request.decoding = True
            replica.plan.append((request, 1))
            budget -= 1
        while budget > 0 and replica.waiting:
            if len(replica.running) + replica.pulling + len(replica.ready) >= pool.max_seqs:
                break
            request = replica.waiting[0]
            spare = pool.watermark_blocks if replica.running else 0
            if self.blocks(request.tokens) + spare > replica.free:
                break
            replica.waiting.pop(0)
            if request.state == "handed":
                self.pull(replica, request, now)
                continue
            request.computed = min(request.cached, request.tokens - 1)
            q = min(request.tokens - request.computed, budget)
            self.take(replica, request, self.blocks(request.computed + q))
            request.state = "running"
            replica.running.append(request)
            replica.plan.append((request, q))
            budget -= q

    def make_room(self, replica, new, request):
        while new > replica.free:
            if replica.running:
                return False
            victim = replica.ready.pop()
            self.requeue(replica, victim)
            if victim is request:
                return False
        return True

    def pull(self, replica, request, now):
        request.computed = request.isl if self.first_token == "prefill" else request.isl - 1
        request.held = 0  # what the prefill side holds is booked there
        self.take(replica, request, self.blocks(request.computed))
        request.state = "pulling"
        replica.pulling += 1
        begin = max(now, replica.link_free)
        wire = request.computed * self.link_tok_ps
        replica.link_free = begin + wire
        count = self.count[id(replica.pool)]
        count["link_ps"] += wire
        count["pulled_tok"] += request.computed
        self.pulls.append((begin + wire + self.link_latency_ps, request.number))

    def preempt(self, replica, request):
        replica.running.remove(request)
        self.requeue(replica, request)

    def requeue(self, replica, request):
        self.free_all(replica, request)
        request.computed = 0
        request.decoding = False
        request.state = "queued"
        request.preemptions += 1
        self.count[id(replica.pool)]["preemptions"] += 1
        replica.waiting.insert(0, request)

    # --- what a step costs -----------------------------------------------------------------------

    def price(self, replica):
        table = replica.pool.table
        m = emitted_prefill = n = context = attn_p = attn_p_pj = prefill_tok = 0
        for request, q in replica.plan:
            m += q
            kv = request.computed
            if request.decoding:
                n += 1
                context += kv + 1
                continue
            prefill_tok += q
            pairs = q * kv + q * (q + 1) // 2
            attn_p += table.prefill_attn_floor_ps + pairs * table.prefill_attn_pair_fs[q] // 1000
            attn_p_pj += pairs * table.prefill_attn_pair_fj[q] // 1000
            if kv + q == request.tokens and self.emits_at_prompt_end(replica):
                emitted_prefill += 1
        attn_d = table.decode_attn_floor_ps[n] + table.decode_attn_ctx_ps[n] * context if n else 0
        attn_d_pj = (
            table.decode_attn_floor_pj[n] + table.decode_attn_ctx_pj[n] * context if n else 0
        )
        emitted = emitted_prefill + n
        ps = (
            table.linear_ps[m]
            + table.head_ps[emitted]
            + max(attn_p, attn_d)
            + min(attn_p, attn_d) * table.mix_1024 // 1024
        )
        alone_p = table.linear_ps[prefill_tok] + attn_p
        alone_d = table.linear_ps[n] + attn_d
        share = lambda whole: whole * alone_p // (alone_p + alone_d)  # noqa: E731
        head = table.head_pj[emitted]
        head_p = head * emitted_prefill // emitted if emitted else 0
        booked = {
            "steps": 1,
            "prefill_ps": share(ps),
            "decode_ps": ps - share(ps),
            "prefill_tok": prefill_tok,
            "decode_tok": n,
            "prefill_linear_pj": share(table.linear_pj[m]),
            "decode_linear_pj": table.linear_pj[m] - share(table.linear_pj[m]),
            "prefill_head_pj": head_p,
            "decode_head_pj": head - head_p,
            "prefill_attn_pj": attn_p_pj,
            "decode_attn_pj": attn_d_pj,
        }
        return ps, booked

    # --- ending a step ---------------------------------------------------------------------------

    def end(self, replica, now):
        _, booked = self.price(replica)
        count = self.count[id(replica.pool)]
        for name, value in booked.items():
            count[name] += value
        plan, replica.plan, replica.ends = replica.plan, [], NEVER
        # Requests that decode come first: what completes in this step, completes before a prompt.
        decoding = [(r, q) for r, q in plan if r.decoding]
        prompts = [(r, q) for r, q in plan if not r.decoding]
        for request, _ in decoding:
            request.computed += 1
            self.emit(replica, request, now)
            if request.generated == request.osl:
                self.complete(replica, request, now)
        for request, q in prompts:
            if request.preemptions:
                count["recomputed_tok"] += q
            request.computed += q
            if request.computed < request.tokens:
                continue
            if replica.pool.role == "prefill":
                replica.load -= request.isl - request.cached
            if self.emits_at_prompt_end(replica):
                self.emit(replica, request, now)
                if request.generated == request.osl:
                    self.complete(replica, request, now)
                    continue
            if replica.pool.role == "prefill":
                replica.running.remove(request)
                self.hand_over(request)
            else:
                request.decoding = True

    def complete(self, replica, request, now):
        replica.running.remove(request)
        self.free_all(replica, request)
        request.state = "done"
        request.last_ps = now
        if replica.pool.role != "prefill":
            replica.load -= 1
