#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tools/check_words.py finds every kind of offence in a tree made for it, names file and line, and
# accepts plain texts; its list of files to do only goes down.
set -euo pipefail
cd "$(dirname "$0")/../.."
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree"/{src,docs,tools}
touch "$tree/tools/check_words.todo"
failures=0

check() { tools/check_words.py --root "$tree" "$@"; }

# finds KIND PLACE: the file that has just been written has this offence, and no other.
finds() {
    local said
    if said=$(check); then
        echo "not found: $1 in $2"; failures=1
    elif ! grep -q "^$2: $1: " <<< "$said" ||
        [ "$(grep -c "^[a-z]*/.*:[0-9]*: " <<< "$said")" != 1 ]; then
        echo "wanted $1 in $2, but: $said"; failures=1
    fi
    rm "$tree/${2%%:*}"
}

# accepts FILE: the file that has just been written has no offence.
accepts() {
    local said
    said=$(check) || { echo "refused: $said"; failures=1; }
    rm "$tree/$1"
}

forty="The rank sends a word$(printf ' and another%.0s' {1..19})"

printf '/* First line.\n%s. */\n' "$forty" | fold -sw 80 > "$tree/src/a.c"
finds long src/a.c:2
printf '/* %s. */\n' "$forty" > "$tree/src/a.c" # one line: too wide, and that is all
finds columns src/a.c:1
printf '# Title\n\nA first sentence. %s.\n' "$forty" | fold -sw 80 > "$tree/docs/a.md"
finds long docs/a.md:3
printf '/* Sends a row.\n * Whether of its weights its own shard. */\n' > "$tree/src/a.h"
finds verbless src/a.h:2
printf '/* Who comes when\n * is open in a list of steps. */\n' > "$tree/src/a.h"
finds verbless src/a.h:1
printf '# Of the file, what of it\n# the rank is sent.\nx=1\n' > "$tree/src/a.sh"
said=$(check || true)
grep -q 'src/a.sh:1: verbless' <<< "$said" || { echo "verbless in a script: $said"; failures=1; }
rm "$tree/src/a.sh"
printf 'int x; /* it comes behind the list */\n' > "$tree/src/a.c"
finds banned src/a.c:1
printf 'ECH_FAIL("rank %%d died amid the " "step; restart the job", rank);\n' > "$tree/src/a.c"
finds banned src/a.c:1
printf 'KEY(a, "sets whence all rows come")\n' > "$tree/src/a.def"
finds banned src/a.def:1
printf '| a | b |\n|---|---|\n| x | it comes behind |\n' > "$tree/docs/a.md"
finds banned docs/a.md:3
printf '%0101d;\n' 0 | sed 's/0/int x;  /' > "$tree/src/a.c"
finds columns src/a.c:1
printf '/* clang-format off */\n%0101d;\n/* clang-format on */\n' 0 | sed 's/0/int x;  /' \
    > "$tree/src/a.c"
accepts src/a.c
printf 'X = """\n"""\n\ndef f():\n    """Sends rows\n    behind the list."""\n' > "$tree/src/a.py"
finds banned src/a.py:6
printf 'x=1 # comes behind the list\n' > "$tree/src/a.sh"
finds banned src/a.sh:1
printf 'error: run.yaml:1: sets "behind"; remove it\nerror: comes behind\n' > "$tree/a.messages"
said=$(check "$tree/a.messages") && { echo "a message is accepted"; failures=1; }
[ "$(grep -o 'a.messages:.*' <<< "$said")" = "a.messages:2: banned: behind" ] ||
    { echo "messages: $said"; failures=1; }
rm "$tree/a.messages"
printf '/* Sends rows and those of another rank. */%.0s\n' {1..20} > "$tree/src/a.c"
said=$(check || true)
[ "$(grep -c ': stand-in: ' <<< "$said")" = 20 ] || { echo "20 stand-ins: $said"; failures=1; }
sed -i 1d "$tree/src/a.c"
accepts src/a.c
for i in {1..9}; do
    printf 'The rank sends a word%s.\n\nOne.\n\n' "$(printf ' and another%.0s' {1..15})"
done | fold -sw 90 > "$tree/docs/a.md"
said=$(check || true)
grep -q '^docs: 10% of the sentences have more than 35 words' <<< "$said" ||
    { echo "p90: $said"; failures=1; }
rm "$tree/docs/a.md"

cat > "$tree/src/a.h" << 'END'
/* SPDX-License-Identifier: Apache-2.0
 *
 * Sends rows to their owners, e.g. those that a rank lacks. Collective. See Smith et al. 2020.
 *
 *   name     of a table's row, which is a noun phrase and goes on
 *            in the next line; whether it is read
 *
 *     of_code(what, is, no, sentence);
 */
int x; /* bytes sent per step */
END
accepts src/a.h

# A number of the list allows as many offences, --write lowers it and never raises it.
printf 'int x; /* behind */\nint y; /* behind */\n' > "$tree/src/a.c"
echo "banned src/a.c 3" > "$tree/tools/check_words.todo"
check > /dev/null || { echo "a number of the list allows nothing"; failures=1; }
check --write
grep -qx "banned src/a.c 2" "$tree/tools/check_words.todo" || { echo "not lowered"; failures=1; }
printf 'int z; /* behind */\n' >> "$tree/src/a.c"
check --write
grep -qx "banned src/a.c 2" "$tree/tools/check_words.todo" || { echo "raised"; failures=1; }
[ "$(check | grep -c '^src/a.c:[123]: banned: behind')" = 3 ] ||
    { echo "not all are shown"; failures=1; }
echo "banned src/a.c" > "$tree/tools/check_words.todo"
said=$(check 2>&1) && { echo "a damaged list is accepted"; failures=1; }
[[ $said == *check_words.todo:1:* ]] || { echo "a damaged list: $said"; failures=1; }
rm "$tree/src/a.c"

# Subjects of commits.
git -C "$tree" init -q
commit() {
    git -C "$tree" -c user.name=x -c user.email=x@x commit -q --allow-empty -m "$1"
}
commit "$(printf 'x%.0s' {1..99})"
echo "subjects-after $(git -C "$tree" rev-parse HEAD)" > "$tree/tools/check_words.todo"
commit "Send rows"
check > /dev/null || { echo "older subjects count"; failures=1; }
commit "$(printf 'x%.0s' {1..73})"
said=$(check) && { echo "a subject of 73 characters is accepted"; failures=1; }
[[ $said == *"subject: 73 characters"* ]] || { echo "subject: $said"; failures=1; }
exit "$failures"
