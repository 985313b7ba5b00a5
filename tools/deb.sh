#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the Debian package echelon-train into FOLDER: the program, libechelon, headers, examples,
# manual pages and shell completion. It depends on the libraries of this system that it links, so
# build it on the release that it is for.
#
#   tools/deb.sh FOLDER [-DNAME=VALUE ...]      e.g. -DECH_CUDA=ON: with kernels for NVIDIA GPUs
set -euo pipefail

[ $# -ge 1 ] || { echo "usage: tools/deb.sh FOLDER [-DNAME=VALUE ...]" >&2; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
cd "$(dirname "$0")/.."
for tool in dpkg-deb dpkg-shlibdeps file python3; do
    command -v $tool > /dev/null || {
        echo "tools/deb.sh: $tool is missing: apt-get install dpkg-dev file python3" >&2
        exit 1
    }
done
rm -f build/deb/CMakeCache.txt # options of earlier calls
cmake -S . -B build/deb -G Ninja -DCMAKE_BUILD_TYPE=Release -DECH_TESTS=OFF -DECH_CUDA=OFF \
    -DECH_ISAS=all "$@"
cmake --build build/deb --target echelon libechelon pages
cpack --config build/deb/CPackConfig.cmake -B "$out"
rm -rf "$out/_CPack_Packages"
