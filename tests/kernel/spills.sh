#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# No CUDA kernel spills registers, on any architecture of the build. The test reads the reports of
# ptxas that the build keeps beside the objects (cmake/keep_report.sh).
#     spills.sh OBJECT...
set -u
[ $# -gt 0 ] || { echo "no objects"; exit 1; }
kernels=0
for object; do
    report=$object.report
    [ -f "$report" ] || { echo "$object has no report: delete it and build again"; exit 1; }
    told=$(grep -c 'bytes spill stores' "$report")
    [ "$told" -gt 0 ] || { echo "$report says nothing of registers"; exit 1; }
    spills=$(grep -B2 -E '\b[1-9][0-9]* bytes spill (stores|loads)' "$report")
    [ -z "$spills" ] || { echo "$object spills registers:"; echo "$spills"; exit 1; }
    kernels=$((kernels + told))
done
echo "no spills in $kernels functions"
