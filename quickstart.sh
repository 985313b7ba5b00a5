#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# From a bare Debian 12 to a trained language model: installs what is missing, builds a release,
# makes a corpus (the King James Bible), tokenizes it, trains a small Llama-style model on two
# data-parallel ranks for a few minutes, and prints a sample of what it learned.
set -euo pipefail
cd "$(dirname "$0")"

tools/install_dependencies.sh

say() { printf '\n== %s\n' "$*"; }

say "building (build/release)"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { cmake --preset release -DECH_TESTS=OFF && cmake --build --preset release -j "$(nproc)"; } > "$log" 2>&1; then
    tail -n 60 "$log" >&2
    exit 1
fi
echelon=build/release/echelon
"$echelon" --version

say "the corpus (data/)"
mkdir -p data
if [ ! -s data/bible.txt ]; then
    bible -f -l65535 gen1:1-rev22:21 > data/bible.txt.part
    mv data/bible.txt.part data/bible.txt
fi
"$echelon" data data/bible.txt data/bible --valid 0.05

say "training on two ranks (runs/quickstart)"
rm -rf runs/quickstart
"$echelon" train examples/quickstart.yaml --ranks 2

say "a sample"
"$echelon" sample runs/quickstart "Genesis1:1 In the beginning" --tokens 400 --temperature 0.7
echo

say "validation loss"
"$echelon" eval runs/quickstart --data data/bible-valid --samples 512

cat <<'TXT'

== what to look at next
  build/release/echelon plan examples/quickstart.yaml --ranks 2        what was decided before the run
  build/release/echelon verify examples/quickstart.yaml --ranks 2 training.global_batch_size=4 \
      training.micro_batch_size=1                                      this layout against one rank, in fp64
  build/release/echelon sample runs/quickstart "Psalms23:1" --temperature 0.5
  less runs/quickstart/metrics.jsonl                                   every step: loss, norm, tokens per second
  ls runs/quickstart/checkpoints/*/model                               loads in Hugging Face transformers
  README.md, docs/tour.md                                              how it works
TXT
