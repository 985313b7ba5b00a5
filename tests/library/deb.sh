#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the Debian package, unpacks it into a folder, and tries what it contains: the program plans
# and trains, its manual pages format, its completion completes, libechelon links. An image is built
# from the Containerfile where podman or docker runs; elsewhere a line says that it was not.
#     deb.sh [PACKAGE]       PACKAGE: one that is built already
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source-path=SCRIPTDIR source=../app/scratch.sh
. "$root/tests/app/scratch.sh"
# shellcheck source-path=SCRIPTDIR source=../app/expect.sh
. "$root/tests/app/expect.sh"
[ $# -eq 0 ] || package=$(readlink -f "$1")
enter deb
if [ $# -eq 0 ]; then
    "$root/tools/deb.sh" "$folder/built" >out 2>err || { complain "no package is built"; exit 1; }
    package=$(echo "$folder"/built/*.deb)
fi

expect 0 "Package: echelon-train" dpkg-deb -I "$package"
also "Version: [0-9]"
also "Depends: .*libdnnl"
! grep -Eq "^ *Depends:.*(libopenmpi|libcuda)" out ||
    complain "the package depends on MPI or CUDA"
dpkg-deb -x "$package" installed || complain "the package cannot be unpacked"
usr=$folder/installed/usr
for file in bin/echelon include/echelon.h share/man/man1/echelon-plan.1 \
    share/man/man5/echelon-run.5 share/bash-completion/completions/echelon \
    share/zsh/site-functions/_echelon \
    share/doc/echelon-train/copyright share/doc/echelon-train/CHANGELOG.md \
    share/echelon/examples/quickstart.yaml; do
    [ -s "$usr/$file" ] || [ -s "$usr/$file.gz" ] || complain "the package has no $file"
done

# ---- the program ----

expect 0 "^echelon 0" "$usr/bin/echelon" --version
seq -s ' and then ' 1 3000 >input.txt
expect 0 "data/shakespeare-valid" "$usr/bin/echelon" data input.txt data/shakespeare --valid 0.1
small=(training.steps=2 optimizer.warmup_steps=1 parallel.comm=local training.validate_every=0)
run=$usr/share/echelon/examples/shakespeare.yaml
expect 0 "checked" "$usr/bin/echelon" plan "$run" "${small[@]}"
expect 0 "step +2/2" "$usr/bin/echelon" train "$run" "${small[@]}"

# ---- the library ----

cat >version.c <<'C'
#include <echelon.h>
#include <stdio.h>
int main(void) { return puts(echelon_version()) < 0; }
C
library=$(dirname "$(find "$usr/lib" -name libechelon.so)")
cc version.c "-I$usr/include" "-L$library" -lechelon "-Wl,-rpath,$library" -o version ||
    complain "a program does not link with the library"
expect 0 "^0" ./version

# ---- manual pages and completion ----

if command -v groff >/dev/null; then
    for page in "$usr"/share/man/man*/*; do
        case $page in *.gz) gzip -dc "$page" ;; *) cat "$page" ;; esac |
            groff -man -Tutf8 -ww >/dev/null 2>warnings
        [ ! -s warnings ] || complain "$page: $(head -1 warnings)"
    done
else
    echo "manual pages were not formatted: there is no groff"
fi
cat >complete.sh <<'E2'
. "$1"
COMP_WORDS=(echelon "${@:2}") COMP_CWORD=$(($# - 1))
_echelon 2>/dev/null
echo "${COMPREPLY[*]}"
E2
completion=$usr/share/bash-completion/completions/echelon
expect 0 "^plan$" bash complete.sh "$completion" pl
expect 0 "^--svg= .*--search$" bash complete.sh "$completion" plan --s
expect 0 "^parallel.zero= parallel.zero_keep=$" bash complete.sh "$completion" train parallel.zer
expect 0 "^muon$" bash complete.sh "$completion" train x.yaml optimizer.name = mu

# ---- the image ----

engine=""
for name in podman docker; do
    [ -n "$engine" ] || ! "$name" info >/dev/null 2>&1 || engine=$name
done
if [ -n "$engine" ]; then
    expect 0 "" "$engine" build -t echelon-test -f "$root/Containerfile" "$root"
    expect 0 "^echelon 0" "$engine" run --rm echelon-test --version
else
    echo "no image was built: neither podman nor docker runs here"
fi
conclude
