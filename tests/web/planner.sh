#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the planner in a browser and tries it (check_planner.py). Skips without emscripten.
#     planner.sh [WORD ...]      words for check_planner.py
set -euo pipefail
cd "$(dirname "$0")/../.."
if ! command -v emcmake > /dev/null; then
    echo "skipped: no emscripten (tools/install_dependencies.sh --web)"
    exit 77
fi
cmake --preset release > /dev/null
cmake --build --preset release --target echelon > /dev/null
tools/web.sh
python3 tests/web/check_planner.py build/release/echelon build/web/planner clusters "$@"
