#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Processes that a TFJob would start, by TF_CONFIG alone: the same weights as over `local`, a job
# with a chief, a worker, a server and an evaluator, and what is refused.
#     tf_config.sh ECHELON UCX       ON or OFF: whether the build has it
set -u
echelon=${1:?usage: tf_config.sh ECHELON UCX} ucx=${2:?usage: tf_config.sh ECHELON UCX}
# shellcheck source-path=SCRIPTDIR source=scratch.sh
. "$(dirname "$0")/scratch.sh"
# shellcheck source-path=SCRIPTDIR source=expect.sh
. "$(dirname "$0")/expect.sh"
enter tf_config
export OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0
unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT ECHELON_SECRET
limit=(timeout 120)
seq -s ' and then ' 1 400 >text.txt
"$echelon" data text.txt text --valid 0.2 >/dev/null 2>&1 || exit 1
make_run data.train=text-train training.steps=8 parallel.pipeline=2 parallel.data=2

# ---- refused ----

# refused TEXT TF_CONFIG WORD ...
refused() {
    local text=$1 config=$2
    shift 2
    checks=$((checks + 1))
    TF_CONFIG=$config timeout 60 "$echelon" train run.yaml "$@" >out 2>err </dev/null
    case $? in 1 | 2) ;; *) complain "exit code of a refused TF_CONFIG: $config" ;; esac
    grep -Eqe "$text" err || complain "no \"$text\" for $config"
    [ "$(grep -c "error:" err)" = 1 ] || complain "more than one error: $config"
}
two='"cluster": {"worker": ["localhost:1", "localhost:2"]}'
refused "TF_CONFIG:1:.* bad JSON" "{" parallel.comm=local
refused 'TF_CONFIG: "cluster" is missing' '{"task": {}}' parallel.comm=local
refused 'TF_CONFIG: task.index is not below 2' \
    "{$two, \"task\": {\"type\": \"worker\", \"index\": 2}}" parallel.comm=local
refused 'parallel.comm = local.*started 2 processes, and each would train alone' \
    "{$two, \"task\": {\"type\": \"worker\", \"index\": 1}}" parallel.comm=local

one='{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}'
expect 0 "on 4 ranks" env TF_CONFIG="$one" "$echelon" train run.yaml parallel.comm=local --ranks 4
rm -rf run

if [ "$ucx" = OFF ]; then
    conclude
    exit
fi

# ---- jobs ----

# job CLUSTER WORD ...: a process for each of `tasks` ("type index"); waits for all
tasks=()
job() {
    local cluster=$1 task own status=0 pids=() n=0
    shift
    for task in "${tasks[@]}"; do
        own="{\"type\": \"${task% *}\", \"index\": ${task#* }}"
        TF_CONFIG="{\"cluster\": {$cluster}, \"task\": $own}" \
            timeout 120 "$echelon" train run.yaml parallel.comm=ucx "$@" \
            >"out.$n" 2>"err.$n" </dev/null &
        pids+=($!)
        n=$((n + 1))
    done
    for task in "${pids[@]}"; do wait "$task" || status=$?; done
    cat out.* >out
    cat err.* >err
    rm out.* err.*
    return $status
}
# shellcheck disable=SC2016
free_port() { "$echelon" launch 1 sh -c 'echo "$MASTER_PORT"'; }
weights() {
    find run/checkpoints/step-00000008/state -type f -exec sha256sum {} + | sort -k 2 | sha256sum
}
expect 0 "saved step-0*8" "$echelon" train run.yaml --ranks 4 parallel.comm=local
local_weights=$(weights)
rm -rf run
port=$(free_port)
tasks=("worker 2" "worker 0" "chief 0" "worker 1")
job "\"worker\": [\"a:1\", \"b:1\", \"c:1\"], \"chief\": [\"localhost:$port\"]" ||
    complain "processes of a TFJob do not train"
[ "$(weights)" = "$local_weights" ] || complain "processes of a TFJob train other weights"

make_run data.train=text-train data.valid=text-valid training.steps=8 checkpoint.every=4 \
    parallel.strategy=asp parallel.servers=1 parallel.evaluators=1
rm -rf run
port=$(free_port)
tasks=("chief 0" "worker 0" "ps 0" "evaluator 0")
cluster="\"chief\": [\"localhost:$port\"], \"worker\": [\"a:1\"], \"ps\": [\"b:1\"]"
job "$cluster" || complain "a job with a server and an evaluator does not train"
also "2 replicas, asp, 1 server, 1 evaluator"
[ "$(grep -c '"evaluation"' run/metrics.jsonl)" = 2 ] || complain "not two evaluations"

# The run has other numbers of workers and servers than the job.
rm -rf run
tasks=("chief 0" "worker 0" "ps 0" "ps 1")
job "\"chief\": [\"localhost:$(free_port)\"], \"worker\": [\"a:1\"], \"ps\": [\"b:1\", \"c:1\"]" \
    parallel.evaluators=0 && complain "a job with other servers trains"
also "TF_CONFIG has 2 workers \(chief and worker\) and 2 servers \(ps\), but the run has 3 workers"
[ "$(grep -c "error:" err)" = 1 ] || complain "more than one error"
conclude
