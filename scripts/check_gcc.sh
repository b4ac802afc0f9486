#!/usr/bin/env bash
# Checks every source file with g++ 12 (syntax and warnings only), with the flags of a clang build folder.
#
#   scripts/check_gcc.sh build/release
set -euo pipefail
cd "$(dirname "$0")/.."
database=${1:?the build folder}/compile_commands.json

# One line a file: its folder, then g++ with the include paths, definitions and ISA flags of the clang command.
python3 - "$database" <<'PYTHON' | xargs -P "$(nproc)" -d '\n' -n 1 bash -c
import json, shlex, sys

KEPT = ("-I", "-D", "-std=", "-march=", "-W", "-isystem")
for entry in json.load(open(sys.argv[1])):
    words = shlex.split(entry["command"])
    flags = []
    for previous, word in zip(words, words[1:]):
        if previous == "-isystem" or (word.startswith(KEPT) and word != "-isystem"):
            flags += ["-isystem", word] if previous == "-isystem" else [word]
    command = ["g++-12", "-fsyntax-only", "-fcoroutines", *flags, entry["file"]]
    print("cd", shlex.quote(entry["directory"]), "&&", shlex.join(command))
PYTHON
