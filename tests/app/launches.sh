#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# How jobs start and fail, whatever joins their ranks: causes that messages name, and exit codes.
#     launches.sh ECHELON MPI UCX     ON or OFF: whether the build has them
set -u
echelon=${1:?usage: launches.sh ECHELON MPI UCX} mpi=${2:?usage: launches.sh ECHELON MPI UCX} \
    ucx=${3:?usage: launches.sh ECHELON MPI UCX}
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
    expect_once 1 "mpirun: cannot be started: .*; install Open MPI's launcher .Debian's openmpi" \
        env PATH= "$echelon" train run.yaml --ranks 2 parallel.comm=mpi
    # The program is a rank of another launcher, which MPI does not know. It says so after the
    # warning about a problem that may come before.
    small=(unshare --mount sh -c 'mount -t tmpfs -o size=64K none /dev/shm && exec "$@"' sh)
    if "${small[@]}" true 2>/dev/null; then
        expect 2 "warning: /dev/shm has only 64.0 KiB free, and MPI may not start: .*--shm-size" \
            "${small[@]}" env PMI_RANK=0 PMI_SIZE=2 "$echelon" train run.yaml parallel.comm=mpi
    fi
    # Ranks that disagree about machines would sum in different orders.
    expect_once 2 "parallel.node_ranks = 1: machines have 1 to 2 ranks of this run; start" \
        mpirun --allow-run-as-root --oversubscribe \
        -n 1 "$echelon" train run.yaml parallel.comm=mpi parallel.node_ranks=1 : \
        -n 1 "$echelon" train run.yaml parallel.comm=mpi parallel.node_ranks=2
fi

# ---- exit codes ----

comms=(local)
[ "$mpi" = OFF ] || comms+=(mpi)
[ "$ucx" = OFF ] || comms+=(ucx)

# refuse TEXT ARGUMENT ...: one error that names a key, exit code 2, and nothing of a launcher,
# whatever joins how many ranks.
refuse() {
    local comm ranks text=$1
    shift
    for comm in "${comms[@]}"; do
        for ranks in 1 2; do
            expect_once 2 "$text" "$echelon" train run.yaml "parallel.comm=$comm" "$@" \
                --ranks $ranks
            ! grep -qi mpi_abort out err || complain "MPI speaks: $comm, $ranks ranks, $*"
        done
    done
}

expect 0 "saved step-0*1" "$echelon" train run.yaml parallel.comm=local
refuse "training.seed = 5: 1 in the checkpoint, and may not change on resume" training.seed=5
refuse "data.tokenizer = /dev/zero: /dev/zero: is a device" data.tokenizer=/dev/zero
echo '{' >bad.json
refuse "parallel.profile = bad.json: bad.json:2:0: bad JSON" parallel.profile=bad.json
refuse "memory.device_limit" memory.device_limit=100KB
# few FILES COMMAND ...: may have so many open.
few() {
    (ulimit -n "$1" && shift && exec "$@")
}
for comm in "${comms[@]:1}"; do
    expect_once 2 "parallel.comm = $comm: the limit on open files is 12, and a rank needs about \
[0-9]+; raise it \(ulimit -n\)" \
        few 12 "$echelon" train run.yaml "parallel.comm=$comm"
done
if [ "$ucx" = ON ]; then
    expect 2 "parallel.comm = ucx: the limit on open files is 24" \
        few 24 "$echelon" train run.yaml parallel.comm=ucx --ranks 2
    expect_once 2 "UCX_FOO: UCX 1.* has no such setting" env UCX_FOO=1 "$echelon" train run.yaml \
        parallel.comm=ucx
    expect_once 2 "started as one of several" env PMI_RANK=1 PMI_SIZE=2 "$echelon" train run.yaml \
        parallel.comm=ucx
fi

# Orders that cannot run together: rank 0 checks all ranks' lists before the first step.
printf '%s\n' 'F0.0 B0.0 F0.1 B0.1' 'F0.0 F0.1 B0.0 B0.1' >deadlock.order
for comm in "${comms[@]}"; do
    for command in train verify; do
        expect_once 2 "the schedule file cannot run: check of list train: .* again: a circle" \
            "$echelon" $command run.yaml --ranks 2 "parallel.comm=$comm" parallel.pipeline=2 \
            parallel.schedule=deadlock.order training.micro_batch_size=6 parallel.deadline=30
        ! grep -qi mpi_abort out err || complain "MPI speaks: $comm, $command"
    done
done

# ---- plans ----

# What a run would refuse is refused before: a log of serves that ends too early, and the one that
# the run itself writes.
asp=(parallel.comm=local parallel.strategy=asp parallel.flush_every=2 --ranks 3)
expect 0 "saved step-0*4" "$echelon" train run.yaml "${asp[@]}" training.steps=4 log.directory=first
for command in plan train; do
    expect_once 2 "parallel.serve_log = first/serves.jsonl: .*step" "$echelon" $command run.yaml \
        "${asp[@]}" \
        training.steps=8 parallel.serve_log=first/serves.jsonl log.directory=second
    expect_once 2 "parallel.serve_log = first/serves.jsonl: this run would overwrite the file" \
        "$echelon" $command run.yaml "${asp[@]}" training.steps=4 \
            parallel.serve_log=first/serves.jsonl log.directory=first
done
expect 0 "checked" "$echelon" plan run.yaml "${asp[@]}" training.steps=4 \
    parallel.serve_log=first/serves.jsonl log.directory=second

conclude
