#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Errors' hints lead on: hints.py follows the rows of hints.cases, and finds every hint of the
# program in them or in hints.unfollowed. Makes what the rows use.
#     hints.sh ECHELON SOURCE
set -u
echelon=${1:?usage: hints.sh ECHELON SOURCE}
source=${2:?usage: hints.sh ECHELON SOURCE}
[ -x "$echelon" ] || { echo "no program $echelon"; exit 1; }
# shellcheck source-path=SCRIPTDIR source=scratch.sh
. "$(dirname "$0")/scratch.sh"
# shellcheck source-path=SCRIPTDIR source=expect.sh
. "$(dirname "$0")/expect.sh"
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$source" && pwd)
enter hints
export OMP_NUM_THREADS=1

# ---- run files ----

# run_file NAME TRAINING DATA MODEL [OPTIMIZER]: NAME.yaml, with the keys of these sections
run_file() {
    printf '%s\n' "model: {$4}" "data: {train: $3}" "training: {$2}" \
        "optimizer: {${5:-learning_rate: 3e-3}}" "parallel: {comm: local, threads: 1}" \
        "log: {directory: runs/$1}" >"$1.yaml"
}

llama="architecture: llama, hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 4"
batch="global_batch_size: 8"
image="image_height: 32, image_width: 32, num_classes: 10"
sgd="name: sgd, learning_rate: 0.1"
run_file one "steps: 6, $batch" "d, sequence_length: 16" "$llama"
mv one.yaml run.yaml
sed 's/num_hidden_layers: 2/n_layer: 2/' run.yaml >layers.yaml
sed 's/steps: 6/max_steps: 6/' run.yaml >steps.yaml
{ echo 'model.hidden_size: 32' && sed 's/hidden_size: 32, //' run.yaml; } >dotted.yaml
sed 's/steps: 6/epochs: 1/' run.yaml >epochs.yaml
mkdir own && sed 's|runs/one|own|' run.yaml >own/run.yaml
sed 's/steps: 6/steps: [6, 7]/' run.yaml >listed.yaml
{ sed '/^log:/d' run.yaml && printf 'log:\n  directory: |\n    runs/one\n'; } >block.yaml
run_file init "steps: 4, $batch" "d, sequence_length: 16" "init_from: model"
run_file img "steps: 2, $batch, micro_batch_size: 8" shapes.images \
    "architecture: resnet, weight_layers: 18, $image" "$sgd"
run_file features "steps: 4, $batch" "few, sequence_length: 3" \
    "architecture: logistic, vocab_size: 8" "$sgd"
run_file experts "steps: 2, global_batch_size: 4, micro_batch_size: 4" "d, sequence_length: 16" \
    "architecture: switch, hidden_size: 16, num_hidden_layers: 2, num_attention_heads: 2, \
num_local_experts: 2, moe_capacity_factor: 2, moe_group_samples: 2"

# ---- texts, tokens, images, clusters ----

seq -s ' and then ' 1 400 >book.txt
seq 1 900 >numbers.txt
printf a >one.txt
printf 'ab\377cd\n' >latin.txt
printf 'PAR1not really' >texts.parquet
printf '{\n "a": 1,\n "b": [2]\n}\n' >one.json
printf '%s\n' '{"text": "a"}' '{"text": "b' >badlines.jsonl
echo '{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes"}]}' \
    >chats.jsonl
sed 's/\[/&{"role": "system", "content": "Be short."}, /' chats.jsonl >system.jsonl
item='{"question": "What?", "choices": ["a", "b"], "answer": 0}'
echo "$item" >items.jsonl
echo "${item/\"a\"/\"\"}" >nothing.jsonl
echo "${item/\"a\"/1}" >untext.jsonl
echo "${item/What/$(seq -s ' ' 900)}" >long.jsonl
for i in $(seq 40); do echo "$((i % 2)) 1:0.5 3:0.$((i % 9 + 1)) 7:1"; done >few.svm
printf '1 1:0.5\n2 2:1\n3 3:1\n' >three.svm
printf '1 1:0.5\n0 2:1\n-1 3:1\n' >mixed.svm
echo '1 qid:3 1:0.5' >rank.svm
echo '1 1:0.5 x' >pair.svm
printf abc >odd.bin
printf abcdefgh >bad.images
mkdir -p pictures/a pictures/b
echo x >pictures/a/x.txt
cp "$source/clusters/h100.yaml" c.yaml
{ cat c.yaml && echo 'storage: {bandwidth: 10 GB/s}'; } >s.yaml
grep -v fp32: c.yaml >n.yaml
echo '{"version": "x"}' >c.json

# ---- what the program makes of them ----

make() {
    "$echelon" "$@" >out 2>err </dev/null || complain "cannot prepare: $*"
}

make data book.txt d
make data numbers.txt other
make data few.svm few
make data book.txt bpe --train-bpe 300
make data book.txt bpet --tokenizer bpe
cp d.bin nod.bin
cp d.idx nod.idx
python3 "$source/examples/make_shapes.py" shapes --train 24 --test 12 >out 2>err ||
    complain "no shapes"
make data shapes/data_batch_1.bin shapes --images
for run in run img features experts; do make train $run.yaml; done
make train run.yaml data.sequence_length=64 log.directory=runs/wide
make train run.yaml --ranks 3 parallel.strategy=asp parallel.flush_every=2 log.directory=runs/asp
make profile run.yaml parallel.threads=2 --out p1.json
make profile run.yaml --ranks 2 --out p2.json
saved=checkpoints/step-00000006/model
cp -r runs/one/$saved model
mkdir bare plain tied
cp model/config.json model/model.safetensors bare
cp runs/wide/$saved/config.json runs/wide/$saved/model.safetensors plain
cp model/model.safetensors tied
sed 's/"tie_word_embeddings": *false/"tie_word_embeddings": true/' model/config.json \
    >tied/config.json

# ---- hints ----

checks=$((checks + 1))
python3 "$here/hints.py" "$echelon" "$source" "$here/hints.cases" "$here/hints.unfollowed" ||
    failures=$((failures + 1))

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
! grep -q "^ *optimizer\.beta1$" out || complain "keys of another section"
expect 0 "model.rope_theta" "$echelon" help keys rotary
expect 0 "optimizer.learning_rate" "$echelon" help key lr
expect 0 "With optimizer.name = muon the default is 0.95" "$echelon" help key momentum
expect 0 "n_layer +model.num_hidden_layers" "$echelon" help names
expect 0 "^echelon [0-9.]+ \(commit ([0-9a-f]{7,}(-dirty)?|unknown)\)" "$echelon" version
"$echelon" --version >other
cmp -s out other || complain "--version and version differ"
conclude
