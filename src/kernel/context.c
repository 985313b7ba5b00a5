/* SPDX-License-Identifier: Apache-2.0
 *
 * Creating the context of kernel calls, and setting the libraries' threads.
 */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "device/cores.h"
#include "kernel/kernel.h"
#ifdef ECH_KERNEL_CPU
#include "kernel/cpu/library.h"
#endif

ech_status ech_kernel_context_create(int threads, ech_kernel_context **out)
{
    if (threads < 1 || threads > ECH_MAX_THREADS)
        ECH_FAIL(ECH_EUSAGE, "%d threads for kernels: parallel.threads must be 1 to %d", threads,
                 ECH_MAX_THREADS);
    ech_isa isa; /* the library must know before it multiplies */
    ECH_TRY(ech_isa_decide(&isa));
#ifndef ECH_KERNEL_CPU
    /* The definition runs on one thread, and so must the library that multiplies for it. */
    threads = 1;
#endif
    ech_kernel_context *context = ech_calloc(1, sizeof *context);
    context->threads = threads;
    omp_set_dynamic(0);
    omp_set_num_threads(threads);
    *out = context;
    return ECH_OK;
}

#ifndef ECH_KERNEL_CPU
void ech_kernel_context_bind(const ech_kernel_context *context, const int *core)
{
    ech_cores_bind(core, context->threads);
}

void ech_kernel_context_touch(const ech_kernel_context *context, void *memory, size_t bytes)
{
    memset(memory, 0, bytes);
}
#endif

void ech_kernel_context_destroy(ech_kernel_context *context)
{
    if (!context) return;
#ifdef ECH_KERNEL_CPU
    ech_cpu_library_destroy(context->library);
#endif
    free(context);
}
