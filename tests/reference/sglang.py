"""SGLang's rule: prompts first and alone, then one decode step for all; memory by estimate.

A prompt is admitted when its tokens and what it may still generate leave something beside a share of
what the requests that decode may still generate. The share falls with every decode step, is set anew
when requests had to be thrown out, and starts again when there is nothing to do.
"""

WHOLE = 1 << 20  # shares are in 2^-20
CLIP = 4096


class SGLang:
    """Part of `schedule.Simulation`."""

    def start_sglang(self, replica, now):
        rule = replica.pool.sglang
        replica.plan = []
        self.plan_prompts(replica, rule, now)
        if replica.plan:
            return True
        if not self.decoding(replica):
            replica.share = rule.ratio
            return False
        needed = sum(self.next_block(r) for r in self.decoding(replica))
        if needed > replica.free:
            if not self.retract(replica):
                return False
        else:
            replica.share = max(replica.share - rule.decay, rule.least_ratio)
        for request in self.decoding(replica):
            self.take(replica, self.next_block(request))
            replica.plan.append((request, 1))
        return True

    def decoding(self, replica):
        return [r for r in replica.running if r.decoding]

    def next_block(self, request):
        return self.blocks(request.computed + 1) - self.blocks(request.computed)

    def still(self, replica, request):
        """What it may still generate, as far as that counts."""
        return min(self.may_generate(replica, request) - request.generated, CLIP)

    def may_generate(self, replica, request):
        room = (replica.pool.kv_blocks - 1) * self.block - request.isl
        return max(request.osl, min(replica.pool.sglang.most_new_tok, room))

    def plan_prompts(self, replica, rule, now):
        partial = [r for r in replica.running if not r.decoding]
        if partial:
            replica.full = False
        elif replica.full or not (replica.waiting or replica.loaded):
            return
        budget = replica.pool.token_budget // self.block * self.block
        expected = sum(self.still(replica, r) for r in self.decoding(replica))
        expected = expected * replica.share // WHOLE
        for request in partial:
            budget, expected = self.go_on(replica, request, budget, expected)
        while budget > 0 and replica.loaded:
            request = replica.loaded[0]
            new = self.blocks(request.tokens) - self.blocks(request.computed)
            while not self.fits(replica, request, new, expected):
                if replica.running or not self.drop_latest(replica, request):
                    replica.full = True
                    return
            replica.loaded.pop(0)
            budget, expected = self.begin(replica, request, budget, expected)
        if budget > 0 and self.here(replica) < replica.pool.max_seqs:
            self.sort_waiting(replica, rule)
        while budget > 0 and replica.waiting:
            request = replica.waiting[0]
            if self.here(replica) >= replica.pool.max_seqs:
                replica.full = True
                return
            found = self.look_up_and_touch(replica, request)
            shared = sum(place == "hbm" and replica.users[unit] > 0 for unit, place in found)
            new = self.blocks(request.tokens) - shared * self.unit_blocks
            if not self.fits(replica, request, new, expected):
                replica.full = True
                return
            replica.waiting.pop(0)
            request.started_ps = min(request.started_ps, now)
            if self.bring_in(replica, request, found, now):
                budget, expected = self.begin(replica, request, budget, expected)

    def here(self, replica):
        return len(replica.running) + replica.coming + len(replica.ready) + len(replica.loaded)

    def fits(self, replica, request, new, expected):
        needed = new * self.block + self.still(replica, request) + expected
        return needed < replica.free * self.block

    def begin(self, replica, request, budget, expected):
        request.state = "running"
        replica.running.append(request)
        return self.go_on(replica, request, budget, expected)

    def go_on(self, replica, request, budget, expected):
        done, rest = request.computed, request.tokens - request.computed
        q = min(rest, budget)
        self.take(replica, self.blocks(done + q) - self.blocks(done))
        replica.plan.append((request, q))
        self.chunked += q < rest
        return budget - self.blocks(q) * self.block, expected + (
            self.still(replica, request) if q == rest else 0
        )

    def sort_waiting(self, replica, rule):
        if not rule.longest_prefix_first or replica.pool.cache is None:
            return
        if len(replica.waiting) > 128:
            return
        unit_tok = self.settings.unit_tok
        first = -(-32 // unit_tok)
        seen, later, hits = set(), [], []
        for request in replica.waiting:
            found = self.look_up_and_touch(replica, request)
            hit = sum(place == "hbm" for _, place in found) * unit_tok
            start = request.units[:first]
            if hit <= 32 and len(start) == first and request.tokens // unit_tok >= first:
                if start in seen:
                    self.deferred += 1
                    later.append(request)
                    continue
                seen.add(start)
            hits.append((hit, request))
        hits.sort(key=lambda entry: -entry[0])
        replica.waiting = [request for _, request in hits] + later

    def look_up_and_touch(self, replica, request):
        """What is found counts as used now, the start of the prompt as the very last."""
        found = self.look_up(replica, request)
        places = {"hbm": replica.unused, "dram": replica.lower[0], "storage": replica.lower[1]}
        for unit, place in reversed(found):
            if unit in places[place]:
                places[place].remove(unit)
                places[place].append(unit)
        return found

    def retract(self, replica):
        """Throw out requests until the others have blocks for a token each; whether they have."""
        while sum(self.next_block(r) for r in self.decoding(replica)) > replica.free:
            ranked = list(enumerate(self.decoding(replica)))
            if len(ranked) > 1:
                worst = min(ranked, key=lambda e: (e[1].generated, -e[1].isl, -e[0]))[1]
                replica.running.remove(worst)
                self.release(replica, worst, worst.computed)
                self.begin_again(replica, worst)
                replica.waiting.append(worst)
                self.retracted += 1
            elif not self.drop_latest(replica, None):
                return False
        left = self.decoding(replica)
        out = sum(r.generated + 20 for r in left)
        replica.share = min(WHOLE, out * WHOLE // sum(self.may_generate(replica, r) for r in left))
        return True

    def register_shared(self, replica, request, start, end):
        """Whole units now computed; where there is one already, that is used instead."""
        if replica.pool.cache is None:
            return
        unit_tok = self.settings.unit_tok
        mine = request.shares.setdefault(replica.number, set())
        for unit in request.units[start // unit_tok : end // unit_tok]:
            if unit in mine or unit not in replica.users:
                continue
            if unit in replica.unused:
                replica.unused.remove(unit)
            else:
                replica.free += self.unit_blocks
                self.count[id(replica.pool)]["blocks_freed"] += self.unit_blocks
                self.deduped += 1
            replica.users[unit] += 1
            replica.reused.add(unit)
            mine.add(unit)
        self.register(replica, request, start, end)
