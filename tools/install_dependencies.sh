#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs the Debian 12 packages that Echelon is built with, and names them. Silent, and without
# touching the system, when all are there.
#
#   tools/install_dependencies.sh [--tests] [--web] [--arm64]
#       --tests: also what tests need; --web: what tools/web.sh and tests/web need (1.5 GB);
#       --arm64: what tools/arm64.sh needs (0.3 GB)
set -euo pipefail

packages=(
    build-essential cmake ninja-build pkg-config git
    python3 python3-venv # tools/wheel.sh
    openmpi-bin # parallel.comm: mpi
    libdnnl-dev libopenblas-openmp-dev
    libyaml-dev libjansson-dev libxxhash-dev librandom123-dev
    libpcre2-dev libutf8proc-dev
    libprotobuf-c-dev protobuf-c-compiler libisal-dev # TensorBoard events
    libcmocka-dev
    bible-kjv # `bible -f -l65535 gen1:1-rev22:21` prints a corpus of 4.4 MB to train on
)
# What a build does without where it cannot be had.
optional=(
    libucx-dev # parallel.comm: ucx
    libzstd-dev liblzma-dev libbz2-dev # texts packed by zstd, xz and bzip2
    libpng-dev libjpeg62-turbo-dev # images
)
lock_seconds=600 # to wait for another apt or dpkg to finish
attempts=3
pause_seconds=${ECH_INSTALL_PAUSE:-5} # after the first failure; longer after each further one

usage() {
    echo "usage: tools/install_dependencies.sh [--tests] [--web] [--arm64]" >&2
    exit 2
}

fail() {
    echo "install_dependencies: $*" >&2
    exit 1
}

for argument in "$@"; do
    case "$argument" in
        --tests) packages+=(clang libclang-rt-14-dev libomp-14-dev lld ccache shellcheck
            libopenmpi-dev)
            # For a Slurm that a test starts itself. Only where the packages start no services, as
            # in containers; elsewhere the test skips.
            service_policy=0
            [ ! -x /usr/sbin/policy-rc.d ] || /usr/sbin/policy-rc.d munge start || service_policy=$?
            [ "$service_policy" != 101 ] || packages+=(slurm-wlm munge)
            ;;
        --web) packages+=(emscripten chromium chromium-driver) ;;
        --arm64) packages+=(gcc-aarch64-linux-gnu qemu-user mmdebstrap) ;;
        *) usage ;;
    esac
done

# find_missing PACKAGE ...: sets `missing` to those that are not installed.
find_missing() {
    local package status
    missing=()
    for package in "$@"; do
        status=$(dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null || true)
        grep -qx installed <<< "$status" || missing+=("$package") # a line for each architecture
    done
}

# With root's rights; the time-out is for locks, the attempts for mirrors and for lists in use. What
# apt says is shown if all attempts fail.
run_apt() {
    local attempt said
    for ((attempt = 1; attempt <= attempts; attempt++)); do
        if said=$("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
            apt-get -y -q -o "DPkg::Lock::Timeout=$lock_seconds" "$@" 2>&1); then
            return 0
        fi
        [ "$attempt" -eq "$attempts" ] || sleep $((attempt * pause_seconds))
    done
    printf '%s\n' "$said" >&2
    return 1
}

command -v dpkg-query > /dev/null ||
    fail "no dpkg here, this is for Debian 12: install by other means ${packages[*]}"
as_root=()
can_install=1
if [ "$(id -u)" -ne 0 ]; then
    as_root=(sudo)
    command -v sudo > /dev/null || can_install=
fi

find_missing "${packages[@]}"
if [ ${#missing[@]} -gt 0 ]; then
    [ -n "$can_install" ] ||
        fail "needs root to install ${missing[*]}: run it as root, or install sudo"
    echo "installing ${missing[*]}"
    run_apt update || fail \
        "apt-get update failed: is there a network, and does /etc/apt name a mirror?"
    run_apt install --no-install-recommends "${missing[@]}" ||
        fail "apt-get could not install ${missing[*]}: see its messages above"
    find_missing "${packages[@]}"
    [ ${#missing[@]} -eq 0 ] || fail "still missing: ${missing[*]}"
fi

# One attempt, which soon gives up without a network.
find_missing "${optional[@]}"
if [ ${#missing[@]} -gt 0 ] && [ -n "$can_install" ]; then
    echo "installing ${missing[*]}"
    attempts=1
    run_apt -o Acquire::Retries=0 -o Acquire::http::Timeout=10 install \
        --no-install-recommends "${missing[@]}" ||
        echo "goes on without ${missing[*]}: apt-get could not install it"
fi
