#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What is to be shown on a GPU, in stages that are short and can be repeated alone. Each writes what
# it sees to FOLDER/STAGE.txt and prints a table last. Runs in the repository, which it builds
# (build/release), and in the folder that tools/bundle.sh makes.
#
#   tools/gpu.sh [--out FOLDER] [--device NAME] [--limit SECONDS] [STAGE ...]    all, without one
#
#     facts      driver, libraries and where they are, rates of copies, links; programs run here
#     rows       tests of the device and of every kernel row against the reference
#     sanitizer  the same under compute-sanitizer: memcheck, racecheck, initcheck
#     verify     layouts of 1 to 4 ranks, threads that share a GPU, against one rank in fp64
#     nccl       two ranks over NCCL, as threads and as processes, against one rank and against
#                threads' bits; a killed rank. With one GPU they share it, which takes NCCL 2.30.
#     train      losses beside the CPU's in fp32 and bf16; bits from run to run; checkpoints from
#                the CPU and back
#     bench      every kernel row beside its bound; GPT-2 124M in bf16, 0.5M tokens a step, with the
#                step profile; PyTorch's steps of the same, where python3 has it
#
# Exit code: 0, 1 if something fails, 77 if the machine lacks the device. --device: another one, to
# try this script. --limit: no command takes longer, 600: one that hangs takes no more of a lease.
set -uo pipefail

here=$(cd "$(dirname "$0")" && pwd)
out=gpu-results device=cuda limit=600 stages=()
while [ $# -gt 0 ]; do
    case "$1" in
        --out) out=${2:?--out FOLDER}; shift ;;
        --device) device=${2:?--device NAME}; shift ;;
        --limit) limit=${2:?--limit SECONDS}; shift ;;
        facts | rows | sanitizer | verify | nccl | train | bench) stages+=("$1") ;;
        *) sed -n '4,23s/^# \{0,2\}//p' "$0" >&2; exit 2 ;;
    esac
    shift
done
[ ${#stages[@]} -gt 0 ] || stages=(facts rows sanitizer verify nccl train bench)
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 1
failures=0

# ---- the programs: those of the folder where they run, otherwise built here ----

build() { # ROOT
    local cuda=() # the test suite leaves a build without it
    ! grep -qs '^ECH_CUDA:[A-Z]*=OFF' "$1/build/release/CMakeCache.txt" || cuda=(-DECH_CUDA=AUTO)
    echo "building in $1/build/release" >&2
    (cd "$1" && cmake --preset release -DECH_TESTS=ON -DECH_CUDA_F16=ON "${cuda[@]}" &&
        cmake --build --preset release -j "$(nproc)" \
        --target echelon bench_device_copies gpu_tests) > "$out/build.txt" 2>&1 ||
        { tail -n 30 "$out/build.txt" >&2; exit 1; }
    echelon=$1/build/release/echelon tests=$1/build/release/tests benches=$1/build/release/bench
    kernel_tests=$tests/kernel peer=$1/bench/gpu_peer.py
}

if [ -f "$here/run" ]; then
    if "$here/echelon" --version > "$out/version.txt" 2>&1; then
        echelon=$here/echelon tests=$here kernel_tests=$here benches=$here peer=$here/gpu_peer.py
    else
        tail -n 3 "$out/version.txt" >&2
        echo "the programs of $here do not run on this machine" >&2
        mkdir -p "$out/source" && tar -C "$out/source" -xzf "$here/source.tar.gz" &&
            build "$out/source"
    fi
else
    build "$(dirname "$here")"
fi

# ---- how it is told ----

# say WORD ...: a row of the stage's table
say() {
    printf '%s\n' "$*" >> "$table"
}

# tell NAME SECONDS CODE: a row for a command that has ended
tell() {
    case $3 in
        0) say "$(printf '%-34s passed  %4d s' "$1" "$2")" ;;
        77) say "$(printf '%-34s skipped' "$1")" ;;
        *) say "$(printf '%-34s FAILED  %4d s, exit code %d' "$1" "$2" \
            "$3")"; failures=$((failures + 1)) ;;
    esac
}

# try NAME COMMAND ...: a row, and whether it succeeds; what it prints goes to the stage's file
try() {
    local name=$1 begin=$SECONDS code=0 limited=()
    shift
    [ "$(type -t "$1")" != file ] || limited=(timeout -k 10 "$limit")
    { echo; echo "== $name: $*"; "${limited[@]}" "$@"; } >> "$log" 2>&1 || code=$?
    tell "$name" $((SECONDS - begin)) $code
    return $code
}

# each NAME COMMAND ...: as try, for every noun of kernels' tests as the command's last word;
# several at a time, each with a log of its own until all have ended
each() {
    local name=$1 most=$(($(nproc) / 2)) noun nouns
    shift
    nouns=$("$kernel_tests/test_kernel_cuda" --nouns)
    [ $most -le 8 ] || most=8 # what compute-sanitizer allows beside each other is 10
    for noun in $nouns; do
        while [ "$(jobs -rp | wc -l)" -ge $((most > 0 ? most : 1)) ]; do wait -n; done
        (
            begin=$SECONDS code=0
            timeout -k 10 "$limit" "$@" "$noun" > "$noun.txt" 2>&1 || code=$?
            echo "$((SECONDS - begin)) $code" > "$noun.code"
        ) &
    done
    wait
    for noun in $nouns; do
        { echo; echo "== $name $noun: $*"; cat "$noun.txt"; } >> "$log"
        # shellcheck disable=SC2046
        tell "$name $noun" $(cat "$noun.code")
        rm "$noun.txt" "$noun.code"
    done
}

# ---- a run file and tokens: the stage's folder is the current one ----

# write_run NAME: NAME.yaml, the model of examples/quickstart.yaml
write_run() {
    local name=$1
    cat > "$name.yaml" <<Y
model: {architecture: llama, hidden_size: 192, num_hidden_layers: 4, num_attention_heads: 6,
        num_key_value_heads: 3, tie_word_embeddings: true}
data: {train: text, sequence_length: 192}
training: {steps: 20, global_batch_size: 32, micro_batch_size: 8}
optimizer: {learning_rate: 1e-3, clip_norm: 1, schedule: constant}
parallel: {comm: local, share_device: true, device: $device}
log: {directory: runs/$name, every: 1}
Y
}

# write_gpt2 NAME: NAME.yaml, GPT-2 124M, as large as it is on Hugging Face
write_gpt2() {
    local name=$1
    cat > "$name.yaml" <<Y
model: {architecture: gpt2, hidden_size: 768, num_hidden_layers: 12, num_attention_heads: 12,
        vocab_size: 50304, max_position_embeddings: 1024}
data: {train: text, sequence_length: 128}
training: {steps: 3, global_batch_size: 4, micro_batch_size: 2}
optimizer: {learning_rate: 1e-4, clip_norm: 1, schedule: constant}
parallel: {comm: local, share_device: true, device: $device}
checkpoint: {background: false}
log: {directory: runs/$name, every: 1}
Y
}

make_tokens() {
    [ -e text.txt ] || awk \
        'BEGIN { s = 1; for (i = 0; i < 60000; i++) { s = (s * 16807) % 2147483647
        printf "%s%s", s % 5000, i % 12 == 11 ? ".\n" : " " } }' > text.txt
    [ -e text.json ] || "$echelon" data text.txt text >> "$log" 2>&1
}

# run NAME WORD ...: trains it
run() {
    local name=$1
    shift
    timeout -k 10 "$limit" "$echelon" train "$name.yaml" "$@"
}

losses() { # RUN
    grep -o '"loss": *[0-9.e+-]*' "runs/$1/metrics.jsonl" | sed 's/.*: *//'
}

# near A B TOLERANCE: the losses of two runs, relative to each other
near() {
    paste <(losses "$1") <(losses "$2") | awk -v t="$3" '
        NF == 2 { d = ($1 > $2 ? $1 - $2 : $2 - $1) / $2; if (d > most) most = d; n++ }
        END { printf "%d losses, at most %.2g apart\n", n, most; exit !(n > 0 && most <= t) }'
}

# newest RUN: its last checkpoint
newest() {
    find "runs/$1/checkpoints" -maxdepth 1 -name 'step-*' | sort | tail -n 1
}

# same A B: losses of all steps and the weights after the last, bit for bit
same() {
    [ -n "$(losses "$1")" ] && cmp <(losses "$1") <(losses "$2") &&
        cmp "$(newest "$1")/model/model.safetensors" "$(newest "$2")/model/model.safetensors"
}

used() { # MiB of the first GPU
    nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits -i 0
}

# within NAME WORD ...: trains it, and fails where it takes more of the GPU than its arena and the
# allowance of driver and libraries
within() {
    local name=$1 before most=0 now code=0 arena allowed process
    shift
    before=$(used)
    run "$name" "$@" &
    process=$!
    while kill -0 $process 2> /dev/null; do
        now=$(used) && [ "$now" -gt "$most" ] && most=$now
        sleep 0.2
    done
    wait $process || code=$?
    arena=$(grep -o '"peak_bytes": *[0-9]*' "runs/$name/metrics.jsonl" | sed -n '$s/.*: *//p')
    allowed=$(sed -n 's/^cuda: .*; \([0-9]*\) MiB of each.*/\1/p' "$out/version.txt")
    say "$name: $((most - before)) MiB of the GPU, $((arena >> 20)) of them the plan's;" \
        "driver and libraries may take $allowed"
    [ $((most - before - (arena >> 20))) -le "$allowed" ] && return $code
}

# ---- stages ----

facts() {
    {
        date -u; uname -a; ldd --version | head -1; nproc; "$echelon" --version
        cat "$here/FACTS" 2>/dev/null
        nvidia-smi; nvidia-smi topo -m; nvidia-smi nvlink --status
    } >> "$log" 2>&1
    say "$("$echelon" --version | sed -n 's/^cuda: *//p')"
    say "$(nvidia-smi --query-gpu=index,name,driver_version,memory.total,clocks.max.sm \
        --format=csv,noheader 2>/dev/null || echo "no nvidia-smi")"
    say "glibc $(ldd --version | sed -n '1s/.* //p'), $(nproc) cores"
    [ -x "$benches/bench_device_copies" ] &&
        try "rates of copies" "$benches/bench_device_copies" "$device" &&
            say "$(sed -n '/of the device/,$p' "$log" | head -5)"
}

# Runs every test program that is about a GPU; the log has their output. The tests of kernels run an
# eighth of their many shapes.
rows() {
    local program
    for program in "$tests"/test_device_cuda*; do
        [ -x "$program" ] && try "$(basename "$program")" "$program"
    done
    ECHELON_SHARE=0/8 each "rows of" "$kernel_tests/test_kernel_cuda"
    grep -q '^rows of .* passed' "$table" && return
    say "no row was tested; $(grep -m 1 '^skipped: ' "$log")"
    failures=$((failures + 1))
}

sanitizer() {
    local tool checker
    checker=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer)
    [ -n "$checker" ] || { say \
        "compute-sanitizer is not here (it comes with CUDA's toolkit)"; return; }
    for tool in memcheck racecheck initcheck; do
        ECHELON_SHARE=0/64 ECHELON_EXACT_MEMORY=1 each "$tool" "$checker" --tool "$tool" \
            --target-processes all --error-exitcode 1 "$kernel_tests/test_kernel_cuda"
    done
}

verify() {
    local layout small=(model.hidden_size=64 model.num_attention_heads=8 model.num_key_value_heads=4
        model.tie_word_embeddings=false data.sequence_length=32 training.global_batch_size=8 \
            training.micro_batch_size=2)
    write_run verify
    for layout in "" "parallel.pipeline=2" "parallel.tensor=2" \
        "parallel.tensor=2 parallel.sequence=keep" \
        "parallel.context=2" "parallel.context=2 parallel.context_method=ulysses" \
            "parallel.data=2" "parallel.pipeline=2 parallel.tensor=2" \
            "parallel.pipeline=4 parallel.schedule=zero-bubble" \
        "parallel.pipeline=2 parallel.schedule=pipedream" \
            "parallel.pipeline=2 parallel.schedule=pipedream-2bw" \
        "memory.recompute=full" "parallel.data=2 memory.sequence_chunks=2" \
            "parallel.data=2 parallel.zero=3" \
        "memory.offload_optimizer=host memory.offload_activations=host" \
        "model.architecture=mixtral model.num_local_experts=4 parallel.data=2 parallel.expert=2" \
        "parallel.data=2 optimizer.name=muon optimizer.momentum=0.95" \
            "parallel.data=2 parallel.compression=powersgd" \
        "parallel.data=2 parallel.strategy=parameter_server"; do
        # shellcheck disable=SC2086
        try "verify ${layout:-one rank}" "$echelon" verify verify.yaml "${small[@]}" $layout
    done
}

# wait_for SECONDS COMMAND ...: until the command succeeds
wait_for() {
    local tries=$(($1 * 10))
    shift
    while ! "$@" > /dev/null 2>&1; do
        [ $((tries -= 1)) -gt 0 ] || return 1
        sleep 0.1
    done
}

# start RANK NAME WORD ...: starts one of two processes that train it, as torchrun would; its output
# goes to NAME.RANK
start() {
    local rank=$1 name=$2
    shift 2
    RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 \
        MASTER_PORT=$port timeout -k 10 "$limit" "$echelon" train "$name.yaml" parallel.comm=nccl \
        "$@" > "$name.$rank" 2>&1 &
}

# pair NAME WORD ...: two processes train it
pair() {
    local name=$1 code=0 first
    port=$((port + 1))
    start 0 "$@"
    first=$!
    start 1 "$@"
    wait $! || code=$?
    wait $first || code=$?
    cat "$name".[01]
    return $code
}

# killed NAME WORD ...: of two processes that train it, one is killed after its first steps; the
# other has to end by itself with an error, and say which rank is gone
killed() {
    local name=$1 code=0 first second
    port=$((port + 1))
    start 0 "$@"
    first=$!
    start 1 "$@"
    second=$!
    wait_for 60 grep -q loss "runs/$name/metrics.jsonl"
    pkill -KILL -P $second
    wait $second
    wait $first || code=$?
    cat "$name".[01]
    [ $code -ne 0 ] && [ $code -ne 124 ] && grep -q "rank 1" "$name.0"
}

nccl() {
    local layout share=false port=29500 \
        small=(model.hidden_size=64 model.num_attention_heads=8 model.num_key_value_heads=4
            model.tie_word_embeddings=false data.sequence_length=32 training.global_batch_size=8
            training.micro_batch_size=2)
    if [ "$device" != cuda ]; then
        say "skipped: NCCL sends the memory of GPUs"
        return
    fi
    [ "$(nvidia-smi -L | wc -l)" -ge 2 ] || share=true
    write_run verify
    write_run over && sed -i "s/steps: 20/steps: 6/; s/heads: 3/heads: 2/" over.yaml
    for layout in "parallel.pipeline=2" "parallel.tensor=2" "parallel.data=2" \
        "parallel.data=2 parallel.zero=3" "parallel.context=2" \
        "parallel.context=2 parallel.context_method=ulysses" \
        "parallel.data=2 parallel.reduction=library" \
        "parallel.pipeline=2 parallel.schedule=pipedream" \
        "model.architecture=mixtral model.num_local_experts=4 parallel.data=2 parallel.expert=2"; do
        # shellcheck disable=SC2086
        try "$layout" "$echelon" verify verify.yaml "${small[@]}" parallel.comm=nccl \
            parallel.share_device=$share $layout
    done
    for layout in pipeline tensor data; do
        rm -rf "runs/$layout-threads" "runs/$layout-nccl" "runs/$layout-pair"
        try "$layout 2 over threads" run over parallel.$layout=2 \
            log.directory="runs/$layout-threads"
        try "$layout 2 over NCCL" run over parallel.$layout=2 parallel.comm=nccl \
            parallel.share_device=$share log.directory="runs/$layout-nccl"
        try "$layout 2: bits" same "$layout-threads" "$layout-nccl"
        try "$layout 2 over NCCL, processes" pair over parallel.$layout=2 \
            parallel.share_device=$share log.directory="runs/$layout-pair"
        try "$layout 2, processes: bits" same "$layout-threads" "$layout-pair"
    done
    write_run over-long && sed -i 's/steps: 20/steps: 100000/' over-long.yaml
    rm -rf runs/over-long
    try "a killed rank" killed over-long parallel.data=2 parallel.share_device=$share \
        parallel.deadline=20
}

train() {
    local type to source
    for type in fp32 bf16; do
        write_run "$type"
        rm -rf "runs/$type" "runs/$type-again" "runs/$type-resumed" "runs/$type-cpu"
        try "$type on $device" run "$type" precision.compute=$type
        try "$type again" run "$type" precision.compute=$type log.directory="runs/$type-again"
        try "$type: bits from run to run" same "$type" "$type-again"
        for to in 9 20; do
            try "$type to step $to" run "$type" precision.compute=$type \
                log.directory="runs/$type-resumed" training.steps=$to
        done
        try "$type: bits across the resume" same "$type" "$type-resumed"
        try "$type on the CPU" run "$type" precision.compute=$type log.directory="runs/$type-cpu" \
            parallel.device=cpu
        try "$type: losses beside the CPU's" near "$type" "$type-cpu" "$([ $type = fp32 ] &&
            echo 1e-4 || echo 3e-2)"
    done
    # On the CPU to step 10, on the device to 15, and on the CPU again.
    write_run moved
    rm -rf runs/moved
    for to in 10:cpu 15:$device 20:cpu; do
        try "to step ${to%:*} on ${to#*:}" run moved training.steps="${to%:*}" \
            parallel.device="${to#*:}"
    done
    try "moved: losses beside the CPU's" near moved fp32-cpu 1e-2
    # GPT-2 124M from a folder in Hugging Face's form, which a step on the CPU leaves.
    write_gpt2 gpt2
    rm -rf runs/gpt2*
    try "a folder of GPT-2 124M" run gpt2 training.steps=1 parallel.device=cpu \
        log.directory=runs/gpt2-source
    source=$(newest gpt2-source)/model
    for type in fp32 bf16; do
        write_gpt2 gpt2-$type
        sed -i "s|^model: .*|model: {init_from: $source}|; /^ *max_position/d" gpt2-$type.yaml
        try "GPT-2 124M, $type on $device" "$([ "$device" = cuda ] && echo within ||
            echo run)" gpt2-$type precision.compute=$type
        try "GPT-2 124M, $type on the CPU" run gpt2-$type precision.compute=$type \
            parallel.device=cpu log.directory=runs/gpt2-$type-cpu
        try "GPT-2 124M, $type: losses beside" near gpt2-$type gpt2-$type-cpu "$([ $type = \
            fp32 ] && echo 1e-4 || echo 3e-2)"
        rm -rf runs/gpt2-$type*/checkpoints
    done
    rm -rf runs/gpt2-source
}

bench() {
    local less=() # on a processor
    [ "$device" = cuda ] || less=(data.sequence_length=128 training.steps=3 \
        training.global_batch_size=2 training.micro_batch_size=1)
    cat > bench.yaml <<Y
model: {architecture: gpt2, hidden_size: 768, num_hidden_layers: 12, num_attention_heads: 12,
        vocab_size: 50304}
data: {train: text, sequence_length: 1024}
training: {steps: 6, global_batch_size: 512, micro_batch_size: 16}
optimizer: {learning_rate: 1e-4, clip_norm: 1}
precision: {compute: bf16}
parallel: {comm: local, device: $device}
log: {directory: runs/bench, every: 1}
Y
    rm -rf runs/bench
    try "kernel rows beside their bounds" "$echelon" bench --device "$device" products kernels &&
        say "$(awk '$NF ~ /%$/ {
                sub("%", "", $NF)
                if (n++ == 0 || $NF < least) { least = $NF; row = $1 }
            }
            END { printf "%d rows; the farthest from its bound: %s, %s%% of it", n, row, least }' \
                "$log")"
    try "GPT-2 124M, bf16" "$echelon" train --profile bench.yaml "${less[@]}"
    say "$(grep -E 'tok/s' "$log" | tail -1)"
    if [ "$device" = cuda ] && python3 -c 'import torch' 2> /dev/null; then
        try "PyTorch's steps" python3 "$peer"
        say "$(grep '^PyTorch' "$log")" # also the one that ended, where the other took too long
    fi
}

# ---- all of them ----

if ! "$echelon" --version > "$out/version.txt" 2>&1; then tail -n 3 "$out/version.txt" \
    >&2; exit 1; fi
lacks=$(sed -n 's/^cuda: *//p' "$out/version.txt")
mkdir -p "$out/work" && cd "$out/work" || exit 1
for stage in "${stages[@]}"; do
    log=$out/$stage.txt table=$out/$stage.table
    : > "$log"; : > "$table"
    if [ "$device" = cuda ] && [ "$stage" != facts ] &&
        ! grep -q "^cuda: .*(sm_" "$out/version.txt"; then
        echo "$stage: skipped: $lacks"
        skipped=1
        continue
    fi
    case $stage in verify | nccl | train | bench) make_tokens ;; esac
    "$stage"
    echo
    echo "== $stage ($out/$stage.txt)"
    cat "$table"
done
[ "$failures" = 0 ] || exit 1
[ -z "${skipped:-}" ] || exit 77
