/* SPDX-License-Identifier: Apache-2.0
 *
 * The context of kernel calls: the libraries' threads, their binding to cores, and first touch of
 * memory. Builds without cpu/ compile this without OpenMP and have one thread.
 */
#include <omp.h>
#include <stdlib.h>

#include "base/memory.h"
#include "device/cores.h"
#include "device/device.h"
#include "kernel/kernel.h"
#ifdef ECH_HAS_ONEDNN
#include "kernel/cpu/library.h"
#endif

enum { PAGE = 4096 };

ech_status ech_kernel_context_create(int threads, ech_kernel_context **out)
{
    if (threads < 1 || threads > ECH_MAX_THREADS)
        ECH_FAIL(ECH_EUSAGE, "%d threads for kernels: parallel.threads must be 1 to %d", threads,
                 ECH_MAX_THREADS);
    if (omp_get_thread_limit() < threads) /* kernels divide their work by the number they ask for */
        ECH_FAIL(ECH_EUSAGE,
                 "parallel.threads = %d, but the environment's OMP_THREAD_LIMIT allows %d; unset "
                 "it, or use fewer threads",
                 threads, omp_get_thread_limit());
    ech_isa isa; /* the library must know it before its first product */
    ECH_TRY(ech_isa_decide(&isa));
#ifndef ECH_KERNEL_CPU
    /* The definition runs on one thread, so the library must compute its products on one thread,
     * too. */
    threads = 1;
#endif
    ech_kernel_context *context = ech_calloc(1, sizeof *context);
    context->threads = threads;
    ech_kernel_context_enter(context);
    *out = context;
    return ECH_OK;
}

void ech_kernel_context_enter(const ech_kernel_context *context)
{
    omp_set_dynamic(0);
    omp_set_num_threads(context->threads);
}

void ech_kernel_context_defer(ech_kernel_context *context, const ech_device *device,
                              ech_queue *queue)
{
    context->device = device;
    context->queue = queue;
    context->inner = ech_calloc(1, sizeof *context->inner);
    context->inner->threads = context->threads;
    context->inner->guarded = device->guards;
}

/* The calling thread is bound to all of the cores: the library sometimes requests fewer threads
 * from OpenMP, and GNU's OpenMP then ends the others and later starts new ones, which inherit the
 * calling thread's binding. */
void ech_kernel_context_bind(const ech_kernel_context *context, const int *core)
{
    ech_cores_bind(core, context->threads);
#pragma omp parallel num_threads(context->threads)
    if (omp_get_thread_num() > 0) ech_cores_bind(&core[omp_get_thread_num()], 1);
}

void ech_kernel_context_touch(const ech_kernel_context *context, void *memory, size_t bytes)
{
    if (context->device && !ech_device_is_processor(context->device)) return;
    if (context->device) memory = ech_device_reach(context->device, memory);
    uintptr_t first = ((uintptr_t)memory + PAGE - 1) / PAGE,
              end = ((uintptr_t)memory + bytes) / PAGE;
#pragma omp parallel for schedule(static) num_threads(context->threads)
    for (uintptr_t page = first; page < end; page++)
        *(volatile char *)(page * PAGE) = 0; // NOLINT(performance-no-int-to-ptr)
}

void ech_kernel_context_destroy(ech_kernel_context *context)
{
    if (!context) return;
#ifdef ECH_HAS_ONEDNN
    ech_cpu_library_destroy(context->library);
#endif
    ech_kernel_context_destroy(context->inner);
    free(context);
}
