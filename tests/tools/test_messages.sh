#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The messages about run files with faults pass tools/check_words.py.
#     test_messages.sh TEST_CONFIG_BAD_RUN_FILES
set -euo pipefail
program=${1:?usage: test_messages.sh TEST_CONFIG_BAD_RUN_FILES}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
ECHELON_MESSAGES=$folder/run_files.messages "$program"
[ -s "$folder/run_files.messages" ] || { echo "$program said nothing"; exit 1; }
"$(dirname "$0")/../../tools/check_words.py" "$folder/run_files.messages"
