#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Plans for clusters: each file of clusters/ is read, a plan needs no data, and errors name what
# would work.
#     cluster.sh ECHELON CLUSTERS
set -u
echelon=${1:?usage: cluster.sh ECHELON CLUSTERS} clusters=${2:?usage: cluster.sh ECHELON CLUSTERS}
# shellcheck source-path=SCRIPTDIR source=scratch.sh
. "$(dirname "$0")/scratch.sh"
enter cluster
cat >run.yaml <<END
model: {architecture: llama, hidden_size: 256, num_hidden_layers: 4, num_attention_heads: 4,
        vocab_size: 512}
data: {sequence_length: 64}
training: {steps: 10, global_batch_size: 32, micro_batch_size: 1}
optimizer: {learning_rate: 1e-3}
END
# expect CODE TEXT WORD ...
expect() {
    local code=$1 text=$2 got
    shift 2
    "$@" >out 2>&1 </dev/null
    got=$?
    [ $got = "$code" ] || complain "exit code $got instead of $code: $*: $(cat out)"
    grep -Eq -e "$text" out || complain "not said: $text: $(cat out)"
}
# a rank that is slowed down, also where its pushes may be dropped
delayed=$("$echelon" plan run.yaml --ranks 4 --cluster "$clusters/h100.yaml" --json \
    parallel.delay=1:3 | sed -n 's/.*"step_time": \([0-9]*\).*/\1/p' | head -n 1)
[ "${delayed:-0}" -ge 3 ] || complain "a delay of 3 s is not in the time: $delayed"
expect 0 '^cluster .* a step \(between [0-9]' "$echelon" plan run.yaml --ranks 5 \
    --cluster "$clusters/h100.yaml" parallel.strategy=asp parallel.delay=1:3
n=0
for file in "$clusters"/*.yaml; do
    expect 0 '^cluster .* a step \(between ' "$echelon" plan run.yaml --ranks 16 --cluster "$file" \
        parallel.tensor=2 parallel.pipeline=2
    n=$((n + 1))
done
[ $n -ge 6 ] || complain "there are $n cluster files"
h100=$clusters/h100.yaml
expect 0 '4.7 Gtokens: .* device hours' \
    "$echelon" plan run.yaml --ranks 8 --cluster "$h100" --tokens 4.7B
expect 2 'tokens=4.7X: not a number of tokens; write it like 300B' \
    "$echelon" plan run.yaml --ranks 8 --cluster "$h100" --tokens 4.7X
expect 2 'needs a cluster; add --cluster' "$echelon" plan run.yaml --ranks 8 --tokens 1T
expect 2 '12 ranks are no whole units of 8; use 8 or 16' \
    "$echelon" plan run.yaml --ranks 12 --cluster "$h100"
expect 1 'none.yaml: cannot open' "$echelon" plan run.yaml --ranks 8 --cluster none.yaml
sed 's/bandwidth: 3350 GB/bandwith: 3350 GB/' "$h100" >wrong.yaml
expect 2 'wrong.yaml:[0-9]+:3: device.bandwith: no such key; .* bandwidth' \
    "$echelon" plan run.yaml --ranks 8 --cluster wrong.yaml
sed 's/memory: 80 GB/memory: 2150 MB/; /fp64:/d' "$h100" >small.yaml
expect 2 'rank 0 needs .* and may use .*the largest part: [a-z]+ .*more ranks, a smaller model' \
    "$echelon" plan run.yaml --ranks 1 --cluster small.yaml
expect 2 'more ranks, a smaller model, or more bytes' \
    "$echelon" plan run.yaml --ranks 8 --cluster small.yaml
"$echelon" plan run.yaml --ranks 16 --cluster "$h100" --json >plan.json || complain "no JSON"
for key in tokens_per_second tokens days device_hours; do
    grep -q "\"$key\"" plan.json || complain "JSON has no $key of the forecast"
done
expect 0 'parameters' "$echelon" plan run.yaml --ranks 8 --cluster "$h100" --html plan.html
if ! grep -q '"train": \[{"lane": ' plan.html || ! grep -q '</html>' plan.html; then
    complain "the page lacks its lists of steps"
fi
expect 1 '/dev/full: cannot write' \
    "$echelon" plan run.yaml --ranks 8 --cluster "$h100" --html /dev/full
expect 0 '^layout +8 ranks, on H100' "$echelon" plan run.yaml --ranks 8 --cluster "$h100"
expect 0 '^memory .* on a device of the cluster; limit' \
    "$echelon" plan run.yaml --ranks 8 --cluster "$h100"
expect 0 'rank 0 to 1: 32 messages of 64.0 KiB' \
    "$echelon" plan run.yaml --ranks 2 --cluster "$h100" --simulate parallel.pipeline=2
[ ! -e run ] || complain "a plan makes files"

# ---- from a model folder alone ----

mkdir model
cat >model/config.json <<END
{"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
 "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512,
 "max_position_embeddings": 2048, "tie_word_embeddings": false}
END
expect 0 '1.0 Ttokens: ' "$echelon" plan --model model --ranks 16 --cluster "$h100" --tokens 1T
expect 0 'parameters in 4 blocks' "$echelon" plan --model model --ranks 3
# As many layers as GPT-2 large, of 1,024 positions: a plan does not hold a batch's micro-batches
# of one sample.
mkdir many
sed 's/"num_hidden_layers": 2/"num_hidden_layers": 36/; s/2048/1024/' model/config.json \
    >many/config.json
expect 0 'parameters in 38 blocks' "$echelon" plan --model many
expect 0 '64 ranks' "$echelon" plan parallel.tensor=2 --model model --ranks 64 parallel.zero=1
expect 2 'train runs on this machine; use it without that, or .* echelon plan --cluster' \
    "$echelon" train run.yaml --cluster "$h100"
mkdir -p misspelt
echo '{"model_type": "llamma"}' > misspelt/config.json
expect 1 'Echelon has no family of that name; the nearest name is llama;' \
    "$echelon" plan --model misspelt --cluster "$h100"
expect 2 'which run file\? Or which model: --model FOLDER' "$echelon" plan
expect 2 'give one of them|not understood; the model is' "$echelon" plan run.yaml --model model
expect 2 'nowhere: no such folder' "$echelon" plan --model nowhere
expect 2 'flops.fp64: not set, and the run computes' \
    "$echelon" plan --model model --cluster small.yaml precision.compute=fp64
expect 2 'echelon init model`:[0-9]+:[0-9]+: parallel.zero = 3' \
    "$echelon" plan --model model --ranks 4 parallel.reduction=naive
expect 2 'not with --cluster' \
    "$echelon" plan --model model --cluster "$h100" parallel.node_bandwidth=1GB
expect 0 '^  sequence_length: 2048 +# max_position_embeddings \(2048\)' "$echelon" init model
"$echelon" init model "a run.yaml" || complain "init writes no file"
expect 0 'parameters in 4 blocks' "$echelon" plan "a run.yaml" training.global_batch_size=8
expect 2 'a run.yaml: exists already' "$echelon" init model "a run.yaml"
ln -s elsewhere link.yaml
expect 2 'link.yaml: exists already' "$echelon" init model link.yaml
[ ! -e elsewhere ] || complain "init follows a link"
mkdir 'quoted "model"' && sed 's/llama/qwen9/' model/config.json >'quoted "model"/config.json'
expect 1 'qwen9' "$echelon" init 'quoted "model"'
cp model/config.json 'quoted "model"'
"$echelon" init 'quoted "model"' quoted.yaml
expect 0 'parameters in 4 blocks' "$echelon" plan quoted.yaml training.global_batch_size=8

# ---- for texts ----

mkdir texts none
seq -s ' and then ' 1 400 >texts/a.txt
seq -s ' or ' 1 400 >texts/b.txt
expect 0 '^# Trains a new model on the texts of "texts": 2 files, 7.6 KiB' "$echelon" init texts
expect 0 '^  steps: 100 +# 819.2 ktokens: the texts 111.0 times' "$echelon" init texts
expect 1 'none: has no text in it' "$echelon" init none
expect 1 'nowhere: ' "$echelon" init nowhere
"$echelon" init texts texts.yaml || complain "init writes no file for texts"
"$echelon" data texts tokens --valid 0.05 >out 2>&1 || complain "no tokens: $(cat out)"
expect 0 'validation loss' \
    "$echelon" train texts.yaml training.steps=2 optimizer.warmup_steps=0 parallel.comm=local
conclude
