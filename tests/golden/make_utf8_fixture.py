#!/usr/bin/env python3
"""Writes tests/golden/data/utf8_replace.json: bytes, and Python's lossy decoding of them.

Usage: make_utf8_fixture.py OUTPUT_FOLDER
"""

import json
import pathlib
import random
import sys

EDGE_BYTES = [0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED,
              0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF]
SEED = 20240701


def case(data):
    text = data.decode("utf-8", "replace")
    return {"hex": data.hex(), "text": text, "valid": text.encode("utf-8") == data}


def main():
    random.seed(SEED)
    cases = [case(b""), case("aé好😀".encode())]
    cases += [case(bytes([a, b])) for a in EDGE_BYTES for b in EDGE_BYTES]
    cases += [case(bytes(random.choices(EDGE_BYTES, k=random.randint(3, 12)))) for _ in range(800)]
    path = pathlib.Path(sys.argv[1]) / "utf8_replace.json"
    path.write_text(json.dumps(cases, separators=(",", ":")) + "\n")
    print(path, path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
