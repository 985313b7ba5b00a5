/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables of kernels: the reference per dtype, and per instruction set the reference overridden
 * by fast versions.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "device/device.h"
#include "kernel/cpu/sets.h"
#include "kernel/kernel.h"
#include "kernel/ref/rows.h"
#ifdef ECH_HAS_BLAS
#include <cblas.h>
#endif
#ifdef ECH_HAS_ONEDNN
#include <oneapi/dnnl/dnnl.h>
#include <oneapi/dnnl/dnnl_debug.h>
#endif

/* Builds without fast kernels run scalar multiply-adds and triads, on one thread. */
static double multiply_adds(const ech_kernel_context *context, int64_t rounds)
{
    volatile float a = 0.5F, b = 0.5F, sink = 0;
    float x = 1, factor = a, term = b;
    for (int64_t r = 0; r < rounds; r++) x = x * factor + term;
    sink = x;
    (void)sink;
    return 2.0 * (double)rounds;
}

static void triad(const ech_kernel_context *context, double *a, const double *b, const double *c,
                  int64_t n)
{
    for (int64_t i = 0; i < n; i++) a[i] = b[i] + 3 * c[i];
}

/* Scratch of sums over rows: an fp64 sum per column. */
static size_t scratch_bias_backward(ech_dtype dtype, int threads, const int64_t *dims)
{
    return (size_t)dims[1] * sizeof(double);
}

/* Two fp64 sums per column: gain and bias. */
static size_t scratch_layernorm_backward(ech_dtype dtype, int threads, const int64_t *dims)
{
    return 2 * (size_t)dims[1] * sizeof(double);
}

/* One row of probabilities and one of output. */
static size_t scratch_attention_forward(ech_dtype dtype, int threads, const int64_t *dims)
{
    return (size_t)(dims[2] + dims[6]) * sizeof(double);
}

/* dout·out of every row, and two rows of sums. */
static size_t scratch_attention_backward(ech_dtype dtype, int threads, const int64_t *dims)
{
    return (size_t)(dims[0] * dims[1] * dims[3] + dims[5] + dims[6]) * sizeof(double);
}

/* Both states of a row. */
static size_t scratch_adamw8(ech_dtype dtype, int threads, const int64_t *dims)
{
    return 2 * (size_t)dims[1] * sizeof(double);
}

/* A row's arrays, a group's sums, and the choices of all rows. */
static size_t scratch_gate_forward(ech_dtype dtype, int threads, const int64_t *dims)
{
    int64_t N = dims[0], L = dims[1], K = dims[2];
    return (size_t)(ech_gate_room(L, K) + 5 * L + N * K) * sizeof(double);
}

static size_t scratch_gate_backward(ech_dtype dtype, int threads, const int64_t *dims)
{
    return (size_t)(ech_gate_room(dims[1], dims[2]) + 5 * dims[1]) * sizeof(double);
}

#define SCRATCH_1(name) [ECH_OP_##name##_backward_bias] = scratch_bias_backward,
#define SCRATCH_2(name)
#define SCRATCH(NAME, name, operands, ...) SCRATCH_##operands(name)

#define REF(type, wide_type)                                                                       \
    .name = "ref", .dtype = type, .wide = &ref[wide_type], .multiply_adds = multiply_adds,         \
    .triad = triad,                                                                                \
    .scratch = {[ECH_OP_bias_backward] = scratch_bias_backward,                                    \
                ECH_ACTIVATIONS(SCRATCH)[ECH_OP_gate_forward] = scratch_gate_forward,              \
                [ECH_OP_gate_backward] = scratch_gate_backward,                                    \
                [ECH_OP_adamw8] = scratch_adamw8,                                                  \
                                                                                                   \
                [ECH_OP_layernorm_backward] = scratch_layernorm_backward,                          \
                [ECH_OP_rmsnorm_backward] = scratch_bias_backward,                                 \
                [ECH_OP_attention_forward] = scratch_attention_forward,                            \
                [ECH_OP_attention_backward] = scratch_attention_backward}

static const ech_kernels ref[] = {
    [ECH_F32] =
        {
            REF(ECH_F32, ECH_F32),
#define X(op, ...) .op = ech_ref_##op##_f32,
#include "kernel/kernel.def"
#undef X
        },
    [ECH_F64] =
        {
            REF(ECH_F64, ECH_F64),
#define X(op, ...) .op = ech_ref_##op##_f64,
#include "kernel/kernel.def"
#undef X
        },
    [ECH_BF16] =
        {
            REF(ECH_BF16, ECH_F32),
#define X(op, ...) .op = ech_ref_##op##_bf16,
#include "kernel/kernel.def"
#undef X
        },
    [ECH_F16] =
        {
            REF(ECH_F16, ECH_F32),
#define X(op, ...) .op = ech_ref_##op##_f16,
#include "kernel/kernel.def"
#undef X
        },
};

#ifdef ECH_KERNEL_CPU
/* The fast rows, completed once with the reference's. */
static ech_kernels fast[ECH_ISAS][ECH_CPU_TYPES];
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
    for (int isa = 0; isa < ECH_ISAS; isa++)
        for (int dtype = 0; dtype < ECH_CPU_TYPES; dtype++) {
            if (!ech_cpu_rows[isa][dtype] || !ech_kernels_ref((ech_dtype)dtype)) continue;
            fast[isa][dtype] = *ech_cpu_rows[isa][dtype];
            fast[isa][dtype].wide = &fast[isa][ech_dtype_wide((ech_dtype)dtype)];
            complete(&fast[isa][dtype], ech_kernels_ref((ech_dtype)dtype));
        }
}
#endif

const ech_kernels *ech_kernels_ref(ech_dtype dtype)
{
    return ech_dtype_is_real(dtype) ? &ref[dtype] : NULL;
}

/* For an instruction set that works. */
static const ech_kernels *table_of(ech_isa isa, ech_dtype dtype)
{
#ifdef ECH_KERNEL_CPU
    pthread_once(&once, complete_all);
    if ((int)dtype < ECH_CPU_TYPES && fast[isa][dtype].name) return &fast[isa][dtype];
#endif
    return ech_kernels_ref(dtype);
}

const ech_kernels *ech_kernels_of(ech_isa isa, ech_dtype dtype)
{
    return ech_isa_works(isa) ? table_of(isa, dtype) : NULL;
}

/* Steps call this for each segment of a sum, so the result is cached: CPUID takes microseconds in a
 * virtual machine. */
const ech_kernels *ech_kernels_fast(ech_dtype dtype)
{
    ech_isa isa;
    return ech_isa_decide(&isa) == ECH_OK ? table_of(isa, dtype) : NULL;
}

const ech_kernels *ech_kernels_on(const char *device, ech_dtype dtype)
{
    static const struct {
        const char *device;
        const ech_kernels *(*of)(ech_dtype dtype);
    } tables[] = {
#define X(name, alignment, part, segment, loss_rows, loads, kernels, ...)                          \
    {#name, ech_kernels_##kernels},
#include "device/device.def"
#undef X
    };
    size_t t = 0;
    while (strcmp(tables[t].device, device) != 0) t++;
    return tables[t].of(dtype);
}

const char *ech_kernels_lack(const char *device, ech_dtype dtype)
{
    const ech_kernels *kernels = ech_kernels_on(device, dtype);
    if (!ech_device_find(device) || !kernels || kernels->add) return NULL;
    return "this build has no fp16 kernels for the device cuda; build with cmake "
           "-DECH_CUDA_F16=ON, or use bf16";
}

const char *ech_kernels_architecture(const ech_kernels *kernels)
{
    ech_isa isa = ECH_ISA_PORTABLE;
    if (kernels->architecture) return kernels->architecture;
    bool decided = ech_isa_decide(&isa) == ECH_OK;
    ECH_ASSERT(decided);
    return ech_isa_name(isa);
}

const char *ech_op_name(ech_op op)
{
    static const char *const names[] = {
#define X(name, ...) #name,
#include "kernel/kernel.def"
#undef X
    };
    ECH_ASSERT(op < ECH_OPS);
    return names[op];
}

size_t ech_kernel_scratch(const ech_kernels *kernels, ech_op op, int threads, const int64_t *dims)
{
    ECH_ASSERT(threads >= 1);
    ech_kernel_scratch_fn scratch = kernels->scratch[op];
    return scratch ? scratch(kernels->dtype, threads, dims) : 0;
}

#if defined(ECH_HAS_ONEDNN)
/* The library has names for x86 alone. */
static const char *library_isa(void)
{
#if defined(ECH_KERNEL_X86)
    return dnnl_cpu_isa2str(dnnl_get_effective_cpu_isa());
#else
    return "its own choice";
#endif
}
#endif

#ifdef ECH_HAS_BLAS
enum { ECH_BLAS_HELPS = 1 };
#else
enum { ECH_BLAS_HELPS = 0 };
#endif

/* Describes which libraries compute products in fp32 and narrower types. */
static void describe_products(ech_isa isa, char *out, size_t n)
{
#if defined(ECH_HAS_ONEDNN)
    const dnnl_version_t *version = dnnl_version();
    snprintf(out, n, "oneDNN %d.%d.%d (%s)%s", version->major, version->minor, version->patch,
             library_isa(), ECH_BLAS_HELPS && isa == ECH_ISA_AVX2 ? " and OpenBLAS" : "");
#elif defined(ECH_KERNEL_CPU)
    snprintf(out, n, "tiles of this program's own (built without oneDNN)");
#else
    snprintf(out, n, "the reference on one thread");
#endif
}

const char *ech_kernels_describe(void)
{
    static _Thread_local char text[256];
    char products[96];
    ech_isa isa = ECH_ISA_PORTABLE;
    bool decided = ech_isa_decide(&isa) == ECH_OK;
    ECH_ASSERT(decided);
    describe_products(isa, products, sizeof products);
#ifdef ECH_HAS_BLAS
    snprintf(text, sizeof text, "%s, fp32 products by %s, fp64 by OpenBLAS (%s)", ech_isa_name(isa),
             products, openblas_get_corename());
#else
    snprintf(text, sizeof text,
             "%s, fp32 products by %s, fp64 by the reference (built without OpenBLAS)",
             ech_isa_name(isa), products);
#endif
    return text;
}
