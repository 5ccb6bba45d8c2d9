"""Which replica takes a request, and who computes its prompt."""


class Router:
    """Part of `schedule.Simulation`."""

    def cached(self, replica, request):
        if request.cached:
            return [request.cached, 0, 0]
        prompt = (request.isl - 1) // self.settings.unit_tok
        found = [place for _, place in self.look_up(replica, request)[:prompt]]
        return [found.count(p) * self.settings.unit_tok for p in ("hbm", "dram", "storage")]

    def route(self, request):
        """The replica that computes the prompt, and the tokens it is charged with."""
        entry = [r for r in self.replicas if r.pool.role != "decode" and r.up()]
        decode = [r for r in self.replicas if r.pool.role == "decode" and r.up()]
        replica, new, turned = self.choose_entry(entry, request) if entry else (None, 0, False)
        if decode and self.settings.disaggregation != "always":
            other, other_turned = self.choose_decode(decode)
            uncached = request.isl - self.cached(other, request)[0]
            if self.is_local(replica, other, request, uncached):
                self.count[id(other.pool)]["local_prompts"] += 1
                self.turns["decode"] += other_turned
                return other, uncached
        self.turns["entry"] += turned
        return replica, new

    def choose_entry(self, entry, request):
        routing = self.settings.routing

        def cost(replica):
            if routing == "least-load":
                return replica.load
            cached = self.cached(replica, request)
            if routing == "least-ttft":
                new = request.isl - sum(cached)
                return replica.queue_ps + self.estimate(replica, new, sum(cached))
            worth = sum(t * c for t, c in zip(cached, self.settings.credit_1024, strict=True))
            compute = (replica.prompt_tok + request.isl) * 1024 - worth
            return compute * self.settings.weight_1024 + replica.context_tok * 1024 * 1024

        if routing == "round-robin":
            replica = entry[self.turns["entry"] % len(entry)]
        else:
            replica = min(entry, key=lambda r: (cost(r), r.number))
        if routing in ("round-robin", "least-load"):
            return replica, request.isl - request.cached, routing == "round-robin"
        return replica, request.isl - sum(self.cached(replica, request)), False

    def choose_decode(self, decode):
        if not decode:
            return None, False
        if self.settings.routing == "round-robin":
            return decode[self.turns["decode"] % len(decode)], True
        if self.settings.routing == "prefix-aware":
            return min(decode, key=lambda r: (r.context_tok, r.number)), False
        return min(decode, key=lambda r: (r.load, r.number)), False

    def is_local(self, prefill, decode, request, uncached):
        rule = self.settings
        if rule.disaggregation == "never":
            return True
        if rule.local_busy_seqs and decode.load >= rule.local_busy_seqs:
            return False
        if rule.local_queue_tok and prefill and prefill.prompt_tok > rule.local_queue_tok:
            return True
        small = uncached * 1024 < rule.local_share_1024 * request.isl
        return small and uncached < rule.local_below_tok

    def estimate(self, replica, new, hit):
        table, budget = replica.pool.table, replica.pool.token_budget
        pairs = new * hit + new * (new + 1) // 2
        return (
            new // budget * table.linear_ps[budget]
            + table.linear_ps[new % budget]
            + pairs * table.prefill_attn_pair_fs[min(new, budget)] // 1000
        )

    def assign(self, replica, request, charged):
        is_prefill = replica.pool.role == "prefill"
        replica.load += request.isl - request.cached if is_prefill else 1
        replica.context_tok += request.isl
        replica.prompt_tok += charged
        request.charged = charged
        if charged:
            replica.queue_ps += self.estimate(replica, charged, request.isl - charged)

    def settle(self, replica, request):
        """The prompt that was routed here is computed."""
        if request.charged:
            replica.prompt_tok -= request.charged
            replica.queue_ps -= self.estimate(
                replica, request.charged, request.isl - request.charged
            )
            request.charged = 0
