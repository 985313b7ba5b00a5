#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Under srun and sbatch of a one-node Slurm that this test starts itself: signals in every phase,
# deaths, time limits, and examples/slurm.sh as it is.
#     slurm.sh ECHELON [FAULTS_LIBRARY]
set -u
echelon=${1:?usage: slurm.sh ECHELON [FAULTS_LIBRARY]} faults=${2:-}
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source-path=SCRIPTDIR source=scratch.sh
. "$here/scratch.sh"
# shellcheck source-path=SCRIPTDIR source=jobs.sh
. "$here/jobs.sh"
# shellcheck source-path=SCRIPTDIR source=phases.sh
. "$here/phases.sh"
# shellcheck source-path=SCRIPTDIR source=slurm_node.sh
. "$here/slurm_node.sh"
enter_for_job slurm
export OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0

clean_up() {
    end_job
    stop_slurm
    leave
}
trap clean_up EXIT
if ! start_slurm "$folder/slurm" || ! srun --mpi=list 2>&1 | grep -w pmix > /dev/null; then
    echo "SKIPPED: ${why:-Slurm has no plugin pmix}"
    exit 77
fi
make_signalled_run

# ---- srun ----

# Ranks are children of slurmstepd, not of srun: found by the folder that they run in.
find_ranks() {
    local process rank found=0
    ranks=()
    for process in /proc/[0-9]*; do
        [ "$process/exe" -ef "$echelon" ] && [ "$process/cwd" -ef "$folder" ] || continue
        rank=$(tr '\0' '\n' 2>/dev/null <"$process/environ" | sed -n 's/^SLURM_PROCID=//p')
        [ -n "$rank" ] || continue
        ranks[rank]=${process#/proc/}
        found=$((found + 1))
    done
    [ $found = "$1" ]
}
options=()
launch() {
    "${under[@]}" srun "${options[@]}" -n 2 -J test --mpi=pmix "$echelon" train run.yaml \
        parallel.comm=mpi "$@" \
        >out 2>err </dev/null &
    job=$!
}
slurm_job() {
    squeue -h -n test -o %i
}
send() {
    scancel --signal="$1" "$(slurm_job)"
}
stop_in_every_phase USR2 srun
save_and_go_on srun

begin "srun: scancel" -- has_done 3
scancel "$(slurm_job)"
stops any # srun may say what happened to the job instead
# Slurm looks at time limits twice a minute.
options=(--time=1 --signal=USR2@60)
begin "srun: --signal before the time limit" -- has_begun
stops
options=()

for victim in 0 1; do
    begin "srun: kill -9 of rank $victim" -- has_done 3
    find_ranks 2
    kill -9 "${ranks[victim]}"
    ended any
    [ $code != 0 ] || complain "$name: exit code 0"
    for rank in 0 1; do
        [ "$(grep -Ec "warning: rank $rank: step [0-9]+, .+, (does not wait|waits for rank [01])$" \
            err)" = 1 ] ||
            complain "$name: not one position of rank $rank"
    done
    grep -Eq "error: .*rank $victim \(process ${ranks[victim]}\) has died.*: step [0-9]+, " err ||
        complain "$name: not named"
done
begin "srun: kill -STOP of rank 1" parallel.deadline=10 -- has_done 3
find_ranks 2
kill -STOP "${ranks[1]}"
ended any
[ $code != 0 ] || complain "$name: exit code 0"
grep -Eq "error: .*held up by rank 1: step [0-9]+, " err || complain "$name: not named"

# ---- sbatch, with the example as it is ----

export ECHELON=$echelon
batch_ended() { # what state it is in says `state`
    state=$(scontrol show job "$batch" 2>/dev/null | sed -nE 's/.*JobState=([A-Z]+).*/\1/p')
    case $state in COMPLETED | FAILED | CANCELLED | TIMEOUT | NODE_FAIL) return 0 ;; esac
    return 1
}
# submit NAME STATE WORD ...
submit() {
    name=$1
    rm -rf run out
    batch=$(sbatch --parsable -o out -n 2 "$here/../../examples/slurm.sh" run.yaml \
        parallel.comm=mpi "${@:3}")
    if ! wait_until 240 batch_ended; then
        complain "$name: does not end"
        scancel "$batch"
    elif [ "$state" != "$2" ]; then
        complain "$name: $state instead of $2"
    fi
}
: >err
submit "sbatch: to the end" COMPLETED training.steps=5
has_saved 5 || complain "$name: not saved"
submit "sbatch: a wrong key" FAILED training.stepz=5
[ "$(grep -c "no such key" out)" = 1 ] || complain "$name: not refused once"
# Each start does one step: the queue has to bring it back.
submit "sbatch: time limits" COMPLETED training.steps=3 training.time_limit=0.01s
[ "$(grep -c "resuming from" out)" = 2 ] || complain "$name: not 2 restarts"
has_saved 3 || complain "$name: not saved"

conclude
