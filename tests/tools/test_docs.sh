#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What the documents name exists: files, links and their headings, keys of run files, functions and
# tests. A chapter of docs/design has at most 150 lines, and a table or a drawing.
set -euo pipefail
cd "$(dirname "$0")/../.."

docs=(README.md CONTRIBUTING.md docs/*.md docs/reference/*.md)
chapters=(docs/design/*.md)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# All identifiers, keys and tests ("test:NAME") that a document may name, one a line.
{
    grep -rhoE '\b(ech|ECH)_\w+' src cmake tools tests/*.h tests/CMakeLists.txt CMakeLists.txt \
        CMakePresets.json
    sed -n 's/^ *KEY(\([a-z]*\), *\([a-z0-9_]*\),.*/\1.\2/p' src/config/keys.def
    grep -rhoE '^TEST\(\w+\)' tests | sed 's/^TEST(\(.*\))/test:\1/'
} | sort -u > "$scratch/known"
sections=$(sed -n 's/^SECTION(\([a-z]*\),.*/\1/p' src/config/keys.def | paste -sd'|')
unknown() { sort -u | comm -23 - "$scratch/known"; }

# Files named from the root, from src, docs or tests; NAME, ROOM, NOUN and DEVICE stand for any.
check_files() {
    suffix='(c|h|def|cu|cuh|md|sh|py|yaml|svg|txt)'
    { grep -oE "\`[A-Za-z0-9_./]+/[A-Za-z0-9_.]+\.$suffix\`" "$1" || true; } | tr -d '`' |
        { grep -vE 'NAME|ROOM|NOUN|DEVICE|^build/' || true; } | sort -u |
        while read -r name; do
            [ -e "$name" ] || [ -e "src/$name" ] || [ -e "docs/$name" ] || [ -e "tests/$name" ] ||
                echo "$1: there is no file $name"
        done
}

# Links, and the headings that they name.
check_links() {
    { grep -oE '\]\([^)]+\)' "$1" || true; } | sed 's/^](//; s/)$//' |
        { grep -vE '^https?:' || true; } | sort -u |
        while read -r link; do
            file=${link%%#*} heading=${link#"${link%%#*}"}
            if [ -n "$file" ]; then target=$(dirname "$1")/$file; else target=$1; fi
            if [ ! -e "$target" ]; then
                echo "$1: the link to $link leads nowhere"
            elif [ -n "$heading" ]; then
                grep -E '^#+ ' "$target" | sed -E 's/^#+ //' | tr 'A-Z ' 'a-z-' |
                    tr -cd 'a-z0-9_\n-' | grep -qxF -- "${heading#\#}" ||
                    echo "$1: $target has no heading $heading"
            fi
        done
}

# Keys and identifiers, and tests of a file: `tests/A/test_B.c` (`a_test`). The keys in
# docs/formats.md are also those of other programs.
check_names() {
    {
        grep -oE '\b(ech|ECH)_[A-Za-z0-9_]+' "$1" || true
        [ "$1" = docs/formats.md ] ||
            { grep -oE "\`($sections)\.[a-z][a-z0-9_]*" "$1" || true; } | tr -d '`' |
            { grep -vE '\.(jsonl?|yaml|bin|safetensors|c|h|def|md)$' || true; }
        tr '\n' ' ' < "$1" | { grep -oE '\.c`,? \(?(`[a-z0-9_]+`(, `[a-z0-9_]+`)*)\)' || true; } |
            { grep -oE '`[a-z0-9_]+`' || true; } | tr -d '`' | sed 's/^/test:/'
    } | unknown | while read -r name; do echo "$1: there is no $name"; done
}

check() {
    check_files "$1"
    check_links "$1"
    check_names "$1"
}

# $2: lines that are too many.
check_chapter() {
    [ "$(wc -l < "$1")" -lt "$2" ] || echo "$1 has $2 lines or more"
    grep -qE '^\||^```$|\.svg\)' "$1" || echo "$1 has no table and no drawing"
}

# The checks find what is wrong.
cat > "$scratch/wrong.md" << 'END'
# A page
`exec/nothing.c`, [away](nowhere.md), [here](#no-heading), `parallel.nothing`, `ech_nothing_at_all`,
`tests/app/test_zero.c` (`a_test_that_is_not`)
END
{ check "$scratch/wrong.md"; check_chapter "$scratch/wrong.md" 3; } > "$scratch/found"
if [ "$(wc -l < "$scratch/found")" != 8 ]; then
    echo "of 8 faults these were found:"
    cat "$scratch/found"
    exit 1
fi

for doc in "${docs[@]}" "${chapters[@]}"; do check "$doc"; done > "$scratch/found"
for chapter in "${chapters[@]}"; do check_chapter "$chapter" 151; done >> "$scratch/found"
if [ -s "$scratch/found" ]; then
    cat "$scratch/found"
    exit 1
fi
[ "${#chapters[@]}" -ge 13 ] || { echo "docs/design has ${#chapters[@]} pages"; exit 1; }
echo "all names of $((${#docs[@]} + ${#chapters[@]})) documents exist"
