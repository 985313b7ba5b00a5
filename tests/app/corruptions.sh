#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Damages checkpoints at random, one file at a time, and runs every command that reads them. A
# command that can use an older checkpoint does, with the same bits as without damage. A command
# that was given a damaged checkpoint refuses it by name. No command uses damaged data, hangs or
# crashes.
#     corruptions.sh ECHELON [NUMBER [SEED]]
set -u
echelon=${1:?usage: corruptions.sh ECHELON [NUMBER [SEED]]}
number=${2:-12}
RANDOM=${3:-1}
# shellcheck source-path=SCRIPTDIR source=scratch.sh
. "$(dirname "$0")/scratch.sh"
# shellcheck source-path=SCRIPTDIR source=expect.sh
. "$(dirname "$0")/expect.sh"
enter corruptions
export OMP_NUM_THREADS=1
limit=(timeout -k 5 60)

files=(manifest.json model/config.json model/model.safetensors model/tokenizer.json \
    state/state.safetensors)
damages=(flip cut lengthen zero remove pipe device older)
readers=(resume newest one model convert init_from verify)

make_tokens
make_run training.steps=4 checkpoint.every=2 parallel.comm=local model.tie_word_embeddings=false
step=run/checkpoints/step-00000004

# ---- what whole ones give ----

eval_of() {
    "${limit[@]}" "$echelon" eval "$1" --data text --samples 8 2>err </dev/null
}
expect 0 "saved step-00000004" "$echelon" train run.yaml
cp -a run whole
newest=$(eval_of run) older=$(eval_of run/checkpoints/step-00000002)
[ "$newest" != "$older" ] || complain "two checkpoints, one loss"
rm -r $step
expect 0 "saved step-00000006" "$echelon" train run.yaml training.steps=6
cp run/checkpoints/step-00000006/model/model.safetensors wanted

# ---- damage ----

# These set variables, since RANDOM begins anew in a subshell.
pick() { # NAME ...: picked is one of them
    local at=$((RANDOM % $#))
    shift "$at"
    picked=$1
}
place() { # FILE: at is a byte somewhere in it
    at=$(((RANDOM * 32768 + RANDOM) % $(stat -c %s "$1")))
}
damage() { # KIND FILE
    local path=$step/$2 at bit
    case $1 in
    flip)
        place "$path"
        bit=$((RANDOM % 8))
        printf '%b' "\\x$(printf %02x $((0x$(xxd -p -s "$at" -l 1 "$path") ^ 1 << bit)))" |
            dd of="$path" bs=1 seek="$at" conv=notrunc status=none
        ;;
    cut)
        place "$path"
        truncate -s "$at" "$path"
        ;;
    lengthen) head -c $((1 + RANDOM % 5000)) /dev/urandom >>"$path" ;;
    zero)
        dd if=/dev/zero of="$path" bs=1 count=100 seek="$(place "$path")" conv=notrunc status=none
        ;;
    remove) rm "$path" ;;
    pipe) rm "$path" && mkfifo "$path" ;;
    device) ln -sf /dev/zero "$path" ;;
    older) cp "run/checkpoints/step-00000002/$2" "$path" ;;
    esac
}

# ---- who reads ----

refuses() { # COMMAND ...: names the checkpoint, and ends with 1 or 2
    checks=$((checks + 1))
    "${limit[@]}" "$@" >out 2>err </dev/null
    local got=$?
    [ $got = 1 ] || [ $got = 2 ] || complain "$what: exit code $got of $*"
    grep -q "step-00000004" err out || complain "$what: not named by $*"
    no_sanitizer_speaks "$what"
}
gives() { # TEXT DIR
    checks=$((checks + 1))
    eval_of "$2" >out
    [ "$(cat out)" = "$1" ] || complain "$what: another loss than '$1' of $2"
}
takes() { # a reader of model/ alone, of a checkpoint whose state/ is damaged
    expect 0 "" "$@"
}
read_as() { # READER
    local use=refuses
    [ "$file" != state/state.safetensors ] || use=takes
    case $1 in
    resume)
        expect 0 "resuming from run/checkpoints/step-00000002" \
            "$echelon" train run.yaml training.steps=6
        also "checkpoint skipped: .*step-00000004"
        cmp -s run/checkpoints/step-00000006/model/model.safetensors wanted ||
            complain "$what: another model than without damage"
        ;;
    newest) gives "$older" run ;;
    one) refuses "$echelon" eval $step --data text --samples 8 ;;
    model) $use "$echelon" eval $step/model --data text --samples 8 ;;
    convert) $use "$echelon" convert $step/model out-model ;;
    init_from)
        $use "$echelon" train run.yaml model.init_from=$step/model log.directory=new \
            training.steps=1
        ;;
    verify)
        expect 1 "step-00000004 +broken" "$echelon" checkpoint verify run
        also "step-00000002 +whole"
        ;;
    esac
}

i=0
while [ $i -lt "$number" ]; do
    rm -rf run new out-model
    cp -a whole run
    pick "${files[@]}"
    file=$picked
    pick "${damages[@]}"
    kind=$picked
    what="$kind of $file"
    # A broken manifest beside model/ is noticed; files that are alike cannot be exchanged.
    damage "$kind" "$file"
    if [ -f "$step/$file" ] && [ ! -L "$step/$file" ] &&
        cmp -s "$step/$file" "whole/checkpoints/step-00000004/$file"; then
        continue
    fi
    i=$((i + 1))
    pick "${readers[@]}"
    reader=$picked
    what="$i: $what, read as $reader"
    read_as "$reader"
done
conclude
