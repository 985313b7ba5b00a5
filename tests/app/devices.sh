#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Devices from outside: plans for one that this machine lacks, what is said where it should compute,
# and what auto takes.
# devices.sh ECHELON LACKING       LACKING: what is wrong where there is no GPU, as an extended
# regex
set -u
echelon=${1:?usage: devices.sh ECHELON LACKING}
lacking=${2:?usage: devices.sh ECHELON LACKING}
[ -x "$echelon" ] || { echo "no program $echelon"; exit 1; }
# shellcheck source-path=SCRIPTDIR source=scratch.sh
. "$(dirname "$0")/scratch.sh"
# shellcheck source-path=SCRIPTDIR source=expect.sh
. "$(dirname "$0")/expect.sh"
enter devices
export OMP_NUM_THREADS=1
make_tokens
make_run training.steps=2 parallel.comm=local

# ---- plans: of any device on any machine ----

plan() {
    expect 0 "^memory +of rank 0, on $1 \($2\); limit $3" "$echelon" plan run.yaml \
        parallel.device="$1" "${@:4}"
}
plan cpu "[a-z0-9]+" "[0-9.]+ .iB"
plan queued "[a-z0-9]+" "[0-9.]+ .iB"
plan cuda sm_80 "80.0 GiB" memory.device_limit=80GiB
also "^ +scratch +32.0 MiB"
expect 0 '"device": "cuda"' "$echelon" plan run.yaml parallel.device=cuda \
    memory.device_limit=80GiB --json
also '"instruction_set": "sm_80"'
also '"device_limit_bytes": 85899345920'
expect 0 "." "$echelon" profile run.yaml --out profile.json
for kind in "--simulate" "--steps" "--svg plan.svg" \
    "parallel.partition=auto parallel.pipeline=2 parallel.profile=profile.json --ranks 2"; do
    # shellcheck disable=SC2086
    expect 0 "on cuda \(sm_80\)" "$echelon" plan run.yaml parallel.device=cuda $kind
done
expect_once 2 "memory.device_limit = 10KiB: rank 0 needs 32" "$echelon" plan run.yaml \
    parallel.device=cuda \
    memory.device_limit=10KiB
expect_once 2 "parallel.device = abacus: not one of: cpu cuda queued walled auto" "$echelon" plan \
    run.yaml \
    parallel.device=abacus
for device in cpu cuda queued walled auto; do
    expect 0 "parallel.device = $device" "$echelon" help keys
done

# ---- memory that the machine does not give, though the limit allows it: the table and what would
# help, before step 0 ----

if (ulimit -v 3000000 && "$echelon" --version) >/dev/null 2>&1; then
    expect_once 1 "cannot map [0-9.]+ GiB of memory: " bash -c 'ulimit -v 3000000 && exec "$@"' \
        limited "$echelon" train run.yaml \
        model.hidden_size=2048 model.num_hidden_layers=8 memory.device_limit=100GiB \
            log.directory=large
    also "the memory of rank 0:"
    also "^echelon:  +optimizer +3.0 GiB"
    also "what would help: a smaller training.micro_batch_size .*or to end what else \
uses this memory"
    [ ! -e large/metrics.jsonl ] || ! grep -q loss large/metrics.jsonl ||
        complain "a step ran without its memory"
fi

# ---- where it should compute: one line that says what is missing and what to do ----

if "$echelon" plan run.yaml parallel.device=auto 2>&1 | grep "on cuda" > /dev/null; then
    echo "this machine has a GPU: what is said without one is not tried"
    conclude
    exit
fi
plan cuda sm_80 "unknown, as this machine has none"
expect 0 '"device_limit_bytes": null' "$echelon" plan run.yaml parallel.device=cuda --json
expect_once 2 "memory.recompute = auto: needs the memory size of the device, and this \
machine has no cuda; set memory.device_limit" \
    "$echelon" plan run.yaml parallel.device=cuda memory.recompute=auto
expect 0 "recompute" "$echelon" plan run.yaml parallel.device=cuda memory.recompute=auto \
    memory.device_limit=1GiB --json
for command in train verify profile "train --ranks 2" "verify --ranks 2"; do
    # shellcheck disable=SC2086
    expect_once 2 "parallel.device = cuda: $lacking.*, or say parallel.device=cpu$" "$echelon" \
        $command run.yaml \
        parallel.device=cuda
done
[ ! -e run ] || complain "a refused run left its folder"

# ---- auto uses the CPU, and says why ----

expect 0 "parallel.device = auto uses the CPU: $lacking" "$echelon" train run.yaml \
    parallel.device=auto
[ "$(grep -c "auto uses" err out | cut -d: -f2 | paste -sd+ | bc)" = 1 ] ||
    complain "auto is reported more than once"
expect 0 "device: cpu" cat run/run.yaml
for command in "sample run" "eval run --data text"; do
    # shellcheck disable=SC2086
    expect_once 2 "parallel.device = cuda: $lacking.*, or say --device cpu$" "$echelon" $command \
        --device cuda
    # shellcheck disable=SC2086
    expect 0 "." "$echelon" $command --device cpu
    # shellcheck disable=SC2086
    expect 0 "auto uses the CPU" "$echelon" $command --device auto
done
conclude
