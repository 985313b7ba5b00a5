/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of libraries and instruction sets, for logs.
 */
#include <cblas.h>
#include <stdio.h>

#include "kernel/kernel.h"
#ifdef ECH_KERNEL_CPU
#include <oneapi/dnnl/dnnl.h>
#include <oneapi/dnnl/dnnl_debug.h>
#endif

const char *ech_kernels_describe(void)
{
    static _Thread_local char text[160];
    ech_isa isa = ECH_ISA_PORTABLE;
    bool decided = ech_isa_decide(&isa) == ECH_OK;
    ECH_ASSERT(decided);
#ifdef ECH_KERNEL_CPU
    const dnnl_version_t *version = dnnl_version();
    snprintf(text, sizeof text, "%s, fp32 products by oneDNN %d.%d.%d (%s), fp64 by OpenBLAS (%s)",
             ech_isa_name(isa), version->major, version->minor, version->patch,
             dnnl_cpu_isa2str(dnnl_get_effective_cpu_isa()), openblas_get_corename());
#else
    snprintf(text, sizeof text, "reference kernels on one thread, fp64 products by OpenBLAS (%s)",
             openblas_get_corename());
#endif
    return text;
}
