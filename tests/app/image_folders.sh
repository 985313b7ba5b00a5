#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Folders of weights of the families of images: what a run saved is evaluated and trained on as
# another program's folder is. check_images.py does the same with torchvision's.
#     image_folders.sh ECHELON EXAMPLES
set -u
echelon=${1:?usage: image_folders.sh ECHELON EXAMPLES}
examples=${2:?usage: image_folders.sh ECHELON EXAMPLES}
# shellcheck source-path=SCRIPTDIR source=scratch.sh
. "$(dirname "$0")/scratch.sh"
# shellcheck source-path=SCRIPTDIR source=expect.sh
. "$(dirname "$0")/expect.sh"
enter images
export OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0

python3 "$examples/make_shapes.py" shapes --train 24 --test 12 >/dev/null || exit 1
"$echelon" data shapes/data_batch_1.bin shapes --images >/dev/null 2>&1 || exit 1

# evaluated FOLDER: the line of `echelon eval`
evaluated() {
    "$echelon" eval "$1" --data shapes.images 2>err
}

# check_family KEYS: trains a step, and reads what the run saved as a folder of weights.
check_family() {
    local model trained image="image_height: 32, image_width: 32, num_classes: 10"
    rm -rf runs
    cat >run.yaml <<Y
model: {$1, $image}
data: {train: shapes.images}
training: {steps: 1, global_batch_size: 8, micro_batch_size: 8}
optimizer: {name: sgd, learning_rate: 0.1}
parallel: {threads: 1, comm: local}
log: {directory: runs/first}
Y
    expect 0 "saved step-00000001" "$echelon" train run.yaml
    model=runs/first/checkpoints/step-00000001/model
    trained=$(evaluated runs/first)
    checks=$((checks + 1))
    [[ $trained == loss*accuracy*"samples 24" && $trained == "$(evaluated $model)" ]] ||
        complain "eval of $model: $(evaluated $model), not $trained"

    # A run file that names only the folder. Without a learning rate the step changes no weight; it
    # does change batch norm's running statistics.
    cat >next.yaml <<Y
model: {init_from: $model}
data: {train: shapes.images}
training: {steps: 1, global_batch_size: 8, micro_batch_size: 8}
optimizer: {name: sgd, learning_rate: 0}
parallel: {threads: 1, comm: local}
log: {directory: runs/next}
Y
    expect 0 "starting from the [0-9]+ tensors" "$echelon" train next.yaml
    ! grep -q "new row" out err || complain "classes are no vocabulary, which may grow"
    checks=$((checks + 1))
    [[ $1 == *resnet* || $trained == "$(evaluated runs/next)" ]] ||
        complain "eval of runs/next: $(evaluated runs/next), not $trained"
    cmp -s $model/config.json runs/next/checkpoints/step-00000001/model/config.json ||
        complain "config.json is another one"
    expect 2 "num_classes.*$model/config.json|$model/config.json.*num_classes" \
        "$echelon" train next.yaml model.num_classes=11 log.directory=runs/classes
    expect 2 "--logits: .* has no tokens" "$echelon" eval $model --data shapes.images --logits l
}

check_family "architecture: mlp, hidden_size: 8, num_hidden_layers: 1"
check_family "architecture: vgg, weight_layers: 11, base_channels: 2, hidden_size: 8"
check_family "architecture: resnet, weight_layers: 18, base_channels: 2"

# The family's own width, which a resumed run knows, too.
cat >wide.yaml <<Y
model: {architecture: vgg, weight_layers: 11, base_channels: 1, image_height: 32, image_width: 32,
  num_classes: 10}
data: {train: shapes.images}
training: {steps: 1, global_batch_size: 8, micro_batch_size: 8}
optimizer: {name: sgd, learning_rate: 0.1}
parallel: {threads: 1, comm: local}
log: {directory: wide}
Y
expect 0 "saved step-00000001" "$echelon" train wide.yaml
expect 0 "saved step-00000002" "$echelon" train wide.yaml training.steps=2
expect 0 "hidden_size: 4096" cat wide/run.yaml
conclude
