#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds Echelon for Debian on 64-bit Arm, in build/arm64, with Debian's cross compiler. Libraries
# are packages of this machine's Debian mirrors, unpacked into build/arm64-system, not installed.
# `tools/install_dependencies.sh --arm64` installs what this needs.
#
#   tools/arm64.sh [TARGET...]        TARGETs: echelon by default
#   qemu-aarch64 -L build/arm64-system build/arm64/echelon --version
set -euo pipefail
cd "$(dirname "$0")/.."
system=$PWD/build/arm64-system
packages=(
    libc6-dev libgomp1 libyaml-dev libjansson-dev libxxhash-dev librandom123-dev libpcre2-dev
    libutf8proc-dev libprotobuf-c-dev libisal-dev libcmocka-dev libzstd-dev liblzma-dev libbz2-dev
    libdnnl-dev libopenblas-openmp-dev libucx-dev libpng-dev libjpeg62-turbo-dev
)

for program in aarch64-linux-gnu-gcc qemu-aarch64 mmdebstrap; do
    command -v "$program" > /dev/null || {
        echo "tools/arm64.sh: no $program; run tools/install_dependencies.sh --arm64" >&2
        exit 1
    }
done

# Links of a system that is a folder here must lead into it.
unpack() {
    local list link release sources=(/etc/apt/sources.list.d/*.sources)
    release=$(. /etc/os-release && echo "$VERSION_CODENAME")
    [ -e "${sources[0]}" ] || sources=()
    [ ! -e /etc/apt/sources.list ] || sources+=(/etc/apt/sources.list)
    rm -rf "$system.part"
    mkdir -p build
    list=$(IFS=, && echo "${packages[*]}")
    mmdebstrap --quiet --variant=extract --architectures=arm64 --include="$list" "$release" \
        "$system.part" "${sources[@]}" > build/arm64-system.log 2>&1 || {
        cat build/arm64-system.log >&2
        echo "tools/arm64.sh: the packages for arm64 cannot be had" >&2
        exit 1
    }
    find "$system.part/usr" -type l -lname '/*' | while read -r link; do
        ln -sfn "$system$(readlink "$link")" "$link"
    done
    mv "$system.part" "$system"
}

[ -d "$system" ] || unpack
cmake -S . -B build/arm64 -G Ninja -DCMAKE_BUILD_TYPE=Release -DECH_CUDA=OFF \
    -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/arm64.cmake" -DECH_SYSROOT="$system" \
    > build/arm64-configure.log || { cat build/arm64-configure.log >&2; exit 1; }
cmake --build build/arm64 -j "${ECH_JOBS:-$(nproc)}" --target "${@:-echelon}"
