"""Speculative decoding: what is drafted, what of it holds, what drafting costs."""

WORD = 2**64


class Speculation:
    """Part of `schedule.Simulation`."""

    def draft(self, replica, request):
        """Tokens that the coming step verifies beside the one that is certain."""
        request.drafted = replica.pool.drafts() if request.decoding else 0

    def draw(self, seed, request, generated):
        """32 bits that belong to a request and to how many tokens it has out (SplitMix64)."""
        word = ((request << 32 | generated) * 0x9E3779B97F4A7C15 + seed) % WORD
        word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % WORD
        word = (word ^ word >> 27) * 0x94D049BB133111EB % WORD
        return (word ^ word >> 31) >> 32

    def verify(self, replica, request):
        """How many drafts hold and come out; the blocks of the others are given back."""
        drafted, request.drafted = request.drafted, 0
        if not drafted:
            return 0
        rule = replica.pool.speculation
        drawn = self.draw(rule.seed, request.number, request.generated)
        held = 0
        while held < drafted and drawn < rule.accepted[held]:
            held += 1
        left = request.osl - request.generated - 1
        self.cut_short += held > left
        held = min(held, left)
        spare = self.blocks(request.computed + 1 + drafted)
        spare -= self.blocks(request.computed + 1 + held)
        replica.free += spare
        count = self.count[id(replica.pool)]
        count["blocks_freed"] += spare
        count["accepted_tok"] += held
        return held

    def price_of_drafts(self, replica, table):
        """Time, and energy of linear layers, output head and attention."""
        contexts = [r.computed + 1 for r, _ in replica.plan if r.decoding and r.drafted]
        if not contexts:
            return 0, 0, 0, 0
        n, rule = len(contexts), replica.pool.speculation
        sums = [0, 0, 0, 0]
        for _ in rule.accepted:
            attn_pj = table.decode_attn_floor_pj[n] + table.decode_attn_ctx_pj[n] * sum(contexts)
            ps = table.linear_ps[n] + table.head_ps[n] + self.attention(table, [], contexts)[2]
            step = (ps, table.linear_pj[n], table.head_pj[n], attn_pj)
            sums = [a + b for a, b in zip(sums, step, strict=True)]
            contexts = [context + 1 for context in contexts]
        return tuple(whole * rule.draft_share // 2**20 for whole in sums)
