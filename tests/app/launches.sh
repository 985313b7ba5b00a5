#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# How jobs start and fail, whatever joins their ranks: causes that messages name, and exit codes.
#     launches.sh ECHELON MPI UCX     ON or OFF: whether the build has them
set -u
echelon=${1:?usage: launches.sh ECHELON MPI UCX} mpi=${2:?usage: launches.sh ECHELON MPI UCX} ucx=${3:?usage: launches.sh ECHELON MPI UCX}
# shellcheck source-path=SCRIPTDIR source=scratch.sh
. "$(dirname "$0")/scratch.sh"
# shellcheck source-path=SCRIPTDIR source=expect.sh
. "$(dirname "$0")/expect.sh"
# shellcheck source-path=SCRIPTDIR source=jobs.sh
. "$(dirname "$0")/jobs.sh"
enter_for_job launches
export OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0
unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT ECHELON_SECRET
make_tokens
make_run training.steps=1

# ---- causes ----

if [ "$mpi" = ON ]; then
    expect_once 1 "PATH is empty" env PATH= "$echelon" train run.yaml --ranks 2 parallel.comm=mpi
    # As a rank of another launcher, which MPI does not know: it says so, behind the cause of what may happen before.
    small=(unshare --mount sh -c 'mount -t tmpfs -o size=64K none /dev/shm && exec "$@"' sh)
    if "${small[@]}" true 2>/dev/null; then
        expect 2 "warning: /dev/shm has only 64.0 KiB free, and MPI may not start: .*--shm-size" \
            "${small[@]}" env PMI_RANK=0 PMI_SIZE=2 "$echelon" train run.yaml parallel.comm=mpi
    fi
fi

conclude
