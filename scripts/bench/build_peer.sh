#!/usr/bin/env bash
# Prints the path of llama-server and builds it first when it is not in the cache folder (HISPARSE_CACHE, or hisparse in
# the user's cache folder): from the source of llama.cpp that the PyPI source package of llama-cpp-python holds, for the
# processor of this machine. Beside the program lies build.txt: version, compiler and options.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/packages.sh

version=0.3.36
sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
compilers=(gcc-12 g++-12)
options=(
  -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=ON -DGGML_LLAMAFILE=ON
  -DLLAMA_ALL_WARNINGS=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_USE_PREBUILT_UI=OFF
  -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF
)
cache=${HISPARSE_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/hisparse}/llama.cpp-$version
server=$cache/build/bin/llama-server
processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
description="llama-cpp-python $version (sdist), ${compilers[1]} for ${processor:-$(uname -m)}, ${options[*]#-D}"

# Written last, so it also tells that the build is complete and which it is.
if [ -x "$server" ] && [ "$(cat "$cache/build.txt" 2>/dev/null)" = "$description" ]; then
  echo "$server"
  exit 0
fi

install_packages "${compilers[1]}" cmake ninja-build ccache "${model_packages[@]}"
python=python3
"$python" -m pip --version >/dev/null 2>&1 || python=/usr/bin/python3

mkdir -p "$cache"
rm -f "$cache/build.txt"
sdist=$cache/llama_cpp_python-$version.tar.gz
has_digest() { [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$sha256" ]; }
if ! { [ -f "$sdist" ] && has_digest "$sdist"; }; then
  download=$(mktemp -d "$cache/download.XXXXXX")
  trap 'rm -rf "$download"' EXIT
  say "fetching the source of llama-cpp-python $version from PyPI (73 MiB)"
  # pip asks the package for its metadata, which takes its build tool along but compiles nothing.
  "$python" -m pip download --quiet --no-deps --no-binary llama-cpp-python --disable-pip-version-check \
    --dest "$download" "llama-cpp-python==$version" >&2 || die "the source could not be fetched (is there a network?)"
  has_digest "$download/${sdist##*/}" || die "${sdist##*/} is not the expected file"
  mv "$download/${sdist##*/}" "$sdist"
fi

# A source tree from an interrupted call may be incomplete. ccache makes building anew quick.
rm -rf "$cache/src" "$cache/build"
mkdir "$cache/src"
tar -xzf "$sdist" -C "$cache/src" --strip-components=3 "llama_cpp_python-$version/vendor/llama.cpp"
[ -f "$cache/src/tools/server/CMakeLists.txt" ] || die "the package does not hold the source of llama-server"

say "building llama-server $version (many minutes the first time); log: $cache/build.log"
{
  cmake -S "$cache/src" -B "$cache/build" -G Ninja \
    -DCMAKE_C_COMPILER="${compilers[0]}" -DCMAKE_CXX_COMPILER="${compilers[1]}" "${options[@]}" &&
    nice -n 10 ninja -C "$cache/build" llama-server
} >"$cache/build.log" 2>&1 || { tail -n 20 "$cache/build.log" >&2; die "llama-server could not be built"; }
echo "$description" >"$cache/build.txt"
echo "$server"
