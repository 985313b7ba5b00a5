# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# For tests of the program from outside: a folder of the test's own, tokens and a run file to begin
# with, and how failures are told and counted. To be sourced; wants $echelon, and counts `failures`.

failures=0

# enter NAME: into an empty folder, `folder`, which is gone when the test ends.
enter() {
    folder=$(mktemp -d "${TMPDIR:-/tmp}/echelon-$1-XXXXXX") && cd "$folder" || exit 1
    trap leave EXIT
}

leave() {
    cd / || return
    chmod -R u+w "$folder"
    rm -rf "$folder"
}

# Something to train on: the tokens text.
make_tokens() {
    seq -s ' and then ' 1 400 >text.txt
    "$echelon" data text.txt text >/dev/null 2>&1 || exit 1
}

# make_run KEY=VALUE ...: run.yaml for a small llama on text, with these keys, section.key each,
# besides or in place of its own.
make_run() {
    printf '%s\n' model.architecture=llama model.hidden_size=16 model.num_hidden_layers=2 \
        model.num_attention_heads=4 data.train=text data.sequence_length=12 \
        training.global_batch_size=12 training.micro_batch_size=1 optimizer.learning_rate=0.01 \
        parallel.threads=1 log.directory=run "$@" |
        awk -F= '
            { split($1, name, "."); section = name[1] }
            !(section in keys) { order[++n] = section }
            !($1 in value) { keys[section] = keys[section] " " name[2] }
            { value[$1] = $2 }
            END {
                for (i = 1; i <= n; i++) {
                    print order[i] ":"
                    m = split(keys[order[i]], key, " ")
                    for (j = 1; j <= m; j++) print "  " key[j] ": " value[order[i] "." key[j]]
                }
            }' >run.yaml
}

complain() {
    echo "FAILED: $*"
    sed 's/^/    | /' out err 2>/dev/null | tail -40
    failures=$((failures + 1))
}

# of WHAT, which has left out and err
no_sanitizer_speaks() {
    ! grep -Eqs "Sanitizer|runtime error:" out err || complain "a sanitizer speaks: $*"
}

# The last line of a test.
conclude() {
    echo "${checks:+$checks checks, }$failures failures"
    [ "$failures" = 0 ]
}
