#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Trains under an mpirun of your own (several machines, a hostfile, options of your network), and
# again when it was saved and stopped:
#
#   examples/mpirun.sh -n 4 --hostfile hosts -- RUN.yaml [section.key=value ...]
#
# On one machine `echelon train RUN.yaml --ranks 4 --restarts 10` does all of this by itself.
#
# Open MPI's mpirun kills the ranks one second after SIGTERM, too early for a save; so this script
# sends it SIGUSR2 instead, which it hands on. (Do not raise odls_base_sigkill_timeout for that:
# mpirun then waits so long after every end with another exit code than 0.) Each training.time_limit
# ends a start with a save, after which the next goes on; to stop for good, stop this script:
# SIGTERM or Ctrl-C, and it waits for the save. For a save without a stop: pkill -USR1 mpirun.
set -u
options=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    options+=("$1")
    shift
done
if [ $# -lt 2 ]; then
    echo "usage: $0 [option of mpirun ...] -- RUN.yaml [section.key=value ...]" >&2
    exit 2
fi
shift
most_failures=${ECHELON_FAILURES:-3} # in a row

asked=0 failures=0
stop() {
    asked=1
    kill -USR2 "$mpirun" 2> /dev/null # handed on to the ranks: finish the step, save, exit 75
}
trap stop TERM INT HUP

while :; do
    began=$(date +%s)
    # In a process group of its own, so that Ctrl-C does not end it before the save.
    setsid mpirun "${options[@]}" "${ECHELON:-echelon}" train "$@" &
    mpirun=$!
    while :; do # a signal ends `wait`, not mpirun
        wait "$mpirun"
        code=$?
        kill -0 "$mpirun" 2> /dev/null || break
    done
    [ "$code" = 0 ] || [ "$code" = 2 ] || [ $asked = 1 ] && exit "$code"
    if [ "$code" != 75 ]; then
        failures=$((failures + 1))
        echo "mpirun.sh: exit code $code after $(($(date +%s) - began)) s" >&2
        [ $failures -le "$most_failures" ] || exit "$code"
        sleep 5
        [ $asked = 0 ] || exit "$code"
    else
        failures=0
    fi
done
