/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA kernels' tables, emulated on the processor, in place of the processor's own: tests are compiled a second time
 * with these names for ech_kernels_of and ech_kernels_fast.
 */
#include <pthread.h>

#include "kernel/cuda/rows.h"

const ech_kernels *ech_kernels_emulated_of(ech_isa isa, ech_dtype dtype);
const ech_kernels *ech_kernels_emulated_fast(ech_dtype dtype);

static ech_kernels tables[ECH_DTYPES];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void complete(ech_kernels *out, const ech_kernels *from)
{
#define X(op, ...)                                                                                 \
    if (!out->op) {                                                                                \
        out->op = from->op;                                                                        \
        out->scratch[ECH_OP_##op] = from->scratch[ECH_OP_##op];                                    \
    }
#include "kernel/kernel.def"
#undef X
}

static void complete_all(void)
{
    for (ech_dtype dtype = 0; dtype < ECH_DTYPES; dtype++) {
        if (!ech_kernels_emulated(dtype)) continue;
        tables[dtype] = *ech_kernels_emulated(dtype);
        tables[dtype].wide = &tables[ech_dtype_wide(dtype)];
        complete(&tables[dtype], ech_kernels_ref(dtype));
    }
}

const ech_kernels *ech_kernels_emulated_fast(ech_dtype dtype)
{
    pthread_once(&once, complete_all);
    return tables[dtype].name ? &tables[dtype] : NULL;
}

const ech_kernels *ech_kernels_emulated_of(ech_isa isa, ech_dtype dtype)
{
    (void)isa;
    return ech_kernels_emulated_fast(dtype);
}
