#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Layouts against one rank over MPI, from outside: a subset that covers ranks 1 to 4, micro-batches
# 1 to 3, every reduction, both families, and every schedule with and without replicas. (The whole
# lattice runs on threads: test_verify.c, test_verify_pipeline.c, test_asynchronous.c; and over MPI
# with every kind of send: mpi_pipeline.c.)
#     mpi_verify.sh ECHELON
set -u
echelon=${1:?usage: mpi_verify.sh ECHELON}
# shellcheck source-path=SCRIPTDIR source=scratch.sh
. "$(dirname "$0")/scratch.sh"
# shellcheck source-path=SCRIPTDIR source=expect.sh
. "$(dirname "$0")/expect.sh"
enter verify
export OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0
limit=(timeout 120)

make_tokens
make_run training.steps=4 parallel.bucket_bytes=8KiB

# verify RANKS MICRO_BATCHES section.key=value ...   (of 2 samples; so many for each rank)
verify() {
    local ranks=$1 micro=$2
    shift 2
    expect 0 '^PASSED' "$echelon" verify run.yaml --ranks "$ranks" \
        training.global_batch_size=$((2 * ranks * micro)) training.micro_batch_size=2 "$@"
}

verify 1 3 model.architecture=gpt2
verify 2 1 parallel.reduction=direct
verify 2 3 parallel.reduction=mpi model.architecture=gpt2 model.resid_pdrop=0.1
verify 3 2 parallel.reduction=ring model.architecture=gpt2 model.attn_pdrop=0.2
verify 3 1 parallel.reduction=naive model.num_key_value_heads=2
verify 4 3 parallel.reduction=direct model.tie_word_embeddings=true
verify 4 1 parallel.reduction=torus model.architecture=gpt2
verify 3 2 parallel.reduction=hierarchical parallel.node_ranks=2 model.architecture=gpt2
verify 4 2 parallel.reduction=ring optimizer.name=sgd optimizer.momentum=0.9
verify 2 2 parallel.reduction=naive model.architecture=gpt2 parallel.bucket_bytes=1

verify 2 2 parallel.pipeline=2 parallel.schedule=gpipe model.tie_word_embeddings=true
verify 3 1 parallel.pipeline=3 parallel.schedule=1f1b model.architecture=gpt2 \
    "parallel.partition=[0,1,1]"
verify 4 2 parallel.pipeline=2 parallel.schedule=zero-bubble model.attn_pdrop=0.1
verify 4 1 parallel.pipeline=4 parallel.schedule=naive model.architecture=gpt2
verify 2 2 parallel.pipeline=2 parallel.schedule=interleaved parallel.virtual_stages=2
verify 4 2 parallel.pipeline=2 parallel.schedule=interleaved parallel.virtual_stages=2 \
    parallel.reduction=ring model.architecture=gpt2
verify 4 3 parallel.pipeline=4 parallel.schedule=zero-bubble-v model.num_hidden_layers=6 \
    model.architecture=gpt2
verify 4 2 parallel.pipeline=2 parallel.schedule=zero-bubble-v model.tie_word_embeddings=true \
    model.attn_pdrop=0.1
verify 4 1 parallel.pipeline=2 parallel.reduction=mpi model.tie_word_embeddings=true
verify 4 2 "parallel.stage_replicas=[3, 1]" model.architecture=gpt2 parallel.reduction=naive
verify 4 1 "parallel.stage_replicas=[1,2,1]" parallel.schedule=gpipe parallel.reduction=mpi

# In the run's own precision, too.
verify 4 2 parallel.tensor=2 --own-precision
also '^PASSED     within 1e-11, and [0-9.e-]+ in fp32$'
verify 4 1 parallel.tensor=4 parallel.sequence=true model.architecture=qwen3 \
    model.num_key_value_heads=2 model.head_dim=6

# Asynchronous: against the replay.
untied=model.tie_word_embeddings=false
verify 2 1 parallel.pipeline=2 parallel.schedule=pipedream $untied
verify 3 1 parallel.pipeline=3 parallel.schedule=pipedream parallel.vertical_sync=true $untied
verify 3 1 parallel.pipeline=3 parallel.schedule=pipedream parallel.weight_stashing=false $untied \
    optimizer.clip_norm=0.1
verify 3 2 "parallel.stage_replicas=[2,1]" parallel.schedule=pipedream $untied
verify 2 2 parallel.pipeline=2 parallel.schedule=pipedream-2bw $untied optimizer.name=sgd
verify 4 2 parallel.pipeline=2 parallel.schedule=pipedream-2bw $untied model.architecture=gpt2 \
    parallel.reduction=mpi parallel.flush_every=2

# Orders written by hand.
cat >order.txt <<'O'
F0.0 F0.1 F0.2 F0.3 B0.0 W0.0 B0.1 B0.2 W0.1 B0.3 W0.2 W0.3
F0.0 B0.0 F0.1 F0.2 B0.1 W0.0 W0.1 F0.3 B0.2 W0.2 B0.3 W0.3
O
verify 2 2 parallel.pipeline=2 parallel.schedule=order.txt
verify 4 2 parallel.pipeline=2 parallel.schedule=./order.txt
conclude
