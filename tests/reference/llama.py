"""A Llama-family forward pass in float64, one token and one head at a time."""

import numpy as np


def _norm(x, gain, epsilon=1e-5):
    return x / np.sqrt(np.mean(x * x) + epsilon) * gain


def _rotated(head, position, base, interleaved):
    half = len(head) // 2
    angle = position * base ** (-np.arange(half) * 2 / len(head))
    out = np.empty_like(head)
    for i in range(half):
        a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + half)
        out[a] = head[a] * np.cos(angle[i]) - head[b] * np.sin(angle[i])
        out[b] = head[a] * np.sin(angle[i]) + head[b] * np.cos(angle[i])
    return out


def logits(tensors, ids, *, layers=2, heads=4, kv_heads=2, head_dim=6, base=500.0,
           interleaved=True, window=None):  # fmt: skip
    """Return the logits of every position, (tokens, vocab)."""
    w = {name: value.astype(np.float64) for name, value in tensors.items()}
    states = [w["token_embd.weight"][i] for i in ids]
    for n in range(layers):
        p = f"blk.{n}."

        def project(name, x, p=p):
            return w[f"{p}{name}.weight"] @ x + w.get(f"{p}{name}.bias", 0.0)

        keys, values, mixed = [], [], []
        for position, x in enumerate(states):
            normed = _norm(x, w[p + "attn_norm.weight"])
            queries = project("attn_q", normed).reshape(heads, head_dim)
            key = project("attn_k", normed).reshape(kv_heads, head_dim)
            if p + "attn_q_norm.weight" in w:
                queries = np.array([_norm(q, w[p + "attn_q_norm.weight"]) for q in queries])
                key = np.array([_norm(k, w[p + "attn_k_norm.weight"]) for k in key])
            keys.append([_rotated(k, position, base, interleaved) for k in key])
            values.append(project("attn_v", normed).reshape(kv_heads, head_dim))
            first = 0 if window is None else max(0, position + 1 - window)
            out = []
            for h in range(heads):
                g = h // (heads // kv_heads)
                q = _rotated(queries[h], position, base, interleaved)
                scores = np.array([q @ keys[t][g] for t in range(first, position + 1)])
                share = np.exp(scores / head_dim**0.5)
                share /= share.sum()
                out.append(sum(s * values[first + t][g] for t, s in enumerate(share)))
            mixed.append(np.concatenate(out))
        for position, mix in enumerate(mixed):
            x = states[position] + project("attn_output", mix)
            normed = _norm(x, w[p + "ffn_norm.weight"])
            gate, up = project("ffn_gate", normed), project("ffn_up", normed)
            states[position] = x + project("ffn_down", gate / (1 + np.exp(-gate)) * up)
    head = w.get("output.weight", w["token_embd.weight"])
    return np.array([head @ _norm(x, w["output_norm.weight"]) for x in states])
