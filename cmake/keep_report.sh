#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A compiler launcher: runs COMMAND and keeps its stderr in OBJECT.report, which tests read. If
# there is an error or a warning, it shows stderr, without the remarks of gcc's vectorizer and of
# ptxas.
#     keep_report.sh COMMAND ... -o OBJECT ...
object='' last=''
for word; do
    [ "$last" != -o ] || object=$word
    last=$word
done
[ -n "$object" ] || exec "$@"
report=$object.report
"$@" 2>"$report"
status=$?
if [ $status -ne 0 ] || grep -qi warning "$report"; then
    grep -vE ': (missed|optimized): |^ *scalar_type: |^ptxas info|bytes (spill|gmem)|stack frame' \
        "$report" >&2
fi
[ $status -eq 0 ] || rm -f "$report"
exit $status
