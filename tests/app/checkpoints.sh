#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Checkpoints from outside: echelon checkpoint list|verify, what a resume takes, skips and refuses,
# and disks that fail under several processes.
#     checkpoints.sh ECHELON FAULTS_LIBRARY
set -u
echelon=${1:?usage: checkpoints.sh ECHELON FAULTS_LIBRARY}
faults=${2:?usage: checkpoints.sh ECHELON FAULTS_LIBRARY}
# shellcheck source-path=SCRIPTDIR source=scratch.sh
. "$(dirname "$0")/scratch.sh"
# shellcheck source-path=SCRIPTDIR source=expect.sh
. "$(dirname "$0")/expect.sh"
enter checkpoints
export OMP_NUM_THREADS=1

make_run model.num_attention_heads=2 data.sequence_length=16 training.steps=6 \
    training.global_batch_size=4 \
    training.micro_batch_size=2 optimizer.learning_rate=3e-3 parallel.comm=local checkpoint.every=2
for _ in $(seq 60); do echo "the quick brown fox jumps over the lazy dog"; done >text.txt
expect 0 "" "$echelon" data text.txt text

train() { # train CODE TEXT WORDS ...
    local code=$1 text=$2
    shift 2
    expect "$code" "$text" "$echelon" train run.yaml "$@"
}

# ---- list and verify ----

expect 2 "neither a checkpoint" "$echelon" checkpoint list .
expect 2 "list or verify" "$echelon" checkpoint show run
expect 2 "which run directory" "$echelon" checkpoint list
mkdir -p left/checkpoints/step-00000002.tmp
expect 1 "no finished checkpoint" "$echelon" checkpoint verify left
expect 0 "step-00000002.tmp +broken: not finished" "$echelon" checkpoint list left
rm -r left
train 0 "saved step-00000006" checkpoint.dtype=bf16
expect 0 "^step-00000006 +6 +20[0-9-]+ [0-9:]+ +[0-9.]+ [KM]iB +1 +[0-9.]+ +- +bf16" "$echelon" \
    checkpoint list run
[ "$(sed -n 2p out | cut -c1-13)" = step-00000006 ] || complain "the newest is not first"
expect 0 "^step-00000002 +whole" "$echelon" checkpoint verify run/checkpoints
expect 0 "^step-00000004 +whole" "$echelon" checkpoint verify run/checkpoints/step-00000004/
[ "$(wc -l <out)" = 1 ] || complain "more than the one that was asked for"

# ---- damage: the older one is taken, and why is said ----

cp -a run whole
model=run/checkpoints/step-00000006/model/model.safetensors
printf x | dd of=$model bs=1 seek=5000 conv=notrunc status=none
expect 0 "^step-00000006 +6" "$echelon" checkpoint list run
expect 1 "^step-00000006 +broken: .*model.safetensors: bytes 0\.\.[0-9]+ are damaged" "$echelon" \
    checkpoint verify run
also "^step-00000004 +whole"
truncate -s -1 run/checkpoints/step-00000004/state/state.safetensors
mkdir run/checkpoints/step-00000008.tmp
expect 0 "^step-00000004 +broken: .*state.safetensors: has [0-9]+ bytes, the manifest says" \
    "$echelon" checkpoint list run
also "^step-00000008.tmp +broken: not finished"
train 0 "skipped: .*step-00000006/model/model.safetensors: bytes 0\.\.[0-9]+ are damaged"
also "skipped: .*step-00000004/state/state.safetensors: has"
also "resuming from run/checkpoints/step-00000002"
expect 0 "^step-00000006 +whole" "$echelon" checkpoint verify run
[ ! -e run/checkpoints/step-00000008.tmp ] || complain "what was not finished is still there"
cmp -s run/checkpoints/step-00000006/state/state.safetensors \
    whole/checkpoints/step-00000006/state/state.safetensors &&
        complain "saved as fp32 it has no master"
for step in 2 4 6; do rm run/checkpoints/step-0000000$step/manifest.json; done
train 1 "none of its 3 checkpoints is whole"
expect 1 "has no manifest.json" "$echelon" checkpoint verify run
rm -rf run

# ---- links ----

mkdir run && cp -a whole/checkpoints elsewhere && ln -s ../elsewhere run/checkpoints
train 0 "all 6 steps were done" checkpoint.dtype=bf16
mv elsewhere/step-00000006 moved && ln -s ../moved elsewhere/step-00000006
expect 0 "^step-00000006 +whole" "$echelon" checkpoint verify run
ln -sfn /dev/null elsewhere/step-00000006
expect 1 "step-00000006 +broken" "$echelon" checkpoint verify run
train 0 "resuming from .*step-00000004" checkpoint.dtype=bf16
rm -rf run elsewhere moved

# ---- a named checkpoint ----

train 2 "neither a checkpoint" checkpoint.resume=nothing
train 0 "resuming from whole/checkpoints/step-00000004" \
    checkpoint.resume=whole/checkpoints/step-00000004
for part in model state; do
    name=$part/$part.safetensors
    "$echelon" train run.yaml checkpoint.dtype=fp32 log.directory=straight >/dev/null 2>&1
    cmp run/checkpoints/step-00000006/$name straight/checkpoints/step-00000006/$name ||
        complain "a branch is another run: $name"
done
# given again, the same command goes on with its own; an older one of its own is refused
train 0 "all 6 steps were done" checkpoint.resume=whole/checkpoints/step-00000004
also "this run has checkpoints of its own"
train 2 "resumes from its newest valid checkpoint, which is whole/checkpoints/step-00000006" \
    checkpoint.resume=whole/checkpoints/../checkpoints/step-00000004 log.directory=whole
train 0 "all 6 steps were done" checkpoint.resume=whole log.directory=whole checkpoint.dtype=bf16
train 0 "resuming from whole/checkpoints/step-00000006" checkpoint.resume=whole log.directory=other
also "saved step-00000006"
train 2 "checkpoint.resume = never: .*step-00000006 exists" checkpoint.resume=never
train 2 "checkpoint.resume = : empty" checkpoint.resume=

# ---- what may not change ----

seed="training.seed = 7: 1 in the checkpoint"
length="data.sequence_length = 8: 16 in the checkpoint"
fixed="and may not change on resume; set them back"
train 2 "$seed; .*data.sequence_length|$length; .*$seed, $fixed" \
    training.seed=7 data.sequence_length=8
grep -q max_position_embeddings err && complain "positions are blamed for another length"
expect 0 "training.seed" "$echelon" help keys
also "default 1; may not change on resume"

# ---- data: what they contain counts, not where they are ----

mkdir far && cp text.bin text.idx text.origin.json far
train 0 "all 6 steps were done" data.train=far/text
train 0 "resuming from run/checkpoints" data.train="$folder/far/text" checkpoint.resume=run \
    log.directory=branch
grep -Eq "identity: \"?[0-9]+[*][0-9]+:[0-9a-f]{16}" branch/run.yaml ||
    complain "no identity in run.yaml"
sed 's/the lazy/a lazy/' text.txt >other.txt
expect 0 "" "$echelon" data other.txt other
train 2 "data.train = other: differs from the data of the checkpoint .text.: [0-9]+ tokens, where \
there were [0-9]+; .*data.identity=any" \
    data.train=other
rm -f other.* && sed 's/jumps/leaps/' text.txt >other.txt
expect 0 "" "$echelon" data other.txt other
train 2 "checkpoint .text.: the same number of tokens, but others" data.train=other
train 2 "data.train = text text: differs from the data .*: 2 sources, where there were 1" \
    data.train="text text"
train 0 "all 6 steps were done" data.train=other data.identity=any
train 2 "data.identity = 5.1:ab: data.train = text has other data: .* tokens, where there were 5" \
    data.identity=5*1:ab log.directory=pinned
rm -rf branch far

# ---- weights that are none ----

cp -r run/checkpoints/step-00000006/model broken
printf '\000\000\300\177' |
    dd of=broken/model.safetensors conv=notrunc bs=1 status=none \
        seek=$(($(stat -c %s broken/model.safetensors) - 4)) # a NaN
train 1 "before the first micro-batch: parameter .* is nan, .*; the weights already contain it" \
    model.init_from=broken log.directory=none
rm -rf broken none

# ---- a disk that fails under two processes ----

rm -rf run
export OMPI_MCA_rmaps_base_oversubscribe=1
# What MPI leaks is not ours; the library of faults comes before the sanitizer's.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0:verify_asan_link_order=0"
expect 0 "saved step-00000006" "$echelon" train run.yaml --ranks 2 parallel.comm=mpi \
    log.directory=apart
for background in true false; do
    for at in 9 40 70; do
        expect 1 "$folder/run/checkpoints/.*: (No space left on device|Input/output error)" \
            env LD_PRELOAD="$faults" ECH_FAULTS="$folder/run eio $at" \
            "$echelon" train run.yaml --ranks 2 parallel.comm=mpi log.directory="$folder/run" \
            checkpoint.background=$background
        expect 0 "" "$echelon" train run.yaml --ranks 2 parallel.comm=mpi \
            log.directory="$folder/run"
        cmp run/checkpoints/step-00000006/model/model.safetensors \
            apart/checkpoints/step-00000006/model/model.safetensors || complain "another run, $at"
        rm -rf run
    done
done

# ---- a folder that nobody may write ----

if [ "$(id -u)" != 0 ]; then
    mkdir -p locked/checkpoints && chmod a-w locked/checkpoints
    train 1 "locked/checkpoints: cannot write into the folder" log.directory=locked
fi

conclude
