#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The whole program on GPUs that are made up (stand_in_gpu.c): what is said of a machine that cannot
# compute, and that runs are right.
# gpus.sh ECHELON FOLDER NCCL
#
# ECHELON is the program with emulated kernels, FOLDER has the stand-in for cuBLASLt, and NCCL is
# the stand-in for that library.
set -u
echelon=${1:?usage: gpus.sh ECHELON FOLDER NCCL}
export LD_LIBRARY_PATH=${2:?usage: gpus.sh ECHELON FOLDER NCCL}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
[ -x "$echelon" ] || { echo "no program $echelon"; exit 1; }
# shellcheck source-path=SCRIPTDIR source=scratch.sh
. "$(dirname "$0")/scratch.sh"
# shellcheck source-path=SCRIPTDIR source=expect.sh
. "$(dirname "$0")/expect.sh"
enter gpus
export OMP_NUM_THREADS=1
limit=(timeout 120)
make_tokens
make_run training.steps=3 training.micro_batch_size=3 parallel.comm=local parallel.device=cuda

# machine WORDS: what the machine has from here on
machine() {
    export ECHELON_STAND_IN=$1
}

# train NAME WORD ...: what trains it, in a folder of its own
train() {
    echo "$echelon train run.yaml log.directory=$*"
}

# ---- where it cannot compute: one line, and auto uses the CPU ----

lacking() { # WORDS TEXT
    local command
    machine "$1"
    for command in train verify "train --ranks 2"; do
        # shellcheck disable=SC2086
        expect_once 2 "parallel.device = cuda: $2, or say parallel.device=cpu$" "$echelon" \
            $command run.yaml
    done
    # shellcheck disable=SC2046
    expect 0 "parallel.device = auto uses the CPU: $2$" $(train auto parallel.device=auto)
    [ "$(grep -c "^echelon:" err)" = 1 ] || complain "more is said than that"
    rm -r auto
}
lacking driver=0 "this machine has no NVIDIA driver \(libcuda.so.1\); install one, or use \
a machine with a GPU"
lacking gpus=0 "there is a driver, but no GPU that this process may use; look at nvidia-smi and \
CUDA_VISIBLE_DEVICES"
lacking driver=11080 "the driver is for CUDA 11.8, older than this build's [0-9.]+; update it, or \
build with an older CUDA"
lacking "gpus=2 sm=75" \
    "GPU 0 is of architecture sm_75, and kernels are for sm_80 and newer; leave it out with \
CUDA_VISIBLE_DEVICES"
machine "gpus=1 f16=0"
expect_once 2 "precision.compute = fp16: this build has no fp16 kernels .*cmake -DECH_CUDA_F16=ON" \
    "$echelon" train run.yaml precision.compute=fp16
[ ! -e run ] || complain "a refused run left its folder"

# ---- ranks and GPUs ----

machine gpus=1
expect_once 2 "parallel.share_device = false .*: this machine has 1 of the device cuda for 2 \
ranks; start at most 1, or set parallel.share_device=true" \
    "$echelon" train run.yaml --ranks 2
# Processes have the cards that their launcher shows them, each as GPU 0. The stand-in for NCCL
# (third argument) is opened, and no more: it is for threads.
if command -v mpirun >/dev/null; then
    export ECHELON_NCCL=$3
    expect 2 "ranks 0 and 1 have the same GPU a .*gpus-per-task=1" mpirun --allow-run-as-root \
        --oversubscribe -n 2 -x ECHELON_STAND_IN="gpus=1 bus=a" "$echelon" train run.yaml \
        parallel.data=2 parallel.comm=nccl
    unset ECHELON_NCCL
fi

machine gpus=2
expect_once 2 "this machine has 2 of the device cuda for 3 ranks" "$echelon" verify run.yaml \
    parallel.pipeline=3 model.num_hidden_layers=3

# ---- memory that the machine does not give: the table and what would help, before step 0 ----

no_memory() { # WORDS TEXT KEY=VALUE ...
    machine "$1"
    # shellcheck disable=SC2046
    expect_once 1 "$2" $(train short "${@:3}")
    also "the memory of rank 0:"
    also "^echelon:.* device arena +[0-9.]+ .iB"
    also "what would help: a smaller training.micro_batch_size .*or to end what else \
uses this memory$"
    [ ! -e short/metrics.jsonl ] || ! grep -q loss short/metrics.jsonl ||
        complain "a step ran without its memory"
    rm -rf short
}
no_memory memory=1100 \
    "GPU 0 has no [0-9.]+ GiB left, only 1.1 GiB; lower memory.device_limit, or end other \
programs that use the GPU" \
    model.hidden_size=2048 model.num_hidden_layers=8 memory.device_limit=100GiB
no_memory pinned=0 "cannot get [0-9.]+ MiB of pinned memory; end other programs that use memory, \
or raise the container's limit"
machine memory=1100
expect_once 2 "memory.device_limit = 1GiB .*: rank 0 needs [0-9.]+ GiB and may use 1.0 GiB" \
    "$echelon" train run.yaml \
    model.hidden_size=2048 model.num_hidden_layers=8

# ---- TF32: only where a key asks for it, and of devices that have it ----

machine gpus=1
expect_once 2 \
    "precision.tf32 = true: not with parallel.device = cpu: this device has no TF32 units" \
    "$echelon" train run.yaml precision.tf32=true parallel.device=cpu
export ECHELON_EMULATED_LIBRARY=1
for allowed in false true; do
    # shellcheck disable=SC2046
    expect 0 "3/3 . loss" $(train tf32-$allowed precision.tf32=$allowed model.hidden_size=32)
    also "stand-in cuBLASLt: [1-9][0-9]* products .* $([ $allowed = true ] &&
        echo "[1-9][0-9]*" || echo 0) in TF32"
done
unset ECHELON_EMULATED_LIBRARY

# ---- ranks that are threads copy from GPU to GPU ----

machine gpus=3
# shellcheck disable=SC2046
expect 0 "3/3 . loss" $(train near parallel.data=2)
also "stand-in GPU: .* 2 ways between GPUs"
! grep -q "through the host" err || complain "a warning where GPUs have ways"
machine "gpus=3 peers=0"
# shellcheck disable=SC2046
expect 0 "warning: messages between GPUs 0 and 1 go through the host's memory, which is slow: \
the system lets neither access the other \(nvidia-smi topo -p2p r\)" $(train far parallel.data=2)
also "stand-in GPU: .* 0 ways between GPUs"

# ---- a fault on the device ends all ranks, and where it was is said ----

machine "gpus=2 fault=60"
for grid in data pipeline; do
    # shellcheck disable=SC2046
    expect 1 "rank [01]: error: the device cuda fails in the list \"train\" of step [0-9]+; \
the last step known to have begun is " \
        $(train fault-$grid parallel.$grid=2 training.steps=50)
    also "the GPU fails at cuda[A-Za-z]+: an illegal memory access was encountered \
\(cudaErrorIllegalAddress\); a kernel accessed"
done

# ---- mfu: of cards that are known ----

machine name=Abacus_9000
# shellcheck disable=SC2046
expect 0 "3/3 . loss" $(train abacus)
! grep -Eq '\(mfu|"mfu": *[0-9]' out abacus/metrics.jsonl || complain "an unknown card has mfu"
made=$(grep "^stand-in GPU: .* left: 0, 0, 0$" err) ||
    complain "something is left when the program ends"
machine name=NVIDIA_H100_80GB_HBM3
# shellcheck disable=SC2046
expect 0 "\(mfu " $(train h100 training.steps=9)
grep -q '"mfu": *[0-9]' h100/metrics.jsonl || complain "a known card has no mfu"
[ "$made" = "$(grep "^stand-in GPU" err)" ] || complain "more steps made more than: $made"

# ---- runs are right: against one rank in fp64, and from the CPU and back ----

machine gpus=2
for grid in "parallel.pipeline=2" "parallel.tensor=2" \
    "parallel.context=2 parallel.data=2 parallel.share_device=true"; do
    # shellcheck disable=SC2086
    ECHELON_EMULATED_LIBRARY=1 expect 0 "^PASSED +within 1e-11" "$echelon" verify run.yaml $grid
    also "stand-in cuBLASLt: [1-9][0-9]* products"
done

losses() { # RUN
    grep -o '"loss": *[0-9.e+-]*' "$1/metrics.jsonl" | sed 's/.*: *//'
}
for type in fp32 bf16; do
    # shellcheck disable=SC2046
    expect 0 "5/5 . loss" $(train cpu-$type precision.compute=$type training.steps=5 \
        parallel.device=cpu optimizer.schedule=constant)
    for to in 2:cpu 4:cuda 5:cpu; do
        # shellcheck disable=SC2046
        expect 0 "saved step-0*${to%:*} " $(train moved-$type precision.compute=$type \
            training.steps="${to%:*}" \
            parallel.device="${to#*:}" optimizer.schedule=constant)
    done
    paste <(losses cpu-$type) <(losses moved-$type) |
        awk -v t="$([ $type = fp32 ] && echo 1e-5 || echo 1e-2)" '
            { d = ($1 - $2) / $1; if (d < -t || d > t) far = 1 } END { exit !(NR == 5 && !far) }' ||
        complain "$type: losses of the GPU are not the CPU's"
done
conclude
