# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# For tests of running jobs, `job`: finds the ranks' processes, and waits for their progress. Source
# it after scratch.sh; it sets `ranks`.

job='' ranks=()

# Of this test only, by id.
end_job() {
    [ -z "$job" ] || kill -9 "$job" "${ranks[@]}" 2>/dev/null
}

# enter_for_job NAME: into an empty folder, which is gone when the test ends, and the job with it.
enter_for_job() {
    enter "$1"
    trap 'end_job; leave' EXIT
}

# Every process below this one.
below() {
    local child
    for child in $(cat "/proc/$1/task/"*/children 2>/dev/null); do
        echo "$child"
        below "$child"
    done
}

# find_ranks N ROOT: fills ranks, the process of each rank, once there are N of them below ROOT.
find_ranks() {
    local process rank found=0
    ranks=()
    for process in $(below "$2"); do
        [ "/proc/$process/exe" -ef "$echelon" ] || continue
        rank=$(tr '\0' '\n' 2>/dev/null <"/proc/$process/environ" |
            sed -nE 's/^(OMPI_COMM_WORLD_RANK|PMI_RANK|SLURM_PROCID|RANK)=([0-9]+)$/\2/p' | head -1)
        [ -n "$rank" ] || continue
        ranks[rank]=$process
        found=$((found + 1))
    done
    [ $found = "$1" ]
}

lives() {
    local state
    state=$(sed -nE 's/^State:\s*(.).*/\1/p' "/proc/$1/status" 2>/dev/null)
    [ -n "$state" ] && [ "$state" != Z ] # a zombie is only what its parent has not looked at
}

has_ended() {
    ! lives "$job"
}

# The newest checkpoint's step; 0: none yet.
newest() {
    local step
    step=$(find run/checkpoints -name 'step-*' 2>/dev/null | sed -nE 's/.*step-0*([0-9]+)$/\1/p' |
        sort -n | tail -n 1)
    echo "${step:-0}"
}

# The last step in a metrics file; 0: none yet.
last_step() {
    local step
    step=$(tail -n 2 "$1" 2>/dev/null | sed -nE 's/^\{"step":([0-9]+),.*/\1/p' | tail -n 1)
    echo "${step:-0}"
}

# wait_until SECONDS COMMAND ...: until it succeeds; false after that long.
wait_until() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.02
    done
}

# ended_with CODE TEXT: the job ends with that exit code within a minute and says TEXT, and no rank
# is left.
ended_with() {
    local code=0 process
    wait_until 60 has_ended || complain "it does not end"
    wait "$job" || code=$?
    [ $code = "$1" ] || complain "exit code $code instead of $1"
    grep -Eqe "$2" out err || complain "not said: $2"
    for process in "${ranks[@]}"; do lives "$process" && complain "process $process is left"; done
    no_sanitizer_speaks "$2"
    job='' ranks=()
}
