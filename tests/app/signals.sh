#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Signals in every phase of a run under --ranks and under an mpirun and mpiexec of the user's own.
#     signals.sh ECHELON MPIEXEC FAULTS_LIBRARY
set -u
echelon=${1:?usage: signals.sh ECHELON MPIEXEC FAULTS_LIBRARY}
mpiexec=${2:-} faults=${3:-} here=$(cd "$(dirname "$0")" && pwd)
if ! [ -x "$mpiexec" ]; then
    echo "SKIPPED: no launcher of MPI ($mpiexec)"
    exit 77
fi
# shellcheck source-path=SCRIPTDIR source=scratch.sh
. "$here/scratch.sh"
# shellcheck source-path=SCRIPTDIR source=jobs.sh
. "$here/jobs.sh"
# shellcheck source-path=SCRIPTDIR source=phases.sh
. "$here/phases.sh"
enter_for_job signals
export OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1

make_signalled_run

send() {
    kill -"$1" "$job"
}

# ---- our own launcher: SIGTERM and its like become what the ranks understand ----

launch() {
    "${under[@]}" "$echelon" train run.yaml --ranks 2 "$@" >out 2>err </dev/null &
    job=$!
}
stop_in_every_phase TERM "--ranks"
save_and_go_on "--ranks"
for signal in USR2 HUP; do
    begin "--ranks: $signal" -- has_done 3
    send $signal
    stops
done
# Before there is a rank.
begin "--ranks: SIGTERM before there is a rank" -- eval 'awaits "$job"'
send TERM
stops
# Schedulers repeat SIGTERM, and others add to it; only who types Ctrl-C twice wants no save.
hold_saves
begin "--ranks: SIGTERM twice, and SIGHUP" -- has_done 3
send TERM
reach grep -q "stopping; Ctrl-C twice to stop without saving" err
reach has_come_to_a_save # a kill would leave nothing
send TERM
send HUP
release_saves
stops
hold_saves
under+=(env --default-signal=INT) # a shell's & ignores it
begin "--ranks: Ctrl-C twice" -- has_done 3
send INT
reach grep -q "stopping; Ctrl-C once more to stop without saving" err
reach has_come_to_a_save
send INT
reach grep -q "stopping now" err
ended 1
[ -z "$(find run/checkpoints -name 'step-*' ! -name '*.tmp')" ] || complain "$name: has saved"
release_saves

begin "the time limit" training.time_limit=0.5 -- has_ended
stops
grep -q "as training.time_limit says" err || complain "the time limit: not named"
# Of a job with restarts, all starts together have the limit.
begin "the time limit of restarts" --restarts 3 training.time_limit=0.01s -- has_ended
stops

# ---- mpirun and mpiexec of the user's own, which hand SIGUSR1 and SIGUSR2 on ----

for launcher in "$mpiexec" "$(command -v mpirun)"; do
    [ -n "$launcher" ] || continue
    launch() {
        "${under[@]}" "$launcher" -n 2 "$echelon" train run.yaml parallel.comm=mpi "$@" \
            >out 2>err </dev/null &
        job=$!
    }
    if [ "$launcher" = "$mpiexec" ]; then
        stop_in_every_phase USR2 "${launcher##*/}"
        save_and_go_on "${launcher##*/}"
    else # the same program by another name, mostly
        begin "${launcher##*/}: USR2" -- has_done 3
        send USR2
        stops
    fi
done

# What is wrong one rank says, for all.
name="a file that is not there, under ${mpiexec##*/}"
"$mpiexec" -n 2 "$echelon" train run.yaml parallel.comm=mpi data.train=none >out 2>err </dev/null
[ "$(grep -c "error: " err)" = 1 ] && grep -q "error: none.idx: no such file" err ||
    complain "$name: not said once"

# A run that all ranks refuse ends without MPI_Abort, whether each finds that out or waits for rank
# 0.
for wrong in data.train=none parallel.pipeline=7 model.hidden_size=17; do
    name="$wrong under ${mpiexec##*/}" code=0
    "$mpiexec" -n 2 "$echelon" train run.yaml parallel.comm=mpi "$wrong" >out 2>err </dev/null ||
        code=$?
    [ "$code" = 2 ] || complain "$name: exit code $code"
    grep -q "MPI_ABORT" out err && complain "$name: MPI_Abort was called"
done

# The example: it goes on until it is told to stop.
PATH=$(dirname "$mpiexec"):$PATH ECHELON=$echelon
export PATH ECHELON
has_resumed() {
    grep -q "resuming from .*step-00000001 " err
}
launch() {
    "$here/../../examples/mpirun.sh" -n 2 -- run.yaml parallel.comm=mpi "$@" >out 2>err </dev/null &
    job=$!
}
begin "examples/mpirun.sh: a time limit, then SIGTERM" training.time_limit=0.01s -- has_resumed
send TERM
stops
begin "examples/mpirun.sh: to the end" training.steps=6 -- has_ended
ended 0
begin "examples/mpirun.sh: a run file that is wrong" training.stepz=6 -- has_ended
ended 2

conclude
