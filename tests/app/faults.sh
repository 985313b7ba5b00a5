#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Disks that are full, files that vanish, pipes nobody writes, and too little memory: a line that
# names the file and says why, exit code 1 or 2, and no training that ends for the sake of its logs.
#     faults.sh ECHELON
set -u
echelon=${1:?usage: faults.sh ECHELON}
# shellcheck source-path=SCRIPTDIR source=scratch.sh
. "$(dirname "$0")/scratch.sh"
# shellcheck source-path=SCRIPTDIR source=expect.sh
. "$(dirname "$0")/expect.sh"
enter faults
export OMP_NUM_THREADS=1
limit=(timeout -k 5 120)

# The same with standard output on a full disk, and one error.
expect_full() {
    local code=$1
    shift
    checks=$((checks + 1))
    timeout -k 5 120 "$echelon" "$@" >/dev/full 2>err </dev/null
    [ $? = "$code" ] || complain "exit code: $* > /dev/full"
    [ "$(grep -c "error: standard output cannot be written" err)" = 1 ] || complain "$* > /dev/full"
}

cat >run.yaml <<'Y'
model: {architecture: gpt2, hidden_size: 16, num_hidden_layers: 2, num_attention_heads: 2}
data: {train: d/text, sequence_length: 16}
training: {steps: 12, global_batch_size: 4}
optimizer: {learning_rate: 3e-3}
parallel: {comm: local, threads: 1}
log: {directory: runs/one, every: 100, trace: true, trace_steps: 2}
Y
awk 'BEGIN { for (i = 0; i < 400; i++) print "line " i % 7 " of " i % 3 ", and so on" }' >text.txt
expect 0 "d/text.bin" "$echelon" data text.txt d/text
expect 0 "step +12/12" "$echelon" train run.yaml
expect 0 "bubble|written" "$echelon" report runs/one

# ---- run files that are no files ----

mkdir folder
mkfifo pipe
expect 2 "folder: is a folder, not a regular file" "$echelon" plan folder
expect 2 "pipe: is a pipe, not a regular file" "$echelon" plan pipe
expect 2 "/dev/null: is a device" "$echelon" plan /dev/null
expect 2 "/dev/zero: is a device" "$echelon" plan /dev/zero
ln -s /dev/tty terminal.yaml
expect 2 "terminal.yaml: " "$echelon" train terminal.yaml
expect 2 "is a pipe, not a regular file; write its output to a file" "$echelon" plan <(cat run.yaml)
head -c 2000000 /dev/zero | tr '\0' '#' >large.yaml
expect 2 "large.yaml: larger than" "$echelon" plan large.yaml

# ---- a full disk for results ----

if [ -e /dev/full ]; then
    expect_full 1 plan run.yaml
    expect_full 1 plan run.yaml --json
    expect_full 1 plan --help
    expect_full 1 --help
    expect_full 1 report runs/one
    expect_full 1 sample runs/one hello --tokens 4
    expect_full 1 eval runs/one --data d/text
    expect 1 "/dev/full: cannot write: No space left" "$echelon" plan run.yaml --svg /dev/full
    expect 1 "/dev/full: cannot write: No space left" "$echelon" report runs/one --out /dev/full
    expect 1 "/dev/full: cannot write: No space left" "$echelon" profile run.yaml --out /dev/full
fi
expect 1 "standard output cannot be written" sh -c '"$0" plan run.yaml >&-' "$echelon"
expect 1 "nowhere/x.svg" "$echelon" plan run.yaml --svg nowhere/x.svg
# A place that cannot be written shows before the work.
expect 1 "nowhere/p.json" "$echelon" profile run.yaml --steps 10000 --out nowhere/p.json
[ ! -s out ] || complain "measured before it knew where to write"
expect 1 "nowhere/r.html" "$echelon" report runs/one --out nowhere/r.html

# ---- logs that cannot be written at the start are errors, later ones are not ----

expect 1 "text.txt: cannot be a folder" "$echelon" train run.yaml log.directory=text.txt
mkdir -p runs/two/metrics.jsonl
expect 1 "runs/two/metrics.jsonl: " "$echelon" train run.yaml log.directory=runs/two
mkdir -p runs/three/trace
mkdir runs/three/trace/rank-00000.json
expect 1 "rank-00000.json: cannot be written" "$echelon" train run.yaml log.directory=runs/three

# Files of at most 8 KiB stand for a disk that fills up: the trace does not fit, the checkpoint
# would not.
checks=$((checks + 1))
(ulimit -f 8 2>/dev/null || exit 77
 exec timeout -k 5 120 "$echelon" train run.yaml log.directory=runs/four \
     training.steps=4 log.trace_steps=100) >out 2>err </dev/null
grep -q "warning: runs/four/trace/rank-00000.json: cannot be written: File too large; \
the run goes on" err ||
    complain "no warning of the trace"
grep -q '"step":4,' runs/four/metrics.jsonl || complain "the run did not go on"
[ "$(grep -c "warning: .*rank-00000.json: cannot" err)" = 1 ] ||
    complain "the warning came more than once"

# The folder vanishes while the run goes on.
if mkfifo gate && mkdir -p runs/five; then
    checks=$((checks + 1))
    timeout -k 5 300 "$echelon" train run.yaml log.directory=runs/five checkpoint.directory=c \
        training.steps=3000 log.every=1 log.trace=false >out 2>gate </dev/null &
    run=$!
    { while read -r line; do
        case $line in "step     2/"*) rm -rf runs/five ;; esac
        echo "$line"
    done; } <gate >err
    wait $run || complain "a run whose folder vanished"
    grep -q "warning: runs/five/metrics.jsonl: cannot be written: it was removed" err ||
        complain "no warning of the metrics"
    grep -q "^step  3000/3000 " err || complain "the run did not go on"
fi

# The run directory is moved, removed, or another one comes in its place: nothing is saved
# elsewhere, and nothing of what is in its place is touched.
rm -f gate
if mkfifo gate; then
    for what in moved removed replaced; do
        checks=$((checks + 1))
        timeout -k 5 120 "$echelon" train run.yaml --restarts 3 log.directory=runs/here \
            training.steps=3000 \
            checkpoint.every=1000 log.every=1 log.trace=false >out 2>gate </dev/null &
        run=$!
        { while read -r line; do
            case $line in
            "step     2/"*)
                if [ $what = removed ]; then rm -rf runs/here; else mv runs/here runs/there; fi
                [ $what != replaced ] || mkdir -p runs/here/checkpoints/step-00000500.tmp ;;
            esac
            echo "$line"
        done; } <gate >err
        wait $run
        [ $? = 1 ] || complain "a run directory that was $what: not exit code 1"
        grep -q "error: runs/here/checkpoints: the folder was moved, removed or replaced" err ||
            complain "a run directory that was $what: not said"
        grep -q "not started again: another start would not go on" err ||
            complain "a run directory that was $what: started again"
        if [ $what = replaced ]; then
            [ "$(find runs/here -type f | wc -l)$(ls runs/here/checkpoints)" = \
                0step-00000500.tmp ] ||
                complain "a run directory that was replaced: its successor was touched"
        elif [ -e runs/here ]; then
            complain "a run directory that was $what: made anew"
        fi
        rm -rf runs/here runs/there
    done
fi

# Nobody reads the log any more.
checks=$((checks + 1))
timeout -k 5 120 "$echelon" train run.yaml log.directory=runs/six log.every=1 log.trace=false \
    2>&1 </dev/null | head -n 1 >out
[ "${PIPESTATUS[0]}" = 0 ] || complain "a run whose log nobody reads"
[ -d runs/six/checkpoints/step-00000012 ] || complain "it saved nothing"

# ---- memory ----

# Threads would overrun a stack of 64 KiB.
checks=$((checks + 1))
(ulimit -s 64 && exec "$echelon" train run.yaml log.directory=runs/eight) >out 2>err
[ $? = 1 ] || complain "stacks of 64 KiB"
grep -q "error: the limit on stacks (ulimit -s) is below the 256 KiB" err ||
    complain "no word of stacks"

# A limit on processes holds for users only.
as_nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups)
if [ "$(id -u)" = 0 ] && "${as_nobody[@]}" "$echelon" --version >/dev/null 2>&1 && chmod 755 . &&
    ! pgrep -u 65534 >/dev/null; then
    for most in 1 2 3 4 5 6; do
        checks=$((checks + 1))
        mkdir runs/nobody && chmod 777 runs/nobody
        (ulimit -u $most && exec "${as_nobody[@]}" "$echelon" train run.yaml parallel.threads=2 \
            log.directory=runs/nobody log.trace=false) >out 2>err </dev/null
        code=$?
        if [ $code != 0 ]; then
            [ $code = 1 ] && grep -q "cannot start another thread.*ulimit -u" err ||
                complain "at most $most processes: exit code $code, or no word of it"
        elif [ $most -lt 4 ]; then
            complain "at most $most processes are enough"
        fi
        rm -rf runs/nobody
    done
else
    echo "SKIPPED: limits on processes: needs root, and a user nobody without processes"
fi

# A sanitizer's own shadow does not fit.
if (ulimit -v 4000000 && timeout 20 "$echelon" --version >/dev/null 2>&1); then
    checks=$((checks + 1))
    (ulimit -v 200000 && exec timeout -k 5 120 "$echelon" plan run.yaml) >out 2>err
    [ $? = 1 ] || complain "200 MB of address space"
    grep -q "limit on address space (ulimit -v) is too small" err || complain "no word of the limit"
    checks=$((checks + 1))
    (ulimit -v 2000000 && exec timeout -k 5 120 "$echelon" train run.yaml log.directory=runs/seven \
        model.hidden_size=2048 training.global_batch_size=64 data.sequence_length=64) >out 2>err
    [ $? = 1 ] || complain "an arena above the limit"
    [ "$(grep -c "error: .*memory" err)" = 1 ] || complain "no word of memory"
fi

conclude
