/* SPDX-License-Identifier: Apache-2.0
 *
 * One OpenMP thread's objects of oneDNN, for the files that call it. Private to src/kernel/cpu.
 */
#ifndef ECH_KERNEL_CPU_OBJECTS_H
#define ECH_KERNEL_CPU_OBJECTS_H

#include <oneapi/dnnl/dnnl.h>

#include "kernel/kernel.h"

typedef struct ech_cpu_convolutions ech_cpu_convolutions;

typedef struct ech_cpu_objects {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    ech_cpu_convolutions *convolutions; /* cached primitives (conv2d.c); NULL: none yet */
} ech_cpu_objects;

/* The calling thread's objects, which the context owns. */
ech_cpu_objects *ech_cpu_library_open(ech_kernel_context *context);
void ech_cpu_convolutions_destroy(ech_cpu_convolutions *convolutions); /* accepts NULL */

/* oneDNN fails here only on wrong arguments or without memory for small structures. */
static inline void ech_cpu_must(dnnl_status_t status)
{
    ECH_ASSERT(status == dnnl_success);
}

#endif
