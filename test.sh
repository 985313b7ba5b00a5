#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs what is missing, builds, and runs the test suite (docs/testing.md):
#
#   ./test.sh                       everyday: 12 minutes on two idle cores, 17 with nothing built
#   ./test.sh --quick               address sanitizer, tests of under a second: 2 minutes
#   ./test.sh --long [SEED [PART ...]]   everything, which takes hours, or these parts of it; the
#                                   seed (1) draws random cases
#   ./test.sh --list                the parts of the long form
#
# A tier selects a share of the cases and of the builds, never different tests.
set -euo pipefail
cd "$(dirname "$0")"

# ---- what a tier runs ----

quick_seconds=120     # budgets, checked against tests/costs.txt; raising one needs a line in
everyday_seconds=720  # docs/testing.md that says what was removed for it
quick_test_seconds=1  # a test of the label quick takes less with the address sanitizer
idle_load=0.2
everyday_share=0-5/32 # of tests with many cases (tests/share.h)
lattice_share=0-9/32
asan_lattice_share=0/32
# Programs that together take every lock of src (docs/testing.md).
threaded=(app/lattice app/mapping app/record_writer app/nccl comm/mpi_library comm/ucx
    library/plugins library/signals library/training)

# Groups of tests that run only when a file they depend on has changed since they last passed. A
# group has a name, the files (of the rooms that the tested one includes, and of the tests), and a
# description. ucx leaves out kernel, which computes sums: its tests kill ranks during messages.
group_names=(cuda isas ucx)
declare -A group_files=(
    [cuda]="cmake/cuda*.cmake src/base src/device src/tensor src/kernel/*.* src/kernel/cuda
        src/kernel/gate src/kernel/ref tests/kernel tests/device tests/app/gpus.sh
        tests/app/stand_in_gpu.c"
    [isas]="src/base src/device src/tensor src/kernel/*.* src/kernel/cpu src/kernel/gate
        src/kernel/ref tests/kernel tests/app/isa.sh"
    [ucx]="src/base src/config src/device src/tensor src/comm tests/comm tests/app/ucx_workers.sh"
)
declare -A group_is=(
    [cuda]="CUDA rows on the processor, nvcc's build and register spills"
    [isas]="CPU kernels in all instruction sets"
    [ucx]="kills of ranks over UCX"
)
declare -A group_tests=(
    [cuda]='^(kernel/(emulated_.*|cuda_.*|mirrored)|app/gpus.*)$'
    [isas]='^(kernel/.*_(portable|avx2|avx512|avx512bf16)|kernel/objects_.*|app/isa)$'
    [ucx]='^(comm/ucx_(kills|remake|spared)|app/ucx_workers)$'
)
groups_lock=tests/groups.lock
oracles='^app/(oracles|families|peft|torchvision)$' # the tests of the part oracles
costs=tests/costs.txt

# Parts of the long form: each runs by itself, in this order by default.
parts=(asan tsan release groups fuzz lattice verify names oracles restarts kills corruptions
    run_files wheel web arm64 packages faults docs)
declare -A part_is=(
    [asan]="all tests with the address sanitizer; many-case tests: a quarter of their cases"
    [tsan]="programs that run threads, with the thread sanitizer"
    [release]="all tests, all cases but the lattice's, in the release build"
    [groups]="all groups: CUDA rows emulated and compiled, all instruction sets, UCX kills"
    [fuzz]="clang's build: each fuzz target from its corpus"
    [lattice]="every case of the lattice"
    [verify]="500 random run files, verified against one rank in fp64"
    [names]="every value of every key: two steps on 1, 2 and 4 ranks, verified"
    [oracles]="what training computes, beside NumPy, transformers and torchvision"
    [restarts]="60 kills of a job that is restarted"
    [kills]="Python jobs that are killed at each of twenty epochs, over local, mpi and ucx"
    [corruptions]="60 damaged checkpoints"
    [run_files]="3,000 run files with keys at their bounds, 3,000 with faults"
    [web]="the planner in a browser, built and clicked through; skips without emscripten"
    [arm64]="the build for 64-bit Arm, run by qemu; skips without its cross compiler"
    [wheel]="the wheel, built and tried in a clean virtual environment"
    [packages]="the Debian package, built, unpacked and tried; the container image"
    [faults]="60 seeded faults, each caught by the test it names"
    [docs]="./quickstart.sh, and the command lines of all documents with their output"
)
# What the part tsan runs.
all_threaded=(comm/{local,reduce,threads,collective,ucx,window} data/{loader,corpus,import}
    checkpoint/save exec/wait app/{copies,hogwild,ring,zero_weights,queues,train,lattice}
    app/{asynchronous,grid_counts,background_save,record_writer,overlap,monitor})

# ---- arguments ----

usage() {
    echo "test.sh: $1" >&2
    echo "usage: ./test.sh [--quick | --long [SEED [PART ...]] | --list]" >&2
    exit 2
}

tier=everyday seed=1
case "${1:-}" in
    "") ;;
    --quick) tier=quick; [ $# -eq 1 ] || usage "--quick takes no argument" ;;
    --list)
        for part in "${parts[@]}"; do printf '%-12s %s\n' "$part" "${part_is[$part]}"; done
        exit 0 ;;
    --long)
        tier=long
        [ $# -lt 2 ] || seed=$2
        [[ $seed =~ ^[0-9]+$ ]] || usage "--long $seed: the seed is a whole number"
        if [ $# -gt 2 ]; then
            for part in "${@:3}"; do
                [ -n "${part_is[$part]:-}" ] ||
                    usage "no part is called $part; the parts are: ${parts[*]}"
            done
            parts=("${@:3}")
        fi ;;
    *) usage "unknown tier $1" ;;
esac
[ -w . ] || {
    echo "test.sh: $PWD is read-only; the suite writes to build/ in it: copy the folder" >&2
    exit 1
}

tools/install_dependencies.sh --tests

# ---- the machine ----

jobs=$(nproc)
slots=$((2 * jobs + 1)) # tests wait for ranks, disks and signals
machine="$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | sort -u | paste -sd ',') x $jobs"
load=$(cut -d ' ' -f 1 /proc/loadavg)
is_idle=$(awk -v load="$load" -v most="$idle_load" 'BEGIN { print load < most ? 1 : 0 }')
# The thread sanitizer of gcc 12 does not cope with much address randomisation.
steady=()
if setarch -R true 2> /dev/null; then steady=(setarch -R); fi

passed=0 failed=0 skipped=0 began=$SECONDS
left_out=()
log=$(mktemp)
times=$(mktemp) # SECONDS BUILD TEST of each test that has run
trap 'rm -f "$log" "$times"' EXIT

# stage WORDS: prints how long the last stage took, and announces the next one.
stage_name="" stage_began=$SECONDS
stage() {
    [ -z "$stage_name" ] || echo "   $((SECONDS - stage_began)) s"
    stage_name=$1 stage_began=$SECONDS
    [ -z "$1" ] || echo "== $1"
}

# quietly COMMAND ...: what it prints is shown only if it fails, which ends the suite.
quietly() {
    "$@" > "$log" 2>&1 || { tail -n 60 "$log" >&2; exit 1; }
}

configure() {
    quietly cmake --preset "$1" -DECH_TESTS=ON "${@:2}"
}

# build PRESET TARGET ...
build() {
    stage "build $1"
    quietly cmake --build --preset "$1" -j "$jobs" --target "${@:2}"
}

# programs_of TEST ...: the targets of tests that are programs of their own, ROOM/NOUN.
programs_of() {
    local test
    for test in "$@"; do
        [ ! -f "tests/${test%%/*}/test_${test#*/}.c" ] || echo "test_${test/\//_}"
    done
}

# names PRESET: the tests that a build has.
names() {
    ctest --test-dir "build/$1" -N | sed -n 's/^ *Test *#[0-9]*: //p' | sed '/ (Disabled)$/d'
}

# one_of NAME ...: a regular expression for exactly these.
one_of() {
    local all
    all=$(printf '|%s' "$@")
    echo "^(${all:1})\$"
}

# run PRESET SHARE WORD ...: runs tests of a build (the words go to ctest), and that share of the
# cases of tests with many; counts the results. Fails if a test fails.
run() {
    local preset=$1 share=$2 status=0 bad
    shift 2
    stage "test $preset"
    # Not shown: tests that start or pass, and ctest's second list of what was skipped.
    local quiet='^ +Start +[0-9]+:|Test +#[0-9]+: .* Passed |^$|^Internal|^Test project'
    quiet+='|^Total Test time|^The following tests did not run|^\s+[0-9]+ - .*\(Skipped\)'
    ECHELON_SHARE=$share TSAN_OPTIONS="suppressions=$PWD/tests/tsan.txt" OMP_WAIT_POLICY=passive \
        "${steady[@]}" ctest --test-dir "build/$preset" --output-on-failure --no-tests=error \
        -j "$slots" "$@" 2>&1 | tee "$log" |
        grep --line-buffered -vE "$quiet" ||
        status=${PIPESTATUS[0]}
    bad=$(grep -E '^ *[0-9]+/[0-9]+ Test .*\*\*\*(Failed|Timeout|Exception|Not Run)' "$log" |
        grep -cv 'Not Run (Disabled)' || true)
    if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; then bad=1; fi # ctest itself could not go on
    passed=$((passed + $(grep -cE '^ *[0-9]+/[0-9]+ Test .* Passed ' "$log" || true)))
    failed=$((failed + bad))
    skipped=$((skipped + $(grep -cE '^ *[0-9]+/[0-9]+ Test .*\*\*\*Skipped' "$log" || true)))
    sed -nE "s,^ *[0-9]+/[0-9]+ Test +#[0-9]+: ([^ ]+) .* ([0-9.]+) sec.*,\2 $preset \1,p" \
        "$log" >> "$times"
    [ "$bad" -eq 0 ]
}

# try COMMAND ...: counts the command as a test; prints the end of its output, or all if it fails.
try() {
    local lines=3 status=0
    stage "$*"
    "$@" > "$log" 2>&1 || status=$?
    case $status in
        0) passed=$((passed + 1)) ;;
        77) skipped=$((skipped + 1)) ;;
        *) failed=$((failed + 1)) lines=+1 ;;
    esac
    tail -n "$lines" "$log"
}

# ---- groups ----

# A hash over a group's files: names and contents.
group_hash() {
    local files
    read -ra files <<< "$(tr -s '\n ' ' ' <<< "${group_files[$1]}")"
    # shellcheck disable=SC2068 # names of the table are patterns
    find ${files[@]} -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum |
        cut -c 1-32
}

group_changed() {
    ! grep -qx "$1 $(group_hash "$1")" "$groups_lock" 2> /dev/null
}

# Notes that a group has passed with these files.
group_passes() {
    local kept
    kept=$(grep -v "^$1 " "$groups_lock" 2> /dev/null || true)
    printf '%s\n' "$kept" "$1 $(group_hash "$1")" | grep . | LC_ALL=C sort > "$groups_lock.new"
    mv "$groups_lock.new" "$groups_lock"
}

changed=()
build_options=(-DECH_CUDA=OFF -DECH_EMULATED=OFF "-DECH_ISAS=${ECH_ISAS:-native}")
find_changed() {
    local group
    if [ "$tier" = quick ] || { [ "$tier" = long ] && [[ " ${parts[*]} " != *" groups "* ]]; }; then
        return
    fi
    for group in "${group_names[@]}"; do
        if [ "$tier" = long ] || group_changed "$group"; then
            changed+=("$group")
        else
            left_out+=("$group (${group_is[$group]}: no file has changed)")
        fi
    done
    if [[ " ${changed[*]} " == *" cuda "* ]]; then
        build_options=(-DECH_EMULATED=ON "-DECH_ISAS=${ECH_ISAS:-native}" -DECH_CUDA_F16=ON)
        # NVIDIA's packages do not set PATH.
        if ! command -v nvcc > /dev/null && [ -x /usr/local/cuda/bin/nvcc ]; then
            export CUDACXX=/usr/local/cuda/bin/nvcc
        fi
        if command -v nvcc > /dev/null || [ -n "${CUDACXX:-}" ]; then
            build_options+=(-DECH_CUDA=ON)
        else
            build_options+=(-DECH_CUDA=OFF)
            left_out+=("compiling for CUDA (no nvcc)")
        fi
    fi
    [[ " ${changed[*]} " != *" isas "* ]] || build_options+=(-DECH_ISAS=all)
}

run_groups() {
    local group programs tests before
    for group in "${changed[@]}"; do
        mapfile -t tests < <(names release | grep -E "${group_tests[$group]}")
        mapfile -t programs < <(programs_of "${tests[@]}")
        build release test_helpers "${programs[@]}"
        stage ""
        echo "== group $group: ${group_is[$group]}"
        before=$passed
        if run release 0/32 -R "${group_tests[$group]}" && [ "$passed" -gt "$before" ]; then
            group_passes "$group" # not if all tests are skipped
        fi
    done
}

# ---- costs and labels ----

# Prints the lines of the cost file: BUILD TEST SECONDS. Empty where it cannot be used.
read_costs() {
    [ -f "$costs" ] || { echo "test.sh: no $costs: it is written anew" >&2; return 0; }
    grep -qxF "# machine: $machine" "$costs" ||
        echo "test.sh: $costs is of another machine; an idle run on this one writes it anew" >&2
    if ! awk '/^#/ || /^$/ { next }
        NF != 3 || $1 !~ /^(asan|release)$/ || $2 !~ /^[a-z_]+\/[A-Za-z0-9_.]+$/ ||
            $3 !~ /^[0-9.]+$/ { bad = 1; print FILENAME ":" FNR ": " $0 > "/dev/stderr" }
        END { exit bad }' "$costs"; then
        echo "test.sh: $costs is damaged (BUILD TEST SECONDS are wanted): it is written anew" >&2
        return 0
    fi
    grep -v '^#' "$costs" || true
}

# Tests that skip in builds with sanitizers: the release build runs them every day.
plain_only='^(app/bundle|app/process_memory|program/quiet_step|tools/hardening)$'

# select_tests: sets quick_tests (of the sanitizers' build) and everyday_tests (of the release). A
# test without a cost runs in both, and has one then.
select_tests() {
    local known
    known=$(read_costs)
    mapfile -t quick_tests < <({ echo "$known"; echo "--"; names asan; } |
        awk -v most="$quick_test_seconds" -v apart="$(set_apart)" -v plain="$plain_only" '
            $0 == "--" { reads = 1; next }
            !reads { if ($1 == "asan") cost[$2] = $3; next }
            $1 ~ apart || $1 ~ plain || $1 == "app/lattice" { next }
            length(cost) > 0 && (!($1 in cost) || cost[$1] < most)')
    mapfile -t everyday_tests < <({ printf '%s\n' "${quick_tests[@]}"; echo "--"; names release; } |
        awk -v apart="$(set_apart)" '
            $0 == "--" { reads = 1; next }
            !reads { quick[$1] = 1; next }
            $1 ~ apart || $1 == "app/lattice" { next }
            !($1 in quick) || $1 ~ /^kernel\//')
    # Without any cost: the rooms whose tests train nothing.
    if [ ${#quick_tests[@]} -eq 0 ]; then
        mapfile -t quick_tests < <(names asan | grep -vE "$(set_apart)" |
            grep -E '^(base|config|tensor|layer|model|layout|schedule|check|data)/|^app/smoke$')
    fi
}

# The tests that only groups, or a part of their own, run.
set_apart() {
    local group all=$oracles
    for group in "${group_names[@]}"; do all+="|${group_tests[$group]}"; done
    echo "$all"
}

# Compares each label's sum with its budget. The sums are the file's, so a busy machine fails
# nothing.
check_budgets() {
    local label sum most over=0
    while read -r label sum most; do
        echo "   label $label: $sum s of $most by $costs"
        [ "$sum" -le "$most" ] || {
            echo "test.sh: the label $label is over its budget: make its tests faster" \
                "(docs/testing.md, \"Budgets\")" >&2
            over=1
        }
    done < <({ read_costs 2> /dev/null; } | awk -v slots="$slots" -v quick="$quick_seconds" \
        -v everyday="$everyday_seconds" -v most="$quick_test_seconds" \
        -v apart="$(set_apart)" -v plain="$plain_only" '
            $2 ~ apart { next }
            $1 == "asan" && $3 < most && $2 !~ plain { is_quick[$2] = 1; q += $3 }
            $1 == "release" { rest[$2] = $3 }
            END {
                for (test in rest) if (!(test in is_quick) || test ~ /^kernel\//) e += rest[test]
                printf "quick %d %d\neveryday %d %d\n", q / slots, quick, (q + e) / slots, everyday
            }')
    [ "$over" -eq 0 ] || failed=$((failed + 1))
}

# Writes the cost file from the times that ctest has measured, where they say anything: on an idle
# machine, after all tests of a tier have passed. Tests that have not run keep their costs.
write_costs() {
    local kept
    if [ "${ECHELON_COSTS:-}" != write ]; then
        if [ "$is_idle" -eq 0 ]; then
            echo "   $costs is kept: the load was $load at the start"
            return
        fi
        if grep -qxF "# machine: $machine" "$costs" 2> /dev/null && ! costs_differ; then return; fi
    fi
    kept=$(read_costs 2> /dev/null)
    {
        echo "# Seconds of each test as ctest measures them in ./test.sh, which writes this file."
        echo "# machine: $machine"
        { echo "$kept"; awk '$2 != "tsan" && $2 != "fuzz" { print $2, $3, $1 }' "$times"; } |
            awk 'NF == 3 { cost[$1 " " $2] = $3 }
                END { for (test in cost) print test, cost[test] }' |
            LC_ALL=C sort
    } > "$costs.new"
    mv "$costs.new" "$costs"
    echo "   $costs is written: commit it"
}

# Whether a test that has run has no cost, or its label would be another.
costs_differ() {
    { read_costs 2> /dev/null; echo "--"; cat "$times"; } | awk -v most="$quick_test_seconds" '
        $0 == "--" { reads = 1; next }
        !reads { cost[$1 " " $2] = $3; next }
        $2 != "asan" && $2 != "release" { next }
        { test = $2 " " $3 }
        !(test in cost) || ($2 == "asan" && cost[test] < most && $1 > 1.5 * most) { found = 1 }
        END { exit !found }'
}

# Prints the result, and succeeds if every test has passed.
conclude() {
    stage ""
    echo
    echo "ten slowest, in seconds:"
    sort -rn "$times" | sed -n '1,10s/^/   /p'
    if [ ${#left_out[@]} -gt 0 ]; then
        local all
        all=$(printf '; %s' "${left_out[@]}")
        echo "left out: ${all:2}"
    fi
    local took=$((SECONDS - began)) state=idle
    [ "$is_idle" -eq 1 ] || state="not idle: times say nothing"
    echo "$((took / 60)) min $((took % 60)) s on $machine; load at the start $load ($state)"
    echo
    echo "features that could go together and do not yet: $(grep -c '^RULE(.*, UNBUILT,' \
        src/config/rules.def) pairs (echelon help together)"
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}

# ---- tiers ----

# run_quick TARGET ...: further targets of the same build.
run_quick() {
    local programs
    mapfile -t programs < <(programs_of "${quick_tests[@]}")
    build asan test_helpers "${programs[@]}" "$@"
    run asan 0/32 -R "$(one_of "${quick_tests[@]}")" || true
}

run_everyday() {
    local programs
    mapfile -t programs < <(programs_of "${everyday_tests[@]}" app/lattice)
    build release test_helpers "${programs[@]}"
    run_quick test_app_lattice
    run asan "$asan_lattice_share" -R '^app/lattice$' || true
    run release "$everyday_share" -R "$(one_of "${everyday_tests[@]}")" || true
    run release "$lattice_share" -R '^app/lattice$' || true
    run_groups
    run_threaded 0/128 "${threaded[@]}"
    left_out+=("of many-case tests the other shares, other builds, faults (./test.sh --long)")
}

# run_threaded SHARE TEST ...: with the thread sanitizer.
run_threaded() {
    local programs
    mapfile -t programs < <(programs_of "${@:2}")
    configure tsan
    build tsan "${programs[@]}"
    run tsan "$1" -R "$(one_of "${@:2}")" || true
}

run_part() {
    local echelon=$PWD/build/release/echelon tests=build/release/tests
    case $1 in
        asan)
            build asan all
            run asan 0-7/32 -E "^app/lattice\$|$oracles" || true
            run asan 0-1/32 -R '^app/lattice$' || true ;;
        tsan) run_threaded 0/64 "${all_threaded[@]}" ;;
        release) run release 0/1 -E "^app/lattice\$|$(set_apart)" || true ;;
        groups) run_groups ;;
        lattice) run release 0/1 -R '^app/lattice$' || true ;;
        fuzz)
            configure fuzz
            build fuzz fuzzers
            run fuzz 0/1 -R '/fuzz_' || true ;;
        verify) try env ECHELON_VERIFY_RANDOM="500,$seed" "$tests/test_app_verify_random" ;;
        names) try env ECHELON_NAMES=train "$tests/test_app_names" ;;
        oracles) run release 0/1 -R "$oracles" || true ;;
        restarts) try bash tests/app/restarts.sh "$echelon" 60 "$seed" ;;
        kills)
            local ucx=ON
            "$echelon" --version | grep -q "^UCX: *UCX" || ucx=OFF
            try env ECHELON_KILLS=epochs python3 tests/library/check_kills.py "$echelon" \
                build/release/libechelon.so "$(command -v mpirun || echo OFF)" $ucx ;;
        corruptions) try bash tests/app/corruptions.sh "$echelon" 60 "$seed" ;;
        run_files)
            try env ECHELON_RUN_FILES=3000 "$tests/test_app_extreme_runs"
            try env ECHELON_RUN_FILES=3000 bash tests/tools/test_messages.sh \
                "$tests/test_config_bad_run_files" ;;
        wheel) try bash tests/library/wheel.sh ;;
        web) try bash tests/web/planner.sh ;;
        arm64) try bash tests/tools/arm64.sh ;;
        packages) try bash tests/library/deb.sh ;;
        faults) try tests/faults/run.py --seed "$seed" --count 60 ;;
        docs)
            try env QUICKSTART_SECONDS=20 ./quickstart.sh
            configure release "${build_options[@]}" # with tests again
            build release test_helpers test_app_lattice test_checkpoint_sweep test_kernel_attention
            try tests/faults/run.py --id 'published/*'
            try tests/tools/run_docs.py build/release ;;
    esac
}

find_changed
configure release "${build_options[@]}"
configure asan
select_tests
case $tier in
    quick) run_quick; left_out+=("all but the label quick (./test.sh)") ;;
    everyday) run_everyday ;;
    long)
        build release all
        for part in "${parts[@]}"; do run_part "$part"; done ;;
esac
if [ "$failed" -eq 0 ] && [ "${CI:-}" != true ] && [ "$tier" != quick ]; then write_costs; fi
[ "$tier" != everyday ] || check_budgets
conclude
