#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tools/install_dependencies.sh with dpkg-query, apt-get, sudo and id played by small scripts:
# nothing is installed here.
set -euo pipefail

script=$(realpath "$(dirname "$0")/../../tools/install_dependencies.sh")
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir "$stage/bin"
export STAGE=$stage ECH_INSTALL_PAUSE=0

# play NAME: a command whose script is read from standard input
play() {
    { echo '#!/bin/bash'; cat; } > "$stage/bin/$1"
    chmod +x "$stage/bin/$1"
}

# A package is installed if it is not listed in the file `missing`.
play dpkg-query << 'END'
! grep -qx "${!#}" "$STAGE/missing" && echo installed
END
# Notes its words; fails while the file `failures` has lines left; installing empties `missing`.
play apt-get << 'END'
echo "$DEBIAN_FRONTEND: $*" >> "$STAGE/calls"
if [ -s "$STAGE/failures" ]; then sed -i 1d "$STAGE/failures"; exit 100; fi
case "$*" in *" install "*) : > "$STAGE/missing" ;; esac
END
play id << 'END'
cat "$STAGE/user"
END
for command in bash env grep sed sleep cat; do
    ln -s "$(command -v $command)" "$stage/bin/$command"
done

# run MISSING FAILURES USER [ARGUMENT...]: its exit code goes to $code, what it prints to $printed
run() {
    printf '%s' "${1:+${1// /$'\n'}$'\n'}" > "$stage/missing"
    { for ((i = 0; i < $2; i++)); do echo x; done; } > "$stage/failures"
    echo "$3" > "$stage/user"
    : > "$stage/calls"
    code=0
    printed=$(PATH=$stage/bin bash "$script" "${@:4}" 2>&1) || code=$?
}

# expect CODE CALLS WORDS: exit code, calls of apt-get, words among what is printed
expect() {
    if [ "$code" != "$1" ] || [ "$(wc -l < "$stage/calls")" != "$2" ] ||
        ! grep -qF -- "$3" <<< "$printed"; then
        echo "expected $1, $2 calls, \"$3\"; got $code, these calls and words:"
        cat "$stage/calls"
        echo "$printed"
        exit 1
    fi
}

run "" 0 0
expect 0 0 ""
[ -z "$printed" ]
run "clang" 0 0 # only the tests need it
expect 0 0 ""
run "cmake libdnnl-dev" 0 0
expect 0 2 "installing cmake libdnnl-dev"
grep -qx 'noninteractive: .* update' "$stage/calls"
grep -qx 'noninteractive: .* install .* cmake libdnnl-dev' "$stage/calls"
run "clang" 0 0 --tests
expect 0 2 "installing clang"
run "emscripten" 0 0 --tests # only the planner in a browser needs it
expect 0 0 ""
run "emscripten" 0 0 --tests --web
expect 0 2 "installing emscripten"
run "cmake" 2 0
expect 0 4 "installing cmake"
run "cmake" 3 0
expect 1 3 "apt-get update failed"
run "cmake" 0 1000
expect 1 0 "needs root to install cmake"
run "" 0 1000
expect 0 0 ""
run "libucx-dev" 0 0 # a build does without it
expect 0 1 "installing libucx-dev"
run "libucx-dev" 1 0
expect 0 1 "goes on without libucx-dev"
run "libucx-dev" 0 1000
expect 0 0 ""
run "" 0 0 --everything
expect 2 0 "usage:"

play sudo << 'END'
echo sudo >> "$STAGE/calls"
exec "$@"
END
run "cmake" 0 1000
expect 0 4 "installing cmake"
echo "all as expected"
