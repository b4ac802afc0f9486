"""Recomputes every expected.json of the tiny models with NumPy alone, in float64.

Usage: python check_fixtures.py [--data DIR]

A second oracle: it shares no code with transformers. It reads GGUF q and k rows as they are
stored and rotates neighbouring pairs, where the first oracle un-permutes them.
"""

import argparse
import json
from pathlib import Path

import gguf
import numpy as np
from safetensors import safe_open

import gguf_oracle
import make_model_fixtures as base

TOLERANCE = 3e-5  # float32 noise of the first oracle; a wrong rope or eps is 100 times this


def rotate(x, angles, paired):
    """Rope of [tokens, heads, head_dim]: pairs (2i, 2i+1), or (i, i + head_dim/2)."""
    half = x.shape[-1] // 2
    slices = (np.s_[..., 0::2], np.s_[..., 1::2]) if paired else (np.s_[..., :half],
                                                                  np.s_[..., half:])
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    out = np.empty_like(x)
    out[slices[0]] = x[slices[0]] * cos - x[slices[1]] * sin
    out[slices[1]] = x[slices[1]] * cos + x[slices[0]] * sin
    return out


def rms_norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def attention(q, k, v):
    """Causal attention of [tokens, heads, head_dim] with grouped k and v heads."""
    tokens, heads, head_dim = q.shape
    k, v = (np.repeat(t, heads // t.shape[1], axis=1) for t in (k, v))
    scores = np.einsum("thd,uhd->htu", q, k) / np.sqrt(head_dim)
    scores += np.triu(np.full((tokens, tokens), -np.inf), 1)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("htu,uhd->thd", p / p.sum(-1, keepdims=True), v).reshape(tokens, -1)


def logits(weights, fixture, inv_freq, paired, ids):
    """[tokens, vocab] of one sequence."""
    x = weights["model.embed_tokens.weight"][ids]
    angles = np.arange(len(ids))[:, None] * inv_freq
    for layer in range(fixture.layers):
        def w(name):
            return weights[f"model.layers.{layer}.{name}.weight"]

        def heads(name, h):
            return (h @ w(name).T).reshape(len(ids), -1, base.HEAD_DIM)

        h = rms_norm(x, w("input_layernorm"), fixture.eps)
        q, k = (rotate(heads(f"self_attn.{n}_proj", h), angles, paired) for n in "qk")
        x = x + attention(q, k, heads("self_attn.v_proj", h)) @ w("self_attn.o_proj").T
        h = rms_norm(x, w("post_attention_layernorm"), fixture.eps)
        gate = h @ w("mlp.gate_proj").T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w("mlp.up_proj").T)) @ w("mlp.down_proj").T
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    return rms_norm(x, weights["model.norm.weight"], fixture.eps) @ head.T


def inverse_frequencies(fixture):
    """models.md section 2: plain rope, or llama3 scaling."""
    theta = fixture.rope.get("rope_theta") or fixture.rope["rope_parameters"]["rope_theta"]
    inv = theta ** (-np.arange(0, base.HEAD_DIM, 2) / base.HEAD_DIM)
    scaling = fixture.rope.get("rope_scaling")
    if not scaling:
        return inv
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = scaling["original_max_position_embeddings"] * inv / (2 * np.pi)
    s = np.clip((turns - low) / (high - low), 0, 1)
    return (1 - s) * inv / scaling["factor"] + s * inv


def check(name, expected_path, compute):
    """Compares logits, greedy ids and their logits of every case."""
    for case in json.loads(expected_path.read_text(encoding="utf-8"))["cases"]:
        prompt, ids = case["prompt"], case["greedy_ids"]
        got = compute(prompt + ids)
        chosen = got[len(prompt) - 1:-1]
        error = max(np.abs(got[case["positions"]] - case["logits"]).max(),
                    np.abs(chosen.max(-1) - case["greedy_top_logits"]).max())
        print(f"{name} {case['name']}: largest difference {error:.2g}")
        if error > TOLERANCE or chosen.argmax(-1).tolist() != ids:
            raise SystemExit(f"{name} {case['name']}: the two oracles disagree")


def read_folder(folder):
    weights = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as tensors:
            weights.update({n: tensors.get_tensor(n).double().numpy() for n in tensors.keys()})
    return weights


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path(__file__).parent / "data")
    data = parser.parse_args().data
    for f in base.FIXTURES:
        weights = read_folder(data / f.name)
        check(f.name, data / f.name / "expected.json",
              lambda ids: logits(weights, f, inverse_frequencies(f), False, ids))
    tensors = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float64)
               for t in gguf.GGUFReader(data / "tiny_llama.gguf").tensors}
    fixture = next(f for f in base.FIXTURES if f.name == "llama3_rope")
    inv_freq = (fixture.rope["rope_theta"] ** (-np.arange(0, base.HEAD_DIM, 2) / base.HEAD_DIM)
                / tensors.pop("rope_freqs.weight"))
    weights = {gguf_oracle.hf_name(n): w for n, w in tensors.items()}
    check("tiny_llama.gguf", data / "tiny_llama.expected.json",
          lambda ids: logits(weights, fixture, inv_freq, True, ids))


if __name__ == "__main__":
    main()
