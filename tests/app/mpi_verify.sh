#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Layouts against one rank over MPI: a subset that covers ranks 1 to 4, micro-batches 1 to 3, every
# reduction and both families. (The whole lattice runs on threads: test_verify.c.)
#     mpi_verify.sh ECHELON
set -u
echelon=${1:?usage: mpi_verify.sh ECHELON}
folder=$(mktemp -d "${TMPDIR:-/tmp}/echelon-mpi-XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
export OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0
failures=0

seq -s ' and then ' 1 400 >text.txt
"$echelon" data text.txt text >/dev/null 2>&1 || exit 1
cat >run.yaml <<'Y'
model:
  architecture: llama
  hidden_size: 16
  num_hidden_layers: 2
  num_attention_heads: 4
data:
  train: text
  sequence_length: 12
training:
  steps: 4
  global_batch_size: 12
  micro_batch_size: 1
optimizer:
  learning_rate: 0.01
parallel:
  threads: 1
  bucket_bytes: 8KiB
log:
  directory: run
Y

# verify RANKS MICRO_BATCHES section.key=value ...
verify() {
    local ranks=$1 micro=$2
    shift 2
    if ! timeout 120 "$echelon" verify run.yaml --ranks "$ranks" \
        training.global_batch_size=$((2 * ranks * micro)) training.micro_batch_size=2 "$@" \
        >out 2>&1 || ! grep -q '^PASSED' out; then
        echo "FAILED: $ranks ranks, $micro micro-batches, $*"
        sed 's/^/    | /' out
        failures=$((failures + 1))
    fi
}

verify 1 3 model.architecture=gpt2
verify 2 1 parallel.reduction=direct
verify 2 3 parallel.reduction=mpi model.architecture=gpt2 model.resid_pdrop=0.1
verify 3 2 parallel.reduction=ring model.architecture=gpt2 model.attn_pdrop=0.2
verify 3 1 parallel.reduction=naive model.num_key_value_heads=2
verify 4 3 parallel.reduction=direct model.tie_word_embeddings=true
verify 4 2 parallel.reduction=ring optimizer.name=sgd optimizer.momentum=0.9
verify 2 2 parallel.reduction=naive model.architecture=gpt2 parallel.bucket_bytes=1
[ "$failures" = 0 ] && echo "8 layouts verified over MPI"
exit "$failures"
