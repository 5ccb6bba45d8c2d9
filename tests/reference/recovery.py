"""Failures: what is lost, and where its requests go."""

from reference.fleet import NEVER


class Recovery:
    """Part of `schedule.Simulation`. A fault: (kind, replica, begin, end, table or factor in 1/1024)."""

    def plan_faults(self, faults):
        self.turns_of_faults = sorted(
            (at, number, not begins)
            for number, fault in enumerate(faults)
            for at, begins in ((fault[2], True), (fault[3], False))
        )
        self.faults = faults
        self.stranded = []
        self.survived = 0  # how often a KV cache outlived the replica it was to go to

    def next_fault(self):
        return self.turns_of_faults[0][0] if self.turns_of_faults else NEVER

    def turn_fault(self, now):
        _, number, ends = self.turns_of_faults.pop(0)
        kind, at, _, until, what = self.faults[number]
        replica = self.replicas[at]
        if kind == "slow":
            replica.slow = None if ends else what
        elif kind == "link-slow":
            replica.link_1024 = 1024 if ends else what
        elif kind == "link-down" and not ends:
            replica.link_free = max(replica.link_free, now) + until - now
            held = [r.number for r in self.requests if r.state == "pulling" and r.decode is replica]
            self.pulls = [
                (end + until - now if number in held else end, number) for end, number in self.pulls
            ]
        elif kind == "down" and not ends:
            replica.troubles += 1
            if replica.troubles == 1:
                self.fail(replica, now)
        elif kind == "down":
            replica.troubles -= 1
            waiting, self.stranded = self.stranded, []
            for request in waiting:
                self.place(request)

    def fail(self, replica, now):
        count = self.count[id(replica.pool)]
        affected = []
        for request in self.requests:
            in_transit = request.state in ("handed", "pulling")
            if request.state in ("done", "rejected") or request.arrival_ps > now:
                continue
            if request.home() is replica or (in_transit and request.prefill is replica):
                affected.append(request)
        self.stranded = [request for request in self.stranded if request not in affected]
        for request in affected:
            self.pulls = [entry for entry in self.pulls if entry[1] != request.number]
            self.uproot(replica, request)
        count["blocks_freed"] += replica.pool.kv_blocks - replica.free
        count["rerouted"] += len(affected)
        replica.empty()
        for request in affected:
            self.place(request)

    def uproot(self, replica, request):
        in_transit = request.state in ("handed", "pulling")
        survives = in_transit and request.prefill is not replica
        if not survives:
            self.count[id(replica.pool)]["lost_tok"] += request.computed
        other = request.home()
        if other is not replica and other is not None:
            if request.state == "pulling":
                other.coming -= 1
                self.release(other, request, request.computed)
            else:
                other.waiting.remove(request)
            other.load -= 1
            other.context_tok -= request.isl
        request.shares.pop(replica.number, None)
        request.decode = None
        request.charged = 0
        if survives:
            self.survived += 1
            request.state = "handed"
            return
        request.prefill = None
        request.preemptions += request.state != "queued"
        request.state = "queued"
        request.computed = 0
        request.decoding = False

    def place(self, request):
        """On a replica that is up; a request with a token out is computed again where it decodes."""
        decode = [r for r in self.replicas if r.pool.role == "decode"]
        if decode and (request.state == "handed" or request.generated):
            replica, turned = self.choose_decode([r for r in decode if r.up()])
            self.turns["decode"] += turned
            new = 0
        else:
            replica, new = self.route(request)
        if replica is None:
            self.stranded.append(request)
            return
        if replica.pool.role == "decode":
            request.decode = replica
        else:
            request.prefill = replica
        self.assign(replica, request, new)
        replica.waiting.append(request)
