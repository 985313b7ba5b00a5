#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# `echelon train --profile` from outside: on threads and over MPI, which must hand the option on;
# what it prints and what it leaves. (Its numbers: test_step_profile.c.)
#     step_profile.sh ECHELON
set -u
echelon=${1:?usage: step_profile.sh ECHELON}
# shellcheck source-path=SCRIPTDIR source=scratch.sh
. "$(dirname "$0")/scratch.sh"
# shellcheck source-path=SCRIPTDIR source=expect.sh
. "$(dirname "$0")/expect.sh"
enter profile
export OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0

make_tokens
make_run training.steps=4 training.global_batch_size=4

# has_row NAME: in the file, where all rows are. Those that took little time beside the others the
# table puts together, and which ones do, is up to the machine.
has_row() {
    checks=$((checks + 1))
    grep -Eq "\"row\":\"$1" run/step_profile.jsonl || complain "no row \"$1\""
}

# profiled RANKS WORD...: a run that shows the table and leaves a line of each rank.
profiled() {
    local ranks=$1
    shift
    rm -rf run
    expect 0 "where the time of a step goes: mean of 3 steps" "$echelon" train --profile run.yaml \
        "$@"
    also "^compute lane  .* ms a step "
    also "^  sum  .*[0-9]"
    has_row "head_logits B "
    has_row "linear F [0-9]+x[0-9]+"
    also "^a step takes [0-9.]+ ms; its work would take "
    checks=$((checks + 1))
    [ "$(grep -c '"steps":3,' run/step_profile.jsonl)" = "$ranks" ] ||
        complain "not a line for each of $ranks ranks"
}

profiled 1 parallel.comm=local
profiled 2 parallel.comm=local --ranks 2 parallel.pipeline=2
profiled 2 parallel.comm=local --ranks 2 parallel.pipeline=2 parallel.device=queued
profiled 1 parallel.comm=local parallel.device=walled
profiled 2 parallel.comm=mpi --ranks 2
has_row "reduce_grads over data"
profiled 4 parallel.comm=mpi --ranks 4 parallel.pipeline=2 parallel.tensor=2
also "rank 0 of 4"
has_row "all_reduce over tensor"

# A start that finds all steps done leaves the profile of the one before.
rm -rf run
expect 0 "mean of 3 steps" "$echelon" train --profile run.yaml parallel.comm=local
cp run/step_profile.jsonl before
expect 0 "no step was profiled" "$echelon" train --profile run.yaml parallel.comm=local
checks=$((checks + 1))
cmp -s before run/step_profile.jsonl || complain "a start without steps wrote over the profile"

# Without it nothing is left; a run that has no second step has nothing to show.
rm -rf run
expect 0 "saved step-00000004" "$echelon" train run.yaml parallel.comm=local
checks=$((checks + 1))
[ ! -e run/step_profile.jsonl ] || complain "a profile that nobody asked for"
rm -rf run
expect 0 "no step was profiled" "$echelon" train --profile run.yaml parallel.comm=local \
    training.steps=1
conclude
