#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# gcc has vectorized every loop marked `omp simd` in kernel/cpu, in each instruction set and type.
# The test reads the reports that the build keeps beside the objects (cmake/keep_report.sh).
#     vectorized.sh SOURCE_FOLDER OBJECT...
set -u
folder=$1/kernel/cpu
shift
reports=()
for object; do
    [[ $object == */cpu/*.o ]] || continue # the library's other objects have no such loops
    [ -f "$object.report" ] || { echo "$object has no report: delete it and build again"; exit 1; }
    reports+=("$object.report")
done
[ ${#reports[@]} -gt 0 ] || { echo "no objects of kernel/cpu"; exit 1; }

awk '
# Sources: the lines of each marked loop, from its `for` to the end of its statement.
function base(path) { sub(/.*\//, "", path); return path }
FILENAME !~ /\.report$/ {
    if (marked && !started) { started = FNR; name = base(FILENAME) ":" FNR; loops[name] = 1 }
    if (started) {
        for (i = 1; i <= length($0); i++) {
            c = substr($0, i, 1)
            if (c ~ /[({]/) depth++
            if (c ~ /[)}]/) depth--
            if (c == ")" && !depth) headed = 1
            else if (headed && !depth && (c == ";" || c == "}")) {
                marked = started = headed = 0
                break
            }
        }
        of[base(FILENAME) ":" FNR] = name
    } else if (/^ *#pragma omp .*simd/) marked = 1
    next
}
# Reports: FILE:LINE:COLUMN: optimized: loop vectorized ..., or missed: couldn'\''t vectorize loop,
# and the reason in the next line.
FNR == 1 {
    object = FILENAME; set = "once"
    if (match(object, /ech_kernel_cpu_[a-z0-9]+_[a-z0-9]+\.dir/)) {
        kind = substr(object, RSTART + 15, RLENGTH - 19)
        set = kind; sub(/_.*/, "", set)
        if (set != "avx512bf16") sets[set] = 1 # has a type alone
    } else kind = set
    object = base(object); sub(/\.o\.report$/, "", object)
    compiled[object] = 1
    failed = ""
}
failed != "" { bad[failed] = bad[failed] "\n    " $0; failed = "" }
/: (optimized|missed): / {
    split($1, at, ":")
    name = of[base(at[1]) ":" at[2]]
    if (name == "") next
    if (/loop vectorized/) { seen[name, set] = 1; count++ }
    if (/couldn.t vectorize loop/) {
        failed = name " is not vectorized in " kind ", " object
        bad[failed] = ""
    }
}
END {
    for (name in loops) {
        file = name; sub(/:.*/, "", file)
        if (file ~ /\.c$/ && !(file in compiled)) continue # not a file of this build
        marked_loops++
        for (set in sets)
            if (!((name, set) in seen) && !((name, "once") in seen))
                bad[name ": no report of " set " says that the loop is vectorized"] = ""
    }
    for (text in bad) { print text bad[text]; wrong++ }
    if (!marked_loops || !count) { print "no loops, or no reports of any"; wrong++ }
    if (!wrong) printf "%d loops, vectorized %d times\n", marked_loops, count
    exit wrong > 0
}' "$folder"/*.[ch] "${reports[@]}"
