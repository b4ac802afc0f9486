"""Writes tiny_llama.gguf (mixed tensor types, a small ChatML vocabulary) and its expected values.

Usage: python make_gguf_fixtures.py [--out DIR]     (run make_model_fixtures.py first)

The weights are those of data/llama3_rope, quantised; the expected values are transformers' on the
dequantised weights read back from the written file.
"""

import argparse
import math
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

import gguf_oracle
import make_model_fixtures as base
import oracle
import tiny_vocabulary

FIXTURE = next(f for f in base.FIXTURES if f.name == "llama3_rope")
SEED = 21
# One entry per layer: each projection meets several types and each layer mixes most of them.
TYPES = {
    "attn_q": [Type.Q4_0, Type.Q8_0, Type.BF16],
    "attn_k": [Type.Q4_1, Type.F32, Type.Q4_0],
    "attn_v": [Type.Q8_0, Type.Q4_1, Type.F16],
    "attn_output": [Type.F16, Type.Q4_0, Type.Q8_0],
    "ffn_gate": [Type.BF16, Type.Q4_1, Type.Q8_0],
    "ffn_up": [Type.Q4_0, Type.F16, Type.Q4_1],
    "ffn_down": [Type.Q4_1, Type.Q8_0, Type.Q4_0],
}
GLOBAL_TYPES = {"token_embd.weight": Type.Q8_0, "output.weight": Type.Q4_1}
PERMUTED_HEADS = {"attn_q": base.HEADS, "attn_k": FIXTURE.kv_heads}
TOKENIZER_TEXTS = [
    "The server was cold.",
    "  two spaces, a tab\tand a line\n\nbreak 1234567890 !?",
    "naïve café 東京 🙂 e\u0301",
    "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n",
    "it's the user's 3rd question, isn't it?",
    "",
]
MAX_CHAT_TRIES = 500


def rope_divisors():
    """llama3 scaling as GGUF stores it: what divides each of head_dim/2 inverse frequencies."""
    scaling = FIXTURE.rope["rope_scaling"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    out = []
    for i in range(base.HEAD_DIM // 2):
        wavelength = 2 * math.pi * FIXTURE.rope["rope_theta"] ** (2 * i / base.HEAD_DIM)
        turns = scaling["original_max_position_embeddings"] / wavelength
        smooth = min(max((turns - low) / (high - low), 0.0), 1.0)
        out.append(1 / ((1 - smooth) / scaling["factor"] + smooth))
    return np.array(out, np.float32)


def gguf_names():
    """HF tensor name -> (GGUF tensor name, kind, type)."""
    names = {hf: (name, "", GLOBAL_TYPES.get(name, Type.F32))
             for name, hf in gguf_oracle.GLOBAL_NAMES.items()}
    for layer in range(FIXTURE.layers):
        for kind in gguf_oracle.LAYER_NAMES:
            name = f"blk.{layer}.{kind}.weight"
            tensor_type = TYPES[kind][layer] if kind in TYPES else Type.F32
            names[gguf_oracle.hf_name(name)] = (name, kind, tensor_type)
    return names


def add_tensors(writer, weights):
    """Every weight in its type, q and k permuted, and the rope divisors."""
    names = gguf_names()
    writer.add_tensor("rope_freqs.weight", rope_divisors())
    for hf, weight in weights.items():
        name, kind, tensor_type = names[hf]
        value = weight.float().numpy()
        if kind in PERMUTED_HEADS:
            value = gguf_oracle.permute_rows(value, PERMUTED_HEADS[kind])
        value = np.ascontiguousarray(value)
        writer.add_tensor(name, gguf.quants.quantize(value, tensor_type), raw_dtype=tensor_type)


def add_metadata(writer):
    """Model shape and vocabulary under the usual keys."""
    writer.add_name("tiny llama")
    writer.add_block_count(FIXTURE.layers)
    writer.add_context_length(FIXTURE.config()["max_position_embeddings"])
    writer.add_embedding_length(FIXTURE.hidden)
    writer.add_feed_forward_length(base.INTERMEDIATE)
    writer.add_head_count(base.HEADS)
    writer.add_head_count_kv(FIXTURE.kv_heads)
    writer.add_key_length(base.HEAD_DIM)
    writer.add_value_length(base.HEAD_DIM)
    writer.add_layer_norm_rms_eps(FIXTURE.eps)
    writer.add_rope_freq_base(FIXTURE.rope["rope_theta"])
    writer.add_rope_dimension_count(base.HEAD_DIM)
    writer.add_vocab_size(base.VOCAB)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_1)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    tokens, types, merges = tiny_vocabulary.build(base.VOCAB)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(tiny_vocabulary.CONTROL.index("<|im_start|>"))
    writer.add_eos_token_id(tiny_vocabulary.EOS)
    writer.add_unk_token_id(tiny_vocabulary.CONTROL.index("<|endoftext|>"))
    writer.add_pad_token_id(tiny_vocabulary.EOS)
    writer.add_add_bos_token(False)
    writer.add_chat_template(tiny_vocabulary.CHAT_TEMPLATE)


def write_gguf(path, weights):
    writer = gguf.GGUFWriter(path, "llama")
    add_metadata(writer)
    add_tensors(writer, weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def check_round_trip(model, weights):
    """The file, read back, must be the source model up to quantisation error.

    A wrong permutation or shape would leave weights that do not correlate with their source.
    """
    state = model.state_dict()
    for name, weight in weights.items():
        error = (state[name] - weight.float()).norm() / weight.float().norm()
        if error > 0.1:  # Q4_0 on normal values stays below 0.09
            raise RuntimeError(f"{name}: relative error {error:.3g} after the round trip")
    config = {k: v for k, v in FIXTURE.config().items() if k != "torch_dtype"}
    source = LlamaForCausalLM(LlamaConfig(**config))
    torch.testing.assert_close(model.model.rotary_emb.inv_freq,
                               source.model.rotary_emb.inv_freq, rtol=1e-6, atol=0)


def chat_case(model, meta, tokenizer):
    """A chat whose greedy answer has clear margins and no end token in its steps."""
    for number in range(MAX_CHAT_TRIES):
        messages = [{"role": "system", "content": "You are a helpful assistant."},
                    {"role": "user", "content": f"Tell me a story about the number {number}."}]
        prompt_text = gguf_oracle.render_chat(meta, messages)
        prompt = gguf_oracle.encode(tokenizer, prompt_text)
        ids, margins = oracle.greedy_batch(model, [prompt], oracle.GREEDY_STEPS)
        if margins.min() > oracle.MIN_MARGIN and tiny_vocabulary.EOS not in ids:
            break
    else:
        raise RuntimeError("no chat prompt has clear margins")
    case = oracle.make_case(model, "chat", prompt, base.short_positions(len(prompt)))
    text = tokenizer.decode(case["greedy_ids"], skip_special_tokens=True)
    return {**case, "messages": messages, "prompt_text": prompt_text, "greedy_text": text}


def expected(path, weights):
    """Cases computed from the written file alone."""
    reader = gguf.GGUFReader(path)
    meta = gguf_oracle.read_metadata(reader)
    model = gguf_oracle.load_model(reader)
    check_round_trip(model, weights)
    tokenizer = gguf_oracle.load_tokenizer(meta)
    cases = []
    for name, length, positions in (("short", base.SHORT_PROMPT, base.short_positions),
                                    ("long", base.LONG_PROMPT, base.long_positions)):
        prompt = oracle.find_prompt(model, SEED, length, (len(tiny_vocabulary.CONTROL), base.VOCAB),
                                    forbidden=[tiny_vocabulary.EOS])
        cases.append(oracle.make_case(model, name, prompt, positions(length)))
    cases.append(chat_case(model, meta, tokenizer))
    for case in cases:
        print(f"tiny_llama {case['name']}: {len(case['prompt'])} ids, "
              f"min margin {case['min_margin']:.4g}")
    encoded = [{"text": t, "ids": gguf_oracle.encode(tokenizer, t)} for t in TOKENIZER_TEXTS]
    return {"versions": oracle.versions(), "seed": SEED, "cases": cases, "tokenizer": encoded}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "data")
    out = parser.parse_args().out
    oracle.configure_torch()
    weights = load_file(out / FIXTURE.name / "model.safetensors")
    write_gguf(out / "tiny_llama.gguf", weights)
    oracle.write_json(out / "tiny_llama.expected.json",
                      expected(out / "tiny_llama.gguf", weights))


if __name__ == "__main__":
    main()
