#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Wrong command lines, as people write them who know another tool: each ends with exit code 2 and a
# hint, and the line that the hint names works.
#     hints.sh ECHELON
set -u
echelon=${1:?usage: hints.sh ECHELON}
[ -x "$echelon" ] || { echo "no program $echelon"; exit 1; }
# shellcheck source-path=SCRIPTDIR source=scratch.sh
. "$(dirname "$0")/scratch.sh"
# shellcheck source-path=SCRIPTDIR source=expect.sh
. "$(dirname "$0")/expect.sh"
here=$(cd "$(dirname "$0")" && pwd)
enter hints
export OMP_NUM_THREADS=1

cat >run.yaml <<'Y'
model: {architecture: llama, hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 4}
data: {train: d, sequence_length: 16}
training: {steps: 6, global_batch_size: 8}
optimizer: {learning_rate: 3e-3}
parallel: {comm: local}
log: {directory: runs/one}
Y
sed 's/num_hidden_layers: 2/n_layer: 2/' run.yaml >layers.yaml
sed 's/steps: 6/max_steps: 6/' run.yaml >steps.yaml
printf 'PAR1not really' >texts.parquet
echo "some text to read" >book.txt

while IFS='|' read -r wrong says right; do
    [[ $wrong && $wrong != "#"* ]] || continue
    # shellcheck disable=SC2086 # words
    expect 2 "$says" "$echelon" $wrong
    # shellcheck disable=SC2086
    [ -z "$right" ] || expect 0 "" "$echelon" $right
done <"$here/hints.cases"

# A file that is no text says how it becomes one.
expect 1 "a Parquet file; .*read_parquet" "$echelon" data texts.parquet out
! grep -q iconv err || complain "iconv for a Parquet file"

# What an error about memory offers, works: every setting by itself, or several together.
offers() {
    sed -n 's/.*what would help: \(.*\), or more bytes.*/\1/p' err | sed 's/, /\n/g' | grep =
}
for limit_of in 1000KB 800KB 650KB 400KB; do
    words="plan run.yaml --ranks 4 training.global_batch_size=16 memory.device_limit=$limit_of"
    # shellcheck disable=SC2086
    expect 2 "what would help: " "$echelon" $words
    offers >offered
    while read -r offer; do
        # shellcheck disable=SC2086
        expect 0 "" "$echelon" $words $offer
    done <offered
    offered=$((${offered:-0} + $(wc -l <offered)))
done
[ "${offered:-0}" -gt 3 ] || complain "only ${offered:-0} settings were offered"

# ---- help about keys and names, the version ----

expect 0 "parallel.zero" "$echelon" help keys parallel
! grep -q "optimizer\.beta1" out || complain "keys of another section"
expect 0 "model.rope_theta" "$echelon" help keys rotary
expect 0 "optimizer.learning_rate" "$echelon" help key lr
expect 0 "With optimizer.name = muon the default is 0.95" "$echelon" help key momentum
expect 0 "n_layer +model.num_hidden_layers" "$echelon" help names
expect 0 "^echelon [0-9.]+ \(commit ([0-9a-f]{7,}(-dirty)?|unknown)\)" "$echelon" version
"$echelon" --version >other
cmp -s out other || complain "--version and version differ"
conclude
