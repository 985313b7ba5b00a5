#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Ranks die or stall during a step over MPI. The job ends within seconds with exit code 1, says
# where every rank was and which one is to blame, and leaves no process and no file. Jobs mostly
# wait for deadlines, so four of them run at the same time.
#     mpi_death.sh ECHELON MPIEXEC FREEZE_THREAD FAULTS_LIBRARY
set -u
echelon=${1:?usage: mpi_death.sh ECHELON MPIEXEC FREEZE_THREAD FAULTS_LIBRARY}
mpiexec=${2:-} freeze_thread=${3:-} faults=${4:-}
if ! [ -x "$mpiexec" ]; then
    echo "SKIPPED: no launcher of MPI ($mpiexec)"
    exit 77
fi
# shellcheck source-path=SCRIPTDIR source=scratch.sh
. "$(dirname "$0")/scratch.sh"
# shellcheck source-path=SCRIPTDIR source=jobs.sh
. "$(dirname "$0")/jobs.sh"
enter death
tokens=$folder
export OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0
code=0 swept='' dens=''

# Seconds that a job has from the death, and more of them on a machine that does other things too.
limit=10 slack=20 deadline=5

make_tokens
seq -s ' and then ' 1 400000 >long.txt
"$echelon" data long.txt long >/dev/null 2>&1 || exit 1

# ---- a job and its processes ----

# begin RANKS COMMAND ...: starts it as the job, and waits until it trains. Where other jobs take
# the cores, a first step may pass the deadline: the job is started up to three times.
begin() {
    local n=$1 i try
    shift
    for try in 1 2 3; do
        rm -rf run
        ranks=()
        "$@" >out 2>err </dev/null &
        job=$!
        for ((i = 0; i < 1200; i++)); do
            grep -q '"step":5,' run/metrics.jsonl 2>/dev/null && find_ranks "$n" "$job" && return
            lives "$job" || break
            sleep 0.1
        done
        echo "start $try: does not train"
    done
    complain "it does not train: $*"
    exit 1
}

train() {
    local n=$1
    shift
    begin "$n" "$echelon" train run.yaml --ranks "$n" parallel.comm=mpi "$@"
}

now_ms() {
    echo $(($(date +%s%N) / 1000000))
}

# ended NAME CODE [SECONDS]: waits for the job's end, at most the limit after what it waits out.
ended() {
    local name=$1 wanted=$2 extra=${3:-0} begin=$(now_ms) ms=0 process file left
    while lives "$job" && [ $ms -lt $(((limit + slack + extra) * 1000)) ]; do
        sleep 0.1
        ms=$(($(now_ms) - begin))
    done
    if lives "$job"; then
        complain "$name: does not end"
        kill -9 "$job" "${ranks[@]}" 2>/dev/null
    fi
    wait "$job" 2>/dev/null
    code=$?
    echo "$name: ended after $((ms / 1000)).$((ms / 100 % 10)) s"
    [ "$wanted" = any ] || [ $code = "$wanted" ] ||
        complain "$name: exit code $code instead of $wanted"
    for _ in $(seq 100); do
        left=
        for process in "${ranks[@]}"; do lives "$process" && left+=" $process"; done
        [ -z "$left" ] && break
        sleep 0.1
    done
    [ -z "$left" ] || complain "$name: processes left:$left"
    for process in "$job" "${ranks[@]}"; do
        for file in {/dev/shm,"${TMPDIR:-/tmp}",/tmp}/echelon-*-"$process"-*; do
            [ ! -e "$file" ] || [ -n "$swept" ] || complain "$name: left behind: $file"
        done
    done
    no_sanitizer_speaks "$name"
    # Our messages come after the launcher's, and our own launcher prints none.
    [ "$wanted" = any ] || [ "$wanted" = 137 ] || ! grep -q '^----' err ||
        complain "$name: the launcher's noise"
    job=
}

# positions NAME RANKS: one line a rank, once.
positions() {
    local r
    for ((r = 0; r < $2; r++)); do
        [ "$(grep -Ec "warning: rank $r: step [0-9]+, .+, (does not wait|waits for rank [0-9]+)$" \
            err)" = 1 ] || complain "$1: not one position of rank $r"
    done
}

says() {
    grep -Eqe "$2" err || complain "$1: no \"$2\""
}

# The folders that MPI has for the job: its ranks have mapped what is in them.
find_dens() {
    local process
    dens=$(for process in "${ranks[@]}"; do
        sed -nE 's|.* (/[^ ]*/echelon-[0-9]+-[0-9]+-[0-9]+)/[^ ]*$|\1|p' "/proc/$process/maps"
    done | sort -u)
}

# stalls NAME VICTIM RANKS: the job's end when somebody else's deadline has passed.
stalls() {
    ended "$1" 1 $deadline
    positions "$1" "$3"
    says "$1" "error: .*held up by rank $2: step [0-9]+, "
    ! grep "held up by" err | grep -qv "held up by rank $2:" || complain "$1: names another rank"
    ! grep -q "has died" err || complain "$1: is told twice"
}

# ---- death ----

deaths() {
    for victim in 0 1 2; do
        name="kill -9 of rank $victim of 3"
        train 3 parallel.pipeline=3
        kill -9 "${ranks[victim]}"
        ended "$name" 1
        positions "$name" 3
        says "$name" "error: .*(rank $victim has died|likely for rank $victim).*: step [0-9]+, "
    done

    name="kill -9 of rank 1 of 2, without a pipeline"
    train 2
    kill -9 "${ranks[1]}"
    ended "$name" 1
    positions "$name" 2
    says "$name" "error: .*(rank 1 has died|likely for rank 1).*: step [0-9]+, "

    # Nobody has told where it is, and the board's file still has its name. Open MPI's launcher
    # sometimes hangs then, after it has ended the other ranks; the second time it surely does.
    for hangs in "" ", under a launcher that hangs"; do
        name="kill -9 of a rank that has hardly begun$hangs"
        rm -rf run
        ranks=()
        "$echelon" train run.yaml --ranks 3 parallel.comm=mpi >out 2>err </dev/null &
        job=$!
        until find_ranks 3 "$job" || ! lives "$job"; do :; done
        [ -z "$hangs" ] || kill -STOP "$(below "$job" | head -1)"
        kill -9 "${ranks[1]}"
        ended "$name" 1
        says "$name" "error: .*has died"
    done

    # A launcher that does not see that its ranks die.
    name="kill -9 of rank 1 under a launcher that hangs"
    train 3 parallel.pipeline=3
    launcher=$(below "$job" | head -1)
    find_dens
    kill -STOP "$launcher"
    kill -9 "${ranks[1]}"
    ended "$name" 1
    positions "$name" 3
    says "$name" "error: .*(rank 1 has died|likely for rank 1).*: step [0-9]+, "
    lives "$launcher" && complain "$name: the launcher is left"
    [ "$(wc -w <<<"$dens")" = 1 ] && [ ! -e "$dens" ] || complain "$name: left behind: $dens"

    name="kill -9 of the launcher"
    train 3 parallel.pipeline=3
    find_dens
    kill -9 "$(below "$job" | head -1)"
    ended "$name" 1
    [ "$(wc -w <<<"$dens")" = 1 ] && [ ! -e "$dens" ] || complain "$name: left behind: $dens"
}

# ---- standing still ----

stalled_ranks() {
    for layout in "2 0" "2 1" "3 0" "3 1" "3 2"; do
        read -r n victim <<<"$layout"
        name="kill -STOP of rank $victim of $n"
        train "$n" parallel.pipeline="$n" parallel.deadline=$deadline
        kill -STOP "${ranks[victim]}"
        stalls "$name" "$victim" "$n"
    done
}

stopped_jobs() {
    # Nobody waits any more: who started the launcher sees it.
    for who in "all ranks" "all ranks and the launcher"; do
        name="kill -STOP of $who"
        train 3 parallel.pipeline=3 parallel.deadline=$deadline
        [ "$who" = "all ranks" ] || kill -STOP "$(below "$job" | head -1)"
        kill -STOP "${ranks[@]}"
        ended "$name" 1 $deadline
        for r in 0 1 2; do
            says "$name" "warning: rank $r \(process ${ranks[r]}\) is stopped: step [0-9]+, "
        done
        says "$name" "error: no rank has made progress for $deadline s .*: rank 0 .* is stopped$"
    done

    name="kill -STOP of all ranks and the launcher, then SIGTERM"
    train 3 parallel.pipeline=3
    kill -STOP "$(below "$job" | head -1)" "${ranks[@]}"
    kill "$job"
    ended "$name" 75
    says "$name" "stopped after step [0-9]+, as it was asked to"

    # Processes of a frozen control group take no signal, in its first version not even SIGKILL.
    freezer=/sys/fs/cgroup/freezer/echelon-test-$$
    if mkdir "$freezer" 2>/dev/null; then
        name="a frozen control group, then SIGTERM"
        train 3 parallel.pipeline=3 parallel.deadline=$deadline
        for r in 0 1 2; do echo "${ranks[r]}" >"$freezer/cgroup.procs"; done
        echo FROZEN >"$freezer/freezer.state"
        kill "$job"
        wait_until 60 has_ended || complain "$name: does not end"
        echo THAWED >"$freezer/freezer.state"
        ended "$name" 1
        says "$name" \
            "error: the job was told to stop, but no rank can act.*frozen with its control group$"
        says "$name" "warning: rank 2 .* was killed and has not ended yet"
        wait_until 10 rmdir "$freezer" || complain "$name: processes are left"
    else
        echo "SKIPPED: a frozen control group: none can be made here"
    fi

    name="an endless loop in rank 1 of 3"
    train 3 parallel.pipeline=3 parallel.deadline=$deadline
    host=$(grep -lx echelon-ranks /proc/"${ranks[1]}"/task/*/comm | cut -d/ -f5 | sort -n | head -1)
    "$freeze_thread" "$host" 2>/dev/null &
    frozen=$!
    sleep 0.5
    if kill -0 $frozen 2>/dev/null; then
        stalls "$name" 1 3
        wait $frozen
    else
        echo "SKIPPED: $name: this system allows no tracing"
        kill -9 "${ranks[1]}"
        ended "$name" 1
    fi
}

# ---- nobody of ours above ----

orphans() {
    # The launcher ends with it, or not, and the next start of any job removes what is left.
    for also in "" " and the launcher"; do
        name="kill -9 of the process that started the launcher$also"
        train 3 parallel.pipeline=3
        find_dens
        launcher=$(below "$job" | head -1)
        [ "$(wc -w <<<"$dens")" = 1 ] && [ -d "$dens" ] || complain "$name: no folder of MPI's"
        kill -9 "$job" ${also:+"$launcher"}
        swept=yes
        ended "$name" 137
        swept=
        wait_until 60 eval '! lives "$launcher"' || complain "$name: the launcher is left"
        "$echelon" train run.yaml --ranks 2 training.steps=1 >out 2>err </dev/null ||
            complain "$name: the next start fails"
        [ ! -e "$dens" ] || complain "$name: the next start leaves $dens"
    done
}

# ---- launchers of the user's own: one of the other ranks sees it ----

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1

own_launchers() {
    for victim in 0 1 2; do
        name="kill -9 of rank $victim under an mpirun of the user's own"
        begin 3 "$mpiexec" -n 3 "$echelon" train run.yaml parallel.comm=mpi parallel.pipeline=3
        kill -9 "${ranks[victim]}"
        ended "$name" any
        [ $code != 0 ] || complain "$name: exit code 0"
        positions "$name" 3
        says "$name" "error: .*rank $victim \(process ${ranks[victim]}\) has died.*: step [0-9]+, "
        [ "$(grep -c "echelon: .*error:" err)" = 1 ] || complain "$name: is told twice"
    done

    name="kill -STOP of rank 1 under an mpirun of the user's own"
    begin 3 "$mpiexec" -n 3 "$echelon" train run.yaml parallel.comm=mpi parallel.pipeline=3 \
        parallel.deadline=$deadline
    kill -STOP "${ranks[1]}"
    ended "$name" any $deadline
    positions "$name" 3
    says "$name" "error: .*held up by rank 1: step [0-9]+, "

    # Validation takes a thousand times as long as what is before.
    name="kill -STOP of rank 1 in validation"
    begin 3 "$mpiexec" -n 3 "$echelon" train run.yaml parallel.comm=mpi parallel.pipeline=3 \
        parallel.deadline=$deadline data.valid=long training.validate_every=5
    kill -STOP "${ranks[1]}"
    ended "$name" any $deadline
    positions "$name" 3
    says "$name" "error: .*held up by rank 1: step [0-9]+, "
    [ "$(last_step run/metrics.jsonl)" = 5 ] || complain "$name: it has trained on"
}

still_disks() {
    # A rank's disk stands still while all train on; then the rank is stopped, too.
    cat >slow.sh <<'S'
#!/bin/sh
if [ "$OMPI_COMM_WORLD_RANK" != "$victim" ]; then exec "$@"; fi
export LD_PRELOAD=$faults ECH_FAULTS="$PWD/run/checkpoints/step- hold 1" ECH_FAULTS_HOLD=$PWD/hold
exec "$@"
S
    chmod +x slow.sh
    export faults victim
    for victim in 0 1 2; do
        for signal in 0 STOP; do
            name="the disk of rank $victim stands still, and signal $signal"
            : >hold
            begin 3 "$mpiexec" -n 3 ./slow.sh "$echelon" train run.yaml parallel.comm=mpi \
                parallel.pipeline=3 parallel.deadline=$deadline checkpoint.every=3
            wait_until 60 test -s hold || complain "$name: it does not come to its disk"
            kill -$signal "${ranks[victim]}"
            ended "$name" any $deadline
            [ $code != 0 ] || complain "$name: exit code 0"
            positions "$name" 3
            says "$name" "error: .*held up by rank $victim: step [0-9]+, .*, writing checkpoint 3, "
        done
    done
    rm hold
}

late_ranks() {
    # All come but one, which is stopped before MPI has begun: nobody has a position.
    cat >late.sh <<'S'
#!/bin/sh
if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then kill -STOP $$; fi
exec "$@"
S
    chmod +x late.sh
    name="a rank that never arrives"
    rm -rf run
    ranks=()
    "$mpiexec" -n 3 ./late.sh "$echelon" train run.yaml parallel.comm=mpi \
        parallel.deadline=$deadline >out 2>err </dev/null &
    job=$!
    ended "$name" any 20
    [ $code != 0 ] || complain "$name: exit code 0"
    says "$name" "error: the start of MPI has waited 20 s .*: rank 1 \(process [0-9]+\) is stopped"
}

# ---- all of them ----

# run_parts NAME ...: one after the other, in a folder of their own.
run_parts() {
    local part
    enter_for_job "death-$1"
    cp "$tokens"/*.bin "$tokens"/*.idx .
    make_run model.num_hidden_layers=4 training.steps=1000000 training.check_every=0
    for part in "$@"; do "$part"; done
    conclude
}

lines=("deaths orphans late_ranks" stalled_ranks "stopped_jobs own_launchers" still_disks)
running=()
for i in "${!lines[@]}"; do
    # shellcheck disable=SC2086 # the names are words
    (run_parts ${lines[i]}) >"$i.log" 2>&1 &
    running+=($!)
done
for i in "${!lines[@]}"; do
    wait "${running[i]}" || failures=$((failures + 1))
    cat "$i.log"
done
conclude
