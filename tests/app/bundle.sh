#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The folder that tools/bundle.sh makes runs where none of its libraries is installed, has no
# library of glibc and CUDA, and its script says what a machine without a GPU lacks.
#     bundle.sh ECHELON [SANITIZER]
set -euo pipefail
[ -z "${2:-}" ] || { echo "not for programs with sanitizers"; exit 77; }
program=$(realpath "$1")
script=$(realpath "$(dirname "$0")/../../tools/bundle.sh")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# The least compression, which takes a few seconds.
XZ_OPT=-1 "$script" "$folder/made" "$program" > "$folder/said"
grep -Eq 'made\.tar\.xz, [0-3]?[0-9] MiB$' "$folder/said" ||
    { echo "its size: $(cat "$folder/said")"; exit 1; }
mkdir "$folder/elsewhere"
tar -C "$folder/elsewhere" -xJf "$folder/made.tar.xz"
moved=$folder/elsewhere/made
name=$(basename "$program")

# All that the program loads is in the folder, or what every machine has.
libraries=$(LD_LIBRARY_PATH=$moved/lib ldd "$moved/bin/$name")
strangers=$(grep '=> /' <<< "$libraries" | grep -v "$moved/lib/" |
    grep -Ev '/(ld-linux[^/]*|lib(c|m|dl|rt|pthread))\.so' || true)
[ -z "$strangers" ] || { echo "not of the folder: $strangers"; exit 1; }
for file in "$moved"/lib/lib{c,m,cuda,cublas,cublasLt,nccl,cudnn}.so*; do
    [ ! -e "$file" ] || { echo "not to be taken along: $file"; exit 1; }
done
env -i PATH="$PATH" "$moved/$name" --version | grep -q "^echelon " ||
    { echo "it does not run"; exit 1; }

# The script: without a GPU the facts, and of the other stages why not.
code=0
"$moved/gpu.sh" --out "$folder/results" facts verify > "$folder/printed" 2>&1 || code=$?
if grep -q "^cuda: .*(sm_" "$folder/results/version.txt"; then exit 0; fi
[ "$code" = 77 ] || { echo "exit code $code instead of 77"; cat "$folder/printed"; exit 1; }
grep -q "^== facts" "$folder/printed" || { cat "$folder/printed"; exit 1; }
grep -q "^verify: skipped: " "$folder/printed" || { cat "$folder/printed"; exit 1; }
code=0
"$script" "$folder/elsewhere" "$program" 2> "$folder/said" || code=$?
grep -q "is there and is no bundle" "$folder/said" ||
    { echo "it takes any folder ($code)"; exit 1; }
[ -x "$moved/$name" ] || { echo "it has removed what is not its"; exit 1; }
