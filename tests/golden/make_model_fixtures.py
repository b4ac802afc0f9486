"""Writes tiny random Llama checkpoints and what transformers computes from them.

Usage: python make_model_fixtures.py [--out DIR]     (README.md holds the environment)

Weights are drawn with NumPy and rounded once to the stored type; the expected values come from
loading the written folder with transformers in float32, so both sides read the same numbers.
"""

import argparse
import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

import oracle

VOCAB = 512
HEADS = 8
HEAD_DIM = 64
INTERMEDIATE = 256
SHORT_PROMPT = 40
# Crosses a 256-token attention segment and five 64-token pages.
LONG_PROMPT = 333
NEW_FORM_ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
OLD_FORM_ROPE = {"rope_theta": 100000.0, "rope_scaling": None}
LLAMA3_ROPE = {
    "rope_theta": 10000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
}


@dataclass(frozen=True)
class Fixture:
    """One checkpoint; `files` above 1 asks for shards and an index."""

    name: str
    seed: int
    hidden: int
    layers: int
    kv_heads: int
    eps: float
    rope: dict = field(hash=False)
    tied: bool = False
    dtype: torch.dtype = torch.bfloat16
    files: int = 1
    # Tied embeddings at unit scale make every step repeat the last token: its own row dominates.
    embed_scale: float = 1.0

    def config(self):
        """config.json; head_dim is left out where the default hidden / heads is right."""
        head_dim = {} if self.hidden == HEADS * HEAD_DIM else {"head_dim": HEAD_DIM}
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": VOCAB,
            "hidden_size": self.hidden,
            "intermediate_size": INTERMEDIATE,
            "num_hidden_layers": self.layers,
            "num_attention_heads": HEADS,
            "num_key_value_heads": self.kv_heads,
            **head_dim,
            "hidden_act": "silu",
            "max_position_embeddings": 8192,
            "rms_norm_eps": self.eps,
            **self.rope,
            "tie_word_embeddings": self.tied,
            "attention_bias": False,
            "mlp_bias": False,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "torch_dtype": str(self.dtype).removeprefix("torch."),
        }


FIXTURES = [
    Fixture("llama_gqa_tied", 11, 512, 2, 2, 1e-5, NEW_FORM_ROPE, tied=True, files=3,
            embed_scale=0.04),
    Fixture("llama_mha", 12, 256, 2, 8, 1e-6, OLD_FORM_ROPE),
    Fixture("llama3_rope", 13, 128, 3, 2, 1e-5, LLAMA3_ROPE, dtype=torch.float16),
]


def shapes(fixture):
    """Names and [out, in] shapes of every stored tensor, in forward order."""
    hidden, kv_rows = fixture.hidden, fixture.kv_heads * HEAD_DIM
    out = {"model.embed_tokens.weight": (VOCAB, hidden)}
    for layer in range(fixture.layers):
        p = f"model.layers.{layer}."
        out[p + "input_layernorm.weight"] = (hidden,)
        out[p + "self_attn.q_proj.weight"] = (HEADS * HEAD_DIM, hidden)
        out[p + "self_attn.k_proj.weight"] = (kv_rows, hidden)
        out[p + "self_attn.v_proj.weight"] = (kv_rows, hidden)
        out[p + "self_attn.o_proj.weight"] = (hidden, HEADS * HEAD_DIM)
        out[p + "post_attention_layernorm.weight"] = (hidden,)
        out[p + "mlp.gate_proj.weight"] = (INTERMEDIATE, hidden)
        out[p + "mlp.up_proj.weight"] = (INTERMEDIATE, hidden)
        out[p + "mlp.down_proj.weight"] = (hidden, INTERMEDIATE)
    out["model.norm.weight"] = (hidden,)
    if not fixture.tied:
        out["lm_head.weight"] = (VOCAB, hidden)
    return out


def draw_weights(fixture):
    """Unit-scale weights: the default 0.02 would make logits too small to show an error."""
    rng = np.random.default_rng(fixture.seed)
    weights = {}
    for name, shape in shapes(fixture).items():
        value = rng.standard_normal(shape, dtype=np.float32)
        if len(shape) == 1:
            value = 1 + np.float32(0.1) * value
        elif name == "model.embed_tokens.weight":
            value *= np.float32(fixture.embed_scale)
        else:
            value /= np.sqrt(np.float32(shape[1]))
        # Through bf16 for every stored type: the value is then exact in bf16, in f32 and in the
        # stored type, whatever the engine converts to.
        weights[name] = torch.from_numpy(value).to(torch.bfloat16).to(fixture.dtype)
        assert torch.equal(weights[name].bfloat16().float(), weights[name].float())
    return weights


def save_weights(folder, fixture, weights):
    """model.safetensors, or shards cut at tensor borders plus their index."""
    if fixture.files == 1:
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        return
    names = list(weights)
    weight_map = {}
    for shard in range(fixture.files):
        begin, end = (len(names) * s // fixture.files for s in (shard, shard + 1))
        file = f"model-{shard + 1:05d}-of-{fixture.files:05d}.safetensors"
        save_file({n: weights[n] for n in names[begin:end]}, folder / file,
                  metadata={"format": "pt"})
        weight_map.update({n: file for n in names[begin:end]})
    total = sum(w.numel() * w.element_size() for w in weights.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")


def short_positions(length):
    """Every 16th position and the last eight."""
    return sorted(set(range(0, length, 16)) | set(range(length - 8, length)))


def long_positions(length):
    """Both sides of page and segment borders, and the last four."""
    borders = {p + d for p in (64, 128, 192, 256, 320) for d in (-1, 0)}
    return sorted(borders | {0, 257} | set(range(length - 4, length)))


def expected(folder, fixture):
    """Loads the written folder and computes its cases."""
    model, info = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    if info["missing_keys"] or info["unexpected_keys"] or info["mismatched_keys"]:
        raise RuntimeError(f"{fixture.name}: transformers does not take the names: {info}")
    model.eval()
    cases = []
    for name, length, positions in (("short", SHORT_PROMPT, short_positions),
                                    ("long", LONG_PROMPT, long_positions)):
        prompt = oracle.find_prompt(model, fixture.seed, length, (0, VOCAB))
        cases.append(oracle.make_case(model, name, prompt, positions(length)))
        print(f"{fixture.name} {name}: min margin {cases[-1]['min_margin']:.4g}, "
              f"distinct ids {len(set(cases[-1]['greedy_ids']))}, "
              f"logit std {cases[-1]['logits'].std():.3g}")
    return {"versions": oracle.versions(), "seed": fixture.seed, "cases": cases}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "data")
    out = parser.parse_args().out
    oracle.configure_torch()
    for fixture in FIXTURES:
        folder = out / fixture.name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(fixture.config(), indent=1) + "\n")
        save_weights(folder, fixture, draw_weights(fixture))
        for file in folder.glob("*.safetensors"):
            file.chmod(0o644)  # the writer leaves them private
        oracle.write_json(folder / "expected.json", expected(folder, fixture))


if __name__ == "__main__":
    main()
