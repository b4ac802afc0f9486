#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test. What needs the network is skipped by name where there is none.
#
#   scripts/test.sh            everything
#   scripts/test.sh --quick    the release build and its tests only
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh

quick=false
[ "${1:-}" = --quick ] && quick=true
fuzz_seconds=20
passed=0
failed=0
skipped=0
failures=()

# run NAME COMMAND …: one stage; its output goes to a log that is shown when it fails.
run() {
  local name=$1 start=$SECONDS
  shift
  mkdir -p build/logs
  if "$@" >"build/logs/$name.log" 2>&1; then
    passed=$((passed + 1))
    printf 'ok      %-28s %5d s\n' "$name" $((SECONDS - start))
  else
    failed=$((failed + 1))
    failures+=("$name")
    printf 'FAILED  %-28s %5d s\n' "$name" $((SECONDS - start))
    tail -n 60 "build/logs/$name.log"
  fi
}
skip() {
  skipped=$((skipped + 1))
  printf 'skipped %-28s %s\n' "$1" "$2"
}

install_packages "${server_packages[@]}" "${test_packages[@]}"
# 3: the model came and is not what it should be.
fetched=0
model=$(scripts/fetch_model.sh) || fetched=$?
case $fetched in
  0) export HISPARSE_SMOLLM2=$model ;;
  3) run fetch-model false ;;
  *) skip smollm2 "the model could not be fetched" ;;
esac

build_preset() { configure "$1" && shift_preset "$@"; }
shift_preset() { local preset=$1; shift; ninja -C "build/$preset" "$@"; }

run build-release build_preset release
run unit-tests ctest --test-dir build/release --parallel "$(nproc)" --output-on-failure

client=build/client-venv
if $quick; then
  :
elif [ -x $client/bin/python ] || { python3 -m venv $client && $client/bin/pip install --quiet -r tests/e2e/requirements.txt; } >&2; then
  run end-to-end $client/bin/python -m pytest -q tests/e2e
else
  rm -rf $client
  skip end-to-end "the Python client could not be fetched"
fi

if ! $quick; then
  run syntax-g++ scripts/check_gcc.sh build/release
  run mutants scripts/check_mutants.sh build/mutants
  # The sanitizers run where memory and threads are: parsers, kernels, controller, engine, server.
  run build-asan build_preset asan asan_tests fuzzers
  run tests-asan ctest --test-dir build/asan --parallel "$(nproc)" --output-on-failure -L asan
  for target in build/asan/tests/fuzz/*_fuzz; do
    name=$(basename "$target")
    corpus=build/asan/corpus/$name
    mkdir -p "$corpus"
    run "fuzz-$name" "$target" -max_total_time=$fuzz_seconds -rss_limit_mb=4096 -timeout=20 -print_final_stats=1 \
      -artifact_prefix="$corpus/" "$corpus" "tests/fuzz/corpus/$name"
  done
  run build-tsan build_preset tsan tsan_tests
  run tests-tsan ctest --test-dir build/tsan --parallel "$(nproc)" --output-on-failure -L tsan
fi

[ ${#failures[@]} -eq 0 ] || printf 'failed: %s\n' "${failures[*]}"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
