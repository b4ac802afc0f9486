"""Writes smollm2_teacher_forced.json: what transformers predicts on five texts and one question.

Usage: python make_smollm2_fixture.py SmolLM2-135M-Instruct.Q4_1.gguf [--out DIR]

The reference runs in float32 on the dequantised weights.
"""

import argparse
import hashlib
from pathlib import Path

import gguf
import numpy as np

import gguf_oracle
import oracle
import smollm2_texts as texts

QUESTION = "What is the capital of France?"
ANSWER_STEPS = 32
# Logits of the best ids and of a few fixed ones, at every such position and at the last.
SAMPLE_STRIDE = 24
SAMPLE_BEST = 4
SAMPLE_FIXED_IDS = [0, 2, 28, 198, 1000, 25000, 49151]


def teacher_forced(model, name, text, ids):
    """Best id and margin after each position; a sample of logits at some."""
    logits = oracle.forward(model, ids)
    samples = []
    for position in sorted({*range(0, len(ids), SAMPLE_STRIDE), len(ids) - 1}):
        best = np.argsort(-logits[position], kind="stable")[:SAMPLE_BEST].tolist()
        chosen = best + [i for i in SAMPLE_FIXED_IDS if i not in best]
        samples.append({"position": position, "ids": chosen, "logits": logits[position][chosen]})
    margins = oracle.margins_of(logits)
    print(f"{name}: {len(ids)} ids, min margin {margins.min():.3g}, "
          f"steps below 0.1: {(margins < 0.1).sum()}")
    return {
        "name": name,
        "text": text,
        "ids": ids,
        "argmax": logits.argmax(-1),
        "margins": [float(f"{m:.5g}") for m in margins],
        "samples": samples,
    }


def answer(model, meta, tokenizer):
    """The greedy answer to the question in the file's chat template, up to the end token."""
    messages = [{"role": "user", "content": QUESTION}]
    prompt_text = gguf_oracle.render_chat(meta, messages)
    prompt = gguf_oracle.encode(tokenizer, prompt_text)
    ids, margins = (rows[0].tolist()
                    for rows in oracle.greedy_batch(model, [prompt], ANSWER_STEPS))
    eos = meta["tokenizer.ggml.eos_token_id"]
    if eos in ids:  # the end token is part of `ids`, and what follows it is not
        ids = ids[:ids.index(eos) + 1]
    text = tokenizer.decode(ids, skip_special_tokens=True)
    print(f"answer: {text!r}, min margin {min(margins[:len(ids)]):.3g}")
    return {
        "messages": messages,
        "prompt_text": prompt_text,
        "prompt": prompt,
        "greedy_ids": ids,
        "greedy_margins": margins[:len(ids)],
        "greedy_text": text,
        "finished": ids[-1] == eos,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gguf", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "data")
    args = parser.parse_args()
    oracle.configure_torch()
    reader = gguf.GGUFReader(args.gguf)
    meta = gguf_oracle.read_metadata(reader)
    model, tokenizer = gguf_oracle.load_model(reader), gguf_oracle.load_tokenizer(meta)
    inputs = {
        "story": texts.STORY,
        "code": texts.CODE,
        "dialogue": gguf_oracle.render_chat(meta, texts.DIALOGUE),
        "table": texts.TABLE,
        "multilingual": texts.MULTILINGUAL,
    }
    forced = [teacher_forced(model, name, text, gguf_oracle.encode(tokenizer, text))
              for name, text in inputs.items()]
    oracle.write_json(args.out / "smollm2_teacher_forced.json", {
        "versions": oracle.versions(),
        "model_sha256": hashlib.sha256(args.gguf.read_bytes()).hexdigest(),
        "texts": forced,
        "answer": answer(model, meta, tokenizer),
    })


if __name__ == "__main__":
    main()
