#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the planner in a browser (docs/planner.md): a static folder, which any file server serves.
# Needs emscripten, which `tools/install_dependencies.sh --web` installs, and once the network: the
# sources of libyaml and jansson come from the machine's Debian mirror, checked by apt.
#
#   tools/web.sh [FOLDER]      FOLDER: build/web/planner by default
#   python3 -m http.server --directory build/web/planner
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/web
folder=${1:-$build/planner}
sources=$build/sources

command -v emcmake > /dev/null || {
    echo "tools/web.sh: no emscripten; run tools/install_dependencies.sh --web" >&2
    exit 1
}
# Where Debian has the modules of emscripten's scripts; another Node.js does not look there.
export NODE_PATH=/usr/share/nodejs${NODE_PATH:+:$NODE_PATH}

# fetch PACKAGE: its sources, as $sources/PACKAGE. apt's lists are kept below build/.
fetch() {
    [ ! -d "$sources/$1" ] || return 0
    local apt=$PWD/$build/apt
    mkdir -p "$apt/lists/partial" "$apt/parts" "$sources"
    for list in /etc/apt/sources.list.d/*.sources; do
        [ -e "$list" ] && sed 's/^Types: deb$/Types: deb-src/' "$list" > "$apt/parts/${list##*/}"
    done
    sed -n 's/^deb /deb-src /p' /etc/apt/sources.list > "$apt/parts/main.list" 2> /dev/null || true
    local options=(-q -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$apt/parts"
        -o "Dir::State::lists=$apt/lists" -o "Dir::Cache=$apt")
    apt-get "${options[@]}" update > "$apt/log" 2>&1
    rm -rf "$sources/$1.part" && mkdir "$sources/$1.part"
    (cd "$sources/$1.part" &&
        apt-get "${options[@]}" source --download-only "$1" >> "$apt/log" 2>&1 &&
        tar -xf "$1"_*.orig.tar.gz --strip-components=1) ||
        { cat "$apt/log" >&2; echo "tools/web.sh: no sources of $1" >&2; exit 1; }
    mv "$sources/$1.part" "$sources/$1"
}

fetch libyaml
fetch jansson
emcmake cmake -S . -B "$build/wasm" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DECH_YAML_SOURCE="$PWD/$sources/libyaml" -DECH_JANSSON_SOURCE="$PWD/$sources/jansson" \
    > "$build/configure.log" || { cat "$build/configure.log" >&2; exit 1; }
cmake --build "$build/wasm" --target planner -j "${ECH_JOBS:-$(nproc)}"

mkdir -p "$folder"
cp "$build/wasm/planner.js" "$build/wasm/planner.wasm" web/index.html web/planner.css \
    web/planner_page.js web/worker.js src/app/plan/page.css "$folder"
cat src/app/plan/page.js src/app/plan/page_steps.js src/app/plan/page_search.js > "$folder/page.js"
python3 web/make_data.py web/models.json clusters/*.yaml > "$folder/data.js"
echo "written to $folder"
