#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Exit codes do not depend on how ranks communicate: threads, processes under mpirun, processes that
# `echelon launch` starts.
#     exit_codes.sh ECHELON
set -u
echelon=${1:?usage: exit_codes.sh ECHELON}
[ -x "$echelon" ] || { echo "no program $echelon"; exit 1; }
# shellcheck source-path=SCRIPTDIR source=scratch.sh
. "$(dirname "$0")/scratch.sh"
# shellcheck source-path=SCRIPTDIR source=expect.sh
. "$(dirname "$0")/expect.sh"
enter exit_codes
export OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0 # what MPI libraries leak is not ours

for i in $(seq 300); do echo "line $i of a text to learn"; done >book.txt
"$echelon" data book.txt d >out 2>err || complain "no tokens"
cat >run.yaml <<'Y'
model: {architecture: gpt2, hidden_size: 16, num_hidden_layers: 2, num_attention_heads: 2}
data: {train: d, sequence_length: 16}
training: {steps: 4, global_batch_size: 8}
optimizer: {learning_rate: 3e-3}
parallel: {threads: 1}
log: {directory: runs/one}
Y

for comm in local mpi ucx; do
    try() {
        expect "$1" "$2" timeout 120 "$echelon" "${@:3}" --ranks 2 parallel.comm=$comm \
            log.directory=runs/$comm
    }
    if "$echelon" version | grep -iqE "^$comm: .*(without|not|no )"; then
        echo "SKIPPED: $("$echelon" version | grep -i "^$comm: ")"
        continue
    fi
    try 0 "saved step-00000004" train run.yaml
    try 0 "nothing to do|already|are done" train run.yaml
    try 2 "may not change on resume" train run.yaml training.seed=3
    try 2 "does not divide" train run.yaml training.global_batch_size=7 \
        training.micro_batch_size=1 parallel.data=2
    try 2 "checkpoint.resume = never" train run.yaml checkpoint.resume=never
    try 1 "NaN or infinity" train run.yaml checkpoint.directory=runs/nan-$comm training.steps=60 \
        optimizer.learning_rate=1e6 optimizer.clip_norm=0 optimizer.name=sgd \
        model.initializer_range=5
    try 75 "" train run.yaml checkpoint.directory=runs/limit-$comm training.time_limit=0.001
    try 0 "PASSED" verify run.yaml
    try 1 "FAILED" verify run.yaml --tolerance 1e-300
done
conclude
