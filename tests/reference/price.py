"""What one step costs: time, and energy by part."""


def truncated(a, b):
    """a / b towards zero."""
    return a // b if a >= 0 else -(-a // b)


def interpolated(axes, values, at):
    """Linear in each axis, the first axis first; `values` is nested by axis."""
    if not axes:
        return values
    points, x = axes[0], at[0]
    low = 0
    while low < len(points) - 2 and points[low + 1] <= x:
        low += 1
    width = points[low + 1] - points[low]
    lower, upper = values[low], values[low + 1]

    def between(a, b):
        if isinstance(a, list):
            return [between(p, q) for p, q in zip(a, b, strict=True)]
        return a + truncated((b - a) * (x - points[low]), width)

    return interpolated(axes[1:], between(lower, upper), at[1:])


class Price:
    """Part of `schedule.Simulation`."""

    def emits_at_prompt_end(self, replica):
        return replica.pool.role != "prefill" or self.first_token == "prefill"

    def attention(self, table, chunks, contexts):
        """Attention of the prompts alone, of the decoding requests alone, and of both [ps]."""
        n, total = len(contexts), sum(contexts)
        if table.mixed is None:
            prefill = sum(
                table.prefill_attn_floor_ps
                + (q * kv + q * (q + 1) // 2) * table.prefill_attn_pair_fs[q] // 1000
                for q, kv in chunks
            )
            decode = table.decode_attn_floor_ps[n] + table.decode_attn_ctx_ps[n] * total if n else 0
            less = min(prefill, decode)
            return prefill, decode, max(prefill, decode) + less * table.mix_1024 // 1024
        axes, values, skew_1024 = table.mixed
        mean = 0
        if n:
            excess = (max(contexts) * n - total) * skew_1024 // 1024
            mean = (total + excess + n // 2) // n

        def ask(q, kv, seqs, context):
            return max(interpolated(axes, values, (q, kv, seqs, context)), 0)

        if not chunks:
            return 0, ask(0, 0, n, mean), ask(0, 0, n, mean)
        longest = max(chunks, key=lambda chunk: chunk[0])
        alone = sum(ask(q, kv, 0, 0) for q, kv in chunks)
        beside = ask(*longest, n, mean)
        return alone, ask(0, 0, n, mean), beside + alone - ask(*longest, 0, 0)

    def beyond(self, table, at):
        """The entry `at`; beyond the end of the table its last rise goes on."""
        if at < len(table):
            return table[at]
        return table[-1] + (at - len(table) + 1) * max(0, table[-1] - table[-2])

    def price(self, replica):
        table = replica.slow or replica.pool.table
        chunks = [(q, r.computed) for r, q in replica.plan if not r.decoding]
        contexts = [r.computed + 1 + r.drafted for r, _ in replica.plan if r.decoding]
        rows = len(contexts) + sum(r.drafted for r, _ in replica.plan if r.decoding)
        n, prefill_tok = len(contexts), sum(q for q, _ in chunks)
        emitted_prefill = sum(
            r.computed + q == r.tokens and self.emits_at_prompt_end(replica)
            for r, q in replica.plan
            if not r.decoding
        )
        attn_p, attn_d, attn = self.attention(table, chunks, contexts)
        attn_p_pj = sum(
            (q * kv + q * (q + 1) // 2) * table.prefill_attn_pair_fj[q] // 1000 for q, kv in chunks
        )
        attn_d_pj = 0
        if n:
            attn_d_pj = table.decode_attn_floor_pj[n] + table.decode_attn_ctx_pj[n] * sum(contexts)
        m, emitted = prefill_tok + rows, emitted_prefill + rows
        draft_ps, *draft_pj = self.price_of_drafts(replica, table)
        ps = table.linear_ps[m] + self.beyond(table.head_ps, emitted) + attn + draft_ps
        capped = 0
        cap = replica.pool.cap
        if self.settings.governor is not None:
            cap = self.settings.governor[1][self.level][self.pools.index(replica.pool)]
        if cap is not None:
            least = self.attention(cap, chunks, contexts)[2]
            least += cap.linear_ps[m] + self.beyond(cap.head_ps, emitted)
            least += self.price_of_drafts(replica, cap)[0]
            capped = max(0, least - ps)
        ps += capped
        alone_p = table.linear_ps[prefill_tok] + (attn_p if chunks else 0)
        alone_d = table.linear_ps[rows] + (attn_d if n else 0)

        def share(whole):
            return whole * alone_p // (alone_p + alone_d)

        head = self.beyond(table.head_pj, emitted)
        head_p = head * emitted_prefill // emitted if emitted else 0
        booked = {
            "steps": 1,
            "prefill_ps": share(ps - draft_ps),
            "decode_ps": ps - share(ps - draft_ps),
            "draft_ps": draft_ps,
            "drafted_tok": rows - n,
            "capped_ps": capped,
            "prefill_tok": prefill_tok,
            "decode_tok": n,
            "prefill_linear_pj": share(table.linear_pj[m]),
            "decode_linear_pj": table.linear_pj[m] - share(table.linear_pj[m]) + draft_pj[0],
            "prefill_head_pj": head_p,
            "decode_head_pj": head - head_p + draft_pj[1],
            "prefill_attn_pj": attn_p_pj,
            "decode_attn_pj": attn_d_pj + draft_pj[2],
        }
        return ps, booked
