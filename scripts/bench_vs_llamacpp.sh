#!/usr/bin/env bash
# Measures hisparse beside llama-server (llama.cpp), in turn and with the same prompts, and prints a table of speed,
# latency, start-up time and peak memory with the ratios. Builds both servers and fetches the model first.
#
#   scripts/bench_vs_llamacpp.sh [--quick | --full] [--rounds 5] [--threads N] [--model FILE] [--json FILE]
#                                [--only FIGURE…]
#
#   --hisparse PATH, --llama-server PATH   programs that are there already; nothing is built then
#   --build-only                           builds and fetches, and ends
#
# Let nothing else run beside it. On two cores it takes about an hour; without batch 8 at 7500 tokens (--quick) half of
# that; with batch 32 at 7500 tokens (--full) several hours.
set -euo pipefail
start=$PWD
cd "$(dirname "$0")/.."
. scripts/packages.sh

# Files are named from where the user stands, not from the repository.
from_start() { case $1 in /*) echo "$1" ;; *) echo "$start/$1" ;; esac; }

hisparse=
peer=
model=
build_only=
flags=()
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help)
      sed -n '2,/^set/p' "$0" | sed '$d; s/^# \{0,1\}//'
      exec python3 scripts/bench/compare.py --help ;;
    --hisparse) hisparse=$(from_start "${2:?--hisparse takes a file}"); shift ;;
    --llama-server) peer=$(from_start "${2:?--llama-server takes a file}"); shift ;;
    --model) model=$(from_start "${2:?--model takes a file}"); shift ;;
    --json) flags+=(--json "$(from_start "${2:?--json takes a file}")"); shift ;;
    --build-only) build_only=yes ;;
    --hisparse=* | --llama-server=* | --model=* | --json=*)
      option=$1
      shift
      set -- "$option" "${option%%=*}" "${option#*=}" "$@" ;;
    *) flags+=("$1") ;;
  esac
  shift
done

install_packages python3
built="given by --llama-server"
if [ -z "$peer" ]; then
  peer=$(scripts/bench/build_peer.sh)
  built=$(cat "${peer%/build/bin/*}/build.txt")
fi
if [ -z "$hisparse" ]; then
  install_packages "${server_packages[@]}"
  say "building hisparse"
  configure server
  ninja -C build/server hisparse >&2
  hisparse=build/server/src/app/hisparse
fi
[ -n "$model" ] || model=$(scripts/fetch_model.sh)
[ -f "$model" ] || die "there is no model at $model"
[ -z "$build_only" ] || exit 0

# Each open connection takes a descriptor.
ulimit -n "$(ulimit -Hn)" 2>/dev/null || true
exec python3 scripts/bench/compare.py --hisparse "$hisparse" --llama-server "$peer" --model "$model" \
  --peer-build "$built" ${flags[@]+"${flags[@]}"}
