#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What would count as success without anything having been done: data without a target, steps and
# validations in which no token counts, and keys that do nothing in a run.
#     nothing.sh ECHELON
set -u
echelon=${1:?usage: nothing.sh ECHELON}
# shellcheck source-path=SCRIPTDIR source=scratch.sh
. "$(dirname "$0")/scratch.sh"
# shellcheck source-path=SCRIPTDIR source=expect.sh
. "$(dirname "$0")/expect.sh"
enter nothing
export OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0

# little BYTES N: N as so many bytes, the lowest first
little() {
    local i
    for ((i = 0; i < $1; i++)); do printf '%b' "\\x$(printf %02x $(($2 >> 8 * i & 255)))"; done
}

# write_tokens PREFIX "LENGTH MODE ...": a token file of one document, with these sequences, of
# which those of mode 1 are not trained on
write_tokens() {
    local n at=0 total=0 pairs
    read -ra pairs <<<"$2"
    n=$((${#pairs[@]} / 2))
    {
        printf 'MMIDIDX\0\0'
        little 8 1; little 1 8; little 8 $n; little 8 2
        for ((i = 0; i < n; i++)); do little 4 "${pairs[2 * i]}"; done
        for ((i = 0; i < n; i++)); do
            little 8 $at
            at=$((at + 2 * pairs[2 * i]))
        done
        little 8 0; little 8 $n
        for ((i = 0; i < n; i++)); do little 1 "${pairs[2 * i + 1]}"; done
    } >"$1.idx"
    total=$((at / 2))
    for ((i = 0; i < total; i++)); do printf 'a\0'; done >"$1.bin"
}

make_tokens
write_tokens prompts "60 1 40 1"
write_tokens mixed "85 1 12 0"
make_run training.steps=2 model.num_hidden_layers=1

# ---- no target at all ----

expect 1 "data.train: prompts has 100 tokens and no target: all of them are of prompts" \
    "$echelon" train run.yaml data.train=prompts
expect 1 "data.train: prompts has 100 tokens and no target" \
    "$echelon" verify run.yaml data.train=prompts
expect 1 "data.train: prompts has 100 tokens and no target" \
    "$echelon" train run.yaml data.train="0.5 text 0.5 prompts"
expect 1 "data.valid: prompts has 100 tokens and no target" \
    "$echelon" train run.yaml data.valid=prompts
[ ! -e run/checkpoints ] || complain "something was trained"

# ---- steps and validations of which no token counts ----

expect 0 "step +[0-9]+/8 \| loss: none, no token is a target" "$echelon" train run.yaml \
    data.train=mixed data.valid=mixed training.validate_samples=2 training.global_batch_size=1 \
    training.steps=8 log.every=1
also "validation loss: none, no token is a target \| 0 tokens"
grep -q '"loss":null,' run/metrics.jsonl || complain "a loss of nothing is a number"
grep -q '"valid_loss":null,"valid_tokens":0' run/metrics.jsonl ||
    complain "a validation of nothing is a number"
! grep -q '"loss":0[,.]' run/metrics.jsonl || complain "a loss of 0"
expect 1 "data: prompts has 100 tokens and no target" "$echelon" eval run --data prompts
expect 2 "samples 2: none of these tokens is a target" "$echelon" eval run --data mixed --samples 2
expect 0 "tokens 12$" "$echelon" eval run --data mixed

# ---- keys that do nothing ----

# warns TEXT KEY=VALUE ...: the run ends well, with this warning
warns() {
    rm -rf run
    expect 0 "warning: $1" "$echelon" train run.yaml "${@:2}"
}
warns "optimizer.warmup_steps = 9 of training.steps = 2: the learning rate ends at 0.00222 " \
    optimizer.warmup_steps=9
warns "optimizer.decay_steps = 5, and training.steps = 2 leave 1 after" optimizer.schedule=wsd \
    optimizer.decay_steps=5 optimizer.warmup_steps=1
warns "data.document_mask: text.bin is one document" data.document_mask=true
warns "data.split = 1,0,0 leaves all documents to train on" data.split=1,0,0
rm -rf run
expect 0 "" "$echelon" train run.yaml optimizer.warmup_steps=2
! grep -q warning out err || complain "a warning of nothing"
conclude
