#!/bin/bash
# A key without its value on one rank (the column `alone` of keys.def) does not compile, so nobody
# forgets it. Nor does a key whose help is longer than a line of a list.
#     columns.sh COMPILER SOURCE-FOLDER
set -euo pipefail
compiler=$1 source=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/config"

# builds KEY: whether the table compiles with this row added to the section `log`.
builds() {
    sed "s/^END(log)/$1\n&/" "$source/config/keys.def" > "$folder/config/keys.def"
    cmp -s "$source/config/keys.def" "$folder/config/keys.def" &&
        { echo "no row was added"; exit 1; }
    "$compiler" -std=c11 -D_GNU_SOURCE -fsyntax-only -I"$folder" -I"$source" \
        "$source/config/table.c" 2> "$folder/said"
}

builds 'KEY(log, odd, INT, "0", 0, 1, NULL, FREE, SAME, "help")' || { cat "$folder/said"; exit 1; }
if builds 'KEY(log, odd, INT, "0", 0, 1, NULL, FREE, "help")'; then
    echo "a key without the column \`alone\` compiles"
    exit 1
fi

line=$(printf 'x%.0s' {1..120})
builds "KEY(log, odd, INT, \"0\", 0, 1, NULL, FREE, SAME, \"$line\", \"more $line\")" ||
    { cat "$folder/said"; exit 1; }
if builds "KEY(log, odd, INT, \"0\", 0, 1, NULL, FREE, SAME, \"${line}x\")"; then
    echo "a key with a help of 121 characters compiles"
    exit 1
fi
grep -q "help of log.odd has more than 120 characters" "$folder/said" ||
    { cat "$folder/said"; exit 1; }
