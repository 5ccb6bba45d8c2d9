"""The discrete-event simulation of serving, one step at a time, in plain Python.

A second opinion, written from the step rule alone: it visits every request in every step, keeps every
count as a plain integer, and imports nothing of the package. `tests/parity` demands that the
compiled engine agrees to the last picosecond and picojoule.

Rules, in the order they apply at one instant `t`:

1. every replica whose step ends at `t` ends it, lowest number first; a prompt that ends on a prefill
   replica goes to the queue of a decode replica;
2. pulls and read-backs that end at `t` are taken: the prefill side frees its blocks, the request is
   ready, or its prompt can go on;
3. faults that begin or end at `t` do so; the governor looks, if it is time;
4. requests that arrive at `t` are routed;
5. every replica that does nothing plans a step, or waits for a fuller pass.

Planning a step: the running list in order, one token for each that decodes and what is left of the
token budget for an unfinished prompt; when blocks do not suffice, the last of the running list is
preempted (all blocks freed, back to the head of the queue), and if that is the request itself, the
stage ends. Then, only if nothing was preempted: ready requests in order, then the queue in order,
stopping at the first whose whole sequence does not fit. If everything that ran was preempted the
queue is tried at once.
"""

from __future__ import annotations

from reference.fleet import COUNTERS, NEVER, Replica, Request
from reference.memory import Memory
from reference.price import Price
from reference.recovery import Recovery
from reference.router import Router
from reference.sglang import SGLang
from reference.speculation import Speculation

GAP_SUB_BITS = 7


class Simulation(Memory, Router, Recovery, SGLang, Speculation, Price):
    def __init__(self, pools, settings):
        self.pools = pools
        self.settings = settings
        self.block = settings.block_tok
        self.unit_blocks = settings.unit_tok // settings.block_tok
        self.first_token = settings.first_token
        self.turns = {"entry": 0, "decode": 0}
        self.replicas = []
        for pool in pools:
            for _ in range(pool.replicas):
                self.replicas.append(Replica(pool, len(self.replicas), pool.kv_blocks))
                if pool.policy == "sglang":
                    self.replicas[-1].share = pool.sglang.ratio
        self.count = {id(pool): dict.fromkeys(COUNTERS, 0) for pool in pools}
        self.gaps = {}
        self.gap_sum = 0
        self.pulls = []
        self.requests = []
        self.bounded = 0  # how often a prompt could have had more of a step
        self.chunked = self.deferred = self.retracted = self.deduped = 0  # what SGLang's rule did
        self.cut_short = 0  # how often drafts held beyond the end of an answer
        self.stalls = 0  # how often a request that decodes found the budget used up

    # --- small words -----------------------------------------------------------------------------

    def counters(self):
        return [self.count[id(pool)] for pool in self.pools]

    def gap(self, ps):
        if ps < 1 << GAP_SUB_BITS:
            bucket = ps
        else:
            octave = ps.bit_length() - 1 - GAP_SUB_BITS
            bucket = ((octave + 1) << GAP_SUB_BITS) + ((ps >> octave) & ((1 << GAP_SUB_BITS) - 1))
        self.gaps[bucket] = self.gaps.get(bucket, 0) + 1
        self.gap_sum += ps

    def emit(self, replica, request, now):
        if request.generated == 0:
            request.first_ps = now
        else:
            self.gap(now - request.emitted_ps)
        request.emitted_ps = now
        request.generated += 1
        self.count[id(replica.pool)]["emitted_tok"] += 1

    # --- the loop --------------------------------------------------------------------------------

    def run(self, arrivals, in_flight=0, faults=()):
        """`arrivals`: (arrival_ps, isl, cached, osl, units, parents, think_ps), sorted."""
        self.requests = [Request(i, *row) for i, row in enumerate(arrivals)]
        self.coming = [(r.arrival_ps, r.number) for r in self.requests if not r.parents]
        self.followers = [r for r in self.requests if r.parents]
        self.backlog = []
        self.most = in_flight or len(self.requests)
        self.flying = 0
        self.plan_faults(faults)
        governor = self.settings.governor
        self.tick, self.level = (governor[0], governor[2]) if governor else (NEVER, 0)
        self.shifts = 0
        while True:
            now = min(min(replica.ends, replica.holds) for replica in self.replicas)
            for queue in (self.coming, self.pulls):
                now = min([now, *(at for at, _ in queue)])
            now = min(now, self.next_fault())
            if now == NEVER:
                return
            now = min(now, self.tick)
            for replica in self.replicas:
                if replica.ends == now:
                    self.end(replica, now)
            while self.pulls and min(self.pulls)[0] == now:
                _, number = self.pulls.pop(self.pulls.index(min(self.pulls)))
                self.pulled(self.requests[number])
            while self.next_fault() == now:
                self.turn_fault(now)
            if self.tick == now:
                self.look(now)
            self.take_arrivals(now)
            for replica in self.replicas:
                if replica.ends == NEVER and replica.up():
                    self.start(replica, now)

    def look(self, now):
        """The governor moves watts by what waits to be computed."""
        tick, levels, _, above, below = self.settings.governor
        self.tick = now + tick
        entry = [replica for replica in self.replicas if replica.pool.role != "decode"]
        waiting = sum(replica.prompt_tok for replica in entry)
        before = self.level
        if waiting > above * len(entry):
            self.level = min(self.level + 1, len(levels) - 1)
        elif waiting < below * len(entry):
            self.level = max(self.level - 1, 0)
        self.shifts += self.level != before

    def take_arrivals(self, now):
        self.backlog += [number for at, number in sorted(self.coming) if at == now]
        self.coming = [entry for entry in self.coming if entry[0] != now]
        while self.backlog and self.flying < self.most:
            self.arrive(self.requests[self.backlog.pop(0)], now)

    def followed(self, request, now):
        """`request` is done: who waited for it alone comes after thinking."""
        self.flying -= 1
        for child in list(self.followers):
            states = [self.requests[number].state for number in child.parents]
            if request.number in child.parents and set(states) == {"done"}:
                self.followers.remove(child)
                at = max(now + child.think_ps, child.arrival_ps)
                self.coming.append((at, child.number))

    def reject(self, request):
        request.state = "rejected"
        for child in list(self.followers):
            if request.number in child.parents and child.state != "rejected":
                self.reject(child)

    def arrive(self, request, now):
        request.arrival_ps = now
        for pool in self.pools:
            if pool.policy in ("orca", "static") and request.isl > pool.token_budget:
                self.reject(request)
                return
            tokens = request.isl if pool.role == "prefill" else request.isl + request.osl
            spare = self.block if pool.policy == "sglang" else 0
            if pool.role != "prefill":
                spare += pool.drafts()
            if self.blocks(tokens + spare) > pool.kv_blocks:
                self.reject(request)
                return
        self.flying += 1
        self.place(request)

    def hand_over(self, request, now):
        request.state = "handed"
        request.prompt_end_ps = now
        self.place(request)

    def pulled(self, request):
        home = request.home()
        home.coming -= 1
        if request.state == "loading":
            request.state = "loaded"
            home.loaded.append(request)
            home.full = False
            return
        self.give_back(request.prefill, request, request.isl)
        request.state = "ready"
        self.register(home, request, 0, request.computed)
        home.ready.append(request)

    # --- planning --------------------------------------------------------------------------------

    def start(self, replica, now):
        pool = replica.pool
        replica.holds = NEVER
        if pool.window_ps and not replica.running and replica.waiting:
            new = [r.tokens - min(r.cached, r.tokens - 1) for r in replica.waiting]
            until = replica.waiting[0].arrival_ps + pool.window_ps
            if sum(new) < pool.fill_tok and until > now:
                replica.holds = until
                return
        if pool.policy == "sglang":
            if self.start_sglang(replica, now):
                self.set_going(replica, now)
            return
        while True:
            replica.plan = []
            preempted = self.plan_running(replica)
            if not preempted:
                self.plan_waiting(replica, now)
            if replica.plan:
                self.set_going(replica, now)
                return
            if not preempted:
                return

    def set_going(self, replica, now):
        ps, replica.booked = self.price(replica)
        replica.started, replica.ends = now, now + ps

    def plan_running(self, replica):
        pool, budget = replica.pool, replica.pool.token_budget
        preempted = False
        for request in list(replica.running):
            if request not in replica.running:
                continue  # preempted by an earlier one
            self.draft(replica, request)
            want = min(request.tokens + request.drafted - request.computed, budget)
            self.stalls += want == 0 and request.decoding
            if pool.chunk_tok and not request.decoding:
                self.bounded += want > pool.chunk_tok
                want = min(want, pool.chunk_tok)
            if self.reserves(replica):
                replica.plan.append((request, want))
                budget -= want
                continue
            new = self.blocks(request.computed + want) - self.blocks(request.computed)
            while new > replica.free:
                victim = replica.running[-1]
                self.preempt(replica, victim)
                preempted = True
                if victim is request:
                    return True
            self.take(replica, new)
            if want:
                replica.plan.append((request, want))
                budget -= want
                if not request.decoding:
                    self.register(replica, request, request.computed, request.computed + want)
        return preempted

    def plan_waiting(self, replica, now):
        budget = replica.pool.token_budget - sum(q for _, q in replica.plan)
        if replica.pool.policy == "static" and replica.running:
            return
        while budget > 0 and replica.ready:
            request = replica.ready[0]
            new = self.blocks(request.computed + 1) - self.blocks(request.computed)
            if not self.make_room(replica, new, request):
                break
            self.take(replica, new)
            replica.ready.pop(0)
            replica.running.append(request)
            request.state = "running"
            request.decoding = True
            request.drafted = 0
            replica.plan.append((request, 1))
            budget -= 1
        while budget > 0 and replica.loaded:
            request = replica.loaded[0]
            rest = self.blocks(request.tokens) - self.blocks(request.computed)
            while rest > replica.free:
                if replica.running or not self.drop_latest(replica, request):
                    return
            replica.loaded.pop(0)
            budget -= self.admit(replica, request, budget)
        while budget > 0 and replica.waiting:
            used = self.admit_next(replica, budget, now)
            if used is None:
                return
            budget -= used

    def admit_next(self, replica, budget, now):
        """Tokens that the head of the queue uses of the budget; None when it has to wait."""
        pool = replica.pool
        here = len(replica.running) + replica.coming + len(replica.ready) + len(replica.loaded)
        if here >= pool.max_seqs:
            return None
        request = replica.waiting[0]
        spare = pool.watermark_blocks if replica.running else 0
        found = self.look_up(replica, request, hbm_only=request.state == "handed")
        shared = sum(place == "hbm" and replica.users[unit] > 0 for unit, place in found)
        whole = self.reserves(replica)
        if whole and request.tokens - request.cached > budget:
            return None
        most = request.isl + request.osl if whole else request.tokens
        if self.blocks(most) - shared * self.unit_blocks + spare > replica.free:
            return None
        replica.waiting.pop(0)
        request.started_ps = min(request.started_ps, now)
        if request.state == "handed":
            self.pull(replica, request, found, now)
            return 0
        if not self.bring_in(replica, request, found, now, most if whole else None):
            return 0
        return self.admit(replica, request, budget)

    def bring_in(self, replica, request, found, now, whole=None):
        """Take the cached start; whether it is in place, or is being read back."""
        if replica.pool.cache is None:
            request.computed = min(request.cached, request.tokens - 1)
            self.take(replica, self.blocks(request.computed if whole is None else whole))
            return True
        ready = self.claim(replica, request, found, now)
        self.count_hits(replica, request, found)
        request.computed = len(found) * self.settings.unit_tok
        if ready > now:
            request.state = "loading"
            replica.coming += 1
            self.pulls.append((ready, request.number))
            return False
        return True

    def admit(self, replica, request, budget):
        done = request.computed
        q = min(request.tokens - done, budget)
        if replica.pool.chunk_tok:
            q = min(q, replica.pool.chunk_tok)
        if not self.reserves(replica):
            self.take(replica, self.blocks(done + q) - self.blocks(done))
        request.state = "running"
        replica.running.append(request)
        replica.plan.append((request, q))
        self.register(replica, request, done, done + q)
        return q

    def count_hits(self, replica, request, found):
        count = self.count[id(replica.pool)]
        unit_tok = self.settings.unit_tok
        if request.preemptions:
            count["resumed_hit_tok"] += len(found) * unit_tok
            return
        count["queried_tok"] += request.tokens
        for _, place in found:
            count[f"hit_{place}_tok"] += unit_tok

    def drop_latest(self, replica, keep):
        """Give up the latest cache that waits without running, if it is not that of `keep`."""
        for queue in (replica.loaded, replica.ready):
            if queue and queue[-1] is not keep:
                self.requeue(replica, queue.pop())
                return True
        return False

    def make_room(self, replica, new, request):
        while new > replica.free:
            if replica.running:
                return False
            if not self.drop_latest(replica, request):
                replica.ready.pop(0)
                self.requeue(replica, request)
                return False
        return True

    def pull(self, replica, request, found, now):
        request.computed = request.isl if self.first_token == "prefill" else request.isl - 1
        here = len(found) * self.settings.unit_tok
        count = self.count[id(replica.pool)]
        if replica.pool.cache is not None:
            self.claim(replica, request, found, now)
            count["pull_saved_tok"] += here
        self.take(replica, self.blocks(request.computed) - self.blocks(here))
        request.state = "pulling"
        replica.coming += 1
        begin = max(now, replica.link_free)
        tok_ps = self.settings.link_tok_ps * replica.link_1024 // 1024
        whole = (request.computed - here) * tok_ps
        layers = self.settings.link_layers
        prompt_ps = request.prompt_end_ps - request.started_ps
        wire = whole - min(whole * (layers - 1) // layers, prompt_ps * (layers - 1) // layers)
        replica.link_free = begin + wire
        count["link_ps"] += wire
        count["pulled_tok"] += request.computed - here
        self.pulls.append((begin + wire + self.settings.link_latency_ps, request.number))

    def preempt(self, replica, request):
        replica.running.remove(request)
        self.requeue(replica, request)

    def requeue(self, replica, request):
        self.give_back(replica, request, request.computed)
        self.begin_again(replica, request)
        replica.waiting.insert(0, request)

    def begin_again(self, replica, request):
        replica.full = False
        request.computed = 0
        request.decoding = False
        request.state = "queued"
        request.preemptions += 1
        self.count[id(replica.pool)]["preemptions"] += 1

    # --- ending a step ---------------------------------------------------------------------------

    def end(self, replica, now):
        count = self.count[id(replica.pool)]
        for name, value in replica.booked.items():
            count[name] += value
        plan, replica.plan, replica.ends = replica.plan, [], NEVER
        # Requests that decode come first: what completes in this step, completes before a prompt.
        decoding = [(r, q) for r, q in plan if r.decoding]
        prompts = [(r, q) for r, q in plan if not r.decoding]
        for request, _ in decoding:
            held = self.verify(replica, request)
            for _ in range(1 + held):
                request.computed += 1
                self.emit(replica, request, now)
        # Those that complete in one step give back their blocks in order of arrival.
        for request, _ in sorted(decoding, key=lambda entry: entry[0].number):
            if request.generated == request.osl:
                self.complete(replica, request, now)
        for request, q in prompts:
            self.end_chunk(replica, request, q, now)

    def end_chunk(self, replica, request, q, now):
        if request.preemptions:
            self.count[id(replica.pool)]["recomputed_tok"] += q
        request.computed += q
        if replica.pool.policy == "sglang":
            self.register_shared(replica, request, request.computed - q, request.computed)
        if request.computed < request.tokens:
            return
        if replica.pool.role == "prefill":
            replica.load -= request.isl - request.cached
        self.settle(replica, request)
        if self.emits_at_prompt_end(replica):
            self.emit(replica, request, now)
            if request.generated == request.osl:
                self.complete(replica, request, now)
                return
        if replica.pool.role == "prefill":
            replica.running.remove(request)
            replica.context_tok -= request.isl
            self.hand_over(request, now)
        else:
            request.decoding = True

    def complete(self, replica, request, now):
        replica.running.remove(request)
        self.give_back(replica, request, request.computed)
        replica.context_tok -= request.isl
        replica.full = False
        request.state = "done"
        request.last_ps = now
        self.followed(request, now)
        if replica.pool.role != "prefill":
            replica.load -= 1
