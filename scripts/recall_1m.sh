#!/usr/bin/env bash
# The recall fixture at 1,048,576 tokens: all KV pages resident, then a slab of 256 MiB and the rest on disk in a process
# of less than 2 GiB. The answers must be the same. See tests/recall/README.md.
#
#   scripts/recall_1m.sh [FOLDER [NUMBER]]
#
# FOLDER has room for 3 GB (default, also for an empty name: a new one in /var/tmp). NUMBER says which context is asked about
# (0): with 0, 1 and 2 a needle has been before, at and behind the beginning of every page where tiers may meet.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh

folder=${1:-}
number=${2:-0}
if [ -z "$folder" ]; then
  folder=$(mktemp -d /var/tmp/hisparse-recall.XXXXXX)
  trap 'rm -rf "$folder"' EXIT
fi
install_packages "${server_packages[@]}" "${test_packages[@]}"
configure release
ninja -C build/release recall_long >&2

ask() {
  local layout=$1
  shift
  say "$layout"
  build/release/tests/recall/recall_long --folder "$folder" --answers "$folder/$layout.txt" --number "$number" "$@"
}
ask resident
ask disk --resident-bytes $((256 << 20)) --most-memory $((2 << 30))
cmp "$folder/resident.txt" "$folder/disk.txt" || die "the answers differ"
say "the answers are the same"
