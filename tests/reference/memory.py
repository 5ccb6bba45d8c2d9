"""Blocks and the prefix cache, unit by unit."""


class Memory:
    """Part of `schedule.Simulation`: takes blocks and gives them back, and remembers prefixes."""

    def blocks(self, tokens):
        return -(-tokens // self.block)

    def reserves(self, replica):
        """Orca and static batches take the memory of the whole answer at once."""
        return replica.pool.policy in ("orca", "static")

    def take(self, replica, blocks):
        assert blocks <= replica.free
        replica.free -= blocks
        self.count[id(replica.pool)]["blocks_taken"] += blocks
        while len(replica.unused) * self.unit_blocks > replica.free:
            self.evict(replica)

    def give_back(self, replica, request, computed):
        """All blocks of `computed` tokens; the answer is findable from now on."""
        if replica.pool.cache is not None:
            self.register(replica, request, 0, computed)
        self.release(replica, request, computed)

    def release(self, replica, request, computed):
        """All blocks of `computed` tokens, but those of units that others still use."""
        blocks = self.blocks(request.isl + request.osl if self.reserves(replica) else computed)
        if replica.pool.cache is not None:
            mine = request.shares.pop(replica.number, set())
            for unit in reversed(request.units):
                if unit not in mine:
                    continue
                replica.users[unit] -= 1
                if replica.users[unit] == 0:
                    replica.unused.append(unit)
                else:
                    blocks -= self.unit_blocks
        replica.free += blocks
        self.count[id(replica.pool)]["blocks_freed"] += blocks

    def evict(self, replica):
        tiers, reused_only = replica.pool.cache
        count = self.count[id(replica.pool)]
        unit_tok = self.settings.unit_tok
        unit = replica.unused.pop(0)
        del replica.users[unit]
        replica.comes.pop(unit, None)
        count["evicted_tok"] += unit_tok
        if reused_only and unit not in replica.reused:
            return
        for tier, name in ((0, "dram"), (1, "storage")):
            if tiers[tier].units == 0:
                continue
            count[name + "_written_tok"] += unit_tok
            count[name + "_pj"] += unit_tok * tiers[tier].write_tok_pj
            replica.lower[tier].append(unit)
            if len(replica.lower[tier]) <= tiers[tier].units:
                return
            unit = replica.lower[tier].pop(0)

    def look_up(self, replica, request, *, hbm_only=False):
        """The longest cached start, short of the last token: [(unit, place)]."""
        found = []
        if replica.pool.cache is None:
            return found
        for unit in request.units[: (request.tokens - 1) // self.settings.unit_tok]:
            if unit in replica.users:
                found.append((unit, "hbm"))
            elif unit in replica.lower[0] and not hbm_only:
                found.append((unit, "dram"))
            elif unit in replica.lower[1] and not hbm_only:
                found.append((unit, "storage"))
            else:
                break
        return found

    def claim(self, replica, request, found, now):
        """Use what was found; returns when all of it is in HBM."""
        tiers, _ = replica.pool.cache
        count = self.count[id(replica.pool)]
        unit_tok = self.settings.unit_tok
        ready = now
        blocks = 0
        request.shares[replica.number] = {unit for unit, _ in found}
        for unit, place in found:
            if place != "hbm":
                continue
            if unit in replica.unused:
                replica.unused.remove(unit)
                blocks += self.unit_blocks
            replica.users[unit] += 1
            replica.reused.add(unit)
            ready = max(ready, replica.comes.get(unit, 0))
        for tier, name in ((0, "dram"), (1, "storage")):
            units = [unit for unit, place in found if place == name]
            if not units:
                continue
            tokens = len(units) * unit_tok
            begin = max(now, replica.channel[tier])
            replica.channel[tier] = begin + tokens * tiers[tier].read_tok_ps
            ready = max(ready, replica.channel[tier] + tiers[tier].latency_ps)
            count[name + "_read_tok"] += tokens
            count[name + "_read_ps"] += tokens * tiers[tier].read_tok_ps
            count[name + "_pj"] += tokens * tiers[tier].read_tok_pj
        for unit, place in found:
            if place != "hbm":
                replica.lower[("dram", "storage").index(place)].remove(unit)
                replica.users[unit] = 1
                replica.reused.add(unit)
                replica.comes[unit] = ready
                blocks += self.unit_blocks
        self.take(replica, blocks)
        return ready

    def register(self, replica, request, start, end):
        """Whole units among the tokens start..end are computed: others may find them."""
        if replica.pool.cache is None:
            return
        unit_tok = self.settings.unit_tok
        mine = request.shares.setdefault(replica.number, set())
        for unit in request.units[start // unit_tok : end // unit_tok]:
            if unit in mine or unit in replica.users:
                continue
            for tier in replica.lower:
                if unit in tier:
                    tier.remove(unit)
            replica.users[unit] = 1
            replica.reused.discard(unit)
            replica.comes.pop(unit, None)
            mine.add(unit)
