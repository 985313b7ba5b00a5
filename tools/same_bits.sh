#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves that a change of code changes no result. It builds the commit BASE beside this tree, trains
# the cases of tools/same_bits.cases with both, and compares their files bit for bit: weights and
# states of every checkpoint, and losses, norms and learning rates of every step and validation.
# Plans may differ; those that do are listed.
#
#   tools/same_bits.sh BASE [CASE ...]     CASE: numbers, from 1; all without
#
#   SAME_BITS_FOLDER                keeps both builds and runs, so the next call builds less
#   SAME_BITS_BASE, SAME_BITS_NEW   programs to use instead of building
#   SAME_BITS_WORDS                 further words for this tree's program
#
# The cases cover the lattice of app/lattice with all types, optimizers and ways to recompute, every
# schedule, local ranks and 2 ranks over MPI:
#   ECHELON_LATTICE=print build/release/tests/test_app_lattice > tools/same_bits.cases
# What BASE does not know yet is refused by it, and listed as new. Exit code 1: something differs.
set -uo pipefail

[ $# -ge 1 ] || { sed -n '3,17s/^# \{0,1\}//p' "$0" >&2; exit 2; }
base=$1
shift
here=$(cd "$(dirname "$0")/.." && pwd)
cd "$here" || exit 1
commit=$(git rev-parse --verify --quiet "$base^{commit}") ||
    { echo "$base: no such commit" >&2; exit 2; }
if [ -n "${SAME_BITS_FOLDER:-}" ]; then
    mkdir -p "$SAME_BITS_FOLDER" && folder=$(cd "$SAME_BITS_FOLDER" && pwd) || exit 1
else
    folder=$(mktemp -d) || exit 1
    trap 'rm -rf "$folder"' EXIT
fi

# build NAME SOURCE: the program $folder/NAME/echelon
build() {
    local log=$folder/$1.log
    if ! { cmake -S "$2" -B "$folder/$1" -G Ninja -DCMAKE_BUILD_TYPE=Release -DECH_TESTS=OFF &&
        cmake --build "$folder/$1" --target echelon; } >"$log" 2>&1; then
        echo "the build of $1 fails:" >&2
        tail -n 30 "$log" >&2
        exit 1
    fi
}

old=${SAME_BITS_BASE:-$folder/base/echelon} new=${SAME_BITS_NEW:-$folder/new/echelon}
if [ -z "${SAME_BITS_BASE:-}" ]; then
    rm -rf "$folder/source" && mkdir "$folder/source" || exit 1
    # Files as old as their commit, so that a build of the same one finds nothing to do.
    git archive "$commit" | tar -x -C "$folder/source" || exit 1
    build base "$folder/source"
fi
[ -n "${SAME_BITS_NEW:-}" ] || build new "$here"

export OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
runs=$folder/runs
rm -rf "$runs" && mkdir "$runs" && cd "$runs" || exit 1
seq -s ' and then ' 1 400 >text.txt
"$old" data text.txt text --valid 0.2 >/dev/null 2>&1 || { echo "$old data: failed" >&2; exit 1; }
cat >run.yaml <<'Y'
model: {architecture: gpt2, hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 8,
        intermediate_size: 48}
data: {train: text-train, valid: text-valid, sequence_length: 24}
training: {steps: 4, global_batch_size: 4, validate_every: 4, validate_samples: 12, check_every: 0}
optimizer: {learning_rate: 1e-2, weight_decay: 0.1}
checkpoint: {every: 4, keep: 10}
parallel: {threads: 1}
Y

# train PROGRAM FOLDER RANKS WORDS: leaves FOLDER/run, FOLDER/plan, FOLDER/err; its exit code
train() {
    local program=$1 out=$2 ranks=$3
    shift 3
    mkdir -p "$out"
    "$program" train run.yaml --ranks "$ranks" log.directory="$out/run" "$@" >"$out/out" \
        2>"$out/err" || return
    "$program" plan run.yaml --ranks "$ranks" --steps log.directory=none "$@" >"$out/plan" 2>&1
}

# digests RUN: a line a file of the checkpoints that holds numbers, and each metrics line without
# times and places
digests() {
    local keys='step\|loss\|grad_norm\|learning_rate\|valid_loss\|tokens\|bytes_sent'
    (cd "$1" && find . -type f -name '*.safetensors' -print0 | sort -z | xargs -0 -r sha256sum &&
        grep -ho "\"\($keys\)\": *[^,}]*" metrics.jsonl)
}

number=0 compared=0 different=0 added=0 plans=""
while read -r ranks words; do
    number=$((number + 1))
    [ $# -eq 0 ] || [[ " $* " == *" $number "* ]] || continue
    read -ra keys <<<"$words"
    train "$old" "base$number" "$ranks" "${keys[@]}"
    before=$?
    # shellcheck disable=SC2086
    train "$new" "new$number" "$ranks" "${keys[@]}" ${SAME_BITS_WORDS:-}
    after=$?
    if [ $before -eq 2 ] && [ $after -eq 0 ]; then
        added=$((added + 1))
        echo "$number: new (BASE: $(tail -n 1 "base$number/err"))"
        continue
    fi
    compared=$((compared + 1))
    digests "base$number/run" >"base$number/bits" 2>/dev/null
    digests "new$number/run" >"new$number/bits" 2>/dev/null
    if [ $before -ne 0 ] || [ $after -ne 0 ] || [ ! -s "base$number/bits" ] ||
        ! cmp -s "base$number/bits" "new$number/bits"; then
        different=$((different + 1))
        echo "$number: DIFFERENT (exit codes $before, $after):" \
            "echelon train run.yaml --ranks $ranks $words"
        diff "base$number/bits" "new$number/bits" | head -n 6
        [ $after -eq 0 ] || tail -n 3 "new$number/err"
    fi
    if ! cmp -s "base$number/plan" "new$number/plan"; then
        lines=$(diff "base$number/plan" "new$number/plan" | grep -c '^[<>]')
        plans+=$(printf '\n  case %d: %d lines' "$number" "$lines")
    fi
done <"$here/tools/same_bits.cases"

[ -z "$plans" ] || echo "plans differ:$plans"
[ "$compared" -gt 0 ] || { echo "no case was compared" >&2; exit 1; }
if [ $different -gt 0 ]; then
    echo "$different of $compared cases differ from ${commit:0:7}"
    exit 1
fi
echo "same: $compared cases as in ${commit:0:7}, $added new"
