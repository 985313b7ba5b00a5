#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tests/faults/run.py tells faults that are caught from those that survive, do not compile, do not
# apply, name no test or a slow one, or one that fails by itself. It leaves the tree as it is.
set -uo pipefail
run=$(cd "$(dirname "$0")/../faults" && pwd)/run.py
command -v python3 > /dev/null || { echo "no python3 here: skipped"; exit 77; }
command -v ninja > /dev/null || { echo "no ninja here: skipped"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
tree=$folder/tree
mkdir -p "$tree"/{src/base,tests/faults}
failures=0

cat > "$tree/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(tiny C)
enable_testing()
add_library(ech_base STATIC src/base/sum.c)
foreach(noun sum fails)
  add_executable(test_${noun} tests/${noun}.c)
  target_link_libraries(test_${noun} ech_base)
  add_test(NAME base/${noun} COMMAND test_${noun})
endforeach()
add_test(NAME base/skips COMMAND sh -c "exit 77")
set_tests_properties(base/skips PROPERTIES SKIP_RETURN_CODE 77)
END
cat > "$tree/src/base/sum.c" <<'END'
#include <unistd.h>
int sum_to(int n);
int twice(int n);

int sum_to(int n)
{
    int sum = 0;
    for (int i = 1; i <= n; i++)
        sum += i;
    return sum;
}

int twice(int n)
{
    int unused = n + n;
    return n + n + 0 * unused;
}
END
cat > "$tree/tests/sum.c" <<'END'
#include <stdlib.h>
int sum_to(int n);
int main(void)
{
    return sum_to(4) != 10 || (getenv("SMALL") && sum_to(1) != 1);
}
END
echo 'int main(void) { return 1; }' > "$tree/tests/fails.c"

# list: the only list of the tree
list() {
    cat > "$tree/tests/faults/base.txt"
}

# expect EXIT PATTERN ARGUMENT...: what the runner says
expect() {
    local want=$1 pattern=$2 status=0
    shift 2
    "$run" --root "$tree" --scratch "$folder/scratch" "$@" > "$folder/out" 2>&1 || status=$?
    if [ $status -ne "$want" ] || ! grep -qE -- "$pattern" "$folder/out"; then
        echo "FAILED: run.py $*: exit $status, wanted $want and '$pattern':"
        cat "$folder/out"
        failures=$((failures + 1))
    fi
}

list <<'END'
# White space is any white space.
base/bound src/base/sum.c in sum_to
- i <= n; i++) sum
+ i < n; i++) sum
test base/sum

base/small src/base/sum.c
- int sum = 0;
+ int sum = n == 1;
test SMALL=1 base/sum

base/commutes src/base/sum.c in twice #1
- n + n
+ n * 2
equivalent a product by two is the sum
END
before=$(cd "$tree" && find . -type f -exec cksum {} + | sort)
expect 0 '^3 faults, 1 equivalent, 0 stale' --check
expect 0 '^2 caught, 1 equivalent, 0 survived, 0 stale' --all
expect 0 '^1 caught, 0 equivalent' --id 'base/b*'
expect 1 'no fault is named base/none' --id base/none
expect 0 '^[01] caught, [01] equivalent' --count 1 --seed 5
grep -oE '(caught|equivalent) +base/[a-z]+' "$folder/out" > "$folder/first"
expect 0 "^ +1/1 $(cat "$folder/first") " --count 1 --seed 5

expect 0 '^base/sum-' --draw 2 --seed 1

cat >> "$tree/tests/faults/base.txt" <<'END'

base/gone src/base/sum.c in sum_to
- i <= m;
+ i < m;
test base/sum

base/nowhere src/base/product.c
- i <= m;
+ i < m;
test base/sum

base/twofold src/base/sum.c in twice
- n + n
+ n
test base/sum

base/untested src/base/sum.c in twice #2
- n + n
+ n
test base/sum

base/broken src/base/sum.c
- sum += i;
+ sum += j;
test base/sum

base/endless src/base/sum.c
- sum += i;
+ sum += pause();
test base/sum

base/nameless src/base/sum.c
- sum += i;
+ sum -= i;
test base/product

base/skipping src/base/sum.c
- sum += i;
+ sum -= i;
test base/skips

base/failing src/base/sum.c
- sum += i;
+ sum -= i;
test base/fails
END
before=$(cd "$tree" && find . -type f -exec cksum {} + | sort)
expect 1 '^12 faults, 1 equivalent, 3 stale' --check
grep -q 'base.txt:17: base/gone: sum_to() of src/base/sum.c no longer has the text: i <= m;' \
    "$folder/out" || { cat "$folder/out"; failures=$((failures + 1)); }
grep -q 'has the text 2 times' "$folder/out" || failures=$((failures + 1))
counts='^2 caught, 1 equivalent, 1 survived, 1 late, 1 uncompilable, 2 unknown, 3 stale, 1 baseline'
expect 1 "$counts" --all --limit 10
while read -r verdict fault; do
    grep -qE "$verdict +base/$fault " "$folder/out" && continue
    echo "FAILED: no line says $verdict of base/$fault"
    failures=$((failures + 1))
done <<'END'
stale gone
stale nowhere
stale twofold
survived untested
uncompilable broken
late endless
unknown nameless
unknown skipping
baseline failing
END

[ "$before" = "$(cd "$tree" && find . -type f -exec cksum {} + | sort)" ] ||
    { echo "FAILED: the tree was changed"; failures=$((failures + 1)); }

list <<'END'
base/bound src/base/sum.c
- i <= n;
+ i < n;
END
expect 1 'base.txt:1: a record has four lines' --check
list <<'END'
base/bound src/base/sum.c
- i <= n;
+ i < n;
test
END
expect 1 'base.txt:1: the last line is test' --check
list <<'END'
base/bound src/base/sum.c
- i <= n;
+ i < n;
test base/sum

base/bound src/base/sum.c
- i = 1;
+ i = 0;
test base/sum
END
expect 1 'base.txt:6: base/bound is a fault of base.txt:1, too' --check

[ $failures -eq 0 ]
