"""Reads a GGUF file of architecture `llama` into transformers and tokenizers objects.

Independent of the engine: the `gguf` package dequantises, transformers runs, tokenizers encodes.
"""

import re

import gguf
import jinja2
import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

CONTROL_TOKEN = 3  # tokenizer.ggml.token_type
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
GLOBAL_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


def permute_rows(weight, heads):
    """HF row h*hd + s*hd/2 + i becomes GGUF row h*hd + 2i + s (s in {0, 1})."""
    rows = weight.shape[0]
    half = rows // heads // 2
    return weight.reshape(heads, 2, half, -1).swapaxes(1, 2).reshape(rows, -1)


def unpermute_rows(weight, heads):
    """The inverse of permute_rows."""
    rows = weight.shape[0]
    half = rows // heads // 2
    return weight.reshape(heads, half, 2, -1).swapaxes(1, 2).reshape(rows, -1)


def read_metadata(reader):
    """Every key-value pair of the file as plain Python values."""
    return {key: value.contents() for key, value in reader.fields.items()}


def hf_name(name):
    """The transformers name of a GGUF tensor name."""
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
    if match:
        return f"model.layers.{match[1]}.{LAYER_NAMES[match[2]]}.weight"
    return GLOBAL_NAMES[name]


def _dequantised(tensor):
    return gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)


def _weights(reader, meta):
    heads = {"attn_q": meta["llama.attention.head_count"],
             "attn_k": meta["llama.attention.head_count_kv"]}
    weights = {}
    for tensor in reader.tensors:
        if tensor.name == "rope_freqs.weight":
            continue
        value = _dequantised(tensor)
        kind = tensor.name.split(".")[-2]
        if kind in heads:
            value = unpermute_rows(value, heads[kind])
        weights[hf_name(tensor.name)] = torch.from_numpy(np.ascontiguousarray(value))
    return weights


def _config(meta, tied):
    hidden, heads = meta["llama.embedding_length"], meta["llama.attention.head_count"]
    return LlamaConfig(
        vocab_size=meta["llama.vocab_size"],
        hidden_size=hidden,
        intermediate_size=meta["llama.feed_forward_length"],
        num_hidden_layers=meta["llama.block_count"],
        num_attention_heads=heads,
        num_key_value_heads=meta["llama.attention.head_count_kv"],
        head_dim=meta.get("llama.attention.key_length", hidden // heads),
        max_position_embeddings=meta["llama.context_length"],
        rms_norm_eps=meta["llama.attention.layer_norm_rms_epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": meta["llama.rope.freq_base"]},
        tie_word_embeddings=tied,
        attn_implementation="eager",
    )


def load_model(reader):
    """LlamaForCausalLM in float32, eval mode, with the file's dequantised weights."""
    meta = read_metadata(reader)
    weights = _weights(reader, meta)
    tied = "lm_head.weight" not in weights
    if tied:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    model = LlamaForCausalLM(_config(meta, tied)).eval()
    model.load_state_dict(weights)
    for tensor in reader.tensors:
        if tensor.name == "rope_freqs.weight":  # divisors of the inverse frequencies
            model.model.rotary_emb.inv_freq /= torch.from_numpy(_dequantised(tensor))
    return model


def load_tokenizer(meta):
    """The byte-level BPE of a file with tokenizer.ggml.model gpt2 and pre smollm."""
    assert meta["tokenizer.ggml.model"] == "gpt2" and meta["tokenizer.ggml.pre"] == "smollm"
    tokens = meta["tokenizer.ggml.tokens"]
    merges = [tuple(m.split(" ")) for m in meta["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    control = [t for t, kind in zip(tokens, meta["tokenizer.ggml.token_type"])
               if kind == CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in control])
    assert tokenizer.get_vocab_size() == len(tokens)
    return tokenizer


def render_chat(meta, messages):
    """The file's own chat template, with the prompt for the assistant's turn."""
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(meta["tokenizer.chat_template"])
    return template.render(messages=messages, add_generation_prompt=True)


def encode(tokenizer, text):
    """Token ids; control tokens in the text are recognised and nothing is added."""
    return tokenizer.encode(text, add_special_tokens=False).ids
