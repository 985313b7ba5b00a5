#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Objects compiled for an instruction set and a type define nothing that the linker could take for
# another's: every global symbol carries both names, and none is weak or common.
#     objects.sh NM SET_TYPE OBJECT...
set -u
nm=$1 isa=$2
shift 2
[ $# -gt 0 ] || { echo "no objects of $isa"; exit 1; }
symbols=$("$nm" --defined-only --extern-only "$@") || exit 1
own=$(echo "$symbols" | grep -cE " [TRDB] ech_cpu_[a-z0-9_]+_$isa$")
[ "$own" -ge $# ] || { echo "only $own functions of $isa"; exit 1; }
others=$(echo "$symbols" | awk 'NF == 3' | grep -vE " [TRDB] ech_cpu_[a-z0-9_]+_$isa$" |
    grep -v " __odr_asan")
[ -z "$others" ] || { echo "symbols that other objects may share:"; echo "$others"; exit 1; }
