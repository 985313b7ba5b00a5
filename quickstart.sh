#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Goes from a bare Debian 12 to a trained language model. The script installs missing packages,
# builds a release and tokenizes a text (the King James Bible). Then it trains a small Llama-style
# model on two data-parallel ranks for about two minutes, and prints a sample of its text.
#
#   ./quickstart.sh            QUICKSTART_SECONDS=N trains for about N seconds instead
set -euo pipefail
cd "$(dirname "$0")"
[ $# -eq 0 ] || { echo "usage: ./quickstart.sh, without arguments" >&2; exit 2; }
seconds=${QUICKSTART_SECONDS:-120}
[[ $seconds =~ ^[1-9][0-9]{0,5}$ ]] || {
    echo "quickstart: QUICKSTART_SECONDS=$seconds: a whole number of seconds is wanted" >&2
    exit 2
}
[ -w . ] || {
    echo "quickstart: $PWD is read-only; it writes build/, data/ and runs/ here: copy the folder" \
        >&2
    exit 1
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# run WORDS COMMAND ...: says what it does and how long that took; what the command prints is shown
# only if it fails.
run() {
    local began=$SECONDS
    printf '%-60s' "$1"
    if ! "${@:2}" > "$log" 2>&1; then
        printf 'failed\n' >&2
        tail -n 60 "$log" >&2
        exit 1
    fi
    printf '%4d s\n' $((SECONDS - began))
}

build() {
    cmake --preset release -DECH_TESTS=OFF &&
        cmake --build --preset release -j "$(nproc)" --target echelon
}

tokenize() {
    mkdir -p data
    if [ ! -s data/bible.txt ]; then
        bible -f -l65535 gen1:1-rev22:21 > data/bible.txt.part &&
            mv data/bible.txt.part data/bible.txt || return
    fi
    "$echelon" data data/bible.txt data/bible --valid 0.05
}

# Sets `steps`, of which a run takes about so many seconds: the last of a few steps are timed.
choose_steps() {
    local tried=runs/quickstart-speed
    rm -rf "$tried"
    "$echelon" train "$run" --ranks 2 training.steps=6 log.every=1 training.validate_every=0 \
        checkpoint.every=0 \
        log.directory="$tried" optimizer.warmup_steps=0 > "$log" 2>&1 || { cat "$log" >&2; exit 1; }
    steps=$(grep -o '"step_seconds": *[0-9.e+-]*' "$tried/metrics.jsonl" | sed 's/.*: *//' |
        sort -g |
        awk -v want="$seconds" '{ time[NR] = $1 }
            END {
                steps = int(want / time[int((NR + 1) / 2)] / 10) * 10
                print (steps < 20 ? 20 : steps > 2000 ? 2000 : steps)
            }')
    rm -rf "$tried"
}

run=examples/quickstart.yaml
echelon=build/release/echelon
run "install what is missing" tools/install_dependencies.sh
run "build the program (build/release)" build
run "turn a text into tokens (data/bible)" tokenize
choose_steps
rm -rf runs/quickstart
run "train on two ranks, $steps steps (runs/quickstart)" \
    "$echelon" train "$run" --ranks 2 "training.steps=$steps" \
        "optimizer.warmup_steps=$((steps / 9))" \
    "training.validate_every=$(((steps + 2) / 3))" "checkpoint.every=$(((steps + 2) / 3))"
run "write a report" "$echelon" report runs/quickstart

printf '\nA sample after %s steps:\n\n' "$steps"
"$echelon" sample runs/quickstart "Genesis1:1 In the beginning" --tokens 240 --temperature 0.7 \
    2> "$log" | fold -s -w 78 || { cat "$log" >&2; exit 1; }
printf '\n\n'
"$echelon" eval runs/quickstart --data data/bible-valid --samples 512
echo "report: runs/quickstart/report.html"
cat << 'TXT'
Try next (docs/tutorial.md, docs/tour.md):
  build/release/echelon plan examples/quickstart.yaml --ranks 2
  build/release/echelon verify examples/quickstart.yaml --ranks 2 \
      training.global_batch_size=4 training.micro_batch_size=1
  build/release/echelon sample runs/quickstart "Psalms23:1" --temperature 0.5
TXT
