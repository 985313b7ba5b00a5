#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs what is missing, builds with sanitizers, and runs the whole test suite:
#
#   ./test.sh            address and undefined-behaviour sanitizers, then the thread sanitizer on
#                        what runs threads, then the release binary over MPI, then short fuzzing
#   ./test.sh --quick    the first of these alone
#   ./test.sh --long [SEED]   of the release build (an hour or more): random cases by the hundred, layouts verified, kills, damaged
#                        checkpoints, run files (another seed draws others); and what the suite leaves out of tests with many cases
set -euo pipefail
cd "$(dirname "$0")"

case "${1:-}" in
    "" | --quick | --long) ;;
    *) echo "usage: ./test.sh [--quick | --long [SEED]]" >&2; exit 2 ;;
esac

tools/install_dependencies.sh --tests

jobs=$(nproc) # programs that wait for ranks, disks and signals: tests run twice as many at once
# The thread sanitizer of gcc 12 does not cope with much address randomisation.
steady=()
if setarch -R true 2> /dev/null; then steady=(setarch -R); fi
passed=0 failed=0 skipped=0
# What runs threads, for the thread sanitizer.
threaded=(comm/{local,reduce,threads,collective,ucx,window} data/{loader,corpus,import} checkpoint/save
    app/{copies,hogwild,ring,zero_weights,queues,train,lattice,asynchronous,grid_counts,background_save,record_writer,overlap,monitor})

# Programs with many cases, of which each is of one build, or of the long form (tests/share.h).
shared=$(grep -l share_takes tests/app/test_*.c | sed 's,.*/test_,,; s,\.c$,,' | paste -sd '|')

# Configures and builds a preset (targets of it), quietly unless it fails.
build() {
    local preset=$1 log
    shift
    log=$(mktemp)
    echo "== build $preset"
    if ! { cmake --preset "$preset" -DECH_TESTS=ON &&
        cmake --build --preset "$preset" -j "$jobs" --target "${@:-all}"; } > "$log" 2>&1; then
        tail -n 60 "$log" >&2
        rm -f "$log"
        exit 1
    fi
    rm -f "$log"
}

# run PRESET SHARE WORD ...: a preset's tests (words go to ctest), of tests with many cases that share of them
# (tests/share.h); adds up what came of them.
run() {
    local preset=$1 share=$2 log status=0 bad
    shift 2
    log=$(mktemp)
    echo "== test $preset"
    ECHELON_SHARE=$share TSAN_OPTIONS="suppressions=$PWD/tests/tsan.txt" OMP_WAIT_POLICY=passive "${steady[@]}" \
        ctest --test-dir "build/$preset" --output-on-failure --no-tests=error -j "$jobs" "$@" 2>&1 | tee "$log" |
        grep --line-buffered -vE "^ +Start +[0-9]+:" || status=${PIPESTATUS[0]}
    bad=$(grep -cE "^ *[0-9]+/[0-9]+ Test .*\*\*\*(Failed|Timeout|Exception|Not Run)" "$log" || true)
    if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; then bad=1; fi # ctest itself could not go on
    passed=$((passed + $(grep -cE "^ *[0-9]+/[0-9]+ Test .* Passed " "$log" || true)))
    failed=$((failed + bad))
    skipped=$((skipped + $(grep -cE "^ *[0-9]+/[0-9]+ Test .*\*\*\*Skipped" "$log" || true)))
    rm -f "$log"
}

# Runs a command, counts it, and shows the end of what it said: the whole if it failed.
try() {
    local log lines=3
    log=$(mktemp)
    echo "== $*"
    if "$@" > "$log" 2>&1; then passed=$((passed + 1)); else failed=$((failed + 1)) lines=+1; fi
    tail -n "$lines" "$log"
    rm -f "$log"
}

# Says what came of all, and succeeds if all did.
conclude() {
    echo
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}

if [ "${1:-}" = --long ]; then
    seed=${2:-1} echelon=$PWD/build/release/echelon tests=build/release/tests
    build release
    try env ECHELON_VERIFY_RANDOM="500,$seed" "$tests/test_app_verify_random"
    try bash tests/app/restarts.sh "$echelon" 60 "$seed"
    try bash tests/app/corruptions.sh "$echelon" 60 "$seed"
    try env ECHELON_RUN_FILES=3000 "$tests/test_app_extreme_runs"
    try env ECHELON_RUN_FILES=3000 "$tests/test_config_bad_run_files"
    run release 12-31/32 -j $((2 * jobs + 1)) -R "^(kernel/.*|app/($shared))\$" -E '^app/lattice$'
    run release 8-31/32 -R '^app/lattice$'
    try tests/faults/run.py --some 60 "$seed"
    conclude
    exit
fi

build asan
# Programs of the whole (app/) run in one of two builds. With sanitizers all but these, which only the release build runs: what runs, kills and
# signals processes under launchers and over networks, what a build with CUDA has, and what is long and runs what many do, too.
released='app/(bench|bundle|devices|evaluators_runs|examples|expert_balance|gpus|isa|mixed_layouts|mpi_.*|offers|parts|restarts_kills|signals|slurm)'
released+='|app/(step_profile_runs|ucx.*)|comm/mpi_.*_[124]|schedule/(scale|pipeline|lower_block|activations)|model/(operands|cut)'
run asan 0/32 -j $((2 * jobs + 1)) -E "^($released)\$"
if [ "${1:-}" != --quick ]; then
    programs=("${threaded[@]//\//_}")
    build tsan "${programs[@]/#/test_}"
    run tsan 0/64 -j $((2 * jobs)) -R "^($(IFS='|' && echo "${threaded[*]}"))$"
    build release release_tests
    run release 1-11/32 -j $((2 * jobs + 1)) -R "^(kernel/.*|comm/mpi_.*|app/($shared|pytorch)|$released)\$" -E '^app/lattice$'
    run release 1-7/32 -R '^app/lattice$' # by far the longest
    build fuzz fuzzers
    run fuzz 0/1 -R '/fuzz_'
fi
conclude
