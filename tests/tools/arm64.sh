#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The build for 64-bit Arm (tools/arm64.sh), run by qemu: its kernels against their definition, and
# a training run whose losses are those of the portable set here, but for rounding.
#     arm64.sh [ECHELON]       ECHELON: this machine's program
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
echelon=$(readlink -f "${1:-$root/build/release/echelon}")
for program in aarch64-linux-gnu-gcc qemu-aarch64 mmdebstrap; do
    command -v "$program" > /dev/null ||
        { echo "skipped: no $program (tools/install_dependencies.sh --arm64)"; exit 77; }
done
{ "$root/tools/arm64.sh" &&
    ninja -C "$root/build/arm64" -t targets all | sed -n 's/^\(test_kernel_[a-z0-9_]*\): .*/\1/p' |
        xargs "$root/tools/arm64.sh"; } > "$root/build/arm64-build.log" 2>&1 ||
    { tail -50 "$root/build/arm64-build.log"; exit 1; }
# All but kernel/vectorized: NEON has no product of 64-bit numbers, which the hash needs.
(cd "$root/build/arm64" && ECHELON_SHARE=${ECHELON_SHARE:-0/8} \
    ctest -R '^kernel/' -E '^kernel/vectorized$' --output-on-failure --timeout 3000) || exit 1

# shellcheck source-path=SCRIPTDIR source=../app/scratch.sh
. "$root/tests/app/scratch.sh"
# shellcheck source-path=SCRIPTDIR source=../app/expect.sh
. "$root/tests/app/expect.sh"
enter arm64
awk 'BEGIN { for (i = 0; i < 400; i++) print "line " i % 7 " of " i % 3 ", and so on" }' >text.txt
cat >run.yaml <<'Y'
model: {architecture: llama, hidden_size: 40, num_hidden_layers: 2, num_attention_heads: 4,
        num_key_value_heads: 2}
data: {train: d/text, sequence_length: 50}
training: {steps: 6, global_batch_size: 4, micro_batch_size: 2}
optimizer: {learning_rate: 3e-3}
parallel: {comm: local, threads: 2}
log: {directory: runs/here, every: 1}
Y
arm=(qemu-aarch64 -L "$root/build/arm64-system" "$root/build/arm64/echelon")
losses() {
    grep -o '"loss": *[0-9.e+-]*' "runs/$1/metrics.jsonl" | sed 's/.*: *//'
}
expect 0 "kernels: portable" "${arm[@]}" --version
expect 0 "tokens" "${arm[@]}" data text.txt d/text
expect 0 "on 2 ranks of 1 thread .portable, local" \
    "${arm[@]}" train run.yaml --ranks 2 parallel.pipeline=2 parallel.threads=1 \
    log.directory=runs/arm
expect 0 "PASSED" "${arm[@]}" verify run.yaml --ranks 2 parallel.tensor=2 \
    parallel.threads=1 log.directory=runs/verified
expect 0 "." env ECHELON_ISA=portable "$echelon" train run.yaml
[ "$(losses arm | wc -l)" = 6 ] || complain "not six losses"
paste <(losses arm) <(losses here) | awk '
    { d = $1 - $2; if (d < 0) d = -d
      if (!($1 > 0) || d > 2e-5 * $1) { print "losses " $1 " and " $2; exit 1 } }' ||
    complain "losses on Arm are unlike those here"
# A checkpoint of the one resumes on the other.
expect 0 "step *8/8" env ECHELON_ISA=portable "$echelon" train run.yaml training.steps=8 \
    log.directory=runs/arm
conclude
