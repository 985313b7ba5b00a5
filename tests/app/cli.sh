#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The command line from outside: what is printed, what is refused and how, exit codes.
#     cli.sh ECHELON
set -u
echelon=${1:?usage: cli.sh ECHELON}
[ -x "$echelon" ] || { echo "no program $echelon"; exit 1; }
# shellcheck source-path=SCRIPTDIR source=scratch.sh
. "$(dirname "$0")/scratch.sh"
# shellcheck source-path=SCRIPTDIR source=expect.sh
. "$(dirname "$0")/expect.sh"
enter cli
export OMP_NUM_THREADS=1

make_run_file() {
    cat >run.yaml <<'Y'
model:
  architecture: gpt2
  hidden_size: 16
  num_hidden_layers: 2
  num_attention_heads: 2
data:
  train: d/text-train
  valid: d/text-valid
  sequence_length: 16
training:
  steps: 6
  global_batch_size: 8
  micro_batch_size: 2
optimizer:
  learning_rate: 3e-3
parallel:
  comm: local
  threads: 1
log:
  directory: runs/one
  every: 2
Y
}

# A run file that differs by one line.
changed() {
    sed "$1" run.yaml >changed.yaml
}

# ---- help ----

expect 0 "Usage: echelon COMMAND" "$echelon" --help
for command in train launch plan profile report verify sample eval checkpoint data convert; do
    expect 0 "^  $command " "$echelon" --help
    expect 0 "Usage: echelon $command " "$echelon" $command --help
    expect 0 "Usage: echelon $command " "$echelon" help $command
    expect 2 "unrecognized option '--bogus'" "$echelon" $command --bogus
    expect 2 "Try .echelon $command --help" "$echelon" $command
done
for command in train plan verify; do
    expect 0 "section.key=value" "$echelon" $command --help
    expect 0 "echelon help keys" "$echelon" $command --help
    expect 0 "--ranks" "$echelon" $command --help
done
expect 0 "training.global_batch_size" "$echelon" help keys
expect 0 "optimizer.name = adamw" "$echelon" help keys
expect 0 "model.architecture = gpt_oss, mixtral, .*, switch" "$echelon" help key moe_gate
also "hierarchical experts: model.moe_gate=hierarchical"
also "parallel.strategy = local_sgd, diloco, gossip or easgd, with model.moe_gate = bias:"
also "; default topk"
expect 0 "parallel.strategy = tpu: parallel.reduction=torus" "$echelon" help key parallel.reduction
also "parallel.reduction = ring"
expect 0 "default 0; may change on resume" "$echelon" help key parallel.zero
expect 2 "no key parallel.zeor; did you mean parallel.zero" "$echelon" help key parallel.zeor
expect 2 "takes one key" "$echelon" help key
expect 0 "memory.sequence_chunks above 1, with parallel.context above 1:" "$echelon" help together
expect 0 "\| 1 \| all-reduce data parallelism \|" "$echelon" help techniques
expect 0 "echelon [0-9]+\.[0-9]+\.[0-9]+" "$echelon" --version
expect 0 "MPI: +[A-Z]" "$echelon" --version
expect 0 "kernels: " "$echelon" --version
expect 2 "Usage: echelon COMMAND" "$echelon"
expect 2 "no command trian; did you mean echelon train" "$echelon" trian
expect 2 "no command xyzzy; echelon --help" "$echelon" xyzzy
expect 2 "did you mean echelon sample" "$echelon" help smaple
expect 2 "one word" "$echelon" help plan train
if [ -e /dev/full ]; then
    expect 1 "standard output cannot be written" sh -c '"$0" help keys >/dev/full' "$echelon"
fi

# ---- bench ----

expect 0 "^  bench " "$echelon" --help
expect 0 "Usage: echelon bench " "$echelon" bench --help
expect 0 "Usage: echelon bench " "$echelon" help bench
expect 2 "unrecognized option '--bogus'" "$echelon" bench --bogus
expect_once 2 "no benchmark gelu_forwad; did you mean gelu_forward" "$echelon" bench gelu_forwad
expect_once 2 "no benchmark xyzzy; name a row" "$echelon" bench xyzzy
expect 2 "--threads 0: must be a whole number, 1 to 1024" "$echelon" bench --threads 0
expect 2 "--ranks 65: must be" "$echelon" bench --ranks 65
expect 2 "--seconds 0: must be above 0" "$echelon" bench --seconds 0
expect 2 "--seconds soon: must be a number" "$echelon" bench --seconds soon
expect 0 "^  square_sums +N=" "$echelon" bench --seconds 0.01 --threads 1 square_sums
also "multiply-adds"
also "STREAM"
expect 0 '"name": "all_reduce"' "$echelon" bench --seconds 0.01 --threads 1 --json all_reduce

# ---- data ----

awk 'BEGIN { for (i = 0; i < 400; i++) print "line " i % 7 " of " i % 3 ", and so on" }' >text.txt
make_run_file
expect 2 "byte: no such tokenizer; say bytes" "$echelon" data text.txt d/x --tokenizer byte
expect 2 "below 1" "$echelon" data text.txt d/x --valid 1
expect 2 "must be a number" "$echelon" data text.txt d/x --valid 0.1x
expect 2 "where to" "$echelon" data text.txt
expect 2 "one word too many" "$echelon" data text.txt d/x more
expect 1 "nowhere.txt" "$echelon" data nowhere.txt d/x
expect 0 "d/whole.bin, d/whole.idx: [0-9,]+ tokens" "$echelon" data text.txt d/whole
expect 0 "next: echelon train RUN.yaml data.train=d/text-train data.valid=d/text-valid" \
    "$echelon" data text.txt d/text --valid 0.1

expect 0 "next: echelon train RUN.yaml 'data.train=d/two.{4}words'" "$echelon" data text.txt \
    "d/two  words"
# Numbers are names where files have these names; ~ and variables are meant, other places refused.
expect 0 "next: echelon train RUN.yaml data.train=./2023$" "$echelon" data text.txt 2023
expect 0 "" "$echelon" data text.txt 2024
expect 0 "" env HOME="$PWD/d" DATA=home "$echelon" data '~/../text.txt' '~/${DATA}'
[ -f d/home.bin ] || complain "no d/home.bin: ~ and variables are not what they stand for"
expect 2 "s3:// is no path on this machine" "$echelon" data text.txt s3://bucket/x
expect 2 "write .{NAME} for the value" "$echelon" data text.txt 'd/$x'
expect 2 "where to" "$echelon" convert d ""
expect 2 "nowhere: no such folder; name a run directory" "$echelon" eval nowhere --data d/whole
mkdir -p d/cache/blobs d/cache/snapshots
expect 2 "cache of a model, .*, a folder below d/cache/snapshots" "$echelon" eval d/cache \
    --data d/whole

expect 0 "d/bpe/tokenizer.json: 264 tokens" "$echelon" data text.txt d/bpe --train-bpe 264
expect 0 "d/bpe2/tokenizer.json: 262 tokens" "$echelon" data text.txt d/bpe2 --train-bpe 262 \
    --pattern qwen2
expect 1 "at most [0-9]+ tokens, and 9999 are wanted" "$echelon" data text.txt d/bpe3 \
    --train-bpe 9999
expect 2 "pattern gpt3: not one of: gpt2 llama3 cl100k qwen2" "$echelon" data text.txt d/bpe3 \
    --train-bpe 300 --pattern gpt3
expect 2 "whole number, 257 to" "$echelon" data text.txt d/bpe3 --train-bpe 256
expect 2 "needs --train-bpe" "$echelon" data text.txt d/x --pattern gpt2
expect 2 "learns a tokenizer" "$echelon" data text.txt d/x --train-bpe 300 --valid 0.1
expect 0 "d/sub-train.bin, .* tokens" "$echelon" data text.txt d/sub --valid 0.1 --tokenizer d/bpe

# Forty documents, half of them with a prompt: lines of a .jsonl, from which a vocabulary is learnt
# too.
awk 'BEGIN { for (i = 0; i < 40; i++)
    if (i % 2) print "{\"text\": \"line " i " of forty, and so on and so on\"}"
    else {
        completion = "\"completion\": \" it is line " i " of forty\""
        print "{\"prompt\": \"what is " i "?\", " completion "}"
    } }' >lines.jsonl
expect 0 "1 file, 40 documents" "$echelon" data lines.jsonl d/lines
expect 0 "d/learnt/tokenizer.json: 280 tokens" "$echelon" data lines.jsonl d/learnt --train-bpe 280
expect 0 "40 documents, .* as d/learnt" "$echelon" data lines.jsonl d/fewer --tokenizer d/learnt
[ "$(stat -c %s d/fewer.bin)" -lt "$(stat -c %s d/lines.bin)" ] ||
    complain "learnt tokens save nothing"
{ cat lines.jsonl; echo '{"txt": "?"}'; } >bad.jsonl
sed s/text/content/ lines.jsonl >keyed.jsonl
printf 'ab\377' >no.txt
for how in "" "--train-bpe 280"; do
    expect 1 "bad.jsonl:41: has neither" "$echelon" data bad.jsonl d/x $how
    expect 1 "no.txt: byte 2 .0xff. is no UTF-8" "$echelon" data no.txt d/x $how
done
expect 0 "40 documents" "$echelon" data keyed.jsonl d/x --text-key content
expect 0 "280 tokens" "$echelon" data keyed.jsonl d/y --text-key content --train-bpe 280

# ---- run files that are refused, with file and line ----

expect 2 "nowhere.yaml" "$echelon" train nowhere.yaml
expect 2 "which run file" "$echelon" train --ranks 2
expect 2 "keys are set with" "$echelon" train run.yaml more
expect 2 "whole number, 1 to 65536" "$echelon" train run.yaml --ranks 0
expect 2 "whole number, 1 to 65536" "$echelon" train run.yaml --ranks 65537
expect 2 "whole number, 1 to 65536" "$echelon" train run.yaml --ranks 4x
changed 's/hidden_size/hiden_size/'
expect 2 "changed.yaml:3:.*hiden_size.*hidden_size" "$echelon" train changed.yaml
changed 's/num_hidden_layers/num_layers/'
expect 2 "changed.yaml:4:.*num_layers.*num_hidden_layers" "$echelon" train changed.yaml
changed 's/^training:/trainings:/'
expect 2 "changed.yaml:10:.*trainings.*training" "$echelon" train changed.yaml
for value in 4x 1_000 nan 1e3 0 -1; do
    changed "s/hidden_size: 16/hidden_size: $value/"
    expect 2 "changed.yaml:3:[0-9]+: .*hidden_size" "$echelon" train changed.yaml
done
for value in 3e-3x nan inf; do
    changed "s/learning_rate: 3e-3/learning_rate: $value/"
    expect 2 "changed.yaml:15:[0-9]+: .*learning_rate" "$echelon" train changed.yaml
done
changed 's/architecture: gpt2/architecture: gpt3/'
expect 2 "changed.yaml:2:.*did you mean gpt2" "$echelon" train changed.yaml
# All that is wrong is said at once: first of each key, then of keys together.
changed 's/hidden_size: 16/hidden_size: 1_0/; s/^training:/trainings:/; /sequence_length/d'
expect 2 "changed.yaml:3:" "$echelon" train changed.yaml log.every=x
also "changed.yaml:9:1: trainings"
also "command line: log.every = x"
also "required but not set: data.sequence_length;"
[ "$(grep -c error: err)" = 4 ] || complain "not four errors"
expect 2 "num_attention_heads = 3" "$echelon" train run.yaml --ranks 2 model.num_attention_heads=3 \
    model.rope_theta=3 optimizer.momentum=0.9 checkpoint.resume= training.steps=3
also "model.rope_theta = 3: not read by gpt2"
also "optimizer.momentum = 0.9: not read by adamw"
also "checkpoint.resume = : empty"
[ "$(grep -c error: err)" = 4 ] || complain "not four errors"
changed 's/num_attention_heads: 2/num_attention_heads: 3/'
expect_once 2 "changed.yaml:5:.*does not divide.*; [24] would" "$echelon" train changed.yaml \
    --ranks 2
for family in llama qwen3; do # whose checks read the head width
    expect_once 2 "num_attention_heads = 3: does not divide.*; [24] would" "$echelon" plan \
        run.yaml model.architecture=$family model.num_attention_heads=3
done
expect 2 "command line: training.step.*steps" "$echelon" plan run.yaml training.step=3
expect 2 "training.steps = 4x" "$echelon" plan run.yaml training.steps=4x
expect_once 2 "nesterov = true: not with optimizer.momentum = 0: .*for example 0.9" "$echelon" \
    plan run.yaml \
    optimizer.name=sgd optimizer.nesterov=true \
    optimizer.momentum=0
expect_once 2 "run.yaml:12:.*does not divide by parallel.data = 3" "$echelon" train run.yaml \
    --ranks 3
expect_once 2 "does not divide" "$echelon" plan run.yaml --ranks 3
expect_once 1 "rank 0: error: .*cannot be a folder.*memory.offload_directory" "$echelon" train \
    run.yaml --ranks 2 \
    memory.offload_optimizer=disk memory.offload_directory=run.yaml/away
expect_once 2 "parallel.data = 4.*--ranks 4" "$echelon" plan run.yaml --ranks 2 parallel.data=4
expect_once 2 "nix.idx" "$echelon" train run.yaml --ranks 2 data.train=nix
expect_once 2 "nix.idx" "$echelon" train run.yaml --ranks 2 data.valid=nix
expect_once 2 "log.directory.*empty" "$echelon" train run.yaml log.directory=
expect_once 2 "checkpoint.directory.*empty" "$echelon" train run.yaml checkpoint.directory=
expect_once 2 "memory.offload_directory.*empty" "$echelon" train run.yaml --ranks 2 \
    memory.offload_directory=
expect_once 2 "its plan can hold; use training.micro_batch_size = 31250, or more ranks" "$echelon" \
    plan run.yaml \
    training.global_batch_size=1000000000
expect 0 "checked" timeout 300 "$echelon" plan run.yaml model.num_hidden_layers=1000 \
    training.global_batch_size=2
# Within the bounds of each key, and yet too much together.
expect_once 2 "micro_batch_size = 4194304: 4194304 samples of 1024 tokens .* at most 2097151" \
    "$echelon" plan run.yaml data.sequence_length=1024 training.global_batch_size=4194304 \
    training.micro_batch_size=4194304
expect_once 2 "more bytes than any machine has; use smaller sizes" "$echelon" plan run.yaml \
    model.hidden_size=1000000 model.intermediate_size=10000000 model.num_hidden_layers=4096
expect_once 2 "micro_batch_size.*more bytes of activations" "$echelon" plan run.yaml \
    model.hidden_size=1000000 model.intermediate_size=10000000 \
        training.global_batch_size=100000000 \
    training.micro_batch_size=100000000
# The family chooses the gate, which another key of the run file does not go with.
expect 2 "norm_topk_prob = false: not with model.moe_gate = switch" "$echelon" plan run.yaml \
    model.architecture=switch model.num_local_experts=2 model.norm_topk_prob=false
expect 2 "training.steps = 1000000000000: .*fewer steps" "$echelon" plan run.yaml \
    training.steps=1000000000000 training.global_batch_size=1000000000 \
        training.micro_batch_size=1000 \
    data.sequence_length=100000
# A file that is not there is asked for wrongly.
expect_once 2 "parallel.profile = nix.json: no such file" "$echelon" plan run.yaml \
    parallel.profile=nix.json
expect_once 2 "parallel.schedule = nix.order: no such file" "$echelon" plan run.yaml \
    parallel.schedule=nix.order
# A run file of the user's own is not replaced by the resolved one; the latter may be trained on.
mkdir -p runs/own
sed 's|directory: runs/one|directory: runs/own|' run.yaml >runs/own/run.yaml
expect_once 2 "runs/own/run.yaml: the run would replace this file" "$echelon" train \
    runs/own/run.yaml --ranks 2 training.steps=2
expect 0 "step +2/2 " "$echelon" train run.yaml training.steps=2 log.directory=runs/resolved
expect 0 "step +4/4 " "$echelon" train runs/resolved/run.yaml training.steps=4
# What cannot be saved shows before the first step, and two runs do not write into one folder.
expect 1 "/proc/.*cannot make the folder" "$echelon" train run.yaml log.directory=runs/nowhere \
    checkpoint.directory=/proc/echelon/x
[ ! -e runs/nowhere/metrics.jsonl ] || complain "trained before it knew where to save"
mkdir -p runs/taken
expect 1 "error: runs/taken: another run writes" flock runs/taken "$echelon" train run.yaml \
    log.directory=runs/taken parallel.deadline=0.2
also "runs/taken: another run writes into this folder; waiting for its end, at most 0.1 s"
# One folder by two names is one folder, and the process that holds it may be about to end.
flock runs/taken sh -c 'echo >ready; while [ ! -e end ]; do sleep 0.01; done' &
holder=$!
until [ -e ready ]; do sleep 0.01; done
"$echelon" train run.yaml training.steps=1 log.directory=runs/taken \
    checkpoint.directory=runs/../runs/taken >out 2>err </dev/null &
late=$!
until grep -q "waiting for its end, at most 10 s" err || ! kill -0 $late; do sleep 0.01; done
: >end
checks=$((checks + 1))
wait $late || complain "a run that waits for its folders"
[ -d runs/taken/step-00000001 ] || complain "a run that waits for its folders saves nothing"
wait $holder
expect_once 2 "model.vocab_size" "$echelon" train run.yaml model.vocab_size=100

# ---- plan ----

expect 0 "gpt2: [0-9,]+ parameters in 4 blocks" "$echelon" plan run.yaml
expect 0 "F0.0 B0.0 F0.1 B0.1" "$echelon" plan run.yaml --ranks 2
expect 0 "all lists of 2 ranks, and against each other" "$echelon" plan run.yaml --ranks 2
expect 0 "lower bound" "$echelon" plan run.yaml --ranks 2
expect 0 "working memory +[0-9.]+ [KM]iB  \(at once, at [FBW]0.*: activations" "$echelon" plan \
    run.yaml --ranks 2
expect 0 "update bucket 0" "$echelon" plan run.yaml --steps
expect 0 "4 ranks" "$echelon" plan run.yaml parallel.data=4
expect 0 "on local: 2 stages x 2 replicas x 2 tensor$" "$echelon" plan run.yaml --ranks 8 \
    parallel.pipeline=2 parallel.tensor=2
expect 0 "^ +2 .. 3 +0 +1 +0 .. 1  0 .. 2 +1 3$" "$echelon" plan run.yaml --ranks 8 \
    parallel.pipeline=2 parallel.tensor=2
expect 0 "^ +6 .. 7 +0 +1 +1 +0 .. 1  0 .. 3 +1 3$" "$echelon" plan run.yaml --ranks 8 \
    parallel.context=2 parallel.tensor=2
expect 0 "on local: 2 tensor, sequence parallel$" "$echelon" plan run.yaml --ranks 2 \
    parallel.tensor=2 parallel.sequence=true
expect 0 "on local: 2 context .ulysses.$" "$echelon" plan run.yaml --ranks 2 parallel.context=2 \
    parallel.context_method=ulysses
expect 0 "each in 2 sequence chunks" "$echelon" plan run.yaml memory.sequence_chunks=2
expect 0 "tensor +[0-9]+ +[0-9]+ +[0-9.]+ [KM]iB  all_gather   .2 ranks" \
    "$echelon" plan run.yaml --ranks 2 parallel.tensor=2 parallel.sequence=true
expect 0 "data +[0-9]+ +[0-9]+ +[0-9.]+ [KM]iB  all_reduce " "$echelon" plan run.yaml --ranks 2
expect 0 "data +[0-9]+ +- +[0-9.]+ [KM]iB  all_reduce " "$echelon" plan run.yaml --ranks 2 \
    parallel.reduction=ring
expect 0 "^ +[0-9]+ +[0-9]+ +[0-9.]+ [KM]iB  reduce_scatter" "$echelon" plan run.yaml --ranks 2 \
    parallel.zero=1
expect 0 "model states +[0-9,]+" "$echelon" plan run.yaml --ranks 2 parallel.zero=1
forwards='[0-9.]+ block forwards?'
expect 0 "compute waits for lane receive: $forwards a rank, at most $forwards .rank " \
    "$echelon" plan run.yaml --ranks 2 parallel.pipeline=2 --simulate
expect 0 "stage 0, 2 tensor ranks  F0.0" "$echelon" plan run.yaml --ranks 4 parallel.pipeline=2 \
    parallel.tensor=2
expect 0 "^ +[0-9]+  collective C F0.0/1.[0-9]+. all_reduce over tensor  after " "$echelon" plan \
    run.yaml --ranks 2 parallel.tensor=2 --steps
expect 0 "in flight at most: 2 1 micro-batches, stage by stage" "$echelon" plan run.yaml --ranks 4 \
    parallel.pipeline=2 parallel.tensor=2 --simulate
expect 0 '"context": 1' "$echelon" plan run.yaml --ranks 2 parallel.context=2 --json
expect 0 '"tensor": 1' "$echelon" plan run.yaml --ranks 2 parallel.tensor=2 --json
expect_once 2 "parallel.tensor = 3: 3 .* 2 attention heads; grids that work on 6 ranks: pipeline" \
    "$echelon" plan run.yaml --ranks 6 parallel.tensor=3
expect 0 "999 more ranks like it" timeout 300 "$echelon" plan run.yaml --ranks 1000 \
    training.global_batch_size=2000 parallel.comm=mpi
expect_once 2 "memory.device_limit = 10KiB" "$echelon" plan run.yaml memory.device_limit=10KiB
expect_once 2 "memory.device_limit = 10KiB" "$echelon" train run.yaml --ranks 2 \
    memory.device_limit=10KiB
expect_once 2 "memory.host_limit = 10KiB: rank 0 needs .* of the host" "$echelon" plan run.yaml \
    memory.host_limit=10KiB
expect_once 2 "memory.host_limit = 10KiB" "$echelon" train run.yaml --ranks 2 \
    memory.host_limit=10KiB
expect 0 "host arena +[0-9.]+ " "$echelon" plan run.yaml memory.host_limit=1GiB
expect 0 ", of the host 1.0 GiB" "$echelon" plan run.yaml memory.host_limit=1GiB
for kind in parameters optimizer gradients activations "device arena"; do
    expect 2 "$kind +[0-9.]+ " "$echelon" plan run.yaml memory.device_limit=10KiB
done
expect 0 '"version": 2' "$echelon" plan run.yaml --ranks 2 --json --steps
if command -v python3 >/dev/null; then
    cp out plan.json
    expect 0 '"arena_bytes": [0-9]+' python3 -m json.tool plan.json
fi

# ---- train, verify, eval, sample ----

expect 0 "step +6/6 " "$echelon" train run.yaml --ranks 2
expect 0 "validation loss" "$echelon" train run.yaml log.directory=runs/alone
for file in run.yaml metrics.jsonl checkpoints/step-00000006/manifest.json; do
    [ -s "runs/one/$file" ] || complain "no runs/one/$file"
done
[ "$(grep -c '"loss"' runs/one/metrics.jsonl)" = 6 ] || complain "metrics.jsonl has not 6 steps"
expect 0 "all 6 steps were done already" "$echelon" train run.yaml
expect 0 "step +8/8 " "$echelon" train run.yaml training.steps=8
[ "$(grep -c '"loss"' runs/one/metrics.jsonl)" = 8 ] || complain "metrics.jsonl has not 8 steps"
expect 2 "model.hidden_size" "$echelon" train run.yaml model.hidden_size=32

expect 0 "PASSED" "$echelon" verify run.yaml --ranks 2
expect 0 "layout +4 ranks .local.: 2 stages x 2 tensor, sequence parallel, 1f1b$" "$echelon" \
    verify \
    run.yaml --ranks 4 parallel.pipeline=2 parallel.tensor=2 parallel.sequence=true
expect 0 "layout +2 ranks .local.: 2 replicas$" "$echelon" verify run.yaml --ranks 2
# A learning rate at which a last bit of the weights decides: no proof, and no failure.
expect 3 "ILL-CONDITIONED  with a unit above 1e-09" "$echelon" verify run.yaml --ranks 2 \
    --steps 10 \
    optimizer.learning_rate=10
if "$echelon" --version | grep -q '^MPI: *Open MPI [0-9]'; then
    expect 3 "ILL-CONDITIONED" "$echelon" verify run.yaml --ranks 2 --steps 10 \
        optimizer.learning_rate=10 parallel.comm=mpi
fi
expect 1 "FAILED.*first at step 1, " "$echelon" verify run.yaml --ranks 2 --tolerance 1e-300
expect 2 "must be above 0" "$echelon" verify run.yaml --tolerance 0
expect 2 "whole number, 1 to" "$echelon" verify run.yaml --steps 0

six='[0-9]+\.[0-9]{6}'
loss="^loss $six  perplexity $six  bits per byte ($six|unknown)  tokens [0-9]+\$"
expect 0 "$loss" "$echelon" eval runs/one --data d/text-valid
cp out whole
expect 0 "$loss" "$echelon" eval runs/one/checkpoints/step-00000008 --data d/text-valid --batch 3
cmp -s out whole || complain "eval depends on --batch"
expect 0 "tokens 32$" "$echelon" eval runs/one/checkpoints --data d/text-valid --samples 2
expect 2 "nix.idx" "$echelon" eval runs/one --data nix
expect 2 "on what" "$echelon" eval runs/one
expect 2 "nowhere" "$echelon" eval nowhere --data d/text-valid
expect 0 "$loss" "$echelon" eval runs/one --data d/text-valid --parallel "tensor=2 context=2"
cmp -s out whole || complain "eval depends on --parallel"
expect 2 "none of pipeline=" "$echelon" eval runs/one --data d/text-valid --parallel data=2

# Multiple choice.
cat >items <<'END'
{"context": "line", "choices": ["one", "two"], "label": 0}

{"context": "Why", "choices": {"text": ["x", "yy"], "label": ["A", "B"]}, "answerKey": "B"}
END
accuracy="$six( \\(error $six\\))?"
shares="^acc $accuracy  acc_norm $accuracy  acc_bytes $accuracy  items"
expect 0 "$shares 2\$" "$echelon" eval runs/one --choices items --scores scores
cp out chosen
log='"log_likelihoods":\[-[0-9.]+,-[0-9.]+\]'
grep -Eq "^\{\"line\":1,\"answer\":0,.*$log,\"tokens\":\[4,4\],\"bytes\":\[3,3\]\}\$" scores ||
    complain "scores: $(cat scores)"
expect 0 "$shares 2\$" "$echelon" eval runs/one --choices items --parallel "tensor=2 pipeline=2"
cmp -s out chosen || complain "--choices depends on --parallel"
expect 0 "$shares 2\$" "$echelon" eval runs/one/checkpoints/step-00000008/model --choices items
cmp -s out chosen || complain "--choices depends on where the model is"
expect 2 "scores: already exists" "$echelon" eval runs/one --choices items --scores scores
expect 1 "nowhere/s: cannot be written" "$echelon" eval runs/one --choices nothing \
    --scores nowhere/s
expect 2 "only one of the two" "$echelon" eval runs/one --choices items --data d/text-valid
expect 2 "are for --data" "$echelon" eval runs/one --choices items --samples 2
expect 2 "are for --choices" "$echelon" eval runs/one --data d/text-valid --scores new
echo '{"context": "line", "choices": ["one"], "label": 0}' >one
expect 1 "one:1: 1 choice; an item needs two" "$echelon" eval runs/one --choices one
echo '{"context": "line", "choices": ["one", "two"], "label": 2}' >two
expect 1 "two:1: the answer .* none of the 2 choices" "$echelon" eval runs/one --choices two
echo '{"context": "line", "choices": ["1", "a choice of many tokens"], "label": 0}' >two
expect 2 "two:1: choice 1: [0-9]+ tokens with the context, but .* reads at most 16;" \
    "$echelon" eval runs/one --choices two
echo >two
expect 1 "two: has no items" "$echelon" eval runs/one --choices two

expect 0 "^line" "$echelon" sample runs/one "line" --tokens 30
cp out first
expect 0 "^line" "$echelon" sample runs/one "line" --tokens 30
cmp -s out first || complain "the same seed writes another text"
expect 0 "^line" "$echelon" sample runs/one "line" --tokens 30 --seed 2
cmp -s out first && complain "another seed writes the same text"
expect 0 "^a prompt of more tokens than the model sees" "$echelon" sample runs/one \
    "a prompt of more tokens than the model sees" --tokens 3 --temperature 0
expect 0 "" "$echelon" sample runs/one --tokens 5 --top-k 1 --top-p 0.5
expect 0 "^line$" "$echelon" sample runs/one "line" --tokens 0
[ "$(wc -l <out)" = 1 ] || complain "no newline after a sample"
expect 0 "^line" "$echelon" sample runs/one $'line\n' --tokens 0
[ "$(wc -l <out)" = 1 ] || complain "two newlines after a sample that ends with one"
# A model without a tokenizer knows ids.
mkdir bare && cp runs/one/checkpoints/step-00000008/model/{config.json,model.safetensors} bare
expect 2 "bare: has no tokenizer.*--tokenizer SOURCE, or --ids" "$echelon" sample bare line
expect 0 "^line" "$echelon" sample bare line --tokens 30 --tokenizer bytes
cmp -s out first || complain "--tokenizer writes another text"
expect 0 "^108 105 110 101( [0-9]+){20}$" "$echelon" sample bare --ids "108 105,110 101" --tokens 20
# the last id that comes for the first time, and what comes before it
read -r stop n < <(awk \
    '{ for (i = 5; i <= NF; i++) if (!seen[$i]++) { id = $i; n = i - 1 } print id, n }' out)
cut -d' ' "-f1-$n" out >start
[ "$n" -gt 4 ] || complain "$stop is no good example"
echo "{\"eos_token_id\": [1, $stop]}" >bare/generation_config.json
expect 0 "" "$echelon" sample bare --ids "108 105 110 101" --tokens 20
cmp -s out start || complain "did not stop at $stop, the second of generation_config.json"
expect 2 "ids: 257 is not a token id of this model; ids are 0 to 256" "$echelon" sample bare \
    --ids "1 257"
expect 2 "replaces the prompt" "$echelon" sample bare line --ids 1
expect 0 "$loss" "$echelon" eval bare --data d/text-valid
sed 's/bits per byte [0-9.]*/bits per byte unknown/' whole | cmp -s - out ||
    complain "eval without a tokenizer is another"
expect 0 "$loss" "$echelon" eval bare --data d/text-valid --tokenizer bytes --logits logits
cmp -s out whole || complain "eval with --tokenizer is another"
expect 2 "logits: already exists" "$echelon" eval bare --data d/text-valid --logits logits
# A batch has no more samples than there are.
expect 0 "$loss" timeout 60 "$echelon" eval bare --data d/text-valid --batch 1048576
expect 1 "nowhere/l: cannot be written" "$echelon" eval bare --data d/text-valid --logits nowhere/l
# Experts that drop rows by groups of two samples; the model's folder says so, and no text is
# sampled by groups.
expect 0 "step +6/6 " "$echelon" train run.yaml log.directory=runs/experts \
    model.architecture=mixtral \
    model.num_local_experts=4 model.moe_capacity_factor=0.5 model.moe_group_samples=2
experts=runs/experts/checkpoints/step-00000006/model
expect 0 "$loss" "$echelon" eval runs/experts --data d/text-valid --batch 4
cp out dropped
expect 0 "$loss" "$echelon" eval "$experts" --data d/text-valid --batch 4
cmp -s out dropped || complain "eval of the folder is another"
expect 2 "group of 2 samples, .* use --batch 4" "$echelon" eval "$experts" --data d/text-valid \
    --batch 3
expect 0 "^line" "$echelon" sample runs/experts line --tokens 3

# ---- several runs side by side ----

expect 0 "^ +runs/one +runs/experts$" "$echelon" report runs/one runs/experts
also "^last loss +[0-9.]+ +[0-9.]+$"
also "^last step +20[0-9]{2}-[0-9-]+ [0-9:]+ UTC +20"
also "^wall time +[0-9:]+"
also "^the same in all:"
expect 0 "^written to both.html" "$echelon" report runs/one runs/experts --out both.html
[ "$(grep -c '<td>' both.html)" -gt 5 ] && [ "$(grep -c 'runs/experts: ' both.html)" -ge 3 ] ||
    complain "the page of two runs lacks the table or charts"
expect 1 "no/where.html" "$echelon" report runs/one runs/experts --out no/where.html
long=runs/$(printf 'long-%.0s' {1..12})
ln -s experts "$long"1 && ln -s experts "$long"2
expect 0 "^ +${long}1 +${long}2$" "$echelon" report "$long"1 "$long"2
expect 2 "which run directory" "$echelon" report

# The last step's status line stays as it is: what follows comes below it, and nothing after that.
ECHELON_TERMINAL=70 "$echelon" train run.yaml log.directory=runs/terminal >out 2>err </dev/null
[ "$(tr '\r' '\n' <err | grep -c "step  *6/6 | loss")" = 1 ] ||
    complain "the last status line is drawn again"
tail -1 err | grep -q "saved step-00000006" || complain "the last line is not the checkpoint's"
expect 0 "^line" "$echelon" sample "$experts" line --tokens 3
# a byte a token, but for the end of text, which is no text
awk '{ want = $2 * $10 / log(2) / ($10 - 1); exit !(want - $8 < 2e-6 && $8 - want < 2e-6) }' \
    whole ||
    complain "bits per byte are not those of the loss"
mv d/text-valid.origin.json kept.json
printf '{"format": "echelon tokens", "version": 1}' >d/text-valid.origin.json
expect 1 "text-valid.origin.json: is damaged" "$echelon" eval bare --data d/text-valid
mv kept.json d/text-valid.origin.json
# A terminal does not get what it would obey; a pipe gets what the model says.
told=$(printf 'a\033[2J\342\200\256b')
[ "$("$echelon" sample runs/one "$told" --tokens 0 2>err)" = "$told" ] ||
    complain "sample into a pipe"
if script -qec true /dev/null >/dev/null 2>&1; then
    expect 0 '^a\\x1b\[2J\\u202eb' script -qec "'$echelon' sample runs/one '$told' --tokens 0" \
        /dev/null
else
    echo "SKIPPED: sample on a terminal: no script(1) here"
fi
expect 2 "must be a number" "$echelon" sample runs/one --temperature warm
expect 2 "temperature -1" "$echelon" sample runs/one --temperature=-1
expect 2 "top-p 0" "$echelon" sample runs/one --top-p 0
expect 2 "nowhere" "$echelon" sample nowhere
expect 2 "put the prompt in quotes" "$echelon" sample runs/one two words

# Begin of text is as the data were made.
expect 0 "" "$echelon" data text.txt d/begun --begin-of-text true
expect 2 "data.begin_of_text = false: data.train was made with begin of text" "$echelon" train \
    run.yaml \
    data.train=d/begun data.valid= data.begin_of_text=false
expect 2 "begin-of-text maybe: must be true or false" "$echelon" sample runs/one \
    --begin-of-text maybe
expect 2 "libsvm reads features" "$echelon" data x.libsvm d/x --special-tokens

# Blends, and shares of documents.
mixed() {
    "$echelon" train run.yaml --ranks 2 training.steps=2 log.directory="runs/$1" data.train="$2" \
        data.valid= "${@:3}"
}
expect 0 "step +2/2 " mixed blend "0.3 d/text-train 0.7 d/lines"
expect 0 "step +2/2 " mixed sizes "d/text-train d/lines"
expect_once 2 "0.7x should be a weight" mixed no "0.3 d/text-train 0.7x d/lines"
expect 0 "validation loss" mixed split d/lines data.split=8,1,1
expect 0 "$loss" "$echelon" eval runs/split --data d/lines --split 8,1,1
expect 0 "validation loss" mixed two d/lines data.split=90,10,0
expect 0 "step +2/2 " mixed all d/lines data.split=100,0,0
grep -q "validation loss" out err && complain "validates on a share of 0"
expect 0 "validation loss" mixed other d/lines data.split=9,0,1 data.valid=d/text-valid
expect_once 2 "data.split = 99,1,0: .*second share of data.split to 0" mixed no d/lines \
    data.split=99,1,0 data.valid=d/text-valid
expect_once 2 "leaves none of the 40 documents of d/lines for validation" mixed no d/lines \
    data.split=99,1,0
expect_once 2 "validate_every = 1: .*no validation data" mixed no d/lines \
    data.split=1,0,0 training.validate_every=1
expect_once 2 "command line: data.split = 1,2,3,4: must be up to three" mixed no d/lines \
    data.split=1,2,3,4
expect 0 "^calendar +6 steps; validate after the last;" "$echelon" plan run.yaml data.valid= \
    data.split=9,1,0
expect 0 "^calendar +6 steps; compare" "$echelon" plan run.yaml data.valid= data.split=1,0,0

# A tokenizer from a file: its vocabulary is the model's, it may move, and must not change.
bpe() {
    "$echelon" train run.yaml log.directory=runs/bpe data.train=d/sub-train data.valid=d/sub-valid \
        "$@"
}
expect 0 "step +6/6 " bpe data.tokenizer=d/bpe
expect 0 "vocab_size: 264" cat runs/bpe/run.yaml
mv d/bpe d/moved
expect 0 "step +7/7 " bpe data.tokenizer=d/moved/tokenizer.json training.steps=7
expect 0 "step +8/8 " bpe data.tokenizer=runs/bpe/checkpoints/step-00000007/model training.steps=8
expect_once 2 \
    "data.train: d/sub-train was made with the tokenizer d/bpe, of 264 ids.* data.tokenizer=d/bpe" \
    bpe data.tokenizer=bytes training.steps=9
rm d/sub-*.origin.json # as if another program had made them
for other in bytes d/bpe2; do
    expect_once 2 \
        "data.tokenizer = $other: differs from the tokenizer of the checkpoint; use .*/model" \
        bpe data.tokenizer=$other training.steps=9
done
expect_once 2 "d/bpe: no such tokenizer" bpe data.tokenizer=d/bpe training.steps=9
rm -r d/moved
expect 0 "$loss" "$echelon" eval runs/bpe --data d/sub-valid
expect 0 "written to runs/bpe/report.html" "$echelon" report runs/bpe
expect 0 "^line 3 of" "$echelon" sample runs/bpe "line 3 of" --tokens 5

# Tokens that the model's vocabulary does not hold: 16 times 65535 in place of the first bytes.
cp d/text-train.idx d/bad.idx
{ printf '\377%.0s' $(seq 32); tail -c +33 d/text-train.bin; } >d/bad.bin
expect 1 "65535.*vocabulary|vocabulary.*65535" "$echelon" eval runs/one --data d/bad
expect 1 "65535.*vocabulary|vocabulary.*65535" "$echelon" train run.yaml data.train=d/bad \
    log.directory=runs/bad training.steps=100

# ---- checkpoint, convert ----

expect 0 "^step-00000008 +8 .* fp32$" "$echelon" checkpoint list runs/one
expect 0 "^step-00000008 +whole: all checksums" "$echelon" checkpoint verify runs/one
expect 2 "look: list or verify" "$echelon" checkpoint look runs/one
expect 2 "nowhere: neither a checkpoint" "$echelon" checkpoint list nowhere
expect 0 "d/hf: gpt2, [0-9,]+ parameters in bf16" "$echelon" convert runs/one d/hf --dtype bf16
expect 2 "d/hf: already exists" "$echelon" convert runs/one d/hf
expect 2 "fp8: fp32, bf16, fp16 or fp64" "$echelon" convert runs/one d/hf8 --dtype fp8
expect 1 "text.txt: not a model; name a Hugging Face folder, or" "$echelon" convert text.txt d/x
expect 0 "step +1/1 " "$echelon" train run.yaml model.reversible=true training.steps=1 \
    log.directory=runs/reversible
expect 0 "recompute   inverted, segments of [0-9]+ layers?; rank 0.* sharded, .* recomputed" \
    "$echelon" plan run.yaml model.reversible=true
expect 1 "no other program supports reversible" "$echelon" convert runs/reversible d/reversible
expect 0 "$loss" "$echelon" eval d/hf --data d/text-valid
expect 2 "vocab_size = 257: .*tokenizer d/bpe2; use at least [0-9]+, which adds rows for new" \
    "$echelon" plan run.yaml model.init_from=d/hf data.tokenizer=d/bpe2
expect 0 "step +1/1 " "$echelon" train run.yaml model.init_from=d/hf training.steps=1 \
    log.directory=runs/from

# A damaged checkpoint is refused.
cp -r runs/alone/checkpoints/step-00000006 damaged
printf 'x' | dd of=damaged/model/model.safetensors bs=1 seek=5000 conv=notrunc 2>/dev/null
expect 1 "damaged" "$echelon" sample damaged
expect 1 "model.safetensors: bytes .* are damaged" "$echelon" checkpoint verify damaged
expect 0 "^damaged " "$echelon" checkpoint list damaged

# ---- signals: saved, 75, and the same command goes on ----

# stops SIGNAL DIRECTORY ...: a long run with these words, which gets it when it is on its way.
stops() {
    local signal=$1 directory=$2 child code saved
    shift 2
    # Whoever runs this may ignore the signal, as nohup does, which programs then keep.
    env --default-signal="$signal" "$echelon" train run.yaml log.directory="$directory" \
        training.steps=1000000 \
        training.check_every=0 "$@" >out 2>err </dev/null &
    child=$!
    for _ in $(seq 600); do
        grep -q '"step":2,' "$directory/metrics.jsonl" 2>/dev/null && break
        sleep 0.1
    done
    kill -"$signal" $child
    wait $child
    code=$?
    checks=$((checks + 1))
    [ $code = 75 ] || complain "exit code $code instead of 75 after SIG$signal: $*"
    saved=$(ls "$directory/checkpoints" 2>/dev/null | tail -1)
    [ -n "$saved" ] || complain "SIG$signal saved nothing: $*"
    expect 0 "resuming from .*$saved" "$echelon" train run.yaml log.directory="$directory" \
        training.check_every=0 training.steps=$((10#${saved#step-} + 2))
}
stops TERM runs/signal
stops HUP runs/hangup

# ---- mpi: what MPI libraries leak is not ours ----

export ASAN_OPTIONS=detect_leaks=0
mpi() {
    expect "$1" "$2" timeout 300 "$echelon" "${@:3}" --ranks 2 parallel.comm=mpi
}
if "$echelon" --version | grep -q "MPI:"; then
    mpi 0 "step +6/6 " train run.yaml log.directory=runs/mpi
    grep -q "mpirun -n 2 .*train run.yaml" err || complain "the launcher's line is not printed"
    cmp -s <(sed 's/"step_seconds.*//' runs/mpi/metrics.jsonl | grep '"loss"') \
        <(sed 's/"step_seconds.*//' runs/one/metrics.jsonl | grep '"loss"' | head -6) ||
        complain "local and mpi differ"
    mpi 0 "PASSED" verify run.yaml
    mpi 1 "FAILED" verify run.yaml --tolerance 1e-300
    mpi 2 "does not divide" train run.yaml training.global_batch_size=7 training.micro_batch_size=1
    stops TERM runs/mpi-signal parallel.comm=mpi --ranks 2
    expect 2 "leave --ranks out" env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=3 "$echelon" \
        train \
        run.yaml --ranks 2 parallel.comm=mpi
    expect 2 "each would train alone" env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=3 "$echelon" \
        train run.yaml
fi

conclude
