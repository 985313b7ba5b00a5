#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves the order of the rooms (docs/design.md), which CMakeLists.txt lists in ECH_ROOMS:
#   - a file of src/ROOM includes only headers of its own room and of rooms before it;
#   - mpi.h stands in src/comm/mpi*.[ch] alone, oneDNN's and BLAS's headers in src/kernel alone;
#   - pure rooms reach no header of device or comm, not even through others, except pure ones;
#   - every header compiles alone, and twice.
# Prints every offender as FILE:LINE: WHAT; exit code 1 if there is one.
#
#   tools/check_rooms.sh [ROOT]        CC and CPPFLAGS are those of the build
set -euo pipefail

cd "${1:-$(dirname "$0")/..}"
compiler=${CC:-cc}
read -ra flags <<< "-std=c11 -D_GNU_SOURCE -DECH_VERSION=\"\" -Isrc $(pkg-config --cflags mpi-c 2>/dev/null || true) ${CPPFLAGS:-}"
pure_rooms="base config tensor model layout schedule"
pure_headers="comm/reduction.h comm/reduction.def comm/collective.h comm/collective.def" # names and bytes that plans know
offenders=$(mktemp)
trap 'rm -f "$offenders"' EXIT

rooms=$(sed -n '/^set(ECH_ROOMS/,/)/p' CMakeLists.txt | tr -d '()\n' | tr -s ' ' |
    sed 's/^setECH_ROOMS //')
if [ -z "$rooms" ]; then
    echo "CMakeLists.txt:1: no list ECH_ROOMS" >&2
    exit 1
fi

check_includes() {
    find src -type f \( -name '*.[ch]' -o -name '*.def' \) -print0 | sort -z |
        xargs -0 -r grep -HnE '^[[:space:]]*#[[:space:]]*include' |
        awk -v rooms="$rooms" '
        BEGIN { n = split(rooms, list, " "); for (i = 1; i <= n; i++) place[list[i]] = i }
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
            }
            if (text ~ /[<"]([^>"]*\/)?mpi\.h[>"]/ && at[1] !~ /^src\/comm\/mpi[a-z_]*\.[ch]$/)
                print where " mpi.h belongs in src/comm/mpi*.[ch] alone"
            if (room != "kernel" && text ~ /[<"](oneapi\/|dnnl|([^>"]*\/)?(open|c)blas[^>"]*\.h)/)
                print where " the libraries of kernels belong in src/kernel alone"
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
    check_purity
    check_headers
} > "$offenders"
if [ -s "$offenders" ]; then
    cat "$offenders"
    exit 1
fi
echo "rooms in order: $rooms"
