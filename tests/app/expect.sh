# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# For tests of the command line: what a command prints, and how it ends. Source it after scratch.sh;
# it counts `checks`.

checks=0
limit=() # a command in front of each that is tried, such as timeout 60

# expect CODE TEXT COMMAND ...: exit code, and an extended regex somewhere in what it prints.
expect() {
    local code=$1 text=$2 got
    shift 2
    checks=$((checks + 1))
    "${limit[@]}" "$@" >out 2>err </dev/null
    got=$?
    [ $got = "$code" ] || complain "exit code $got instead of $code: $*"
    grep -Eqe "$text" out err || complain "no \"$text\" in: $*"
    no_sanitizer_speaks "$@"
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
