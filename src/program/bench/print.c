/* SPDX-License-Identifier: Apache-2.0
 *
 * A bench's results as tables, and as JSON.
 */
#include <math.h>

#include "program/bench/bench.h"
#include "app/count.h"

enum { VERSION = 1 };

/* A device that is not immediate, by its own kernels. */
static void print_device(const ech_bench *bench, ech_text *out)
{
    const ech_bench_machine *m = &bench->machine;
    const char *name = bench->device->name;
    ech_text_append(out, "  device           %s: %s\n", name, ech_device_describe(name));
    ech_text_append(out, "  products         %s (fp32), %s (bf16)\n",
                    ECH_SCALED(m->flops, "FLOP/s"), ECH_SCALED(m->flops_bf16, "FLOP/s"));
    ech_text_append(out, "  memory           %s (sums of tensors)\n", ECH_SCALED(m->stream, "B/s"));
}

static void print_machine(const ech_bench *bench, ech_text *out)
{
    const ech_bench_machine *m = &bench->machine;
    const char *threads = ECH_COUNT(bench->options->threads, "thread");
    ech_text_append(out, "Machine\n  processor        %s, %s for this process\n", m->processor,
                    ECH_COUNT(m->cores, "core"));
    ech_text_append(out, "  caches           %s\n", m->caches);
    ech_text_append(out, "  kernels          %s\n", ech_kernels_describe());
    if (!bench->device->is_immediate) {
        print_device(bench, out);
        return;
    }
    ech_text_append(out, "  multiply-adds    %s with %s, %s with one (fp32, in registers)\n",
                    ECH_SCALED(m->flops, "FLOP/s"), threads, ECH_SCALED(m->flops_alone, "FLOP/s"));
    ech_text_append(out, "                   %s with %s (bf16, sums in fp32)\n",
                    ECH_SCALED(m->flops_bf16, "FLOP/s"), threads);
    ech_text_append(out, "  memory           %s with %s (STREAM)\n", ECH_SCALED(m->stream, "B/s"),
                    threads);
}

/* A result's roofline bound in seconds (bench.h). */
static double bound_of(const ech_bench *bench, const ech_bench_result *result)
{
    const ech_bench_machine *m = &bench->machine;
    double rate = result->dtype == ECH_BF16 && result->of_products ? m->flops_bf16 : m->flops;
    return fmax(result->flops / rate, result->bytes / m->stream);
}

/* Infinite values are not known. */
static void print_column(int digits, double value, ech_text *out)
{
    if (isfinite(value))
        ech_text_append(out, " %9.*f", digits, value);
    else
        ech_text_append(out, " %9s", "-");
}

static void print_product(const ech_bench *bench, const ech_bench_result *r, ech_text *out)
{
    print_column(3, 1e3 * r->seconds, out);
    print_column(1, 1e-9 * r->flops / r->seconds, out);
    print_column(1, 1e-9 * r->flops / r->library, out);
    ech_text_append(out, " %6.0f%%", 100 * bound_of(bench, r) / r->seconds);
}

static void print_kernel(const ech_bench *bench, const ech_bench_result *r, ech_text *out)
{
    double bound = bound_of(bench, r);
    print_column(3, 1e3 * r->seconds, out);
    print_column(1, 1e-9 * r->flops / r->seconds, out);
    print_column(1, 1e-9 * r->bytes / r->seconds, out);
    print_column(3, 1e3 * bound, out);
    ech_text_append(out, " %-7s %4.0f%%",
                    r->bytes / bench->machine.stream >= bound ? "memory" : "FLOPs",
                    100 * bound / r->seconds);
}

static void print_collective(const ech_bench *bench, const ech_bench_result *r, ech_text *out)
{
    (void)bench;
    print_column(1, 1e6 * r->seconds, out);
    print_column(2, 1e-9 * r->bytes / r->seconds, out);
    print_column(1, r->library > 0 ? 1e6 * r->library : INFINITY, out);
}

static void print_disk(const ech_bench *bench, const ech_bench_result *r, ech_text *out)
{
    (void)bench;
    print_column(1, 1e3 * r->seconds, out);
    print_column(3, 1e-9 * r->bytes / r->seconds, out);
}

/* How a group's results are printed: its columns, what they mean, and the numbers of a line. */
static const struct {
    const char *title, *columns, *note;
    void (*numbers)(const ech_bench *bench, const ech_bench_result *result, ech_text *out);
} styles[ECH_BENCH_GROUPS] = {
    [ECH_BENCH_PRODUCTS] =
        {"Matrix products: forward (F), gradient of the input (B) and of the "
         "weights (W) of a layer",
         "  layer               product                    type        ms   GFLOP/s "
         "  library of bound\n",
         "library: GFLOP/s of its own plain call; of bound: the least time that "
         "the machine's rates allow, by ms\n",
         print_product},
    [ECH_BENCH_KERNELS] =
        {"Kernels, on data larger than the processor's caches",
         "  kernel              sizes                      type        ms   GFLOP/s "
         "     GB/s  bound ms by      of it\n",
         "bound: the longer of FLOPs and bytes at the machine's rates; above 100%: "
         "caches helped\n",
         print_kernel},
    [ECH_BENCH_COLLECTIVES] =
        {"Collectives, of fp32 numbers",
         "  collective          whole tensor               type        us      "
         "GB/s   MPI's us\n",
         "GB/s: bytes of the whole tensor by the time of a call\n", print_collective},
    [ECH_BENCH_DISK] =
        {"Disk: one file from its beginning to its end, a request at a time",
         "  access              of blocks of               type        ms      GB/s\n",
         "ms: of the whole file; what is offloaded to disk is read and written so\n", print_disk},
};

void ech_bench_print_text(const ech_bench *bench, ech_text *out)
{
    if (bench->machine.flops > 0) print_machine(bench, out);
    for (int g = 0; g < ECH_BENCH_GROUPS; g++) {
        bool any = false;
        for (size_t r = 0; r < bench->result.n; r++) {
            const ech_bench_result *result = &bench->result.at[r];
            if ((int)result->group != g) continue;
            if (!any) ech_text_append(out, "\n%s", styles[g].title);
            if (!any && g == ECH_BENCH_COLLECTIVES)
                ech_text_append(out, ", between %d ranks that are %s", bench->ranks,
                                bench->processes ? "processes" : "threads");
            if (!any && g == ECH_BENCH_DISK)
                ech_text_append(out, ", %s in %s",
                                bench->is_direct ? "past the page cache (O_DIRECT)"
                                                 : "through the page cache (no O_DIRECT there)",
                                bench->options->directory);
            if (!any) ech_text_append(out, "\n%s", styles[g].columns);
            any = true;
            ech_text_append(out, "  %-19s %-26s %s", result->name, result->shape,
                            ech_dtype_name(result->dtype));
            styles[g].numbers(bench, result, out);
            ech_text_append(out, "\n");
        }
        if (any) ech_text_append(out, "  %s", styles[g].note);
    }
}

static json_t *machine_json(const ech_bench *bench)
{
    const ech_bench_machine *m = &bench->machine;
    const char *device = bench->device->name;
    json_t *json = json_pack(
        "{s:s, s:s, s:s, s:i, s:s, s:s, s:f, s:f, s:f}", "processor", m->processor, "caches",
        m->caches, "kernels", ech_kernels_describe(), "cores", m->cores, "device", device,
        "described", ech_device_describe(device), "flops_per_second", m->flops,
        "flops_per_second_bf16", m->flops_bf16, "stream_bytes_per_second", m->stream);
    if (m->flops_alone > 0)
        json_object_set_new(json, "flops_per_second_one_thread", json_real(m->flops_alone));
    return json;
}

static json_t *result_json(const ech_bench *bench, const ech_bench_result *r)
{
    json_t *json = json_pack("{s:s, s:s, s:s, s:f, s:f, s:f}", "name", r->name, "dtype",
                             ech_dtype_name(r->dtype), "shape", r->shape, "seconds", r->seconds,
                             "flops", r->flops, "bytes", r->bytes);
    if (r->group < ECH_BENCH_COLLECTIVES)
        json_object_set_new(json, "bound_seconds", json_real(bound_of(bench, r)));
    if (r->library > 0) json_object_set_new(json, "library_seconds", json_real(r->library));
    return json;
}

ech_status ech_bench_print_json(const ech_bench *bench, ech_text *out)
{
    json_auto_t *all =
        json_pack("{s:i, s:i, s:i, s:s}", "version", VERSION, "threads", bench->options->threads,
                  "ranks", bench->ranks, "ranks_are", bench->processes ? "processes" : "threads");
    if (bench->machine.flops > 0) json_object_set_new(all, "machine", machine_json(bench));
    if (ech_bench_count_rows(bench->options, ECH_BENCH_DISK))
        json_object_set_new(all, "disk_is_direct", json_boolean(bench->is_direct));
    for (int g = 0; g < ECH_BENCH_GROUPS; g++) {
        json_t *list = json_array();
        for (size_t r = 0; r < bench->result.n; r++)
            if ((int)bench->result.at[r].group == g)
                json_array_append_new(list, result_json(bench, &bench->result.at[r]));
        json_object_set_new(all, ech_bench_group_name((ech_bench_group)g), list);
    }
    ECH_FREED char *text = json_dumps(all, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    if (!text)
        ECH_FAIL(
            ECH_EIO,
            "the results cannot be written as JSON: a name is not UTF-8; run bench without --json");
    ech_text_append(out, "%s\n", text);
    return ECH_OK;
}
