#!/usr/bin/env bash
# Plants each bug of tests/mutants in a copy of the tree and expects the test named in the patch to turn red. A test that
# stays green does not guard what it claims to guard.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
work=${1:-build/mutants}
mkdir -p "$work"
work=$(cd "$work" && pwd)

# The same relative layout every time, so that ccache serves what a mutant does not touch.
rm -rf "$work/tree"
mkdir -p "$work/tree"
git ls-files -z --cached --others --exclude-standard -- CMakeLists.txt cmake third_party src tests |
  xargs -0 tar --create --file=- --ignore-failed-read 2>/dev/null | tar --extract --file=- -C "$work/tree"
cmake -S "$work/tree" -B "$work/build" -G Ninja -DCMAKE_C_COMPILER=clang-16 -DCMAKE_CXX_COMPILER=clang++-16 \
  -DHISPARSE_BUILD_SERVER=OFF >"$work/configure.log"

caught=0
missed=0
for patch in "$root"/tests/mutants/*.patch; do
  name=$(basename "$patch" .patch)
  test=$(sed -n '1s/^# test: //p' "$patch")
  patch --quiet --strip=1 --directory="$work/tree" <"$patch"
  ninja -C "$work/build" "$test" >"$work/$name.build.log" || { tail -30 "$work/$name.build.log"; exit 1; }
  program=$(find "$work/build/tests" -type f -name "$test" -perm -u+x)
  if HISPARSE_TEST_DATA="$work/tree/tests" timeout 600 "$program" >"$work/$name.log" 2>&1; then
    echo "missed: $test stays green with $name"
    missed=$((missed + 1))
  else
    echo "caught: $test turns red with $name"
    caught=$((caught + 1))
  fi
  patch --quiet --strip=1 --reverse --directory="$work/tree" <"$patch"
done
echo "$caught mutants caught, $missed missed"
[ "$missed" -eq 0 ] && [ "$caught" -gt 0 ]
