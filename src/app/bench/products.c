/* SPDX-License-Identifier: Apache-2.0
 *
 * The bench's table of matrix products: the three of a linear layer, for the layers of ordinary models.
 */
#include <stdio.h>

#include "app/bench/bench.h"
#include "device/device.h"

typedef struct product_row {
    const char *name;
    int64_t R, in, out; /* tokens; y (R,out) = x (R,in) weight (out,in) transposed */
} product_row;

static const product_row rows[] = {
    {"qkv_384", 2048, 384, 1152},  {"up_384", 2048, 384, 1536},   {"down_384", 2048, 1536, 384},
    {"qkv_512", 2048, 512, 1536},  {"up_512", 2048, 512, 1536},   {"qkv_768", 1024, 768, 2304},
    {"proj_768", 1024, 768, 768},  {"up_768", 1024, 768, 3072},   {"down_768", 1024, 3072, 768},
    {"head_384", 256, 384, 50257}, {"head_768", 256, 768, 50257},
};

typedef struct phase_row {
    const char *name;
    bool a_transposed, b_transposed;
} phase_row;
enum { FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT };
static const phase_row phases[ECH_BENCH_PHASES] = {
    {"F", false, true}, {"B", false, false}, {"W", true, false}};

typedef struct product {
    const ech_kernels *kernels;
    ech_kernel_context *context;
    const phase_row *phase;
    ech_tensor a, b, c;
} product;

static void call_kernel(void *context)
{
    product *p = context;
    p->kernels->matmul(p->context, &p->a, p->phase->a_transposed, &p->b, p->phase->b_transposed,
                       NULL, NULL, &p->c);
}

static void call_library(void *context)
{
    product *p = context;
    p->kernels->library_product(&p->a, p->phase->a_transposed, &p->b, p->phase->b_transposed,
                                &p->c);
}

/* Of x, weight and y: F: y = x weight', B: dx = dy weight, W: dweight = dy' x. */
static void set_operands(product *p, int phase, const ech_tensor t[3])
{
    const ech_tensor *x = &t[0], *weight = &t[1], *y = &t[2];
    p->phase = &phases[phase];
    p->a = phase == FORWARD ? *x : *y;
    p->b = phase == BACKWARD_WEIGHT ? *x : *weight;
    p->c = phase == FORWARD ? *y : phase == BACKWARD_INPUT ? *x : *weight;
}

static size_t scratch_of(const product *p)
{
    int64_t K = p->a.shape[p->phase->a_transposed ? 0 : 1];
    int64_t dims[] = {p->c.shape[0],          p->c.shape[1], K,    p->phase->a_transposed,
                      p->phase->b_transposed, false,         false};
    return ech_kernel_scratch(p->kernels, ECH_OP_matmul, p->context->threads, dims);
}

static void fill(const ech_tensor *x)
{
    float *at = x->data;
    for (int64_t i = 0, n = ech_tensor_count(x); i < n; i++) at[i] = (float)(i % 17) / 16 - 0.5F;
}

static void time_phase(ech_bench *bench, product *p, const product_row *row)
{
    ech_bench_result result = {.group = ECH_BENCH_products, .name = row->name};
    int64_t M = p->c.shape[0], N = p->c.shape[1], K = p->a.shape[p->phase->a_transposed ? 0 : 1];
    snprintf(result.shape, sizeof result.shape, "%s M=%lld N=%lld K=%lld", p->phase->name,
             (long long)M, (long long)N, (long long)K);
    result.flops = 2.0 * (double)M * (double)N * (double)K;
    result.bytes =
        (double)(ech_tensor_bytes(&p->a) + ech_tensor_bytes(&p->b) + ech_tensor_bytes(&p->c));
    result.seconds = ech_bench_time(bench->each / 2, call_kernel, p);
    if (p->kernels->library_product)
        result.library = ech_bench_time(bench->each / 2, call_library, p);
    ECH_PUSH(bench->result, result);
}

static int64_t cut(int64_t size, int64_t most)
{
    return most > 0 && size > most ? most : size;
}

/* The most scratch that a phase needs. */
static size_t most_scratch(product *p, const ech_tensor t[3])
{
    size_t most = 0;
    for (int phase = 0; phase < ECH_BENCH_PHASES; phase++) {
        set_operands(p, phase, t);
        size_t needed = scratch_of(p);
        if (needed > most) most = needed;
    }
    return most;
}

static ech_status time_layer(ech_bench *bench, product *p, const product_row *row)
{
    const ech_device *device = ech_device_find("cpu");
    int64_t most = bench->options->most, R = cut(row->R, most), in = cut(row->in, most),
            out = cut(row->out, most);
    ech_tensor t[] = {ech_tensor_2d(NULL, ECH_F32, R, in), ech_tensor_2d(NULL, ECH_F32, out, in),
                      ech_tensor_2d(NULL, ECH_F32, R, out)};
    size_t scratch = most_scratch(p, t), bytes = ech_bench_aligned(scratch);
    for (int i = 0; i < 3; i++) bytes += ech_bench_aligned(ech_tensor_bytes(&t[i]));
    char *memory;
    ECH_TRY(device->alloc(bytes, (void **)&memory));
    p->context->scratch = memory;
    p->context->scratch_bytes = scratch;
    char *at = memory + ech_bench_aligned(scratch);
    for (int i = 0; i < 3; at += ech_bench_aligned(ech_tensor_bytes(&t[i])), i++) {
        t[i].data = at;
        fill(&t[i]);
    }
    for (int phase = 0; phase < ECH_BENCH_PHASES; phase++) {
        set_operands(p, phase, t);
        time_phase(bench, p, row);
    }
    device->release(memory, bytes);
    return ECH_OK;
}

ech_status ech_bench_measure_products(ech_bench *bench)
{
    product p = {.kernels = ech_kernels_fast(ECH_F32)};
    ech_status status = ech_kernel_context_create(bench->options->threads, &p.context);
    for (size_t r = 0; r < sizeof rows / sizeof *rows && status == ECH_OK; r++)
        if (ech_bench_wants(bench->options, ECH_BENCH_products, rows[r].name))
            status = time_layer(bench, &p, &rows[r]);
    ech_kernel_context_destroy(p.context);
    return status;
}

void ech_bench_product_names(void (*row)(const char *name, void *context), void *context)
{
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) row(rows[r].name, context);
}
