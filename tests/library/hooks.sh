#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Hooks in several processes: what one requests, all do; if one fails, all end together.
#     hooks.sh ECHELON MPIEXEC MPI_HOOKS
set -u
echelon=${1:?usage: hooks.sh ECHELON MPIEXEC MPI_HOOKS} mpiexec=${2:-} hooks=${3:-}
# shellcheck source-path=SCRIPTDIR source=../app/scratch.sh
. "$(dirname "$0")/../app/scratch.sh"
enter hooks
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1 \
    OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 \
    ASAN_OPTIONS=detect_leaks=0
make_tokens
make_run training.steps=4 parallel.comm=mpi parallel.data=2

# prints MODE LINE0 LINE1: what the two ranks print
prints() {
    checks=$((${checks:-0} + 1))
    timeout 120 "$mpiexec" -n 2 --bind-to none "$hooks" run.yaml "$1" >out 2>err </dev/null ||
        complain "$1: exit code $?"
    [ "$(sort out)" = "$2"$'\n'"$3" ] || complain "$1: not $2, $3"
    no_sanitizer_speaks "$1"
}

# checkpoints STEP ...: the run's, newest first
checkpoints() {
    local found
    found=$(cd run/checkpoints && printf "%s\n" step-* | sed "s/step-0*//" | sort -rn |
        paste -sd " ")
    [ "$found" = "$*" ] || complain "checkpoints $found, not $*"
    rm -rf run
}

prints save "rank 0: ..s..se, status 0 " "rank 1: ..s..se, status 0 "
checkpoints 4 2
prints stop "rank 0: ..sS, status 0 " "rank 1: ..sS, status 0 "
checkpoints 2
prints fail "rank 0: .., status -7 step 2: another process's hook failed" \
    "rank 1: .., status -3 step 2: the hook step_end failed: it returned -3"
[ ! -e run/checkpoints/step-00000004 ] || complain "the run went on"
conclude
