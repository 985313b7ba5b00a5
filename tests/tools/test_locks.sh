#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Every file of src that has a lock is a row of docs/testing.md, "The thread sanitizer", and the
# programs of these rows are those that test.sh runs with the thread sanitizer.
set -euo pipefail
cd "$(dirname "$0")/../.."
rows=$(sed -n '/^## The thread sanitizer/,/^## Builds/p' docs/testing.md | grep '^|')
failures=0
while read -r file; do
    grep -qF "$file" <<< "$rows" ||
        { echo "$file has a lock and no row in docs/testing.md"; failures=1; }
done < <(grep -rlE 'pthread_(mutex|rwlock|spinlock)_t [a-z*]' src | LC_ALL=C sort)
programs=$(sed -n '/^threaded=(/,/)$/p' test.sh | tr -d '()' | sed 's/^threaded=//' | xargs -n 1 |
    LC_ALL=C sort)
named=$(awk -F'|' '{ gsub(/ /, "", $3); if ($3 ~ /^[a-z]+\/[a-z_]+$/) print $3 }' <<< "$rows" |
    LC_ALL=C sort)
[ -n "$programs" ] && [ "$programs" = "$named" ] || {
    echo "docs/testing.md and test.sh name other programs:"
    diff <(echo "$named") <(echo "$programs")
    failures=1
}
[ "$(wc -l <<< "$rows")" -ge 6 ] || { echo "docs/testing.md has no table of locks"; failures=1; }
exit "$failures"
