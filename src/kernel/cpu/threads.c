/* SPDX-License-Identifier: Apache-2.0
 *
 * The OpenMP threads of a context: binding to cores, and first touch of memory.
 */
#include <omp.h>
#include <stdint.h>

#include "device/cores.h"
#include "kernel/kernel.h"

enum { PAGE = 4096 };

/* The calling thread is bound to all of the cores: the library sometimes asks OpenMP for fewer threads, whereupon
 * GNU's ends the others and later starts new ones, which inherit the calling thread's binding. */
void ech_kernel_context_bind(const ech_kernel_context *context, const int *core)
{
    ech_cores_bind(core, context->threads);
#pragma omp parallel num_threads(context->threads)
    if (omp_get_thread_num() > 0) ech_cores_bind(&core[omp_get_thread_num()], 1);
}

void ech_kernel_context_touch(const ech_kernel_context *context, void *memory, size_t bytes)
{
    uintptr_t first = ((uintptr_t)memory + PAGE - 1) / PAGE,
              end = ((uintptr_t)memory + bytes) / PAGE;
    if (end <= first) return;
#pragma omp parallel for schedule(static) num_threads(context->threads)
    for (uintptr_t page = first; page < end; page++)
        *(volatile char *)(page * PAGE) = 0; // NOLINT(performance-no-int-to-ptr)
}
