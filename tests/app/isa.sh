#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# ECHELON_ISA from outside: what each set is called, that training under each comes to nearly the
# same, and exactly so again; what is refused, and how.
#     isa.sh ECHELON
set -u
echelon=${1:?usage: isa.sh ECHELON}
[ -x "$echelon" ] || { echo "no program $echelon"; exit 1; }
# shellcheck source-path=SCRIPTDIR source=scratch.sh
. "$(dirname "$0")/scratch.sh"
# shellcheck source-path=SCRIPTDIR source=expect.sh
. "$(dirname "$0")/expect.sh"
enter isa
unset ECHELON_ISA

# ---- refused: one line, exit code 2, before anything is written ----

awk 'BEGIN { for (i = 0; i < 400; i++) print "line " i % 7 " of " i % 3 ", and so on" }' >text.txt
expect 0 "." "$echelon" data text.txt d/text
cat >run.yaml <<'Y'
model: {architecture: llama, hidden_size: 40, num_hidden_layers: 2, num_attention_heads: 4,
        num_key_value_heads: 2}
data: {train: d/text, sequence_length: 50}
training: {steps: 6, global_batch_size: 4, micro_batch_size: 2}
optimizer: {learning_rate: 3e-3}
parallel: {comm: local, threads: 2}
log: {directory: runs/wrong, every: 1}
Y
for wrong in sse9 AVX2 "avx2 " auto; do
    expect 2 "ECHELON_ISA=$wrong: no such instruction set; .*one of: portable" \
        env ECHELON_ISA="$wrong" "$echelon" train run.yaml
    expect 2 "no such instruction set" env ECHELON_ISA="$wrong" "$echelon" --version
done
expect 2 "error: --isa sse9: .*use one of: portable" "$echelon" bench --isa sse9 gelu_forward
expect_once 2 "ECHELON_ISA=sse9" env ECHELON_ISA=sse9 "$echelon" train run.yaml --ranks 2
[ ! -e runs/wrong ] || complain "a refused run left runs/wrong"

# ---- the sets that this machine and this build have ----

sets=$(ECHELON_ISA=x "$echelon" --version 2>&1 | sed -n 's/.*one of: //p' | tr -d ,)
case $sets in portable*) ;; *) complain "the sets are '$sets'" ;; esac
losses() {
    grep -o '"loss": *[0-9.e+-]*' "runs/$1/metrics.jsonl" | sed 's/.*: *//'
}
train() { # SET NAME
    expect 0 "on 1 rank of 2 threads .$1, local" \
        env ECHELON_ISA="$1" "$echelon" train run.yaml log.directory="runs/$2"
    [ "$(losses "$2" | wc -l)" = 6 ] || complain "$2: not six losses"
}
for isa in $sets; do
    if "$echelon" --version | grep -q oneDNN; then
        expect 0 "kernels: $isa," env ECHELON_ISA="$isa" "$echelon" --version
    fi
    expect 0 "kernels *$isa," "$echelon" bench --isa "$isa" --seconds 0.1 gelu_forward
    train "$isa" "$isa"
    train "$isa" "$isa-again"
    [ "$(losses "$isa")" = "$(losses "$isa-again")" ] || complain "$isa: two runs differ"
    paste <(losses portable) <(losses "$isa") | awk -v isa="$isa" '
        { d = $1 - $2; if (d < 0) d = -d
          if (!($1 > 0) || d > 2e-5 * $1) { print isa ": losses " $1 " and " $2; exit 1 } }' ||
        complain "$isa: losses unlike those of portable"
done
conclude
