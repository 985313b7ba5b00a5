#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Cases of the lattice over parallel.comm = ucx, a process a rank: they leave the bits that `local`,
# whose ranks are threads, leaves: weights and states of every checkpoint; losses, norms, rates and
# bytes of every step; validation. The cases are lines of tools/same_bits.cases, as in test_nccl.c;
# ECHELON_LATTICE=all takes all.
#     ucx_cases.sh ECHELON CASES UCX       ON or OFF: whether the build has it
set -u
echelon=${1:?usage: ucx_cases.sh ECHELON CASES UCX} cases=${2:?CASES} ucx=${3:?UCX}
# shellcheck source-path=SCRIPTDIR source=scratch.sh
. "$(dirname "$0")/scratch.sh"
# shellcheck source-path=SCRIPTDIR source=expect.sh
. "$(dirname "$0")/expect.sh"
[ "$ucx" = ON ] || { echo "skipped: this build is without UCX"; exit 77; }
enter ucx_cases
export OMP_NUM_THREADS=1
unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT ECHELON_SECRET
limit=(timeout 120)
every=6
[ "${ECHELON_LATTICE:-}" != all ] || every=1

seq -s ' and then ' 1 400 >text.txt
"$echelon" data text.txt text --valid 0.2 >/dev/null 2>&1 || exit 1
make_run model.architecture=gpt2 model.hidden_size=32 model.num_attention_heads=8 \
    model.intermediate_size=48 \
    data.train=text-train data.valid=text-valid data.sequence_length=24 training.steps=4 \
        training.validate_every=4 \
    training.validate_samples=12 training.check_every=0 training.global_batch_size=4 \
        optimizer.weight_decay=0.1 \
    checkpoint.every=2 checkpoint.keep=10

# digests RUN: what the run leaves, a line each. When a checkpoint in the background is done is no
# matter.
digests() {
    local keys='step\|loss\|grad_norm\|learning_rate\|valid_loss\|tokens\|bytes_sent'
    (cd "$1" && find . -type f -name '*.safetensors' -print0 | sort -z | xargs -0 -r sha256sum &&
        grep -h 'loss"' metrics.jsonl |
            grep -o "\"\($keys\)\": *[^,}]*")
}

line=0 compared=0
while read -r ranks words; do
    line=$((line + 1))
    [[ $words != *parallel.comm=mpi* ]] || continue
    [ $((line % every)) = 0 ] || continue
    read -ra keys <<<"$words"
    for comm in local ucx; do
        expect 0 "saved step-0*4" "$echelon" train run.yaml --ranks "$ranks" "${keys[@]}" \
            checkpoint.keep=10 parallel.comm=$comm log.directory=$comm
        digests $comm >$comm.bits
        [ "$(grep -c safetensors $comm.bits)" -ge 2 ] ||
            complain "line $line leaves no weights over $comm"
        [ "$(grep -c '"loss"' $comm.bits)" = 4 ] ||
            complain "line $line leaves no losses over $comm"
    done
    cmp -s local.bits ucx.bits ||
        complain "line $line of $cases: over ucx other bits than over local: $(diff local.bits \
        ucx.bits | head -4)"
    rm -rf local ucx
    compared=$((compared + 1))
done <"$cases"
[ $compared -ge 6 ] || complain "$compared cases are too few"
conclude
