#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Plugins from the command line. The examples pass verify on grids. Wrong files and
# plugins are refused. No checkpoint or run directory loads one. Accesses of memory outside of a
# plugin's tensors are found.
#     plugins.sh ECHELON FOLDER_OF_PLUGINS FOLDER_OF_MAPPINGS
set -u
echelon=${1:?usage: plugins.sh ECHELON FOLDER_OF_PLUGINS FOLDER_OF_MAPPINGS}
plugins=${2:?usage: plugins.sh ECHELON FOLDER_OF_PLUGINS FOLDER_OF_MAPPINGS}
mappings=${3:?usage: plugins.sh ECHELON FOLDER_OF_PLUGINS FOLDER_OF_MAPPINGS}
[ -x "$echelon" ] || { echo "no program $echelon"; exit 1; }
# shellcheck source-path=SCRIPTDIR/../app source=scratch.sh
. "$(dirname "$0")/../app/scratch.sh"
# shellcheck source-path=SCRIPTDIR/../app source=expect.sh
. "$(dirname "$0")/../app/expect.sh"
enter plugins
export OMP_NUM_THREADS=1
make_tokens
cp "$plugins"/*.so .

# ---- verify ----
make_run training.steps=2 parallel.comm=local
lion="training.plugins=./lion.so optimizer.name=lion"
for grid in "data=2 zero=1" "data=4 zero=2" "data=2 tensor=2 zero=3" "tensor=4" \
    "pipeline=2 data=2 zero=1" "pipeline=2 tensor=2 sequence=true" "context=2 data=2 zero=3" \
    "data=2 zero=1 device=walled" "data=2 zero=3 device=queued" \
    "pipeline=2 schedule=zero-bubble"; do
    for optimizer in lion row_adagrad; do
        # shellcheck disable=SC2086 # words
        expect 0 "PASSED" "$echelon" verify run.yaml training.plugins=./$optimizer.so \
            optimizer.name=$optimizer $(printf 'parallel.%s ' $grid)
    done
done
# shellcheck disable=SC2086 # words
expect 0 "PASSED" "$echelon" verify run.yaml $lion parallel.data=2 memory.offload_optimizer=host
expect 0 "PASSED" "$echelon" verify run.yaml training.plugins="./schedules.so ./row_adagrad.so" \
    optimizer.name=row_adagrad parallel.pipeline=2 parallel.schedule=all_forwards_first

# A feed-forward layer that is sharded, one that is not in place of attention, and a loss.
map() { # NAME PART LAYER
    sed "s/^family: .*/family: $1/; /^layers:/q" "$mappings/squared_relu.yaml" >"$1.yaml"
    echo "  $2: $3" >>"$1.yaml"
}
map relu feed_forward squared_relu
map channels attention channels
relu="training.plugins=./layers.so model.mapping=relu.yaml model.architecture=relu"
channels="training.plugins=./layers.so model.mapping=channels.yaml model.architecture=channels"
loss="training.plugins=./smoothing.so training.loss=smoothing"
for grid in parallel.zero=0 "parallel.data=2 parallel.tensor=2 parallel.zero=1" parallel.tensor=4 \
    "parallel.pipeline=2 parallel.tensor=2 parallel.sequence=true" \
    "parallel.context=2 parallel.data=2 parallel.zero=3" \
    "parallel.device=walled parallel.tensor=2 memory.recompute=full" \
    "parallel.device=queued parallel.data=2 parallel.zero=2" \
    "parallel.pipeline=2 parallel.schedule=zero-bubble" \
    "model.tie_word_embeddings=true parallel.pipeline=2 data.document_mask=true" \
    "model.reversible=true parallel.tensor=2" "precision.compute=bf16 parallel.tensor=2"; do
    for what in "$relu" "$channels" "$loss"; do
        # shellcheck disable=SC2086 # words
        expect 0 "PASSED" "$echelon" verify run.yaml model.intermediate_size=24 $what $grid
    done
done

# Finite differences find wrong derivatives.
map broken feed_forward broken
broken="model.mapping=broken.yaml model.architecture=broken"
refuse_layer() { # CODE WAY COMMAND TEXT KEY ...
    # shellcheck disable=SC2086 # words
    expect_once "$1" "$4" "$echelon" "$3" run.yaml $broken training.plugins=./layer_"$2".so "${@:5}"
}
refuse_layer 1 dx verify "the plugin's layer broken: the gradient of x is .* finite differences"
refuse_layer 1 dweight verify "layer broken: the gradient of broken.weight is"
refuse_layer 1 rows verify "layer broken: row 0 of y depends on row 1 of x"
refuse_layer 2 axes plan "its axes are \"LENGTH\"; use one or two of MODEL, FFN and OTHER"
refuse_layer 2 unsharded plan "it has no axis FFN, but the layer is sharded"
refuse_layer 2 whole plan "compression = topk: .*gradients of the matrices of the plugin's layer" \
    parallel.compression=topk parallel.tensor=2 parallel.sequence=true
# shellcheck disable=SC2086 # words
expect 0 "PASSED" "$echelon" verify run.yaml $broken training.plugins=./layer_whole.so \
    parallel.compression=powersgd parallel.tensor=2
refuse_layer 1 after_y train "broken accessed memory outside of its tensors" \
    parallel.device=walled log.directory=guarded
expect_once 1 "the plugin's loss broken: its backward gives .* finite differences" "$echelon" \
    verify run.yaml training.plugins=./layer_dx.so training.loss=broken
# shellcheck disable=SC2086 # words
expect_once 2 "3 tensor ranks do not divide its size 25 along FFN" "$echelon" plan run.yaml $relu \
    model.intermediate_size=25 parallel.tensor=3 model.num_attention_heads=3 model.hidden_size=18
# shellcheck disable=SC2086 # words
expect_once 1 "broken.yaml:.*: layers: feed_forward: broken: no plugin of this run adds a layer" \
    "$echelon" plan run.yaml $broken

# ---- files ----
expect_once 2 "training.plugins: ./none.so: no such file" "$echelon" plan run.yaml \
    training.plugins=./none.so
echo "int main" >text.so
expect_once 2 "text.so cannot be loaded: .*; build it with cc -shared -fPIC" "$echelon" plan \
    run.yaml training.plugins=text.so
refuse() { # WAY TEXT
    expect_once 2 "$2" "$echelon" plan run.yaml training.plugins=./broken_"$1".so \
        optimizer.name=broken
}
refuse version "broken_version.so: has version 2 of the plugin interface"
refuse table "broken_table.so does not define echelon_plugin_table"
refuse missing "plugin broken: broken: the function update is missing"
refuse clash "plugin broken: the name adamw belongs to another optimizer"
refuse key "broken: reads: optimizer.gamma: not a key"
refuse axis "declares the state \"average\": the parameter has no axis LENGTH; it has"
refuse statistic "the function statistics is missing"
expect_once 2 "statistic .* each server updates its shard alone; use parallel.strategy" "$echelon" \
    plan run.yaml training.plugins=./row_adagrad.so optimizer.name=row_adagrad --ranks 4 \
    parallel.strategy=parameter_server parallel.servers=2
expect_once 2 "optimizer.name = lion: not one of" "$echelon" plan run.yaml optimizer.name=lion
# shellcheck disable=SC2086 # words
expect_once 2 "not read by lion" "$echelon" plan run.yaml $lion optimizer.momentum=0.5
# shellcheck disable=SC2086 # words
expect_once 2 "a plugin's optimizer runs on the processor, and its tensors are on the device cuda" \
    "$echelon" plan run.yaml $lion parallel.device=cuda
# shellcheck disable=SC2086 # words
expect 0 "" "$echelon" plan run.yaml $lion parallel.device=cuda memory.offload_optimizer=host

# ---- guard pages ----
for way in "after:accessed memory outside" "before:wrote before the beginning of a tensor" \
    "reads:wrote a tensor that it may only read"; do
    # shellcheck disable=SC2016
    if "$echelon" train run.yaml training.plugins=./broken_"${way%%:*}".so optimizer.name=broken \
        parallel.device=walled log.directory=guarded >out 2>err; then
        complain "broken_${way%%:*} is not found"
    fi
    grep -q "the plugin's broken ${way#*:}" err || complain "no \"${way#*:}\" for ${way%%:*}"
done

# ---- checkpoints and run directories ----
make_run training.steps=2 parallel.comm=local training.plugins=./lion.so optimizer.name=lion
expect 0 "" "$echelon" train run.yaml
grep -q " plugins:" run/run.yaml && complain "run/run.yaml names plugins"
grep -Eq "plugin_hashes: .*lion=[0-9a-f]{32}" run/run.yaml || complain "run/run.yaml has no hash"
expect_once 2 "plugin lion, which is never loaded from there; name its file on the command line" \
    "$echelon" train run/run.yaml
expect 0 "" "$echelon" train run/run.yaml training.plugins=./lion.so
expect_once 2 "sample, eval and report: --plugins ./lion.so" "$echelon" sample run "1" --tokens 2
expect 0 "" "$echelon" sample run "1 and" --tokens 2 --plugins ./lion.so
expect 0 "loss" "$echelon" eval run --data text --plugins ./lion.so
expect 0 "report.html" "$echelon" report run --plugins ./lion.so
# Texts of others are not expanded.
sed "s/plugin_hashes: .*/plugin_hashes: \"\${HOME}=1\"/" run/run.yaml >stranger.yaml
expect_once 2 "with the plugin ..HOME., which is never loaded" "$echelon" plan stranger.yaml
cp run.yaml run/mine.yaml
expect_once 2 "plugins are not loaded from the run file in a run directory" "$echelon" train \
    run/mine.yaml
cp lion.so changed.so
echo >>changed.so
expect_once 2 "the checkpoint was made with lion=.* and this run uses lion=" "$echelon" train \
    run.yaml training.plugins=./changed.so training.steps=3
expect 0 "" "$echelon" train run.yaml training.plugins=./changed.so training.steps=3 \
    training.plugin_hashes=any

# A model with a plugin's layer.
# shellcheck disable=SC2086 # words
expect 0 "" "$echelon" train run.yaml $relu training.plugins="./layers.so ./lion.so" \
    optimizer.name=adamw log.directory=mapped
expect_once 1 "echelon-mapping.yaml:.*: no plugin of this run adds a layer of this name" \
    "$echelon" sample mapped "1"
expect 0 "" "$echelon" sample mapped "1 and" --tokens 2 --plugins ./layers.so
expect 0 "loss" "$echelon" eval mapped --data text --plugins ./layers.so
expect 0 "relu" "$echelon" convert mapped/checkpoints/*/model converted --plugins ./layers.so
expect 0 "init_from: .?converted" "$echelon" init converted --plugins ./layers.so
conclude
