#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tests/tools/run_docs.py finds output that differs, commands that fail and commands that are not
# run; and it accepts numbers within their tolerance, times, rounding errors and left-out lines.
set -uo pipefail
run=$(cd "$(dirname "$0")" && pwd)/run_docs.py
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/build"
cd "$folder" || exit 1
failures=0

complain() {
    echo "FAILED: $*:"
    cat page.md out
    failures=$((failures + 1))
}

# page CODE COMMAND SHOWN [NOTE ...]: a page with one command whose output is SHOWN.
page() {
    local code=$1 command=$2 shown=$3 got
    shift 3
    {
        [ $# -eq 0 ] || printf '<!-- %s -->\n' "$@"
        # shellcheck disable=SC2016
        printf '```console\n$ %s\n%s```\n' "$command" "$shown"
    } >page.md
    "$run" build page.md >out 2>&1
    got=$?
    [ $got = "$code" ] || complain "$got instead of $code"
}

page 0 "echo one; echo two" $'one\ntwo\n'
page 1 "echo one; echo two" $'one\n'
page 1 "echo one" $'one\ntwo\n'
page 1 "echo one" $'two\n'
page 0 "seq 9" $'1\n...\n8\n9\n'
page 1 "seq 9" $'1\n...\n8\n'
page 1 "seq 9" $'...\n10\n...\n'
page 1 false ''
page 0 "exit 3" '' "exit: 3"
page 1 true '' "exit: 3"
page 0 "echo loss 2.501" $'loss 2.5\n'
page 1 "echo loss 2.51" $'loss 2.5\n'
page 0 "echo loss 2.51" $'loss 2.5\n' "tolerance: 0.01"
page 1 "echo lost 2.5" $'loss 2.5\n'
page 0 "echo 'took 7 s, 3,900 tok/s'" $'took 5 s, 12 tok/s\n'
page 1 "echo took 7 s" $'took 5 s\n' "times: same"
page 0 "echo error 3e-15" $'error 8.1e-16\n'
page 1 "echo error 3e-8" $'error 8.1e-16\n'
page 0 "echo on avx512" $'on portable\n'
page 0 "echo '(mfu 7%, peak measured at load 3.1)'" $'(mfu 25%)\n'
page 0 "cat file" $'text\n' "before: echo text > file"
page 1 "cat file" $'text\n' "before: false"
page 0 'echo a \
    b' $'a b\n'

# form CODE TEXT: what --check says of a page.
form() {
    printf '%b' "$2" >page.md
    "$run" --check page.md >out 2>&1
    got=$?
    [ $got = "$1" ] || complain "--check: $got instead of $1"
}
# shellcheck disable=SC2016
{
    form 0 '```console\n$ echelon plan run.yaml\n```\n'
    form 1 '```\nechelon plan run.yaml\n```\n'
    form 1 'Text:\n\n    mpirun -n 2 echelon bench\n'
    form 0 '<!-- not run: an example -->\n```\nechelon plan run.yaml\n```\n'
    form 1 '<!-- nonsense: 1 -->\n```console\n$ true\n```\n'
    form 1 '```console\nno command\n```\n'
    form 0 '```\nprinted text\n```\n'
}
[ $failures -eq 0 ] || exit 1
echo "run_docs.py tells right pages from wrong ones"
