# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# For tests of the command line: what a command prints, and how it ends. To be sourced, in an empty folder
# of the test's own; wants nothing, and counts `checks` and `failures`.

failures=0 checks=0
limit=() # a command in front of each that is tried, such as timeout 60

complain() {
    echo "FAILED: $*"
    sed 's/^/    | /' out err 2>/dev/null | head -40
    failures=$((failures + 1))
}

# expect CODE TEXT COMMAND ...: exit code, and an extended regex somewhere in what it prints.
expect() {
    local code=$1 text=$2 got
    shift 2
    checks=$((checks + 1))
    "${limit[@]}" "$@" >out 2>err </dev/null
    got=$?
    [ $got = "$code" ] || complain "exit code $got instead of $code: $*"
    grep -Eqe "$text" out err || complain "no \"$text\" in: $*"
    if grep -Eq "Sanitizer|runtime error:" err; then complain "a sanitizer speaks: $*"; fi
}

# One line of error, not one per rank.
expect_once() {
    expect "$@"
    [ "$(grep -c "error:" err)" = 1 ] || complain "more than one error: ${*:3}"
}

# Something further that the last command printed.
also() {
    checks=$((checks + 1))
    grep -Eqe "$1" out err || complain "no \"$1\" either"
}

# The last line of a test.
conclude() {
    echo "$checks checks, $failures failures"
    [ $failures = 0 ]
}
