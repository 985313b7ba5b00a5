#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tools/same_bits.sh finds nothing between a program and itself, and a difference where there is
# one: a program that takes another seed, one that fails, and one whose plan alone is another.
#     test_same_bits.sh ECHELON
set -uo pipefail
echelon=${1:?usage: test_same_bits.sh ECHELON}
root=$(cd "$(dirname "$0")/../.." && pwd)
git -C "$root" rev-parse HEAD >/dev/null 2>&1 || { echo "no commits here: skipped"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0

# check EXIT PATTERN PROGRAM
check() {
    local want=$1 pattern=$2 status=0
    SAME_BITS_BASE=$echelon SAME_BITS_NEW=$3 SAME_BITS_FOLDER=$folder/work \
        "$root/tools/same_bits.sh" HEAD 2 9 >"$folder/out" 2>&1 || status=$?
    if [ $status -ne "$want" ] || ! grep -q -- "$pattern" "$folder/out"; then
        echo "FAILED: exit $status, wanted $want and '$pattern':"
        cat "$folder/out"
        failures=$((failures + 1))
    fi
}

# program NAME TEXT: a program in place of echelon
program() {
    printf '#!/usr/bin/env bash\n%s\n' "$2" >"$folder/$1"
    chmod +x "$folder/$1"
}

program seed "[ \$1 != train ] || set -- \"\$@\" training.seed=2; exec $echelon \"\$@\""
program fails "exit 3"
program plans "[ \$1 != plan ] || set -- \"\$@\" parallel.bucket_bytes=2; exec $echelon \"\$@\""

check 0 '^same: 2 cases' "$echelon"
grep -q 'plans differ' "$folder/out" && failures=$((failures + 1))
check 1 '^2 of 2 cases differ' "$folder/seed"
check 1 'exit codes 0, 3' "$folder/fails"
check 0 'case [0-9]*: [1-9]' "$folder/plans"
echo "4 checks, $failures failures"
[ $failures -eq 0 ]
