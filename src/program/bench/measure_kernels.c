/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the rows of the tables of matrix products and of kernels (kernels.c).
 */
#include "program/bench/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "device/device.h"
#include "kernel/codes.h"

enum { PATTERN = 16384, DIMS = 16, MOST_WIDTH = 512, MOST = 10000 };

/* The dimensions that kernel.def's third column names: a letter is a size, and so is what begins
 * with one ("Tq"); the others are switches. */
static void scratch_dims(const ech_bench_kernel *row, const ech_bench_sizes *sizes,
                         int64_t dims[DIMS])
{
    static const char *const columns[] = {
#define X(name, arguments, shapes, scratch_dims) #scratch_dims,
#include "kernel/kernel.def"
#undef X
    };
    int n = 0;
    for (const char *at = columns[row->op] + 1; *at && *at != ')'; n++) {
        ECH_ASSERT(n < DIMS);
        char word[32];
        snprintf(word, sizeof word, "%.*s", (int)strcspn(at, ",)"), at);
        /* bias_backward calls its columns N. */
        char letter = row->op == ECH_OP_bias_backward && *at == 'N' ? 'C' : *at;
        dims[n] = letter >= 'A' && letter <= 'Z' ? ech_bench_size(sizes, letter)
                                                 : ech_text_has_word(row->switches, word);
        at += strlen(word);
        at += strspn(at, ", ");
    }
}

/* A tensor's first numbers: from 0.25 to 1.25, so that no sign, root or exponential of them is out
 * of the ordinary; fp64 ones; ids; other types' are zero. */
static void make_pattern(const ech_tensor *x, int64_t n, int64_t ids, char *to)
{
    ech_random_key key = {.seed = 5}, of_ids = {.seed = 6};
    for (int64_t i = 0; i < n; i++) {
        double value =
            x->dtype == ECH_F64 ? 1 : 0.25 + ech_random_unit(ech_random_word(key, (uint64_t)i));
        if (ech_dtype_is_real(x->dtype))
            ech_convert(&value, ECH_F64, to + (size_t)i * ech_dtype_bytes(x->dtype), x->dtype, 1);
        if (x->dtype == ECH_I32)
            ((int32_t *)(void *)to)[i] =
                (int32_t)(ech_random_word(of_ids, (uint64_t)i) % (uint32_t)(ids > 0 ? ids : 1));
    }
}

/* A table of experts: rows that follow each other, of N, or an equal share of R rows. Or the ends
 * of a sparse code. */
static void make_table(const ech_tensor *x, int64_t n, const ech_bench_sizes *sizes, char table,
                       int32_t *to)
{
    int64_t N = sizes->of['N' - 'A'], R = sizes->of['R' - 'A'];
    for (int64_t i = 0; i < n; i++)
        to[i] = (int32_t)(table == 'e'   ? (i + 1) * (ECH_CODE_RUN / 2)
                          : table == 'c' ? R / ech_tensor_count(x)
                          : i < N        ? i
                                         : -1);
}

/* The first PATTERN numbers over and over, each copy as long as what is there. */
static ech_status fill(const ech_bench_call *c, const ech_tensor *x, char table)
{
    const ech_device *device = c->context->device;
    int64_t n = ech_tensor_count(x), first = n < PATTERN ? n : PATTERN;
    size_t bytes = ech_tensor_bytes(x), done = (size_t)first * ech_dtype_bytes(x->dtype);
    ECH_FREED char *pattern = ech_calloc((size_t)first, ech_dtype_bytes(x->dtype));
    char *to = x->data;
    if (table)
        make_table(x, first, c->sizes, table, (int32_t *)(void *)pattern);
    else
        make_pattern(x, first, c->sizes->of['V' - 'A'], pattern);
    ECH_TRY(ech_device_copy_now(device, c->context->queue, to, pattern, done));
    for (size_t more; done < bytes; done += more) {
        more = done < bytes - done ? done : bytes - done;
        device->copy(c->context->queue, to + done, to, more);
    }
    return ECH_OK;
}

static size_t round_to_pages(size_t bytes)
{
    return (bytes + 4095) / 4096 * 4096;
}

/* Places scratch and operands in memory, one after the other. Returns the bytes; memory NULL: only
 * these. */
static size_t lay_out(ech_bench_call *c, const ech_bench_operands *operands, char *memory)
{
    size_t at = round_to_pages(c->context->scratch_bytes);
    c->context->scratch = memory;
    for (int i = 0; i < operands->n; i++) {
        c->t[i] = operands->tensor[i];
        if (memory) c->t[i].data = memory + at;
        at += round_to_pages(ech_tensor_bytes(&c->t[i]));
    }
    return at;
}

static void set_rows(ech_bench_call *c, double *frequency)
{
    const int64_t *of = c->sizes->of;
    int64_t T = of['T' - 'A'], D = of['D' - 'A'];
    c->rows = (ech_rows){.whole = T, .tokens = T, .split = T};
    c->rule = (ech_attention_rule){.scale = 0.125};
    c->shard = (ech_attention_shard){.query = c->rows, .key = c->rows, .heads = of['H' - 'A']};
    ech_rope rope = {.theta = 10000};
    ECH_ASSERT(D <= MOST_WIDTH);
    if (D > 0) ech_rope_frequencies(&rope, D, frequency);
    c->frequency = frequency;
}

static void call_library(ech_bench_call *c)
{
    c->kernels->library_product(&c->t[0], c->a_transposed, &c->t[1], c->b_transposed, &c->t[2]);
}

/* Goes on to the next copy of all operands. */
static void use_next_copy(ech_bench_call *c)
{
    int next = (c->copy + 1) % c->copies, moved = next - c->copy;
    for (int i = 0; i < ECH_BENCH_TENSORS; i++)
        if (c->t[i].data) c->t[i].data = (char *)c->t[i].data + moved * (ptrdiff_t)c->stride;
    c->copy = next;
}

/* Seconds of one call, after a warm-up: the median over the calls that fit into `seconds`, at least
 * one batch. The calls of a batch are queued together, so that a GPU does not wait for the host
 * between them. */
static ech_status time_call(ech_bench_call *c, void (*call)(ech_bench_call *c), double seconds,
                            ech_bench_result *result, double *median)
{
    const ech_device *device = c->context->device;
    ech_numbers times = {0};
    for (int copy = 0; copy < c->copies; copy++, use_next_copy(c)) call(c); /* touches all pages */
    ech_status status = ech_device_settle(device, c->context->queue);
    double end = ech_clock_now() + seconds;
    while (status == ECH_OK && (times.n == 0 || (times.n < MOST && ech_clock_now() < end))) {
        device->record(c->between[0], c->context->queue);
        for (int i = 0; i < ECH_BENCH_BATCH; i++) {
            call(c);
            use_next_copy(c);
            device->record(c->between[i + 1], c->context->queue);
        }
        status = device->synchronize(c->between[ECH_BENCH_BATCH]);
        for (int i = 0; i < ECH_BENCH_BATCH && status == ECH_OK; i++)
            ECH_PUSH(times, device->elapsed(c->between[i], c->between[i + 1]));
    }
    if (status == ECH_OK) *median = ech_median(&times);
    result->low = ech_quartile(&times, 1);
    result->high = ech_quartile(&times, 3);
    free(times.at);
    return status;
}

static ech_status time_in_memory(ech_bench_call *c, const ech_bench_kernel *row,
                                 const ech_bench_operands *operands, double seconds,
                                 ech_bench_result *result)
{
    double frequency[MOST_WIDTH / 2];
    bool has_library = row->group == ECH_BENCH_PRODUCTS && c->kernels->library_product &&
                       result->dtype == ECH_F32 && !c->without_library;
    for (int copy = 0; copy < c->copies; copy++, use_next_copy(c))
        for (int i = 0; i < operands->n; i++)
            if (operands->reads[i]) ECH_TRY(fill(c, &c->t[i], operands->table[i]));
    set_rows(c, frequency);
    if (row->group == ECH_BENCH_PRODUCTS) seconds /= 2;
    if (has_library) ECH_TRY(time_call(c, call_library, seconds, result, &result->library));
    return time_call(c, row->call, seconds, result, &result->seconds);
}

/* A cluster's rows go through so many bytes of operands, so that caches have no more of them than
 * in training; but not rows of a few bytes, which caches have there, too. */
static const size_t rotated_bytes = (size_t)48 << 20, cached_bytes = (size_t)1 << 16;

static ech_status time_row(ech_bench *bench, ech_kernel_context *context, ech_event *const *between,
                           const ech_bench_kernel *row, ech_dtype dtype)
{
    const ech_device *device = bench->device;
    ech_bench_sizes sizes = ech_bench_parse_sizes(row->sizes, bench->options->most);
    ech_bench_operands operands = ech_bench_parse_operands(row->tensors, &sizes, dtype);
    ech_bench_call c = {.kernels = ech_kernels_on(device->name, dtype),
                        .context = context,
                        .between = between,
                        .sizes = &sizes,
                        .without_library = bench->together != NULL,
                        .a_transposed = ech_text_has_word(row->switches, "a_transposed"),
                        .adds = ech_text_has_word(row->switches, "has_add"),
                        .b_transposed = ech_text_has_word(row->switches, "b_transposed")};
    ech_bench_result result;
    int64_t dims[DIMS] = {0};
    void *memory = NULL;
    scratch_dims(row, &sizes, dims);
    context->scratch_bytes = ech_kernel_scratch(c.kernels, row->op, context->threads, dims);
    size_t bytes = lay_out(&c, &operands, NULL);
    c.stride = bytes - round_to_pages(context->scratch_bytes);
    bool rotates = bench->together && c.stride >= cached_bytes;
    c.copies = rotates ? 1 + (int)(rotated_bytes / c.stride) : 1;
    bytes += (size_t)(c.copies - 1) * c.stride;
    ECH_TRY(device->alloc(bytes, &memory));
    lay_out(&c, &operands, memory);
    if (bench->together) ECH_TRY(ech_group_barrier(bench->together));
    ech_bench_kernel_describe(row, dtype, bench->options->most, &result);
    ech_status status = time_in_memory(&c, row, &operands, bench->each, &result);
    if (status == ECH_OK) ECH_PUSH(bench->result, result);
    device->release(memory, bytes);
    return status;
}

static const double longest_product = 0.05; /* seconds at the peak rate, of a cluster's rows */

/* True if the row is measured in the type. */
static bool wants(const ech_bench *bench, const ech_bench_kernel *row, ech_dtype dtype)
{
    ech_bench_result of;
    ech_bench_kernel_describe(row, dtype, bench->options->most, &of);
    if (bench->together)
        return dtype == ECH_F32 && of.flops <= longest_product * bench->machine.flops;
    return ech_bench_wants(bench->options, row->group, row->name) &&
           ech_bench_kernel_has(bench->device->name, row, dtype);
}

static ech_status time_rows(ech_bench *bench, ech_kernel_context *context,
                            ech_event *const *between)
{
    static const ech_dtype types[] = {ECH_F32, ECH_BF16};
    const ech_bench_kernel *rows = bench->together ? ech_bench_cluster_rows : ech_bench_kernel_rows;
    int n = bench->together ? ech_bench_cluster_count : ech_bench_kernel_count;
    for (const ech_bench_kernel *row = rows; row < rows + n; row++)
        for (int t = 0; t < 2; t++)
            if (wants(bench, row, types[t]))
                ECH_TRY(time_row(bench, context, between, row, types[t]));
    return ECH_OK;
}

ech_status ech_bench_measure_kernels(ech_bench *bench)
{
    const ech_device *device = bench->device;
    ech_kernel_context *context;
    ech_queue *queue = NULL;
    ech_event *between[ECH_BENCH_BATCH + 1] = {0};
    ECH_TRY(ech_kernel_context_create(bench->options->threads, &context));
    ech_status status = device->queue_create(&queue);
    for (int e = 0; e <= ECH_BENCH_BATCH && status == ECH_OK; e++)
        status = device->event_create(&between[e]);
    ech_kernel_context_defer(context, device, queue);
    if (status == ECH_OK) status = time_rows(bench, context, between);
    for (int e = 0; e <= ECH_BENCH_BATCH; e++) device->event_destroy(between[e]);
    device->queue_destroy(queue);
    ech_kernel_context_destroy(context);
    return status;
}
