#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Workers of asp and ssp that are killed at random moments, over ucx: the others continue, the loss
# is reported after the span, and checkpoints are saved that a new start loads; also if two are
# killed. A worker that is stopped is named, and a killed server, or the first worker, ends the job;
# with batch norm any worker does.
#     ucx_workers.sh ECHELON UCX [KILLS [SEED]]     UCX: ON or OFF, whether the build has it
set -u
usage='usage: ucx_workers.sh ECHELON UCX [KILLS [SEED]]'
echelon=${1:?$usage} ucx=${2:?$usage}
kills=${3:-4} RANDOM=${4:-1}
# shellcheck source-path=SCRIPTDIR source=scratch.sh
. "$(dirname "$0")/scratch.sh"
# shellcheck source-path=SCRIPTDIR source=jobs.sh
. "$(dirname "$0")/jobs.sh"
if [ "$ucx" = OFF ]; then
    echo "SKIPPED: a build without UCX"
    exit 77
fi
enter_for_job ucx_workers
export OMP_NUM_THREADS=1
unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT ECHELON_SECRET
make_tokens
make_run training.steps=1000000 training.global_batch_size=4 training.validate_every=16 \
    training.check_every=16 data.valid=text checkpoint.every=16 checkpoint.keep=2 \
    parallel.flush_every=8 parallel.servers=2

# begin WORD ...: starts a job of four workers and two servers, and waits until it has saved
begin() {
    rm -rf run
    "$echelon" train run.yaml --ranks 6 parallel.comm=ucx "$@" >out 2>err </dev/null &
    job=$!
    wait_until 60 has_saved 0 || complain "it does not save: $*"
    wait_until 10 find_ranks 6 $job || complain "its ranks are not found: $*"
}
has_saved() { # a checkpoint of a later step
    [ "$(newest)" -gt "$1" ]
}

# ---- workers that are killed ----

for ((kill = 1; kill <= kills; kill++)); do
    strategy=asp size=16 # not drawn in a subshell, where RANDOM begins anew
    if [ $((RANDOM % 2)) = 0 ]; then strategy=ssp; fi
    if [ $((RANDOM % 2)) = 0 ]; then size=256; fi # receivers read large messages directly
    begin parallel.strategy="$strategy" model.hidden_size="$size"
    sleep 0.$((RANDOM % 1000 + 1000))
    first=$((RANDOM % 3 + 1)) lost=$first
    kill -9 "${ranks[first]}"
    if [ $((RANDOM % 2)) = 0 ]; then
        sleep 0.$((RANDOM % 1000 + 1000))
        second=$((first % 3 + 1)) lost='[1-3], [1-3]'
        kill -9 "${ranks[second]}"
    fi
    wait_until 60 grep -Eqs "step [0-9]+: ranks? $lost died; .* workers? continue" out err ||
        complain "$strategy $size: not said: $lost died"
    before=$(newest)
    wait_until 60 has_saved $((before + 16)) || complain "$strategy $size: saves no more"
    kill -TERM $job
    ended_with 75 "stopped after step"
    "$echelon" checkpoint verify "run/checkpoints/$(printf 'step-%08d' "$(newest)")" >out 2>err ||
        complain "$strategy $size: a broken checkpoint"
done

# ---- who is not spared ----

begin parallel.strategy=asp
kill -9 "${ranks[4]}" # a server
ended_with 1 "rank 4 .*died"
begin parallel.strategy=asp
kill -9 "${ranks[0]}"
ended_with 1 "rank 0 .*died"
begin parallel.strategy=asp parallel.deadline=10
kill -STOP "${ranks[2]}"
ended_with 1 "rank 2"

# A span ends with the mean of all workers' running statistics.
{
    printf '\0\0\10\3\0\0\0\100\0\0\0\10\0\0\0\10'
    seq 1 2000 | head -c 4096
} >x-images-idx3-ubyte
{
    printf '\0\0\10\1\0\0\0\100'
    for ((i = 0; i < 16; i++)); do printf '\0\1\2\3'; done
} >x-labels-idx1-ubyte
"$echelon" data x-images-idx3-ubyte x --images >out 2>err || complain "no images"
cat >run.yaml <<END
model: {architecture: resnet, weight_layers: 18, base_channels: 2, image_height: 8, image_width: 8,
        image_channels: 1, num_classes: 4}
data: {train: x.images}
training: {steps: 1000000, global_batch_size: 8, micro_batch_size: 2, validate_every: 0}
optimizer: {learning_rate: 0.01}
checkpoint: {every: 16}
parallel: {threads: 1, flush_every: 8, servers: 2}
log: {directory: run}
END
begin parallel.strategy=ssp
kill -9 "${ranks[2]}"
ended_with 1 "rank 2 .*died"
conclude
