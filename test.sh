#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs what is missing, builds with sanitizers, and runs the whole test suite:
#
#   ./test.sh            address and undefined-behaviour sanitizers, then the thread sanitizer on
#                        what runs threads, then the release binary over MPI, then short fuzzing
#   ./test.sh --quick    the first of these alone
set -euo pipefail
cd "$(dirname "$0")"

case "${1:-}" in
    "" | --quick) ;;
    *) echo "usage: ./test.sh [--quick]" >&2; exit 2 ;;
esac

tools/install_dependencies.sh --tests

jobs=$(nproc)
passed=0 failed=0 skipped=0

# Configures and builds a preset, quietly unless it fails.
build() {
    local preset=$1 log
    shift
    log=$(mktemp)
    echo "== build $preset"
    if ! { cmake --preset "$preset" "$@" && cmake --build --preset "$preset" -j "$jobs"; } > "$log" 2>&1; then
        tail -n 60 "$log" >&2
        rm -f "$log"
        exit 1
    fi
    rm -f "$log"
}

# Runs a preset's tests (further words go to ctest) and adds up what came of them.
run() {
    local preset=$1 log
    shift
    log=$(mktemp)
    echo "== test $preset"
    OMP_WAIT_POLICY=passive ctest --test-dir "build/$preset" --output-on-failure --no-tests=error \
        -j "$jobs" "$@" 2>&1 | tee "$log" | grep -vE "^ +Start +[0-9]+:" || true
    passed=$((passed + $(grep -cE " Passed +[0-9.]+ sec" "$log" || true)))
    failed=$((failed + $(grep -cE "\*\*\*(Failed|Timeout|Exception|Not Run)" "$log" || true)))
    skipped=$((skipped + $(grep -cE "\*\*\*Skipped" "$log" || true)))
    rm -f "$log"
}

build asan
run asan
if [ "${1:-}" != --quick ]; then
    build tsan
    run tsan -R '^(comm/(local|reduce)|data/loader|app/(train|verify)|checkpoint/save)$'
    build release -DECH_TESTS=ON
    run release -R '^(kernel/|app/|comm/mpi)'
    build fuzz
    run fuzz -R '/fuzz_'
fi

echo
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
