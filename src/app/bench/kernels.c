/* SPDX-License-Identifier: Apache-2.0
 *
 * The bench's table of kernels: operands, calls and times.
 */
#include "app/bench/kernels.h"

#include <stdio.h>
#include <string.h>

#include "device/device.h"

enum { PATTERN = 4096, DIMS = 16, MOST_WIDTH = 512 };

void ech_bench_kernel_describe(const ech_bench_kernel *row, int64_t most, ech_bench_result *out)
{
    ech_bench_sizes sizes = ech_bench_parse_sizes(row->sizes, most);
    *out = (ech_bench_result){.group = ECH_BENCH_kernels,
                              .name = ech_op_name(row->op),
                              .flops = ech_bench_count(row->flops, &sizes),
                              .bytes = row->bytes
                                           ? ech_bench_count(row->bytes, &sizes)
                                           : ech_bench_parse_operands(row->tensors, &sizes).bytes};
    snprintf(out->shape, sizeof out->shape, "%s", row->sizes);
}

/* The dimensions that kernel.def's third column names: a letter is a size, and so is what begins with
 * one ("Tq"); of the others, which are switches, none is on. */
static void scratch_dims(ech_op op, const ech_bench_sizes *sizes, int64_t dims[DIMS])
{
    static const char *const columns[] = {
#define X(name, arguments, scratch_dims) #scratch_dims,
#include "kernel/kernel.def"
#undef X
    };
    int n = 0;
    for (const char *at = columns[op] + 1; *at && *at != ')'; n++) {
        ECH_ASSERT(n < DIMS);
        /* bias_backward calls its columns N. */
        char letter = op == ECH_OP_bias_backward && *at == 'N' ? 'C' : *at;
        dims[n] = letter >= 'A' && letter <= 'Z' ? ech_bench_size(sizes, letter) : 0;
        at += strcspn(at, ",)");
        at += strspn(at, ", ");
    }
}

/* Numbers from 0.25 to 1.25, over and over: no sign, root or exponential of them is out of the ordinary. */
static void fill_reals(float *x, int64_t n)
{
    ech_random_key key = {.seed = 5};
    for (int64_t i = 0; i < n && i < PATTERN; i++)
        x[i] = (float)(0.25 + ech_random_unit(ech_random_word(key, (uint64_t)i)));
    for (int64_t done = PATTERN; done < n; done += PATTERN)
        memcpy(x + done, x, sizeof *x * (size_t)(n - done < PATTERN ? n - done : PATTERN));
}

static void fill(const ech_tensor *x, int64_t ids)
{
    int64_t n = ech_tensor_count(x);
    ech_random_key key = {.seed = 6};
    if (x->dtype == ECH_F32) fill_reals(x->data, n);
    for (int64_t i = 0; i < n && x->dtype == ECH_F64; i++) ((double *)x->data)[i] = 1;
    for (int64_t i = 0; i < n && x->dtype == ECH_I32; i++)
        ((int32_t *)x->data)[i] =
            (int32_t)(ech_random_word(key, (uint64_t)i) % (uint32_t)(ids > 0 ? ids : 1));
}

/* Puts operands and scratch one behind the other. */
static ech_status lay_out(ech_bench_call *c, const ech_bench_operands *operands, char **memory,
                          size_t *bytes)
{
    size_t at = ech_bench_aligned(c->context->scratch_bytes);
    for (int i = 0; i < operands->n; i++)
        at += ech_bench_aligned(ech_tensor_bytes(&operands->tensor[i]));
    ECH_TRY(ech_device_find("cpu")->alloc(at, (void **)memory));
    *bytes = at;
    c->context->scratch = *memory;
    at = ech_bench_aligned(c->context->scratch_bytes);
    for (int i = 0; i < operands->n; i++) {
        c->t[i] = operands->tensor[i];
        c->t[i].data = *memory + at;
        if (operands->reads[i]) fill(&c->t[i], c->sizes->of['V' - 'A']);
        at += ech_bench_aligned(ech_tensor_bytes(&c->t[i]));
    }
    return ECH_OK;
}

static void place_rows(ech_bench_call *c, double *frequency)
{
    const int64_t *of = c->sizes->of;
    int64_t T = of['T' - 'A'], D = of['D' - 'A'];
    c->rows = (ech_rows){.whole = T, .tokens = T, .split = T};
    c->place = (ech_attention_shard){.query = c->rows, .key = c->rows, .heads = of['H' - 'A']};
    ech_rope rope = {.theta = 10000};
    ECH_ASSERT(D <= MOST_WIDTH);
    if (D > 0) ech_rope_frequencies(&rope, D, frequency);
    c->frequency = frequency;
}

typedef struct timed_call {
    ech_bench_call *c;
    const ech_bench_kernel *row;
} timed_call;

static void call_row(void *context)
{
    timed_call *timed = context;
    timed->row->call(timed->c);
}

static ech_status time_row(ech_bench *bench, ech_kernel_context *context,
                           const ech_bench_kernel *row)
{
    ech_bench_sizes sizes = ech_bench_parse_sizes(row->sizes, bench->options->most);
    ech_bench_operands operands = ech_bench_parse_operands(row->tensors, &sizes);
    ech_bench_call c = {.kernels = ech_kernels_fast(ECH_F32), .context = context, .sizes = &sizes};
    ech_bench_result result;
    int64_t dims[DIMS] = {0};
    double frequency[MOST_WIDTH / 2];
    char *memory = NULL;
    size_t bytes = 0;
    scratch_dims(row->op, &sizes, dims);
    context->scratch_bytes = ech_kernel_scratch(c.kernels, row->op, context->threads, dims);
    ECH_TRY(lay_out(&c, &operands, &memory, &bytes));
    place_rows(&c, frequency);
    ech_bench_kernel_describe(row, bench->options->most, &result);
    timed_call timed = {&c, row};
    result.seconds = ech_bench_time(bench->each, call_row, &timed);
    ECH_PUSH(bench->result, result);
    ech_device_find("cpu")->release(memory, bytes);
    return ECH_OK;
}

ech_status ech_bench_measure_kernels(ech_bench *bench)
{
    ech_kernel_context *context;
    ECH_TRY(ech_kernel_context_create(bench->options->threads, &context));
    ech_status status = ECH_OK;
    for (int r = 0; r < ech_bench_kernel_count && status == ECH_OK; r++)
        if (ech_bench_wants(bench->options, ECH_BENCH_kernels,
                            ech_op_name(ech_bench_kernel_rows[r].op)))
            status = time_row(bench, context, &ech_bench_kernel_rows[r]);
    ech_kernel_context_destroy(context);
    return status;
}

void ech_bench_kernel_names(void (*row)(const char *name, void *context), void *context)
{
    for (int r = 0; r < ech_bench_kernel_count; r++)
        row(ech_op_name(ech_bench_kernel_rows[r].op), context);
}
