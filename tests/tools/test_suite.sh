#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test.sh itself, in a made-up tree whose cmake and ctest are small scripts: tiers, labels, groups,
# cost files that are missing, damaged or another machine's, and what it says of bad words.
set -euo pipefail
unset ECH_ISAS ECHELON_COSTS ECHELON_SHARE CI # the caller's own choices

root=$(realpath "$(dirname "$0")/../..")
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
tree="$stage/a tree" # with a blank
mkdir -p "$tree"/{tools,bin,cmake,src/{base,config,device,tensor,comm,kernel/{cpu,cuda,gate,ref}}} \
    "$tree"/tests/{kernel,device,comm,app,base} "$tree"/build/{asan,release,tsan}/Testing/Temporary
cp "$root/test.sh" "$tree"
cd "$tree"
echo 'exit 0' > tools/install_dependencies.sh
chmod +x tools/install_dependencies.sh
for file in cmake/cuda.cmake src/kernel/a.c src/kernel/a.h tests/app/{gpus,isa,ucx_workers}.sh \
    tests/app/stand_in_gpu.c; do echo "$file" > "$file"; done
echo "cmake \$*" > bin/said

play() {
    { echo '#!/bin/bash'; cat; } > "bin/$1"
    chmod +x "bin/$1"
}

play cmake << 'END'
echo "$*" >> calls
END
play setarch << 'END'
exit 1
END
play nproc << 'END'
echo 2
END
# Lists the tests of the file `tests`, or passes those that match -R and not -E but the ones in
# `bad`.
play ctest << 'END'
folder="" expression=. but='^$' lists=
while [ $# -gt 0 ]; do
    case $1 in
        --test-dir) folder=$2; shift ;;
        -R) expression=$2; shift ;;
        -E) but=$2; shift ;;
        -N) lists=1 ;;
    esac
    shift
done
n=0 status=0
for test in $(cat tests_there); do
    n=$((n + 1))
    if [ -n "$lists" ]; then echo "  Test   #$n: $test"; continue; fi
    grep -qE "$expression" <<< "$test" || continue
    if grep -qE "$but" <<< "$test"; then continue; fi
    if grep -qx "$test" bad; then
        echo " $n/9 Test   #$n: $test ....***Failed    0.10 sec"; status=8
    else
        echo " $n/9 Test   #$n: $test ....   Passed    $(sed -n "s,^$test ,,p" seconds) sec"
    fi
    echo "$folder $test" >> ran
done
exit $status
END
printf '%s\n' base/a base/slow kernel/rows kernel/emulated_rows app/lattice app/smoke app/long \
    comm/ucx_kills kernel/rows_avx2 app/nccl comm/ucx app/record_writer app/oracles > tests_there
sed 's/$/ 0.2/; s,^base/slow .*,base/slow 3,; s,^app/long .*,app/long 40,
     s,^app/smoke .*,app/smoke 0.9,' tests_there > seconds
: > bad

# run WORD ...: sets code and printed; `ran` has what was run, `calls` cmake's.
run() {
    : > ran
    : > calls
    code=0
    printed=$(PATH="$tree/bin:$PATH" ./test.sh "$@" 2>&1) || code=$?
}

fail() {
    echo "FAILED: $1; exit code $code, printed:"
    echo "$printed"
    exit 1
}

# expect CODE TEXT; not TEXT; ran LINE; unran LINE
expect() {
    [ "$code" = "$1" ] || fail "wanted exit code $1"
    grep -qE -- "$2" <<< "$printed" || fail "wanted \"$2\""
}
not() { ! grep -qE -- "$1" <<< "$printed" || fail "did not want \"$1\""; }
ran() { grep -qx "build/$1" ran || fail "did not run $1"; }
unran() { ! grep -qx "build/$1" ran || fail "ran $1"; }

run --fast
expect 2 "unknown tier --fast"
run --quick 3
expect 2 "takes no argument"
run --long seven
expect 2 "the seed is a whole number"
run --long 1 fuz
expect 2 "no part is called fuz; the parts are: asan tsan"
run --list
expect 0 "^faults +60 seeded faults"
expect 0 "^oracles +what training computes"

# No cost file: it is written after a run that passed, here also on a busy machine.
export ECHELON_COSTS=write CI=
run
expect 0 "no tests/costs.txt"
expect 0 "costs.txt is written"
grep -qx 'asan base/slow 3' tests/costs.txt || fail "the cost of a test that has run"
! grep -q 'tsan' tests/costs.txt || fail "costs with the thread sanitizer"
run # tests that had no cost with the address sanitizer
ran "asan app/long"
export ECHELON_COSTS=

# Labels: what takes a second or more runs in the release build; groups have passed with these
# files.
run
expect 0 "^[0-9]+ passed, 0 failed, 0 skipped"
expect 0 "left out: cuda .*; isas .*; ucx "
not "costs.txt is (written|damaged|of another)"
ran "asan base/a"
unran "asan base/slow"
ran "release base/slow"
unran "release base/a"
ran "release kernel/rows" # both: the optimized kernels are others
ran "asan app/lattice"
ran "release app/lattice"
ran "tsan comm/ucx"
unran "release comm/ucx_kills"
unran "asan app/oracles"
unran "release app/oracles"
grep -q 'ECH_ISAS=native' calls || fail "kernels of this machine"
run --quick
ran "asan base/a"
unran "release base/slow"

# A changed file runs its groups, once.
echo "more" >> src/kernel/a.c
run
expect 0 "== group cuda"
ran "release kernel/emulated_rows"
unran "release comm/ucx_kills"
grep -q 'ECH_ISAS=all' calls || fail "all instruction sets"
run
unran "release kernel/emulated_rows"
echo "more" >> src/comm/a.c
run
ran "release comm/ucx_kills"
unran "release kernel/emulated_rows"
# One that fails runs again.
echo comm/ucx_kills > bad
echo "more" >> src/comm/a.c
run
expect 1 "1 failed"
: > bad
run
ran "release comm/ucx_kills"

# A part of the long form by itself, and parts that leave its test to it.
run --long 1 oracles
ran "release app/oracles"
unran "release base/a"
run --long 1 asan release
ran "release base/a"
unran "release app/oracles"
unran "asan app/oracles"

# Cost files that say nothing.
sed -i 's/^# machine: .*/# machine: an abacus/' tests/costs.txt
run
expect 0 "costs.txt is of another machine"
echo "asan base/a much" >> tests/costs.txt
run
expect 0 "costs.txt:[0-9]+: asan base/a much"
expect 0 "costs.txt is damaged"
echo "slow release base/a 2" > tests/costs.txt
run
expect 0 "costs.txt is damaged"

# A label over its budget fails, whatever passed.
export ECHELON_COSTS=write
sed -i 's,^app/long .*,app/long 4000,' seconds
run
expect 1 "label everyday is over its budget"

echo "all as expected"
