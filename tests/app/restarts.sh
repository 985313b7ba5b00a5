#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Kills ranks of a job with --restarts at random moments, over and over. The job reaches its end
# with the parameters of an undisturbed run, bit for bit. A kill costs at most the steps between two
# checkpoints, or twice as many while one is being written. A job that must not start again does
# not.
#     restarts.sh ECHELON [KILLS [SEED]]
set -u
echelon=${1:?usage: restarts.sh ECHELON [KILLS [SEED]]}
kills=${2:-3} seed=${3:-1}
# shellcheck source-path=SCRIPTDIR source=scratch.sh
. "$(dirname "$0")/scratch.sh"
# shellcheck source-path=SCRIPTDIR source=jobs.sh
. "$(dirname "$0")/jobs.sh"
if ! "$echelon" --version | grep -q '^MPI: *Open MPI [0-9]' || ! command -v mpirun >/dev/null; then
    echo "SKIPPED: no launcher of MPI"
    exit 77
fi
enter_for_job restarts
export OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0
every=5

make_tokens
make_run model.hidden_size=32 model.num_hidden_layers=4 data.sequence_length=16 training.steps=30 \
    training.global_batch_size=16 training.micro_batch_size=2 training.check_every=0 \
        optimizer.learning_rate=0.003 \
    checkpoint.every=$every checkpoint.keep=3 log.every=1000

# ---- what is not started again ----

# refuses NAME CODE TEXT WORD ...: how a job that is over at once ends. "${under[@]}" runs it.
under=()
refuses() {
    local name=$1 wanted=$2 text=$3 code
    shift 3
    "${under[@]}" "$echelon" train run.yaml --restarts 3 "$@" 2>&1 >/dev/null </dev/null | cat >err
    code=${PIPESTATUS[0]}
    [ $code = "$wanted" ] || complain "$name: exit code $code instead of $wanted"
    grep -Eqe "$text" err || complain "$name: no \"$text\""
    ! grep -q "restart [0-9] of" err || complain "$name: was started again"
}
refuses "a missing file" 2 "none.idx: no such file" data.train=none --ranks 2
refuses "a wrong key" 2 "no such key" training.stepz=3
refuses "a folder that cannot be made" 1 "before its first step" --ranks 2 log.directory=/dev/null/x
OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 \
    refuses "a rank of somebody's launcher" 2 "error: --restarts 3: Open MPI's mpirun started this"
refuses "the time limit" 75 "as training.time_limit says" --ranks 2 training.time_limit=0.01s
[ "$(ls run/checkpoints)" = step-00000001 ] || complain "the time limit: not saved after a step"
rm -rf run
under=(bash -c 'trap "" XFSZ; ulimit -f 0; exec "$@"' no_files)
refuses "no place for the ranks' positions" 1 "error: cannot reserve [0-9]+ bytes in" --ranks 2
under=()

# ---- kills ----

restarts() {
    grep -c "restart [0-9]* of" err
}
has_restarted() { # N times, and trains
    [ "$(restarts)" = "$1" ] && [ "$(grep -c "parameters, on [0-9]* rank" err)" = $(($1 + 1)) ]
}
comes_to() { # STEP NEWEST: it is at STEP and has a checkpoint after NEWEST; or the job is over
    has_ended || { [ "$(last_step run/metrics.jsonl)" -ge "$1" ] && [ "$(newest)" -gt "$2" ]; }
}

# disturb NAME RANKS BOUND WORD ...: victims are ranks, or now and then the launcher; with one
# process for all ranks it. A kill loses at most BOUND steps.
disturb() {
    local name=$1 n=$2 bound=$3 i at start=0 least step victim pid launcher saved lost worst=0
    shift 3
    RANDOM=$seed
    local steps=$((kills * 200)) # a look takes longer than a step: a kill may come 100 steps late
    rm -rf run calm
    "$echelon" train run.yaml "$@" training.steps=$steps log.directory=calm >out 2>err </dev/null ||
        complain "$name: undisturbed, it fails"
    "$echelon" train run.yaml "$@" training.steps=$steps --restarts "$kills" >out 2>err </dev/null &
    job=$!
    least=-1
    for ((i = 0; i < kills; i++)); do
        at=$((start + 1 + RANDOM % (2 * every)))
        victim=$((RANDOM % (n + 1)))
        wait_until 120 has_restarted $i || { complain "$name: kill $i finds no job"; break; }
        launcher=$(below "$job" | head -1) # slow, so it comes first and the kill follows soon
        find_ranks "$n" "$job"
        if ! wait_until 120 comes_to $at $least || has_ended; then
            complain "$name: kill $i finds no job at step $at"
            break
        fi
        pid=${ranks[victim]:-$launcher}
        step=$(last_step run/metrics.jsonl)
        kill -9 "$pid"
        wait_until 120 has_restarted $((i + 1)) || { complain "$name: kill $i ends it"; break; }
        # One start without a gain is forgiven; a second is not: the next kill waits for a
        # checkpoint.
        at=$(grep "restart [0-9]* of" err | tail -1 | sed -nE 's/.*from step ([0-9]+),.*/\1/p')
        least=$((${at:-0} == start ? ${at:-0} : -1))
        start=${at:-0} lost=$((step - ${at:-0}))
        [ $lost -gt $worst ] && worst=$lost
        [ $lost -le "$bound" ] || complain "$name: kill $i at step $step loses $lost steps"
    done
    wait_until 300 has_ended
    wait "$job"
    i=$?
    job=
    [ $i = 0 ] || complain "$name: exit code $i instead of 0"
    [ "$(restarts)" = "$kills" ] || complain "$name: not $kills restarts"
    no_sanitizer_speaks "$name"
    saved=checkpoints/step-$(printf %08d $steps)
    diff -r -x README.md "calm/$saved/model" "run/$saved/model" >/dev/null || # its title is the run
        complain "$name: other parameters than undisturbed"
    diff -r "calm/$saved/state" "run/$saved/state" >/dev/null ||
        complain "$name: another state of the optimizer than undisturbed"
    find run/checkpoints -name '*.tmp' | grep . && complain "$name: unfinished checkpoints are left"
    echo "$name: $kills kills, at most $worst steps lost by one, the same bits"
}
disturb "a pipeline of 3 ranks" 3 $every --ranks 3 parallel.pipeline=3 checkpoint.background=false
# While a checkpoint is being written in the background, the one before it counts.
kills=$(((kills + 2) / 3))
disturb "the same, saving in the background" 3 $((2 * every)) --ranks 3 parallel.pipeline=3
disturb "2 ranks as threads" 2 $((2 * every)) --ranks 2 parallel.comm=local
disturb "a lone rank" 1 $((2 * every))

# Over and over at the same place: it gives up, and says why. Kills from outside are not its own
# doing.
rm -rf run
"$echelon" train run.yaml --restarts 9 training.steps=1000000 checkpoint.every=0 >out 2>err \
    </dev/null &
job=$!
new_process() { # the job has another one than $process
    local now
    now=$(below "$job" | head -1)
    [ -n "$now" ] && [ "$now" != "$process" ] && process=$now
}
process=''
for signal in KILL KILL ABRT ABRT; do
    wait_until 120 new_process || complain "a crash loop: not started"
    kill -$signal "$process"
done
wait_until 120 has_ended
wait "$job"
[ $? = 1 ] || complain "a crash loop: not exit code 1"
job=
[ "$(restarts)" = 3 ] || complain "a crash loop: not 3 restarts"
grep -q "not started again: two starts have failed by themselves" err ||
    complain "a crash loop: does not say why it gives up"

conclude
