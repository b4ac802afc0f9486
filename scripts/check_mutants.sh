#!/usr/bin/env bash
# Plants each bug of tests/mutants in a copy of the tree and expects the test named in the patch to turn red. A test that
# stays green does not guard what it claims to guard.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
work=${1:-build/mutants}
mkdir -p "$work"
work=$(cd "$work" && pwd)

# Laid out and configured as the tree itself, so that ccache serves what a mutant does not touch.
rm -rf "$work/tree"
mkdir -p "$work/tree"
git ls-files -z --cached --others --exclude-standard -- CMakeLists.txt CMakePresets.json cmake third_party src tests |
  xargs -0 tar --create --file=- --ignore-failed-read 2>/dev/null | tar --extract --file=- -C "$work/tree"
cd "$work/tree"
cmake --preset release -DHISPARSE_BUILD_SERVER=OFF >"$work/configure.log"

# status TEST: builds and runs one test program; prints its exit code.
status() {
  ninja -C build/release "$1" >"$work/build.log" || { tail -30 "$work/build.log" >&2; exit 1; }
  local code=0
  HISPARSE_TEST_DATA=tests timeout 900 "$(find build/release/tests -type f -name "$1" -perm -u+x)" \
    >"$work/$1.log" 2>&1 || code=$?
  echo "$code"
}
tests_of() { sed -n '1s/^# test: //p' "$1"; }

# Unpatched they are green, or red would say nothing.
for test in $(for patch in "$root"/tests/mutants/*.patch; do tests_of "$patch"; done | tr ' ' '\n' | sort -u); do
  [ "$(status "$test")" = 0 ] || { tail -30 "$work/$test.log"; echo "$test is red without any mutant"; exit 1; }
done

caught=0
missed=0
for patch in "$root"/tests/mutants/*.patch; do
  name=$(basename "$patch" .patch)
  patch --quiet --strip=1 <"$patch"
  for test in $(tests_of "$patch"); do
    code=$(status "$test")
    # 124 is a run that did not end, which is no proof.
    if [ "$code" != 0 ] && [ "$code" != 124 ]; then
      echo "caught: $test turns red with $name"
      caught=$((caught + 1))
    else
      echo "missed: $test ends with $code under $name"
      missed=$((missed + 1))
    fi
  done
  patch --quiet --strip=1 --reverse <"$patch"
done
echo "$caught mutants caught, $missed missed"
[ "$missed" -eq 0 ] && [ "$caught" -gt 0 ]
