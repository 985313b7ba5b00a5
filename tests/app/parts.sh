#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Parts that a build or a machine may lack (cmake/optional.cmake), from outside: what --version says
# of each, the refusal of a run without Open MPI's library, and that the program plans, verifies and
# trains with what it has.
#     parts.sh ECHELON ONEDNN BLAS       ON or OFF: whether the build has it
set -u
usage="usage: parts.sh ECHELON ONEDNN BLAS"
echelon=${1:?$usage} onednn=${2:?$usage} blas=${3:?$usage}
[ -x "$echelon" ] || { echo "no program $echelon"; exit 1; }
# shellcheck source-path=SCRIPTDIR source=scratch.sh
. "$(dirname "$0")/scratch.sh"
# shellcheck source-path=SCRIPTDIR source=expect.sh
. "$(dirname "$0")/expect.sh"
enter parts
export OMP_NUM_THREADS=1
export ECHELON_MPI=$PWD/libmpi.so.40 # a machine without Open MPI
unset ECHELON_ISA

# named ON|OFF WITH WITHOUT: what --version says, of a part that is there, or lacks
named() {
    case $1 in
        ON) expect 0 "$2" "$echelon" --version ;;
        OFF) expect 0 "$3" "$echelon" --version ;;
        *) complain "'$1' is neither ON nor OFF" ;;
    esac
}
expect 0 "^MPI: +Open MPI \(.*/libmpi.so.40\) is neither where .* set parallel.comm = local" \
    "$echelon" --version
named "$onednn" "^kernels: .*products by oneDNN [0-9]" \
    "^kernels: .*(built without oneDNN|the reference on one thread)"
named "$blas" "^kernels: .*fp64 by OpenBLAS \(" \
    "^kernels: .*fp64 by the reference \(built without OpenBLAS"

make_tokens
make_run training.steps=20 model.hidden_size=32

# ---- a plan needs no part; what runs needs what joins its ranks, which by default is MPI ----

expect 0 "^memory +of rank 0" "$echelon" plan run.yaml --ranks 4
refusal="parallel.comm = mpi( .default.)?: Open MPI .*install it .Debian's libopenmpi3 and"
refusal+=" openmpi-bin., name it in ECHELON_MPI, or set parallel.comm = local"
for command in train verify "train --ranks 2" "verify --ranks 2"; do
    # shellcheck disable=SC2086
    expect_once 2 "$refusal" "$echelon" $command run.yaml
done
expect_once 2 "$refusal" env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 "$echelon" train \
    run.yaml
[ ! -e run ] || complain "a refused run left its folder"

# ---- with threads all of it works, in every type ----

expect 0 "^PASSED" "$echelon" verify run.yaml parallel.comm=local parallel.pipeline=2 \
    parallel.tensor=2 training.steps=2
for type in fp32 bf16 fp16; do
    rm -rf run
    expect 0 "saved step-0*20" "$echelon" train run.yaml parallel.comm=local parallel.data=2 \
        parallel.threads=2 precision.compute=$type
    awk -F'"loss": *' 'NF > 1 { split($2, x, /[,}]/); if (!n++) first = x[1]; last = x[1] }
        END { exit !(n > 1 && last > 0 && last < 0.8 * first) }' run/metrics.jsonl ||
            complain "$type: the loss does not fall"
done
conclude
