#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Hundreds of signals while a rank multiplies matrices: the heap stays intact (base/thread.h), all
# that was requested is saved, and the run stops when it is told to.
#     hammered.sh ECHELON MPI UCX SANITIZE    MPI, UCX: ON or OFF; SANITIZE: empty without one
set -u
usage='usage: hammered.sh ECHELON MPI UCX [SANITIZE]'
echelon=${1:?$usage} mpi=${2:?$usage} ucx=${3:?$usage} sanitize=${4:-}
# shellcheck source-path=SCRIPTDIR source=scratch.sh
. "$(dirname "$0")/scratch.sh"
# shellcheck source-path=SCRIPTDIR source=jobs.sh
. "$(dirname "$0")/jobs.sh"
enter_for_job hammered
export OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0
# Other instruction sets have other code in oneDNN, which leaves the stack pointer alone.
export ONEDNN_MAX_CPU_ISA=AVX2 DNNL_MAX_CPU_ISA=AVX2
export OMPI_MCA_opal_signal= # its own report of an abort waits for malloc's lock
unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT
make_tokens
make_run training.steps=1000000 training.global_batch_size=4 model.hidden_size=256 \
    checkpoint.every=1000000 checkpoint.keep=1

# glibc then checks each block of memory that is freed, not only its neighbours.
below=()
[ -n "$sanitize" ] ||
    below=(env LD_PRELOAD=libc_malloc_debug.so.0 GLIBC_TUNABLES=glibc.malloc.check=3)

has_done() { # STEP
    [ "$(last_step run/metrics.jsonl)" -ge "$1" ]
}
has_saved() { # a checkpoint of a later step
    [ "$(newest)" -gt "$1" ]
}

# The only rank is this process, and computes on the thread that joined the others.
for comm in mpi ucx; do
    [ "${!comm}" = ON ] || continue
    rm -rf run
    "${below[@]}" "$echelon" train run.yaml parallel.comm=$comm >out 2>err </dev/null &
    job=$!
    wait_until 60 has_done 2 || complain "$comm: it makes no steps"
    for ((i = 0; i < 300; i++)); do
        kill -USR1 $job || break # reported below, by its exit code
        sleep 0.005
    done
    wait_until 30 has_saved 0 || complain "$comm: it saves nothing"
    kill -TERM $job
    wait_until 60 has_ended || kill -9 $job
    ended_with 75 "stopped after step"
    "$echelon" checkpoint verify "run/checkpoints/$(printf 'step-%08d' "$(newest)")" >out 2>err ||
        complain "$comm: a broken checkpoint"
done
[ "$mpi" = ON ] || [ "$ucx" = ON ] || {
    echo "SKIPPED: a build with neither MPI nor UCX"
    exit 77
}
conclude
