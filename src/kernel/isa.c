/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses the instruction set from the machine's sets and the user's setting.
 */
#include "kernel/isa.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/cpu/sets.h"
#ifdef ECH_KERNEL_X86
#include "kernel/isa_x86.h"
#endif
#ifdef ECH_HAS_ONEDNN
#include <oneapi/dnnl/dnnl.h>
#endif

static const char *const names[ECH_ISAS] = {
#define X(constant, name) #name,
#include "kernel/isa.def"
#undef X
};

const char *ech_isa_name(ech_isa isa)
{
    ECH_ASSERT(isa < ECH_ISAS);
    return names[isa];
}

/* True if the machine can run it. */
static bool is_here(ech_isa isa)
{
#ifdef ECH_KERNEL_X86
    if (isa == ECH_ISA_AVX2) return ech_x86_has_avx2();
    if (isa == ECH_ISA_AVX512) return ech_x86_has_avx512();
    if (isa == ECH_ISA_AVX512BF16) return ech_x86_has_avx512bf16();
#endif
    return isa == ECH_ISA_PORTABLE;
}

/* Without fast kernels, portable uses the reference. */
static bool is_built(ech_isa isa)
{
#ifdef ECH_KERNEL_CPU
    return ech_cpu_rows[isa][ECH_F32] != NULL;
#else
    return isa == ECH_ISA_PORTABLE;
#endif
}

bool ech_isa_works(ech_isa isa)
{
    return is_here(isa) && is_built(isa);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static ech_isa decided;
static char refused[320]; /* why nothing is decided; empty: decided */

static ech_isa best(void)
{
    ech_isa isa = (ech_isa)(ECH_ISAS - 1);
    while (!ech_isa_works(isa)) isa--; /* portable works */
    return isa;
}

static void refuse(const char *wanted, const char *what)
{
    size_t used = (size_t)snprintf(
        refused, sizeof refused,
        "ECHELON_ISA=%.40s: %s; unset it to get the best, or say one of: ", wanted, what);
    for (ech_isa isa = 0; isa < ECH_ISAS; isa++)
        if (ech_isa_works(isa))
            used += (size_t)snprintf(refused + used, sizeof refused - used, "%s%s", isa ? ", " : "",
                                     names[isa]);
}

static void follow(const char *wanted)
{
    for (decided = 0; decided < ECH_ISAS; decided++)
        if (strcmp(wanted, names[decided]) == 0) break;
    if (decided == ECH_ISAS)
        refuse(wanted, "no such instruction set");
    else if (!ech_isa_works(decided))
        refuse(wanted, is_here(decided)
                           ? "this build has no kernels for it (cmake -DECH_ISAS=all has)"
                           : "this machine does not have it");
}

/* Call it before the library's first product, which fixes its instruction set. */
static void limit_library(void)
{
#if defined(ECH_KERNEL_X86) && defined(ECH_HAS_ONEDNN)
    static const dnnl_cpu_isa_t most[] = {[ECH_ISA_PORTABLE] = dnnl_cpu_isa_sse41,
                                          [ECH_ISA_AVX2] = dnnl_cpu_isa_avx2,
                                          [ECH_ISA_AVX512] = dnnl_cpu_isa_avx512_core_vnni};
    if (decided == ECH_ISA_AVX512BF16 || dnnl_set_max_cpu_isa(most[decided]) == dnnl_success)
        return;
    snprintf(refused, sizeof refused,
             "instruction set %s: oneDNN was built without dnnl_set_max_cpu_isa or is in use "
             "already, so it cannot be held down to it",
             names[decided]);
#endif
}

static void decide(void)
{
    const char *wanted = getenv("ECHELON_ISA");
    if (wanted && *wanted)
        follow(wanted);
    else
        decided = best();
    if (!*refused) limit_library();
}

ech_status ech_isa_decide(ech_isa *out)
{
    pthread_once(&once, decide);
    if (*refused) ECH_FAIL(ECH_EUSAGE, "%s", refused);
    *out = decided;
    return ECH_OK;
}
