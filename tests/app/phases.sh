# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Signals in every phase of a run, for any launcher. Source it after jobs.sh; the test defines
#     launch WORD ...      starts 2 ranks of `train run.yaml WORD ...` as $job, output to out and
#                          err, all of it below the command "${under[@]}"
#     send SIGNAL          sends it to the whole job
# With $faults, the library of tests/checkpoint/faults.h, saves wait until a signal has been sent.

code=0 under=() faults=${faults:-}

# What launch trains, in the test's folder.
make_signalled_run() {
    make_tokens
    make_run model.hidden_size=32 model.num_hidden_layers=4 data.valid=text \
        data.sequence_length=16 \
        training.steps=1000000 training.global_batch_size=16 training.micro_batch_size=2 \
        training.check_every=0 training.validate_every=1000000 optimizer.learning_rate=0.003 \
        optimizer.schedule=constant parallel.pipeline=2 checkpoint.keep=2 log.every=1000
}

# awaits PROCESS ...: all catch SIGUSR1, SIGUSR2 and SIGTERM, or hold them back (bits 9, 11, 14).
awaits() {
    local process sets bits
    [ $# -gt 0 ] || return 1
    for process in "$@"; do
        sets=$(sed -nE 's/^Sig(Blk|Cgt):\s*(.*)$/0x\2/p' "/proc/$process/status" 2>/dev/null)
        bits=0
        for sets in $sets; do bits=$((bits | sets)); done
        [ $(((bits >> 9) & (bits >> 11) & (bits >> 14) & 1)) = 1 ] || return 1
    done
}

# ---- where a run is ----

has_begun() { # so far that a signal is not its end
    find_ranks 2 "$job" && awaits "${ranks[@]}"
}
has_done() { # STEP
    [ "$(last_step run/metrics.jsonl)" -ge "$1" ]
}
is_saving() {
    [ -n "$(find run/checkpoints -name '*.tmp' 2>/dev/null)" ]
}
has_saved() { # STEP
    [ -d "run/checkpoints/$(printf step-%08d "$1")" ]
}
# True during a save; without the library perhaps after it.
has_come_to_a_save() {
    is_saving || { [ -z "$faults" ] && [ "$(newest)" -gt 0 ]; }
}

# begin NAME UNTIL ...: a new run that has come that far; with -- WORD ... for the run before UNTIL.
begin() {
    local words=()
    name=$1
    shift
    while [ "$1" != -- ]; do
        words+=("$1")
        shift
    done
    shift
    rm -rf run
    ranks=()
    launch "${words[@]}"
    reach "$@"
}
reach() {
    wait_until 120 "$@" || { complain "$name: never: $*"; return 1; }
}

# In a checkpoint's files the ranks wait, from the second call that changes one, until
# release_saves.
hold_saves() {
    [ -n "$faults" ] || return
    : >hold
    under=(env LD_PRELOAD="$faults" ECH_FAULTS="$PWD/run/checkpoints/step- hold 2"
        ECH_FAULTS_HOLD="$PWD/hold")
}
release_saves() {
    rm -f hold
    under=()
}

# ended CODE: the job ends with it ("any": with what it likes).
ended() {
    wait_until 120 has_ended || { complain "$name: does not end"; kill -9 "$job"; }
    wait "$job"
    code=$?
    job=''
    [ "$1" = any ] || [ $code = "$1" ] || complain "$name: exit code $code instead of $1"
    no_sanitizer_speaks "$name"
}

# stops [CODE]: it has stopped, and saved all that it had done; and it goes on from there.
stops() {
    local step
    ended "${1:-75}"
    step=$(last_step run/metrics.jsonl)
    [ "$step" -gt 0 ] && has_saved "$step" ||
        complain "$name: step $step was the last, $(newest) is saved"
    is_saving && complain "$name: an unfinished checkpoint is left"
    "$echelon" train run.yaml parallel.pipeline=auto training.steps=$((step + 1)) \
        >again 2>&1 </dev/null || complain "$name: does not go on: $(tail -n 3 again)"
    grep -q "resuming from .*$(printf step-%08d "$step") " again ||
        complain "$name: does not resume from step $step"
    echo "$name: stopped after step $step"
}

# A stop in every phase; `send $1` asks for it.
stop_in_every_phase() {
    local signal=$1 step=0
    begin "$2: $signal at start-up" -- has_begun
    send "$signal"
    stops
    begin "$2: $signal at a resume" training.steps=3 -- has_ended
    ended 0
    launch
    reach grep -q "resuming from" out err
    send "$signal"
    stops
    begin "$2: $signal in a step" -- has_done 5
    send "$signal"
    stops
    begin "$2: $signal in validation" training.validate_every=3 -- has_done 3
    send "$signal"
    stops
    grep -q '"validation_loss"\|"valid_loss"\|valid' run/metrics.jsonl ||
        complain "$name: no validation"
    hold_saves
    begin "$2: $signal in a save" checkpoint.every=3 -- has_come_to_a_save
    send "$signal"
    release_saves
    stops
    hold_saves
    begin "$2: $signal in the last save" training.steps=4 -- has_come_to_a_save
    send "$signal"
    release_saves
    ended 0
    has_saved 4 || complain "$name: the last step is not saved"
    # One rank is stopped, and the other waits for it.
    begin "$2: $signal in a wait for a peer" -- has_done 2
    find_ranks 2 "$job"
    kill -STOP "${ranks[1]}"
    step=$(last_step run/metrics.jsonl)
    send "$signal"
    kill -CONT "${ranks[1]}"
    stops
    [ "$(newest)" -ge "$step" ] || complain "$name: goes back"
}

# A save without a stop, then a stop for one rank alone.
save_and_go_on() {
    local saved
    begin "$1: SIGUSR1 at start-up" checkpoint.every=1000000 -- has_begun
    send USR1
    reach eval '[ "$(newest)" -gt 0 ]' # after any step that there was when the signal came
    saved=$(newest)
    reach has_done $((saved + 9))
    send USR1
    reach eval "[ \"\$(newest)\" -ge $((saved + 9)) ]"
    saved=$(newest)
    reach has_done $((saved + 5))
    find_ranks 2 "$job"
    kill -USR1 "${ranks[1]}"
    reach eval "[ \"\$(newest)\" -ge $((saved + 5)) ]"
    name="$1: SIGUSR2 to one rank, twice"
    find_ranks 2 "$job"
    kill -USR2 "${ranks[1]}"
    kill -USR2 "${ranks[1]}" 2>/dev/null
    stops
}
