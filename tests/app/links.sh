#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A run directory from a stranger: nothing is written through its links, and its pipes make nobody
# wait.
#     links.sh ECHELON
set -u
echelon=${1:?usage: links.sh ECHELON}
# shellcheck source-path=SCRIPTDIR source=scratch.sh
. "$(dirname "$0")/scratch.sh"
# shellcheck source-path=SCRIPTDIR source=expect.sh
. "$(dirname "$0")/expect.sh"
enter links
export OMP_NUM_THREADS=1
limit=(timeout 60)
make_tokens
make_run training.steps=1 parallel.comm=local log.trace=true
expect 0 "saved step-0*1" "$echelon" train run.yaml
cp -r run good
printf 'mine' >mine

# refuse NAME COMMAND ...: in a run directory where NAME is a link, then a pipe.
refuse() {
    local name=$1 kind
    shift
    for kind in link pipe; do
        rm -rf run
        cp -r good run
        rm -rf "run/$name"
        if [ $kind = link ]; then ln -s "$PWD/mine" "run/$name"; else mkfifo "run/$name"; fi
        expect_once 1 "run/$name: .*is a $kind|run/$name: is a pipe" "${limit[@]}" "$@"
        [ "$(cat mine)" = mine ] || complain "written through run/$name: $*"
        printf 'mine' >mine
    done
}
for name in metrics.jsonl run.yaml trace/rank-00000.json; do
    refuse "$name" "$echelon" train run.yaml training.steps=2
done
refuse report.html "$echelon" report run
# What a run with pushes goes on from.
asp=(parallel.strategy=asp parallel.flush_every=1 --ranks 3 log.trace=false)
rm -rf run
expect 0 "saved step-0*1" "$echelon" train run.yaml "${asp[@]}"
rm -rf good
cp -r run good
refuse serves.jsonl "$echelon" train run.yaml "${asp[@]}" training.steps=2
# A folder that is a link.
rm -rf run
expect 0 "saved step-0*1" "$echelon" train run.yaml
mv run/trace elsewhere
before=$(ls -l --time-style=full-iso elsewhere)
ln -s "$PWD/elsewhere" run/trace
expect_once 1 "run/trace: is a link, and nothing is written through it" "$echelon" train run.yaml \
    training.steps=2
[ "$(ls -l --time-style=full-iso elsewhere)" = "$before" ] || complain "written through run/trace"

conclude
