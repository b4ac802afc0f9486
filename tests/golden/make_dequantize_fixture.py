"""Writes random quantised blocks and what the gguf package expands them to.

Usage: python make_dequantize_fixture.py [--out FILE]     (needs the packages gguf and numpy)

The file is a sequence of records, little-endian:
  u32 GGUF type number | u32 value count | u32 byte count | bytes | f32 values
"""

import argparse
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf import quants

BLOCKS = 6
# type, values and bytes of a block, byte positions of its f16 fields
LAYOUTS = [
    (T.F32, 1, 4, []),
    (T.F16, 1, 2, []),
    (T.BF16, 1, 2, []),
    (T.Q8_0, 32, 34, [0]),
    (T.Q4_0, 32, 18, [0]),
    (T.Q4_1, 32, 20, [0, 2]),
]
# Ordinary, negative, subnormal, zero, largest and smallest normal halves.
HALVES = np.array([0.0123, -1.75, 3e-7, 0.0, 65504.0, 6.104e-5], dtype="<f2")
PLAIN_VALUES = 48


def plain_blocks(kind, rng):
    values = rng.standard_normal(PLAIN_VALUES).astype("<f4") * np.float32(100)
    if kind == T.F32:
        return values.view(np.uint8)
    if kind == T.F16:
        values[: len(HALVES)] = HALVES
        return values.astype("<f2").view(np.uint8)
    return (values.view("<u4") >> 16).astype("<u2").view(np.uint8)


def quantised_blocks(size, halves, rng):
    blocks = rng.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
    for turn, at in enumerate(halves):
        blocks[:, at : at + 2] = np.roll(HALVES, turn).view(np.uint8).reshape(BLOCKS, 2)
    return blocks.reshape(-1)


def record(kind, size, halves, rng):
    stored = quantised_blocks(size, halves, rng) if halves else plain_blocks(kind, rng)
    expected = quants.dequantize(stored.reshape(1, -1), kind).astype("<f4").reshape(-1)
    head = np.array([int(kind), expected.size, stored.size], dtype="<u4")
    return head.tobytes() + stored.tobytes() + expected.tobytes()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(__file__).parent / "data" / "dequantize.bin"
    parser.add_argument("--out", type=Path, default=default)
    out = parser.parse_args().out
    rng = np.random.default_rng(20240229)
    out.write_bytes(b"".join(record(kind, size, halves, rng) for kind, _, size, halves in LAYOUTS))


if __name__ == "__main__":
    main()
