#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Every command once, on a model of a few thousand parameters, in seconds: text to tokens, a plan, a
# run on two ranks, its checkpoint, a sample, its report. A command of `echelon help` that is not
# tried here fails the test.
#     smoke.sh ECHELON
set -u
echelon=${1:?usage: smoke.sh ECHELON}
[ -x "$echelon" ] || { echo "no program $echelon"; exit 1; }
# shellcheck source-path=SCRIPTDIR source=scratch.sh
. "$(dirname "$0")/scratch.sh"
# shellcheck source-path=SCRIPTDIR source=expect.sh
. "$(dirname "$0")/expect.sh"
enter smoke
export OMP_NUM_THREADS=1
tried=" "

# try CODE TEXT COMMAND WORD ...: expect, and notes the command.
try() {
    tried+="$3 "
    expect "$1" "$2" "$echelon" "${@:3}"
}

make_run training.steps=2 checkpoint.every=2 parallel.comm=local
seq -s ' and then ' 1 400 >text.txt
try 0 "tokens" data text.txt text
try 0 "data.packing = documents +1 samples: 5,[0-9]* tokens" \
    data text.txt text --sequence-length 8192
try 0 "data +24 samples, .* epochs of 424: .* trained on, .* of padding" \
    plan run.yaml --ranks 2
try 0 "1 of 1 documents is longer than a sample and truncated: 5,[0-9]* tokens" \
    plan run.yaml data.packing=documents
try 0 "ranks" plan run.yaml --ranks 2
try 0 "are frozen" plan run.yaml "optimizer.rates=*=0 *.0.*=1"
try 0 "values share bytes" plan run.yaml --memory-figure
try 2 "prints text; remove --json" plan run.yaml --memory-figure --json
try 0 "" profile run.yaml
try 0 "PASSED" verify run.yaml --ranks 2
try 0 "step +2" train run.yaml --ranks 2
say() { printf '{"role": "%s", "content": "%s"}' "$1" "$2"; }
echo "{\"messages\": [$(say user Hi), $(say assistant Hello)]}" >chats.jsonl
printf '\0\0\10\3\0\0\0\4\0\0\0\2\0\0\0\2aaaabbbbccccdddd' >x-images-idx3-ubyte
printf '\0\0\10\1\0\0\0\4\0\1\2\1' >x-labels-idx1-ubyte
try 0 "x-valid.images: 1 image$" data x-images-idx3-ubyte x --images --valid 0.25
try 0 "data.valid=y.images" data x-images-idx3-ubyte y --images --like x-train.images
try 2 "like needs" data text.txt x --like x-train.images
try 0 "^Assistant: \[\[Hello<.endoftext.>\]\]" data chats.jsonl chats
also "^User: Hi"
try 0 "\[\[User: Hi" data chats.jsonl chats --train-on-all
try 2 "no token <start_of_turn>" data chats.jsonl chats --chat-template gemma
echo "{\"messages\": [$(say user Hi), $(say user Hello)]}" >chats.jsonl
try 1 "chats.jsonl:1: message 2: here an assistant's message must come" data chats.jsonl chats
no_steps=$(grep -v ' steps:' run.yaml)
cat >epochs.yaml <<<"${no_steps/training:/training:$'\n'  epochs: 0.5}"
try 0 "training.epochs = 0.5 is 18 steps: " plan epochs.yaml --ranks 2
try 2 "training.steps is set, too; remove one of the two" plan epochs.yaml training.steps=2
try 0 "^step-00000002 +whole" checkpoint verify run
try 0 "loss" eval run --data text
echo '{"context": "1 and", "choices": ["2", "two"], "label": 0}' >items
try 0 "^acc .*items 1" eval run --choices items
try 0 "" sample run "1 and" --tokens 4
try 0 "report.html" report run
try 0 "" convert run/checkpoints/*/model converted
try 0 "init_from: \"converted\"" init converted
# adapters: saved as a folder of PEFT, trained on, merged
lora=(model.init_from=converted lora.rank=2 lora.targets=all-linear log.directory=lora)
try 0 "adapters of rank 2 begin anew" train run.yaml "${lora[@]}"
at=$(echo lora/checkpoints/*/model)
try 0 "perplexity" eval lora --data text
try 2 "has adapters; --merge adds them" convert "$at" merged
try 0 "from a Hugging Face folder with adapters" convert --merge "$at" merged
try 2 "has no adapter_config.json" convert --merge merged again
try 2 "--base is for --merge" convert merged again --base converted
lora=(lora.init_from="$at" log.directory=lora2)
try 0 "adapters of rank 2 continue from $at" \
    train run.yaml model.init_from=converted "${lora[@]}"
try 2 "has adapters of the base 'converted' .weights .*other weights" \
    train run.yaml model.init_from=merged "${lora[@]}" log.directory=lora3
try 2 "has adapters beside their base" train run.yaml model.init_from="$at" log.directory=lora3
try 2 "lora.rank" train run.yaml model.init_from=converted "${lora[@]}" lora.rank=3
try 2 "model.init_from is not set" train run.yaml "${lora[@]}" log.directory=lora3
mkdir alone
cp "$at"/adapter* alone
try 0 "" sample alone --ids "1 2" --tokens 2
try 0 "" convert --merge alone merged2
cmp merged/model.safetensors merged2/model.safetensors || complain "other merged weights"
truncate -s -4 alone/adapter_model.safetensors
try 1 "truncated" convert --merge alone merged3
try 0 "train: tokens-train" init text.txt
try 0 "" bench --help
try 0 "levels:" bench --cluster own.yaml --seconds 1
try 0 "^cluster .* a step" plan run.yaml --ranks 2 --cluster own.yaml
try 0 "^the first: *parallel" plan run.yaml --search --cluster own.yaml --ranks 2 \
    --emit found.yaml --html found.html
grep -q '"run_file": .*"plan": {"version"' found.html || complain "the page lacks the layouts"
try 0 "^cluster .* a step" plan found.yaml --ranks 2 --cluster own.yaml
# a run file that a search writes plans to the bytes of its first place, and trains
largest() { python3 -c 'import json, sys
plan = json.load(open(sys.argv[1]))
print(plan["candidates"][0]["bytes"] if "candidates" in plan else
      max(of["memory"]["arena_bytes"] for of in plan["plans"]))' "$1"; }
for key in parallel.schedule=1f1b parallel.pipeline=2 parallel.tensor=2; do
    try 0 '"places"' plan run.yaml --search --cluster own.yaml --ranks 2 --emit found.yaml --json \
        "$key"
    cp out searched.json
    try 0 '"plans"' plan found.yaml --ranks 2 --cluster own.yaml --json
    bytes=$(largest searched.json)
    [ -n "$bytes" ] && [ "$bytes" = "$(largest out)" ] || complain "$key: other bytes than searched"
    try 0 "step +2" train found.yaml --ranks 2 "log.directory=found-$key"
done
try 0 "^emitted .* megatron-core" plan run.yaml --search --cluster own.yaml --ranks 2 \
    --emit found.args --emit-for megatron
grep -q "^--num-layers " found.args || complain "no --num-layers in $(cat found.args)"
try 0 '"not_supported"' plan run.yaml --ranks 2 --emit ds.json --emit-for deepspeed --json
python3 -m json.tool ds.json >/dev/null || complain "ds.json is not JSON"
try 2 "layouts are emitted for megatron, torchtitan" plan run.yaml --emit x --emit-for jax
try 2 "Add --emit FILE" plan run.yaml --emit-for megatron
rare=(--mtbf 100 --restart 60 --spares 2)
try 2 "storage.bandwidth: not set" plan run.yaml --ranks 2 --cluster own.yaml "${rare[@]}"
echo 'storage: {bandwidth: 1 GB/s}' >>own.yaml
try 0 "goodput with checkpoint.every=" plan run.yaml --ranks 2 --cluster own.yaml "${rare[@]}" \
    --goodput goodput.svg
grep -q "2 spare machines" goodput.svg || complain "no spares in goodput.svg"
try 0 '"enough_spares"' plan run.yaml --search --cluster own.yaml --ranks 2 "${rare[@]}" --json
try 2 "add --cluster" plan run.yaml "${rare[@]}"
try 2 "add --mtbf" plan run.yaml --cluster own.yaml --restart 60
try 2 "add --restart SECONDS" plan run.yaml --cluster own.yaml --mtbf 5
try 2 "must be hours above 0" plan run.yaml --cluster own.yaml --mtbf 0 --restart 60
try 2 "needs the speeds of a cluster" plan run.yaml --search
try 2 "what --search finds, or what --emit-for" plan run.yaml --emit found.yaml
try 2 "with --cluster no tables" bench --cluster own.yaml gelu_forward
try 2 "one rank; use --ranks 2" bench --cluster own.yaml --ranks 1
try 0 "echelon [0-9]" launch 2 "$echelon" --version

commands=$("$echelon" --help | sed -n 's/^  \([a-z]*\) .*/\1/p' | grep -vx echelon)
[ "$(wc -w <<<"$commands")" -ge 12 ] || complain "echelon --help lists only: $commands"
for command in $commands; do
    [[ $tried == *" $command "* ]] || complain "echelon $command is not tried here"
done
conclude
