#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Every run file of examples/ is planned and trained, for two or three small steps.
#     examples.sh ECHELON
set -u
echelon=${1:?usage: examples.sh ECHELON} here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source-path=SCRIPTDIR source=scratch.sh
. "$here/scratch.sh"
# shellcheck source-path=SCRIPTDIR source=expect.sh
. "$here/expect.sh"
enter examples
seq -s ' and then ' 1 6000 >input.txt
for name in shakespeare bible my; do
    expect 0 "data/$name-valid" "$echelon" data input.txt "data/$name" --valid 0.1
done
small=(training.steps=2 optimizer.warmup_steps=1 training.global_batch_size=2
    training.micro_batch_size=1 training.validate_every=2 training.validate_samples=2
    parallel.comm=local parallel.threads=1)
tried=0

# run NAME RANKS WORD ...
run() {
    local file=$here/../../examples/$1.yaml ranks=$2
    shift 2
    tried=$((tried + 1))
    expect 0 "ranks?" "$echelon" plan "$file" --ranks "$ranks" "${small[@]}" "$@"
    expect 0 "step +([23])/\1 .* validation loss" "$echelon" train "$file" --ranks "$ranks" \
        "${small[@]}" "$@"
}
for name in shakespeare bf16 adafactor muon recompute experts experts_dense switch switch_dense; do
    run $name 1
done
run offload 1 model.num_hidden_layers=2 model.hidden_size=50 data.sequence_length=64 \
    data.valid=data/shakespeare-valid
run quickstart 2
for ((i = 1; i <= 40; i++)); do
    printf '%d %d:1 %d:-0.5 1000000:0.1\n' $((i % 2)) $i $((i + 9))
done >input.libsvm
expect 0 "data/sparse-valid" "$echelon" data input.libsvm data/sparse --features 1000000 --valid 0.1
run sparse 2
expect 0 "^loss 0[.][0-9]+ +samples 3$" "$echelon" eval runs/sparse --data data/sparse-valid
expect 2 "a model of the family logistic generates no text" "$echelon" sample runs/sparse hello
expect 2 "libsvm reads features" "$echelon" data input.libsvm data/sparse --tokenizer bytes
expect 1 "input.libsvm:1: index 1000000 exceeds the 18 features" "$echelon" data input.libsvm \
    data/other --features 18
expect 0 "200 images" python3 "$here/../../examples/make_shapes.py" shapes --train 200 --test 50
expect 0 "shapes.images: 200 images" "$echelon" data shapes/data_batch_1.bin data/shapes --images
expect 0 "shapes-valid.images: 50 images" "$echelon" data shapes/test_batch.bin data/shapes-valid \
    --images --like data/shapes.images
run resnet18 1 model.base_channels=4
# A norm of two samples: what searches try has no smaller micro-batches.
expect 0 "the first:" "$echelon" plan "$here/../../examples/resnet18.yaml" --ranks 4 --search \
    --cluster "$here/../../clusters/h100.yaml" training.global_batch_size=8 \
    training.micro_batch_size=4 model.norm_samples=2
run vgg16 2 model.base_channels=4
run shapes 1 data.train=data/shapes.images data.valid=data/shapes-valid.images model.num_classes=10
run revnet 1 model.weight_layers=14 model.base_channels=4
expect 0 "accuracy 0[.][0-9]+ +of five 0[.][0-9]+ +samples 50$" "$echelon" eval runs/resnet18 \
    --data data/shapes-valid.images
expect 2 "no tokens|generates no text" "$echelon" sample runs/resnet18 hello
run pipeline 2
run grid 4
tried=$((tried + 1)) # a plan alone
expect 0 "H100.* s a step" "$echelon" plan "$here/../../examples/llama_70b.yaml" --ranks 64 \
    --cluster "$here/../../clusters/h100.yaml" training.global_batch_size=8
# A mapping file comes along: what follows names it no more.
run mapped 1 model.mapping="$here/../../examples/mappings/zephyrion.yaml"
expect 0 "zephyrion" "$echelon" plan "$here/../../examples/mapped.yaml" --ranks 4 "${small[@]}" \
    training.global_batch_size=4 parallel.tensor=2 parallel.pipeline=2 \
    model.mapping=runs/mapped/echelon-mapping.yaml
expect 0 "PASSED" "$echelon" verify "$here/../../examples/mapped.yaml" --ranks 4 "${small[@]}" \
    training.global_batch_size=4 parallel.tensor=2 parallel.pipeline=2 \
    model.mapping=runs/mapped/echelon-mapping.yaml
expect 0 "written to" "$echelon" report runs/mapped
expect 0 "^runs/zephyrion: zephyrion, " "$echelon" convert runs/mapped runs/zephyrion
expect 0 "^loss 5" "$echelon" eval runs/zephyrion --data data/shakespeare-valid
expect 0 "whole" "$echelon" checkpoint verify runs/mapped
expect 0 "step +3/3" "$echelon" train runs/mapped/run.yaml training.steps=3
expect 2 "architecture = zephyrion: not one of" "$echelon" plan runs/mapped/run.yaml model.mapping=
mkdir models
cp -r runs/shakespeare/checkpoints/step-00000002/model models/gpt2 || complain "no model"
run finetune 1 data.sequence_length=64
# The arrangements of the Switch Transformer's paper: one run file but for the layout, verified, and
# trained alike.
small+=(training.global_batch_size=4 training.steps=3)
losses=
same_part() { # FILE: all but comments and the arrangement
    sed '/^#/d; /^parallel:/,$d' "$1"
}
while read -r name ranks; do
    file=$here/../../examples/switch_$name.yaml
    run "switch_$name" "$ranks"
    cmp -s <(same_part "$file") <(same_part "$here/../../examples/switch_data.yaml") ||
        complain "switch_$name.yaml is of another model than switch_data.yaml"
    expect 0 "PASSED" "$echelon" verify "$file" --ranks "$ranks" "${small[@]}"
    losses+=$(sed -n 's/.*"loss": *\([0-9.]*\).*/\1/p' "runs/switch_$name/metrics.jsonl" |
        tr '\n' ' ')$'\n'
done <<'END'
data 2
model 2
model_data 4
expert_data 2
expert_model_data 4
END
awk 'NF != 3 { bad = 1 }
    {
        for (i = 1; i <= 3; i++) {
            if (NR == 1) of[i] = $i
            far = $i / of[i] - 1
            if (!(far <= 1e-4 && far >= -1e-4)) bad = 1
        }
    }
    END { exit bad || NR != 5 }' <<<"${losses%$'\n'}" ||
    complain "the losses of the arrangements differ: $losses"
[ "$tried" = "$(find "$here/../../examples" -maxdepth 1 -name '*.yaml' | wc -l)" ] ||
    complain "a file of examples/ is not tried"
conclude
