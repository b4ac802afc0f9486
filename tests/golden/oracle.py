"""What the fixture scripts share: greedy continuations, logit cases and compact JSON.

Everything runs in float32 on one CPU thread with eager attention, so that a second run on the
same machine writes the same bytes.
"""

import json
from pathlib import Path

import numpy as np
import torch
import transformers

GREEDY_STEPS = 64
# A step with a smaller gap between its two best logits could be won by rounding noise.
MIN_MARGIN = 1e-2
# A continuation that repeats a few tokens would not notice a wrong position or a stale cache row.
MIN_DISTINCT = 24
PROMPTS_PER_BATCH = 16
MAX_BATCHES = 64


def configure_torch():
    """Makes float32 results repeatable on one machine."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.set_grad_enabled(False)


def versions():
    """The packages whose arithmetic produced a fixture."""
    return {
        "torch": torch.__version__.split("+")[0],
        "transformers": transformers.__version__,
        "numpy": np.__version__,
    }


def forward(model, ids):
    """Logits [len(ids), vocab] f32 of one sequence in one pass, without a cache."""
    return model(torch.tensor([ids]), use_cache=False).logits[0].numpy()


def margins_of(logits):
    """Top-1 minus top-2 logit of each row of [n, vocab]."""
    best = np.sort(np.partition(logits, -2, axis=-1)[:, -2:], axis=-1)
    return best[:, 1] - best[:, 0]


def greedy_batch(model, prompts, steps):
    """Greedy ids [batch, steps] and margins [batch, steps] of prompts of equal length."""
    out = model(torch.tensor(prompts), use_cache=True)
    ids, margins = [], []
    for _ in range(steps):
        rows = out.logits[:, -1].numpy()
        ids.append(rows.argmax(-1))
        margins.append(margins_of(rows))
        out = model(torch.tensor(ids[-1])[:, None], past_key_values=out.past_key_values)
    return np.stack(ids, 1), np.stack(margins, 1)


def draw_prompt(seed, index, length, id_range):
    """Candidate prompt number `index` of a seed."""
    rng = np.random.default_rng([seed, index, length])
    return [int(i) for i in rng.integers(id_range[0], id_range[1], length)]


def find_prompt(model, seed, length, id_range, forbidden=()):
    """The first candidate whose greedy continuation has no narrow, forbidden or dull step."""
    for batch in range(MAX_BATCHES):
        first = batch * PROMPTS_PER_BATCH
        prompts = [draw_prompt(seed, first + i, length, id_range) for i in range(PROMPTS_PER_BATCH)]
        ids, margins = greedy_batch(model, prompts, GREEDY_STEPS)
        for i, prompt in enumerate(prompts):
            varied = len(set(ids[i].tolist())) >= MIN_DISTINCT
            if varied and margins[i].min() > MIN_MARGIN and not np.isin(ids[i], forbidden).any():
                return prompt
    raise RuntimeError(f"seed {seed}: no prompt of {length} tokens has clear margins")


def make_case(model, name, prompt, positions, steps=GREEDY_STEPS):
    """One expected case: logits at `positions` of the prompt and the greedy continuation.

    The continuation comes from cached decoding; one pass over the whole sequence without a cache
    must choose the same ids, and the recorded logits and margins are those of that pass.
    """
    ids = greedy_batch(model, [prompt], steps)[0][0].tolist()
    logits = forward(model, prompt + ids)
    chosen = logits[len(prompt) - 1 : len(prompt) - 1 + steps]
    if chosen.argmax(-1).tolist() != ids:
        raise RuntimeError(f"{name}: cached and whole-sequence decoding disagree")
    margins = margins_of(chosen)
    return {
        "name": name,
        "prompt": prompt,
        "positions": positions,
        "logits": logits[positions],
        "greedy_ids": ids,
        "greedy_top_logits": chosen.max(-1),
        "greedy_margins": margins,
        "min_margin": margins.min(),
    }


def _encode(value):
    if isinstance(value, np.ndarray):
        value = list(value)
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(_encode(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(json.dumps(k) + ":" + _encode(v) for k, v in value.items()) + "}"
    if isinstance(value, (float, np.floating)):
        return f"{float(value):.9g}"  # nine digits round-trip a float32
    if isinstance(value, np.integer):
        value = int(value)
    return json.dumps(value, ensure_ascii=False)


def _encode_lines(value, indent, depth):
    pad = " " * indent
    if depth and isinstance(value, dict):
        rows = [f"{pad} {json.dumps(k)}: {_encode_lines(v, indent + 1, depth - 1)}"
                for k, v in value.items()]
        return "{\n" + ",\n".join(rows) + f"\n{pad}}}"
    if depth and isinstance(value, (list, np.ndarray)) and len(value) and isinstance(
            value[0], (dict, list, np.ndarray)):
        rows = [f"{pad} {_encode_lines(v, indent + 1, depth - 1)}" for v in value]
        return "[\n" + ",\n".join(rows) + f"\n{pad}]"
    return _encode(value)


def write_json(path, value):
    """Writes plain JSON, floats with nine digits, one member or logit row on a line."""
    Path(path).write_text(_encode_lines(value, 0, 4) + "\n", encoding="utf-8")
