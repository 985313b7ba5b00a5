#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tools/check_rooms.sh passes a clean tree and names every kind of offender with file and line.
set -euo pipefail

script=$(realpath "$(dirname "$0")/../../tools/check_rooms.sh")
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

# put FILE LINE...: a file below src/ of these lines
put() {
    mkdir -p "$(dirname "$tree/src/$1")"
    printf '%s\n' "${@:2}" > "$tree/src/$1"
}

clean_tree() {
    rm -rf "$tree/src" "$tree/tests"
    printf '%s\n' 'set(ECH_ROOMS base device' '    comm kernel model app program)' \
        'set(ECH_PUBLIC_HEADERS' \
        '    base/base.h device/device.h comm/comm.h comm/collective.h' '    kernel/kernel.h)' \
            > "$tree/CMakeLists.txt"
    put base/base.h '#ifndef A' '#define A' '#include <stddef.h>' '#endif'
    put base/base.c '#include "base/base.h"'
    put device/device.h '#ifndef D' '#define D' '#include "base/base.h"' '#endif'
    put comm/comm.h ''
    put comm/collective.h ''
    put kernel/kernel.h '#ifndef K' '#define K' '#include "base/base.h"' '#endif'
    put kernel/kernel.c '#include <cblas.h>' '#include <oneapi/dnnl/dnnl.h>'
    put model/model.c '#include "kernel/kernel.h"' '#include "comm/collective.h"'
    put app/main.c '#include "device/device.h"'
    put app/all.c '#include "base/base.h"' '#include "device/device.h"' '#include "comm/comm.h"' \
        '#include "comm/collective.h"' '#include "kernel/kernel.h"'
    put device/inner.h ''
    put ../tests/device/test_inner.c '#include "device/inner.h"' '#include "base/base.h"'
}

# offends WHAT: the script fails and prints that, and nothing else
offends() {
    local printed
    if printed=$("$script" "$tree"); then
        echo "not found: $1"
        exit 1
    fi
    if [ "$printed" != "$1" ]; then
        printf 'expected: %s\nprinted:  %s\n' "$1" "$printed"
        exit 1
    fi
    clean_tree
}

clean_tree
"$script" "$tree" > /dev/null

put base/base.c '' '  #  include "device/device.h"'
offends 'src/base/base.c:2: base comes before device: "device/device.h"
src/base/base.c:1: the room base is pure but reaches device/device.h'
put comm/link.c '' 'bool f(int protocol) { return protocol == 1; }' \
    'int g(void) { return ECH_PROTOCOL_APART; }'
offends 'src/comm/link.c:2: tests for a protocol; call its row (schedule/protocol/)
src/comm/link.c:3: tests for a protocol; call its row (schedule/protocol/)'
put device/cpu.c '#include "device.h"'
offends 'src/device/cpu.c:1: "device.h" does not begin with a room'
put comm/link.h '#ifndef L' '#define L' 'typedef struct ech_part {' '    int n;' '} ech_part;' \
    '#endif'
put kernel/part.h '#ifndef P' '#define P' 'typedef struct ech_part {' '    int m;' '} ech_part;' \
    '#endif'
offends 'src/kernel/part.h:3: ech_part is defined in src/comm/link.h:3 as well'
put comm/link.h '#ifndef L' '#define L' 'typedef struct ech_part {' '    int n;' '} ech_part;' \
    '#endif'
put kernel/part.c 'struct ech_part {' '    int m;' '};'
offends 'src/kernel/part.c:1: ech_part is defined in src/comm/link.h:3 as well'
put comm/link.c 'struct ech_part {' '    int n;' '};'
put comm/other.c 'struct ech_part {' '    int m;' '};'
"$script" "$tree" > /dev/null
clean_tree
put app/main.c 'ech_status st = ech_file_write(path, text.at, text.n); /* ech_file_write( */'
offends 'src/app/main.c:1: ech_file_write follows links; use ech_file_write_inside (base/writing.h)'
put app/main.c 'FILE *file = fopen(path, "we");' 'FILE *read = fopen(path, "re");'
offends 'src/app/main.c:1: opens a file for writing; use base/writing.h'
put app/main.c 'int a = open(path, O_WRONLY | O_NOFOLLOW);' 'int b = open(path, O_RDWR);' \
    'ech_file_open_to_write(path, O_RDWR, &c);'
offends 'src/app/main.c:2: opens a file for writing through links; use '\
'ech_file_open_to_write (base/writing.h)'
put program/cmd_train.c '#include <echelon.h>' '#include "base/base.h"' '#include "program/line.h"'
put program/line.h '#ifndef L' '#define L' '#include "comm/comm.h"' '#endif'
offends 'src/program/cmd_train.c:1: reaches comm/comm.h; it uses include/echelon.h in place of '\
'other rooms'
put app/main.c '#include <mpi.h>'
offends 'src/app/main.c:1: mpi.h is not needed: comm/mpi_library.h declares its functions'
put comm/local.c '' '#include <mpi.h>'
offends 'src/comm/local.c:2: mpi.h is not needed: comm/mpi_library.h declares its functions'
put app/main.c '' '#include <cblas.h>' '#include "base/base.h"' '#include "oneapi/dnnl/dnnl.h"'
offends 'src/app/main.c:2: the libraries of kernels belong in src/kernel alone
src/app/main.c:4: "oneapi/dnnl/dnnl.h" does not begin with a room
src/app/main.c:4: the libraries of kernels belong in src/kernel alone'
put device/cuda.c '#include <cuda_runtime_api.h>'
put kernel/cuda/blas.cu '#include <cublasLt.h>' '#include <cuda_bf16.h>'
put comm/nccl.c '#include <nccl.h>'
put kernel/table.c '' '#include <cuda_runtime.h>'
offends 'src/kernel/table.c:2: CUDA belongs in src/device/cuda*, src/kernel/cuda/ and '\
'src/comm/nccl* alone'
put kernel/kernel.h '#ifndef K' '#define K' '#include "device/device.h"' '#endif'
offends 'src/model/model.c:1: the room model is pure but reaches device/device.h'
put model/model.c '#include "comm/comm.h"'
offends 'src/model/model.c:1: the room model is pure but reaches comm/comm.h'
put app/app.h ''
put model/stack/wide.h '#include "app/app.h"'
put model/stack/wide.c '#include "device/device.h"'
offends 'src/model/stack/wide.h:1: model comes before app: "app/app.h"
src/model/stack/wide.c:1: the room model is pure but reaches device/device.h'
put app/main.c '' '#include "device/inner.h"'
offends 'src/app/main.c:2: "device/inner.h" is private to device: not in ECH_PUBLIC_HEADERS'
put ../tests/app/test_main.c '#include "app/fixture.h"' '#include "device/inner.h"'
put ../tests/all.h '#include "device/inner.h"'
offends 'tests/all.h:1: "device/inner.h" is private to device: not in ECH_PUBLIC_HEADERS
tests/app/test_main.c:2: "device/inner.h" is private to device: not in ECH_PUBLIC_HEADERS'
sed -i 's,kernel/kernel.h),kernel/kernel.h device/inner.h),' "$tree/CMakeLists.txt"
offends 'CMakeLists.txt:1: device/inner.h is in ECH_PUBLIC_HEADERS, but no other room includes it'
put base/base.h '#ifndef A' '#define A' '/* int ech_type_in_comment(void); */' \
    'int ech_count_all(int n);' '#endif'
put device/device.h '#ifndef D' '#define D' 'typedef struct ech_count {' '    int n;' \
    '} ech_count;' \
    'int ech_device_count(const ech_count *c);' '#endif'
put device/inner.h 'int ech_kernel_run(int n);'
offends 'src/device/device.h:1: ech_count: the noun count belongs to base (ech_count_all)'
put attic/old.c '#include "base/base.h"'
offends 'src/attic/old.c:1: the room attic is not in ECH_ROOMS'
put base/size.h 'size_t twice(size_t);'
offends "src/base/size.h:1: does not compile alone: $(printf '#include "base/size.h"\n' |
    "${CC:-cc}" -std=c11 -I"$tree/src" -x c -fsyntax-only - 2>&1 | grep -m 1 error |
    sed "s,$tree/,,")"
echo "all offenders were named"
