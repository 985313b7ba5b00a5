#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# parallel.comm = ucx from outside: ranks that echelon starts, and ranks that others start; the same
# weights as over `local`; Ctrl-C, a rank that is killed, and a restart; and what a build without it
# says.
#     ucx.sh ECHELON UCX       ON or OFF: whether the build has it
set -u
echelon=${1:?usage: ucx.sh ECHELON UCX} ucx=${2:?usage: ucx.sh ECHELON UCX}
# shellcheck source-path=SCRIPTDIR source=scratch.sh
. "$(dirname "$0")/scratch.sh"
# shellcheck source-path=SCRIPTDIR source=expect.sh
. "$(dirname "$0")/expect.sh"
# shellcheck source-path=SCRIPTDIR source=jobs.sh
. "$(dirname "$0")/jobs.sh"
enter_for_job ucx
export OMP_NUM_THREADS=1
unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT ECHELON_SECRET
make_tokens
make_run training.steps=12 model.hidden_size=32 parallel.pipeline=2 parallel.data=2

if [ "$ucx" = OFF ]; then
    expect 0 "^UCX: +this build is without UCX; set parallel.comm=mpi or local" "$echelon" --version
    expect_once 2 "parallel.comm = ucx.*: this build is without UCX; set parallel.comm=mpi or \
local, .* -DECH_UCX=ON" \
        "$echelon" train run.yaml --ranks 4 parallel.comm=ucx
    conclude
    exit
fi
expect 0 "^UCX: +UCX 1\." "$echelon" --version

# ---- the same weights, whoever moves the messages and whoever starts the ranks ----

# weights: a checksum of the newest checkpoint's
weights() {
    find run/checkpoints/step-00000012/state -type f -exec sha256sum {} + | sort -k 2 | sha256sum
}

expect 0 "saved step-0*12" "$echelon" train run.yaml --ranks 4 parallel.comm=local
local_weights=$(weights)
rm -rf run
expect 0 "saved step-0*12" "$echelon" train run.yaml --ranks 4 parallel.comm=ucx
[ "$(weights)" = "$local_weights" ] || complain "ucx trains other weights than local"
# Each has a name for a moment while it is made, those of tests beside this one, too.
no_segments() { [ -z "$(find /dev/shm -name 'ucx*' -user "$(id -u)" 2>/dev/null)" ]; }
wait_until 30 no_segments || complain "shared memory is left"

# Four processes, as torchrun or ssh would start them.
by_hand() {
    local r status=0 pids=() port
    # shellcheck disable=SC2016
    port=$("$echelon" launch 1 sh -c 'echo "$MASTER_PORT"')
    for r in 0 1 2 3; do
        RANK=$r WORLD_SIZE=4 MASTER_ADDR=localhost MASTER_PORT=$port ECHELON_SECRET=same \
            "$echelon" train run.yaml parallel.comm=ucx >"out.$r" 2>"err.$r" </dev/null &
        pids+=($!)
    done
    for r in "${pids[@]}"; do wait "$r" || status=$?; done
    cat out.? >out
    cat err.? >err
    return $status
}
rm -rf run
by_hand || complain "ranks that others start do not train"
[ "$(weights)" = "$local_weights" ] || complain "ranks that others start train other weights"
expect 0 "^PASSED" "$echelon" verify run.yaml --ranks 4 parallel.comm=ucx training.steps=2
expect 0 "saved step-0*12" env -u RANK "$echelon" train run.yaml parallel.comm=ucx \
    parallel.pipeline=1 parallel.data=1 log.directory=alone

# ---- ranks that are killed, and stops ----

make_run training.steps=100000 model.hidden_size=32 parallel.pipeline=2 parallel.data=2 \
    checkpoint.every=20 checkpoint.keep=2 \
    training.check_every=0

# begin OPTION ...: starts the job, and waits until it has saved
begin() {
    rm -rf run
    "$echelon" train run.yaml --ranks 4 parallel.comm=ucx "$@" >out 2>err </dev/null &
    job=$!
    wait_until 60 has_saved || complain "it does not save: $*"
    wait_until 10 find_ranks 4 $job || complain "its ranks are not found: $*"
}
has_saved() {
    [ "$(newest)" -gt 0 ]
}
begin
kill -9 "${ranks[2]}"
ended_with 1 "rank 2 .*died"
begin
kill -TERM $job
ended_with 75 "stopped after step"
begin --restarts 1
kill -9 "${ranks[0]}"
wait_until 30 grep -q "restart 1 of 1, from step" err out || complain "it does not start again"
# Before that comes a pause, which a signal would end.
wait_until 60 grep -q "resuming from" out err || complain "it does not go on"
kill -TERM $job
ended_with 75 "stopped after step"

# Each rank is started again by somebody of its own: those that end with one that is killed meet
# again with who takes its place.
loops() {
    local r status=0 pids=() port
    # shellcheck disable=SC2016
    port=$("$echelon" launch 1 sh -c 'echo "$MASTER_PORT"')
    for r in 0 1 2 3; do
        (
            for _ in 1 2 3; do
                code=0
                RANK=$r WORLD_SIZE=4 MASTER_ADDR=localhost MASTER_PORT=$port ECHELON_SECRET=same \
                    "$echelon" train run.yaml parallel.comm=ucx >>"out.$r" 2>>"err.$r" \
                        </dev/null || code=$?
                [ $code = 1 ] || [ $code = 137 ] || break
            done
            exit "$code"
        ) &
        pids+=($!)
    done
    for r in "${pids[@]}"; do wait "$r" || status=$?; done
    cat err.? >err
    return $status
}
rm -rf run out.? err.?
loops 2>/dev/null &
job=$!
wait_until 60 has_saved || complain "ranks in loops do not save"
wait_until 10 find_ranks 4 $job || complain "ranks in loops are not found"
kill -9 "${ranks[2]}"
wait_until 30 grep -qs "resuming from .*step-0*[0-9]* (saved by 4 ranks)" err.0 ||
    complain "ranks in loops do not go on"
wait_until 10 find_ranks 4 $job || complain "nobody has taken the place of rank 2"
kill -TERM "${ranks[0]}"
ended_with 75 "stopped after step"

# Of ranks that others start each has a folder of shared memory: that of a killed one goes with the
# others.
rm -rf run
by_hand &
job=$!
wait_until 60 has_saved || complain "ranks that others start do not save"
wait_until 10 find_ranks 4 $job || complain "ranks that others start are not found"
killed=${ranks[2]}
folder_of_killed() { find /dev/shm -maxdepth 1 -name "echelon-$(id -u)-$killed-*" | grep .; }
folder_of_killed >/dev/null || complain "a rank that another starts has no folder of shared memory"
kill -9 "$killed"
ended_with 1 "rank 2 .*died"
folder_of_killed && complain "a rank that was killed leaves its folder"

# ---- what is refused ----

make_run training.steps=12 model.hidden_size=32 parallel.pipeline=2 parallel.data=2
rm -rf run
# shellcheck disable=SC2016
expect 2 "rank 0 refuses this process as rank 1: its secret differs; set ECHELON_SECRET \
to the same value" "$echelon" launch 4 sh -c '
    [ "$RANK" != 1 ] || export ECHELON_SECRET=another
    exec "$0" train run.yaml parallel.comm=ucx' "$echelon"
expect_once 2 "parallel.reduction = library: not with parallel.comm = ucx" \
    "$echelon" train run.yaml --ranks 4 parallel.comm=ucx parallel.reduction=library
[ ! -e run ] || complain "a refused run left its folder"
expect 2 "must be a number from 1 to" "$echelon" launch many true
expect 2 "which program" "$echelon" launch 2
# shellcheck disable=SC2016
expect 7 "rank 1" "$echelon" launch 2 sh \
    -c 'echo "rank $RANK"; [ "$RANK" = 0 ] && exec sleep 60; exit 7'
expect 127 "no-such-program: cannot be started" "$echelon" launch 2 no-such-program
conclude
