#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs every fuzz target for long: builds the preset fuzz, then gives each target so many seconds,
# two targets at a time.
#
#   tools/fuzz.sh [--record] [SECONDS] [TARGET ...]
#
#   SECONDS    for each target (600)
#   TARGET     room_noun, as in tests/ROOM/fuzz_NOUN.c, or a part of it; none: all that there are
#   --record   adds the table to docs/fuzzing.md
#
# What was found to reach new code stays in build/fuzz/grown/ROOM_NOUN, and the next run goes on
# from there. Findings, made as small as half a minute allows, are in build/fuzz/findings/ROOM_NOUN;
# then the exit code is 1. A target ends early at its third finding.
set -euo pipefail
cd "$(dirname "$0")/.."

at_once=${ECH_FUZZ_AT_ONCE:-2}
build=build/fuzz
record=no
seconds=600

usage() {
    sed -n 's/^#   //p' "$0" >&2
    exit 2
}

if [ "${1:-}" = --record ]; then record=yes; shift; fi
if [[ ${1:-} =~ ^[0-9]+$ ]]; then seconds=$1; shift; fi
for word in "$@"; do [[ $word =~ ^[a-z0-9_]+$ ]] || usage; done
[ "$seconds" -gt 0 ] || usage

# "ROOM NOUN" of each target that one of the words names.
list_targets() {
    local file room noun word
    for file in tests/*/fuzz_*.c; do
        room=$(basename "$(dirname "$file")")
        noun=$(basename "$file" .c)
        noun=${noun#fuzz_}
        [ $# -gt 0 ] || echo "$room $noun"
        for word in "$@"; do
            if [[ ${room}_$noun == *"$word"* ]]; then echo "$room $noun"; break; fi
        done
    done
}

# Prints the last number that follows a word in a log of libFuzzer; - if there is none.
number_after() {
    local found
    found=$(grep -oE "$1[: ]+[0-9]+" "$2" | tail -n 1 | grep -oE '[0-9]+$' || true)
    echo "${found:--}"
}

# Every artifact of the target becomes FILE.small beside it, if libFuzzer can make it smaller.
minimise() {
    local program=$1 folder=$2 file
    for file in "$folder"/*; do
        case $file in *.small | *.log) continue ;; esac
        [ -f "$file" ] || continue
        "$program" -minimize_crash=1 -max_total_time=30 -exact_artifact_path="$file.small" \
            -rss_limit_mb=1024 "$file" > "$folder/minimise.log" 2>&1 || true
    done
}

# Runs one target and leaves its row of the table in $rows. A finding ends a libFuzzer process, so
# it is started again until the time is over.
fuzz() {
    local room=$1 noun=$2 name=$1_$2 program begun left run=0 executions=0 found=0 count
    program=$build/tests/$room/fuzz_$name
    local grown=$build/grown/$name findings=$build/findings/$name log
    mkdir -p "$grown" "$findings"
    begun=$SECONDS
    while left=$((seconds - (SECONDS - begun))) && [ "$left" -gt 0 ]; do
        run=$((run + 1))
        log=$rows/$name.$run.log
        "$program" -max_total_time="$left" -rss_limit_mb=1024 -timeout=10 -print_final_stats=1 \
            -artifact_prefix="$findings/" "$grown" "tests/$room/corpus_$noun" > "$log" 2>&1 || true
        count=$(number_after "stat::number_of_executed_units" "$log")
        if [ "$count" != - ]; then executions=$((executions + count)); fi
        if ! grep -q "^SUMMARY: \|^==[0-9]*== ERROR" "$log"; then
            # It did not even run.
            [ "$count" != - ] || { tail -n 5 "$log" >&2; found=$((found + 1)); break; }
            continue
        fi
        found=$((found + 1))
        cp "$log" "$findings/$run.log"
        [ "$found" -lt 3 ] || break
    done
    if [ "$found" -gt 0 ]; then minimise "$program" "$findings"; fi
    printf '| %s | %d | %s | %s | %d |\n' "$name" "$((SECONDS - begun))" "$executions" \
        "$(number_after cov "$log")" "$found" > "$rows/$name.row"
    echo "$name: $executions executions, $found findings" >&2
}

targets=$(list_targets "$@")
[ -n "$targets" ] || { echo "fuzz: no target is called $*" >&2; exit 2; }
rows=$(mktemp -d)
trap 'rm -rf "$rows"' EXIT

echo "== build fuzz" >&2
{ cmake --preset fuzz -DECH_TESTS=ON && cmake --build --preset fuzz --target fuzzers; } \
    > "$rows/build.log" 2>&1 || { tail -n 40 "$rows/build.log" >&2; exit 1; }

running=0
while read -r room noun; do
    if [ "$running" -ge "$at_once" ]; then wait -n; running=$((running - 1)); fi
    fuzz "$room" "$noun" &
    running=$((running + 1))
done <<< "$targets"
wait

print_table() {
    echo "| target | seconds | executions | coverage | findings |"
    echo "|---|---|---|---|---|"
    cat "$rows"/*.row
}
print_table
if [ "$record" = yes ]; then
    { echo; echo "### $(date -u +%Y-%m-%d), $(git rev-parse \
        --short HEAD), $at_once at a time"; echo; print_table; } \
        >> docs/fuzzing.md
    echo "added to docs/fuzzing.md" >&2
fi
! grep -qvE '\| 0 \|$' "$rows"/*.row || { echo "findings are in $build/findings" >&2; exit 1; }
