#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves the order of the rooms (docs/design/README.md), which CMakeLists.txt lists in ECH_ROOMS:
#   - a file of src/ROOM includes only headers of its own room and public ones of rooms before it
# (ECH_PUBLIC_HEADERS); so do tests, of any room and with all headers of the room that they are of;
#   - a header that is listed as public is included by another room;
#   - what public headers declare is named ech_NOUN...: no noun belongs to two rooms;
# - a type has one definition (in .c files each backend of a device defines the types that device.h
# leaves opaque);
#   - no source names a protocol (config/protocols.def), or tests for one, but those of its folder;
# - mpi.h stands nowhere (comm/mpi_library.h declares its functions), oneDNN's and BLAS's headers in
# src/kernel alone, CUDA's and its libraries' in
#     src/device/cuda*, src/kernel/cuda/ and src/comm/nccl* alone;
#   - pure rooms reach no header of device or comm, not even through others, except pure ones;
# - files are opened for writing by base/writing.h, which writes through no link; the few that open
# theirs themselves do so with
# O_NOFOLLOW or O_EXCL. ech_file_write, which follows what a user names, is for files that the
# command line names;
#   - the commands that use the library (train, plan, verify, eval, sample) reach only
# include/echelon.h and headers of program and base, also through others;
#   - every header compiles alone, and twice.
# Prints every offender as FILE:LINE: WHAT; exit code 1 if there is one.
#
#   tools/check_rooms.sh [ROOT]        CC and CPPFLAGS are those of the build
set -euo pipefail

cd "${1:-$(dirname "$0")/..}"
compiler=${CC:-cc}
read -ra flags <<< "-std=c11 -D_GNU_SOURCE -DECH_VERSION=\"\" -Isrc -Iinclude ${CPPFLAGS:-}"
pure_rooms="base config tensor model layout schedule draw simulate check"
# Names and bytes that plans know.
pure_headers="comm/reduction.def comm/collective.h comm/collective.def"
pure_headers+=" device/row.h device/device.def"
offenders=$(mktemp)
trap 'rm -f "$offenders"' EXIT

# The words of a list of CMakeLists.txt.
list() {
    sed -n "/^set($1\$/,/)/p; /^set($1 /,/)/p" CMakeLists.txt | tr -d '()\n' | tr -s ' ' |
        sed "s/^set$1 //"
}
rooms=$(list ECH_ROOMS)
public=$(list ECH_PUBLIC_HEADERS)
if [ -z "$rooms" ]; then
    echo "CMakeLists.txt:1: no list ECH_ROOMS" >&2
    exit 1
fi

check_includes() {
    find src -type f \( -name '*.[ch]' -o -name '*.def' -o -name '*.cu' -o -name '*.cuh' \
        \) -print0 | sort -z |
        xargs -0 -r grep -HnE '^[[:space:]]*#[[:space:]]*include' |
        awk -v rooms="$rooms" -v public="$public" '
        BEGIN {
            n = split(rooms, list, " "); for (i = 1; i <= n; i++) place[list[i]] = i
            n = split(public, list, " "); for (i = 1; i <= n; i++) is_public[list[i]] = 1
        }
        {
            match($0, /^[^:]*:[0-9]+:/)
            where = substr($0, 1, RLENGTH)
            split(where, at, ":"); split(at[1], path, "/")
            room = path[2]
            text = substr($0, RLENGTH + 1)
            if (!(room in place)) { print where " the room " room " is not in ECH_ROOMS"; next }
            if (match(text, /"[^"]*"/)) {
                name = substr(text, RSTART + 1, RLENGTH - 2)
                split(name, part, "/")
                if (!(part[1] in place))
                    print where " \"" name "\" does not begin with a room"
                else if (place[part[1]] > place[room])
                    print where " " room " comes before " part[1] ": \"" name "\""
                else if (part[1] != room && !(name in is_public))
                    print where " \"" name "\" is private to " part[1] ": not in ECH_PUBLIC_HEADERS"
                else if (part[1] != room)
                    is_used[name] = 1
            }
            if (text ~ /[<"]([^>"]*\/)?mpi\.h[>"]/)
                print where " mpi.h is not needed: comm/mpi_library.h declares its functions"
            if (room != "kernel" && text ~ /[<"](oneapi\/|dnnl|([^>"]*\/)?(open|c)blas[^>"]*\.h)/)
                print where " the libraries of kernels belong in src/kernel alone"
            if (text ~ /[<"]([^>"]*\/)?(cuda|cublas|cudnn|nccl)[a-zA-Z0-9_]*\.h[>"]/ &&
                text !~ /"device\/cuda/ &&
                at[1] !~ /^src\/(device\/cuda|kernel\/cuda\/|comm\/nccl)/)
                print where " CUDA belongs in src/device/cuda*, src/kernel/cuda/ and " \
                    "src/comm/nccl* alone"
        }
        END {
            for (name in is_public)
                if (!(name in is_used))
                    print "CMakeLists.txt:1: " name " is in ECH_PUBLIC_HEADERS, but no other " \
                        "room includes it"
        }'
}

# Tests may include headers of tests, too.
check_tests() {
    local where name room
    [ -d tests ] || return 0
    find tests -type f -name '*.[ch]' -print0 | sort -z |
        xargs -0 -r grep -HnoE '^[[:space:]]*#[[:space:]]*include "[^"]+"' |
        sed -E 's/^([^:]*:[0-9]+):.*"(.*)"$/\1 \2/' | while read -r where name; do
        room=${where#tests/}
        [ "${room%%/*}" = "${name%%/*}" ] || [ ! -f "src/$name" ] && continue
        case " $public " in *" $name "*) continue ;; esac
        echo "$where: \"$name\" is private to ${name%%/*}: not in ECH_PUBLIC_HEADERS"
    done
}

# NOUN ROOM HEADER NAME for every function and type that a public header declares.
declared() {
    local header
    for header in $public; do
        [ -f "src/$header" ] && [ "${header##*.}" = h ] || continue
        # Without comments; then ends of typedefs, and functions, whose lines begin with their type.
        sed -E 's,/\*([^*]|\*[^/])*\*/,,g' "src/$header" |
            awk '/\/\*/ { inside = 1 } !inside; /\*\// { inside = 0 }' |
            grep -oE -e '^\} ech_[a-z0-9_]+;' -e '^typedef [^;(]*\(\*ech_[a-z0-9_]+\)' \
                -e '^typedef (struct|enum|union) ech_[a-z0-9_]+ ech_[a-z0-9_]+;' \
                -e '^[a-z][a-zA-Z0-9_ *]*[ *]ech_[a-z0-9_]+\(' |
            grep -oE 'ech_[a-z0-9_]+[;()]$' | tr -d ';()' |
                sed -E "s,^ech_([a-z0-9]+).*,\1 ${header%%/*} $header &," || true
    done | sort -u
}

# Types that two files of src define, of which one is a header.
check_types() {
    find src -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) -print0 | sort -z |
        { xargs -0 -r grep -HnE '^(typedef )?(struct|enum|union) ech_[a-z0-9_]+ \{' || true; } |
        awk -F: '
        {
            split($3, word, " ")
            name = word[1] == "typedef" ? word[3] : word[2]
            header = $1 ~ /h$/
            if (name in first && (header || is_header[name]))
                print $1 ":" $2 ": " name " is defined in " first[name] " as well"
            if (!(name in first)) { first[name] = $1 ":" $2; is_header[name] = header }
        }'
}

# Tests for a protocol. A strategy chooses one in config, and the checker has a promise of each.
check_protocols() {
    find src -type f -name '*.[ch]' ! -path 'src/config/*' ! -path 'src/schedule/protocol/*' \
        ! -path 'src/check/promise*' -print0 | sort -z |
        { xargs -0 -r grep -HnE 'ECH_PROTOCOL_[A-Z]|protocol(_is_| [!=]=)' || true; } |
        sed -E 's,^([^:]*:[0-9]+):.*,\1: tests for a protocol; call its row (schedule/protocol/),'
}

check_names() {
    declared | awk '
        {
            if ($1 in room && room[$1] != $2)
                print "src/" $3 ":1: " $4 ": the noun " $1 " belongs to " room[$1] " (" name[$1] ")"
            else { room[$1] = $2; name[$1] = $4 }
        }'
}

# What a file of a pure room reaches through all its includes.
check_purity() {
    local room file header
    for room in $pure_rooms; do
        [ -d "src/$room" ] || continue
        find "src/$room" -name '*.[ch]' | sort | while read -r file; do
            # A header that is missing is named by the compiler later.
            "$compiler" "${flags[@]}" -MM -MG -x c "$file" 2>/dev/null | tr ' ' '\n' |
                sed -nE 's,^(src/)?((device|comm)/.*),\2,p' | sort -u |
                while read -r header; do
                    case " $pure_headers " in *" $header "*) continue ;; esac
                    echo "$file:1: the room $room is pure but reaches $header"
                done || echo "$file:1: cannot be preprocessed"
        done
    done
}

# Commands on top of the library.
check_commands() {
    local command file header
    for command in train plan verify eval sample; do
        file=src/program/cmd_$command.c
        [ -f "$file" ] || continue
        "$compiler" "${flags[@]}" -MM -MG -x c "$file" 2>/dev/null | tr ' ' '\n' |
            sed -nE 's,^src/([a-z]+/.*),\1,p' | sort -u | while read -r header; do
                case $header in program/* | base/*) continue ;; esac
                echo "$file:1: reaches $header; it uses include/echelon.h in place of other rooms"
            done
    done
}

# What opens a file for writing, with the lines of the call (fopen's modes; open's flags).
check_writing() {
    local named="src/base/file.c src/base/file.h src/app/convert.c src/program/cmd_plan.c"
    named+=" src/app/report/compare.c src/app/report/report.c src/layout/profile.c"
    named+=" src/data/bpe/train.c"
    find src -name '*.[ch]' -print0 | sort -z | xargs -0 -r awk -v named=" $named " '
        FNR == 1 { inside = 0 }
        {
            code = $0
            sub(/\/\*.*/, "", code)
            where = FILENAME ":" FNR ": "
            if (code ~ /(^|[^a-z_])ech_file_write\(/ && !index(named, " " FILENAME " "))
                print where "ech_file_write follows links; use ech_file_write_inside " \
                    "(base/writing.h)"
            if (FILENAME == "src/base/file.c") next
            if (code ~ /(^|[^a-z_])(creat|freopen)\(/ || code ~ /fopen\([^;]*"[wa]/)
                print where "opens a file for writing; use base/writing.h"
            if (code ~ /O_(WRONLY|RDWR|CREAT)/ && code !~ /O_NOFOLLOW|ech_file_open_to_write/)
                print where "opens a file for writing through links; use ech_file_open_to_write " \
                    "(base/writing.h)"
        }'
}

check_headers() {
    local header complaint
    find src -name '*.h' | sort | while read -r header; do
        complaint=$(printf '#include "%s"\n#include "%s"\n' "${header#src/}" "${header#src/}" |
            "$compiler" "${flags[@]}" -x c -fsyntax-only - 2>&1) && continue
        echo "$header:1: does not compile alone: $(grep -m 1 'error' <<< "$complaint" || true)"
    done
}

{
    check_includes
    check_tests
    check_names
    check_types
    check_protocols
    check_purity
    check_commands
    check_writing
    check_headers
} > "$offenders"
if [ -s "$offenders" ]; then
    cat "$offenders"
    exit 1
fi
echo "rooms in order: $rooms"
