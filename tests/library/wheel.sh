#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the wheel, and tries it in a clean virtual environment: without NumPy, MPI, a compiler and
# ECHELON_LIBRARY it plans, trains the recipe of examples/shakespeare.yaml for some steps in three
# lines of Python, and has its program on PATH.
# ECHELON_TEXT=FILE is the text to train on, by default the start of README.md.
#     wheel.sh [WHEEL]       WHEEL: one that is built already
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source-path=SCRIPTDIR source=../app/scratch.sh
. "$root/tests/app/scratch.sh"
# shellcheck source-path=SCRIPTDIR source=../app/expect.sh
. "$root/tests/app/expect.sh"
[ $# -eq 0 ] || wheel=$(readlink -f "$1")
enter wheel
if [ $# -eq 0 ]; then
    "$root/tools/wheel.sh" "$folder/built" >out 2>err || { complain "no wheel is built"; exit 1; }
    wheel=$(echo "$folder"/built/*.whl)
fi
[[ $wheel == *-py3-none-manylinux_*.whl ]] || complain "$wheel is no py3-none-manylinux wheel"

python3 -m venv venv
venv/bin/pip install --quiet --no-index --no-deps "$wheel" >out 2>err ||
    complain "the wheel cannot be installed"
package=$(echo venv/lib/python3*/site-packages/echelon)
# Of this machine's programs the shell alone, beside the environment's Python.
mkdir tools
ln -s "$(command -v sh)" "$(command -v env)" tools
clean=(env -i "HOME=$folder" "PATH=$folder/venv/bin:$folder/tools" OMP_NUM_THREADS=2
    OMP_WAIT_POLICY=passive "ECHELON_MPI=$folder/no/libmpi.so.40")

# ---- its libraries: the wheel's own, and the system's that manylinux allows ----

theirs='linux-vdso|ld-linux[^ ]*|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|z)\.so'
for file in "$package/bin/echelon" "$package/lib/libechelon.so"; do
    expect 0 "libdnnl" ldd "$file"
    also "libopenblas"
    ! grep -Eq "libmpi|libucp|libcuda|not found" out || complain "$file links what it opens itself"
    foreign=$(grep -vE "^\s*/?[^ ]*($theirs)|site-packages" out)
    [ -z "$foreign" ] || complain "$file links libraries of this system: $foreign"
done
expect 0 "^echelon 0" "${clean[@]}" echelon --version
also "^MPI: +Open MPI .* is neither where .* set parallel.comm = local"
also "products by oneDNN [0-9]"
also "fp64 by OpenBLAS"
also "^kernels: "

# ---- licenses: the project's, and one of each library's package ----

licenses=$(echo venv/lib/python3*/site-packages/echelon_train-*.dist-info/licenses)
[ -s "$licenses/LICENSE" ] || complain "the wheel has no LICENSE"
for package in libdnnl libopenblas libgomp libgfortran; do
    for text in "$licenses/$package"*/copyright; do
        [ -s "$text" ] || complain "the wheel has no license of $package"
    done
done

# ---- three lines of Python ----

cp "$root/examples/shakespeare.yaml" shakespeare.yaml
mkdir data
if [ -n "${ECHELON_TEXT:-}" ]; then
    cp "$ECHELON_TEXT" input.txt
else
    for ((i = 0; i < 400; i++)); do head -c 800 "$root/README.md"; done >input.txt
fi
expect 0 "shakespeare-valid" "${clean[@]}" echelon data input.txt data/shakespeare --valid 0.1
cat >three.py <<'P'
import echelon
run = echelon.Run("shakespeare.yaml", **{"parallel.comm": "local", "training.steps": 60})
print(run.fit().history["loss"][-1])
P
expect 0 "^[0-9.]+$" "${clean[@]}" python3 three.py
awk '/^[0-9.]+$/ { good = $1 < 3.3 } END { exit !good }' out || complain "the loss is not below 3.3"
[ -d runs/shakespeare/checkpoints ] || complain "no checkpoint"
expect 0 "The " "${clean[@]}" echelon sample runs/shakespeare "The " --tokens 8

# ---- the program as a module, and what a machine without MPI says ----

expect 0 "step +4/4" "${clean[@]}" python3 -m echelon train shakespeare.yaml --ranks 4 \
    parallel.comm=local training.steps=4 optimizer.warmup_steps=1 log.directory=runs/four
expect_once 2 "parallel.comm = mpi.*: Open MPI .*install it" "${clean[@]}" \
    python3 -m echelon train shakespeare.yaml --ranks 4
expect 1 "ModuleNotFoundError" "${clean[@]}" python3 -c 'import numpy'
conclude
