#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes a folder that runs on another machine, and packs it into FOLDER.tar.xz. The other machine
# needs a glibc as new as this one's, and for the device cuda a driver and CUDA's libraries. The
# stripped programs are in bin/, and their shared libraries except glibc's and CUDA's in lib/. The
# folder itself has a start script for each program. The target `bundle` calls this script.
#
#   tools/bundle.sh FOLDER PROGRAM ...
set -euo pipefail

[ $# -ge 2 ] || { echo "usage: tools/bundle.sh FOLDER PROGRAM ..." >&2; exit 2; }
folder=$1
shift
root=$(cd "$(dirname "$0")/.." && pwd)
most=$((40 << 20)) # bytes of the archive
# What the other machine has: glibc, which its loader belongs to, and CUDA's.
theirs='^(ld-linux[^/]*|lib(c|m|dl|rt|pthread|resolv|util|cuda|cudart|cublas|cublasLt|cudnn[a-z_]*|nccl|nvidia-[a-z]+))\.so'

[ ! -e "$folder" ] || [ -f "$folder/run" ] || { echo "bundle: $folder is there and is no bundle" \
    >&2; exit 1; }
rm -rf "$folder"
mkdir -p "$folder/bin" "$folder/lib"

# libraries PROGRAM: the paths of those that it loads
libraries() {
    local missing
    missing=$(ldd "$1" | grep 'not found' || true)
    [ -z "$missing" ] || { echo "bundle: $1: $missing" >&2; return 1; }
    ldd "$1" | grep -oE '/[^ ]+\.so[^ ]*' || true
}

cat > "$folder/run" <<'R'
#!/bin/sh
# Starts the program of bin/ that this file is called by, with the libraries of lib/.
here=$(dirname "$(readlink -f "$0")")
name=$(basename "$0")
LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
exec "$here/bin/$name" "$@"
R
chmod +x "$folder/run"

for program in "$@"; do
    name=$(basename "$program")
    strip -o "$folder/bin/$name" "$program"
    ln -s run "$folder/$name"
    libraries "$program" | while read -r library; do
        file=$(basename "$library")
        [[ $file =~ $theirs ]] || [ -e "$folder/lib/$file" ] || cp -L "$library" "$folder/lib/$file"
    done
done
cp "$root/tools/gpu.sh" "$root/bench/gpu_peer.py" "$root/bench/common.py" "$root/LICENSE" "$folder"
git -C "$root" archive --format=tar.gz --prefix= HEAD > "$folder/source.tar.gz" 2>/dev/null ||
    rm -f "$folder/source.tar.gz" # not a repository
{
    echo "made       $(date -u +%F) of $(git -C "$root" describe --always --dirty 2>/dev/null ||
        echo "no repository")"
    echo "needs      glibc $(ldd --version | sed -n '1s/.* //p') or newer"
} > "$folder/FACTS"

tar -C "$(dirname "$folder")" -cJf "$folder.tar.xz" "$(basename "$folder")"
bytes=$(stat -c %s "$folder.tar.xz")
echo "bundle: $folder.tar.xz, $((bytes >> 20)) MiB"
[ "$bytes" -lt "$most" ] || { echo "bundle: above $((most >> 20)) MiB" >&2; exit 1; }
