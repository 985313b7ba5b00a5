#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The CUDA kernels compile, and keep what they compute with in registers. By default the largest ones, in bf16 for sm_90;
# with ECHELON_SPILLS=all every file in every type, for sm_80, sm_90 and as PTX (some minutes).
#     spills.sh NVCC SOURCE_FOLDER
set -u
nvcc=$1 folder=$2
types=BF16 targets="-gencode arch=compute_90,code=sm_90" files="attention_backward matmul"
if [ "${ECHELON_SPILLS:-}" = all ]; then
    types="F32 F64 BF16 F16"
    targets="-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=[sm_90,compute_90]"
    files=$(cd "$folder/kernel/cuda" && ls ./*.cu | sed 's,^\./,,; s,\.cu$,,' | grep -vx composed) # which calls others' kernels
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
read -ra options <<< "-std=c++17 --extended-lambda -D_GNU_SOURCE -I$folder $targets -Xptxas -v"
for file in $files; do
    for type in $types; do
        source=$folder/kernel/cuda/$file.cu
        "$nvcc" "${options[@]}" -DECH_REAL_"$type" -c "$source" -o "$scratch/object" > "$scratch/said" 2>&1 ||
            { cat "$scratch/said"; echo "$file: does not compile in $type"; exit 1; }
        grep -q 'bytes spill stores' "$scratch/said" || { echo "$file: nothing is told of registers"; exit 1; }
        spills=$(grep -B1 -E '[1-9][0-9]* bytes spill (stores|loads)' "$scratch/said")
        [ -z "$spills" ] || { echo "$file spills registers in $type:"; echo "$spills"; exit 1; }
    done
done
echo "no spills"
