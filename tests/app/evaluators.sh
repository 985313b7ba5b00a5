#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# parallel.evaluators from outside, over each backend that the build has: the same evaluations as
# over `local`, once each; a job that is stopped, or of which an evaluator is killed; and who has
# nothing for evaluators to do.
#     evaluators.sh ECHELON MPI UCX       ON or OFF: whether the build has it
set -u
echelon=${1:?usage: evaluators.sh ECHELON MPI UCX} mpi=${2:?MPI} ucx=${3:?UCX}
# shellcheck source-path=SCRIPTDIR source=scratch.sh
. "$(dirname "$0")/scratch.sh"
# shellcheck source-path=SCRIPTDIR source=expect.sh
. "$(dirname "$0")/expect.sh"
# shellcheck source-path=SCRIPTDIR source=jobs.sh
. "$(dirname "$0")/jobs.sh"
enter_for_job evaluators
export OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0
unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT ECHELON_SECRET
limit=(timeout 120)

seq -s ' and then ' 1 400 >text.txt
"$echelon" data text.txt text --valid 0.2 >/dev/null 2>&1 || exit 1
make_run data.train=text-train data.valid=text-valid training.steps=8 checkpoint.every=2 \
    parallel.data=2 parallel.evaluators=2 \
    parallel.comm=local

kinds=(local)
[ "$mpi" = OFF ] || kinds+=(mpi)
[ "$ucx" = OFF ] || kinds+=(ucx)

# ---- the same evaluations ----

# evaluations: of the run, by step, without what depends on time
evaluations() {
    grep '"evaluation"' run/metrics.jsonl | sed 's/,"seconds".*//' | sort -t : -k 2 -n
}

for kind in "${kinds[@]}"; do
    rm -rf run
    expect 0 "step +8/8 \| evaluation loss" "$echelon" train run.yaml --ranks 4 \
        parallel.comm="$kind" log.trace=true
    ! grep -q "error:" err || complain "$kind: an error of a job that ends well"
    also "2 replicas, 2 evaluators"
    [ "$kind" != local ] || evaluations >of_local
    [ "$(evaluations | wc -l)" = 4 ] || complain "$kind: $(evaluations |
        wc -l) evaluations of 4 checkpoints"
    evaluations | cmp -s - of_local || complain "$kind: other evaluations than local's"
done

# What training says of the last step, the evaluators do, too.
valid=$(grep -o '"valid_loss":[0-9.]\{12\}' run/metrics.jsonl | tail -n 1)
grep '{"step":8,"evaluation"' run/metrics.jsonl | grep -q "${valid#*:}" ||
    complain "the evaluation is not $valid"

# ---- stops and deaths ----

make_run data.train=text-train data.valid=text-valid training.steps=1000000 checkpoint.every=20 \
    checkpoint.keep=2 \
    training.check_every=0 parallel.data=2 parallel.evaluators=1 parallel.comm=local

# begin KIND: starts the job, and waits for an evaluation
begin() {
    rm -rf run
    "$echelon" train run.yaml --ranks 3 parallel.comm="$1" >out 2>err </dev/null &
    job=$!
    wait_until 60 grep -qs '"evaluation_loss":[0-9]' run/metrics.jsonl ||
        complain "$1: nothing is evaluated"
}
for kind in "${kinds[@]}"; do
    begin "$kind"
    kill -TERM $job
    ended_with 75 "stopped after step"
    [ "$kind" != local ] || continue
    begin "$kind"
    wait_until 10 find_ranks 3 $job || complain "$kind: its ranks are not found"
    kill -9 "${ranks[2]}"
    ended_with 1 "rank 2 .*died"
    begin "$kind"
    wait_until 10 find_ranks 3 $job || complain "$kind: its ranks are not found"
    kill -USR2 "${ranks[2]}" # it has rank 0 stop
    ended_with 75 "stopped after step"
done

# ---- who has nothing for them to do ----

for command in verify profile; do
    expect_once 2 "parallel.evaluators = 1: .echelon $command. uses no evaluators; \
set parallel.evaluators=0, and start 2 ranks" \
        "$echelon" $command run.yaml --ranks 3
done
expect 0 "^PASSED" "$echelon" verify run.yaml --ranks 2 parallel.evaluators=0
expect_once 2 "parallel.evaluators = 1: not with checkpoint.every = 0: .*; set checkpoint.every \
to the steps between evaluations" \
    "$echelon" train run.yaml --ranks 3 checkpoint.every=0
expect_once 2 'parallel.evaluators = 1: not with data.valid = "": evaluators need validation data' \
    "$echelon" train run.yaml --ranks 3 data.valid=
conclude
