#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The program is position-independent, has no relocations left to write, no executable stack, and
# guards its stack; where it is optimised and has no sanitizer, also libc's checked functions.
#     test_hardening.sh ECHELON BUILD_TYPE SANITIZER
set -euo pipefail
program=$1 build=$2 sanitizer=${3:-}
command -v readelf > /dev/null || exit 77

need() {
    grep -Eq "$1" <<< "$text" || { echo "not so: $2"; exit 1; }
}
text=$(readelf -hW "$program")
need 'Type: +DYN' "position-independent"
text=$(readelf -lW "$program")
need 'GNU_RELRO' "tables are read-only behind relocation"
need 'GNU_STACK .* RW +0' "the stack is not executable"
text=$(readelf -dW "$program")
need 'BIND_NOW|FLAGS.*NOW' "all symbols are bound at the start"
text=$(readelf -sW "$program")
need '__stack_chk_fail' "the stack is guarded"
if [ "$build" = Release ] && [ -z "$sanitizer" ]; then need '__[a-z]+_chk' "libc checks"; fi
