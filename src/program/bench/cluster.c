/* SPDX-License-Identifier: Apache-2.0
 *
 * `echelon bench --cluster FILE`: the cluster file of the machine at hand.
 *
 * Every rank measures its device while all others measure theirs, as in a run, where ranks contend
 * for memory. The file has the means over ranks.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "program/bench/bench.h"
#include "program/bench/kernels.h"
#include "app/machine.h"
#include "app/setup/setup.h"
#include "base/clock.h"
#include "base/writing.h"
#include "layout/cluster.h"

enum { HALVES = 24, PASSES = 3, COPIED = 64 << 20, COPIES = 8 };

/* Two levels: a machine, and all machines. */
typedef struct measured {
    ech_bench bench;
    ech_cluster cluster; /* what the file says */
    ech_bench_link link[2];
    double fit, repeats; /* root mean square error of fitted products; spread of repetitions */
} measured;

/* ---- rates ---- */

/* The mean over the group's members. */
static ech_status average(ech_group *group, double *values, int n)
{
    for (int i = 0; i < n; i++) values[i] /= ech_group_size(group);
    return ech_group_fold(group, ECH_FOLD_SUM, values, n);
}

/* A build may lack a GPU's kernels of fp16. Keeps the best of this pass and those before. */
static ech_status measure_peaks(measured *m, ech_group *world)
{
    static const ech_dtype types[] = {ECH_F64, ECH_F32, ECH_BF16, ECH_F16};
    for (int i = 0; i < (m->bench.device->is_immediate ? 4 : 3); i++) {
        double *best = &m->cluster.flops[types[i]];
        ECH_TRY(ech_group_barrier(world));
        *best = fmax(*best, ech_bench_peak(&m->bench, types[i]));
    }
    ECH_TRY(ech_group_barrier(world));
    ech_bench_measure_memory(&m->bench);
    return ECH_OK;
}

/* Bytes per second of copies to the device. */
static ech_status measure_copies(const ech_bench *bench, double *rate)
{
    const ech_device *device = bench->device;
    size_t bytes = bench->options->most > 0 ? 4096 : COPIED;
    ech_queue *queue = NULL;
    void *host = NULL, *there = NULL;
    double best = INFINITY;
    ech_status status = device->queue_create(&queue);
    if (status == ECH_OK) status = device->alloc_host(bytes, &host);
    if (status == ECH_OK) status = device->alloc(bytes, &there);
    for (int i = 0; i < COPIES && status == ECH_OK; i++) {
        double start = ech_clock_now();
        status = ech_device_copy_now(device, queue, there, host, bytes);
        best = fmin(best, ech_clock_now() - start);
    }
    if (there) device->release(there, bytes);
    if (host) device->release_host(host, bytes);
    device->queue_destroy(queue);
    *rate = (double)bytes / best;
    return status;
}

/* ---- from results to numbers ---- */

static bool is_of(const ech_bench_result *result, const char *kind)
{
    return strcmp(result->name, kind) == 0;
}

/* Sums of one kind's results. */
static double sum_of(const ech_bench *bench, const char *kind, size_t field)
{
    double sum = 0;
    for (size_t r = 0; r < bench->result.n; r++)
        if (is_of(&bench->result.at[r], kind))
            sum += *(const double *)(const void *)((const char *)&bench->result.at[r] + field);
    return sum;
}
#define SUM_OF(bench, kind, field) sum_of(bench, kind, offsetof(ech_bench_result, field))

/* The row's shape is "F M=64 N=256 K=256". */
static ech_products products_of(const ech_bench_result *result, int64_t most)
{
    ech_bench_sizes sizes = ech_bench_parse_sizes(result->shape + 2, most);
    return (ech_products){.M = (double)ech_bench_size(&sizes, 'M'),
                          .N = (double)ech_bench_size(&sizes, 'N'),
                          .K = (double)ech_bench_size(&sizes, 'K'),
                          .count = 1};
}

/* Root mean square of the logarithms of measured over predicted times, with the share that makes
 * their mean zero, but at most 1. */
static double error_of(const ech_bench *bench, ech_cluster *cluster)
{
    double sum = 0, squares = 0, n = 0;
    cluster->products_share = 1;
    for (int pass = 0; pass < 2; pass++) {
        sum = squares = n = 0;
        for (size_t r = 0; r < bench->result.n; r++) {
            const ech_bench_result *of = &bench->result.at[r];
            if (!is_of(of, "product")) continue;
            ech_products products = products_of(of, bench->options->most);
            double error = log(of->seconds /
                               ech_cluster_products(cluster, &products, ECH_F32, false, of->bytes));
            sum += error;
            squares += error * error;
            n++;
        }
        if (pass == 0) cluster->products_share = fmin(1, exp(-sum / n));
    }
    return sqrt(squares / n);
}

/* Descends along one half at a time, over 0, 1, 1.4, 2, 2.8, ... */
double ech_bench_fit_products(const ech_bench *bench, ech_cluster *cluster)
{
    double *halves[] = {&cluster->products_half_m, &cluster->products_half_n,
                        &cluster->products_half_k};
    double best = error_of(bench, cluster);
    for (bool better = true; better;) {
        better = false;
        for (int h = 0; h < 3; h++) {
            double kept = *halves[h];
            for (int i = 0; i < HALVES; i++) {
                double before = *halves[h] = i ? floor(10 * pow(M_SQRT2, i - 1)) / 10 : 0;
                double error = error_of(bench, cluster);
                if (error < best - 1e-6) {
                    best = error;
                    kept = before;
                    better = true;
                }
            }
            *halves[h] = kept;
        }
    }
    return error_of(bench, cluster);
}

static double spread_of(const ech_bench *bench)
{
    double apart = 0, all = 0;
    for (size_t r = 0; r < bench->result.n; r++) {
        apart += (bench->result.at[r].high - bench->result.at[r].low) / 2;
        all += bench->result.at[r].seconds;
    }
    return apart / all;
}

static double between(double low, double x, double high)
{
    return fmin(high, fmax(low, x));
}

/* The peak of fp32 is at least what some product reaches. */
static void derive(measured *m)
{
    const ech_bench *bench = &m->bench;
    ech_cluster *c = &m->cluster;
    for (size_t r = 0; r < bench->result.n; r++) {
        const ech_bench_result *of = &bench->result.at[r];
        if (is_of(of, "product"))
            c->flops[ECH_F32] = fmax(c->flops[ECH_F32], of->flops / of->seconds);
    }
    c->device_bandwidth = bench->machine.stream;
    c->kernels_launch = SUM_OF(bench, "launch", seconds);
    double moved = SUM_OF(bench, "kernel", bytes) / SUM_OF(bench, "kernel", seconds);
    double attended = SUM_OF(bench, "attention", flops) / SUM_OF(bench, "attention", seconds);
    c->kernels_share = between(1e-3, moved / c->device_bandwidth, 1);
    c->attention_share = between(1e-3, attended / c->flops[ECH_F32], 1);
    m->fit = ech_bench_fit_products(bench, c);
    m->repeats = spread_of(bench);
    c->step_spread = between(0.01, m->fit + m->repeats, 1);
}

/* ---- the file ---- */

/* A number with a prefix that a cluster file may have. */
static char *scaled(double value, const char *unit, char *buffer)
{
    static const char *const prefixes[] = {"n", "u", "m", "", "k", "M", "G", "T", "P"};
    int p = 3;
    for (; unit[0] && value >= 999.5 && p < 8; p++) value /= 1000;
    for (; unit[0] && value < 1 && p > 0; p--) value *= 1000;
    snprintf(buffer, ECH_COUNT_BYTES, "%.4g%s%s%s", value, unit[0] ? " " : "", prefixes[p], unit);
    return buffer;
}
#define NUMBER(value, unit) scaled((value), (unit), (char[ECH_COUNT_BYTES]){0})

/* A line with a number, and where it comes from. */
#define LINE(out, key, number, ...)                                                                \
    do {                                                                                           \
        ECH_FREED_TEXT line = {0};                                                                 \
        ech_text_append(&line, "  " key ": %s", number);                                           \
        ech_text_append(out, "%-28s # ", line.at);                                                 \
        ech_text_append(out, __VA_ARGS__);                                                         \
        ech_text_append(out, "\n");                                                                \
    } while (0)

static void append_device(const measured *m, int here, ech_text *out)
{
    const ech_bench *bench = &m->bench;
    const ech_cluster *c = &m->cluster;
    const char *threads = ECH_COUNT(bench->options->threads, "thread");
    ech_text_append(out, "device:\n");
    LINE(out, "memory", NUMBER(c->device_memory, "B"),
         bench->device->count ? "of the device, less what driver and libraries use"
                              : "of the machine, divided by its %s",
         ECH_COUNT(here, "rank"));
    LINE(out, "bandwidth", NUMBER(c->device_bandwidth, "B/s"),
         "measured: %s, all ranks at the same time",
         bench->device->is_immediate ? "STREAM" : "sums of tensors");
    LINE(out, "host", NUMBER(c->device_host, "B/s"), "measured: copies of 64 MiB");
    if (ech_device_is_processor(bench->device)) {
        ech_text_append(out, "host:\n");
        LINE(out, "bandwidth", NUMBER(c->device_bandwidth, "B/s"), "the device's");
    }
    ech_text_append(out, "flops: # measured: the fastest of some products, %s\n", threads);
    LINE(out, "fp64", NUMBER(c->flops[ECH_F64], "FLOP/s"), "as the program runs them");
    LINE(out, "fp32", NUMBER(c->flops[ECH_F32], "FLOP/s"), "all ranks at the same time");
    LINE(out, "bf16", NUMBER(c->flops[ECH_BF16], "FLOP/s"), "with sums in fp32");
    if (c->flops[ECH_F16] > 0)
        LINE(out, "fp16", NUMBER(c->flops[ECH_F16], "FLOP/s"), "with sums in fp32");
}

static void append_shares(const measured *m, ech_text *out)
{
    const ech_cluster *c = &m->cluster;
    int products = 0;
    for (size_t r = 0; r < m->bench.result.n; r++)
        products += is_of(&m->bench.result.at[r], "product");
    ech_text_append(out, "products: # fitted to %d measured products in fp32; error %.1f %%\n",
                    products, 100 * m->fit);
    LINE(out, "share", NUMBER(c->products_share, ""), "of large products");
    LINE(out, "half_m", NUMBER(c->products_half_m, ""), "rows");
    LINE(out, "half_n", NUMBER(c->products_half_n, ""), "columns");
    LINE(out, "half_k", NUMBER(c->products_half_k, ""), "inner dimension");
    ech_text_append(out, "attention:\n");
    LINE(out, "share", NUMBER(c->attention_share, ""),
         "measured: forward and backward, 12 heads of 64, 256 and 1,024 tokens");
    ech_text_append(out, "kernels:\n");
    LINE(out, "share", NUMBER(c->kernels_share, ""),
         "measured: LayerNorm, GELU, their gradients and sums, 1,024 tokens");
    LINE(out, "launch", NUMBER(c->kernels_launch, "s"), "measured: a sum of 8 numbers");
    ech_text_append(out, "step:\n");
    LINE(out, "spread", NUMBER(c->step_spread, ""),
         "error of the fitted products, and %.1f %% between repetitions", 100 * m->repeats);
}

static void append_levels(const measured *m, const char *transport, ech_text *out)
{
    ech_text_append(out, "levels: # measured: parallel.comm=%s, data in host memory\n", transport);
    for (int i = 0; i < m->cluster.levels; i++) {
        const ech_cluster_level *level = &m->cluster.level[i];
        ech_text_append(out,
                        "  # messages to the next %s, of 4 bytes and of 16 MiB; share: what "
                        "collectives reach\n",
                        i ? "machine" : "rank");
        ech_text_append(out, "  - {ranks: %d, bandwidth: %s, latency: %s, share: %s}\n",
                        level->ranks, NUMBER(level->bandwidth, "B/s"), NUMBER(level->latency, "s"),
                        NUMBER(level->share, ""));
    }
}

/* Without the characters that end a YAML text in double quotes. */
static void append_name(const char *name, ech_text *out)
{
    for (; *name; name++)
        if (*name >= ' ' && !strchr("\"\\", *name)) ech_text_append(out, "%c", *name);
}

static ech_status write_file(const measured *m, ech_comm *comm)
{
    const ech_bench_options *in = m->bench.options;
    const ech_device *device = m->bench.device;
    ECH_FREED_TEXT text = {0};
    ech_cluster again;
    int here = ech_comm_local_size(comm);
    ech_text_append(&text,
                    "# What `echelon bench --cluster` measured on %s of %s with %s each.\nname: \"",
                    ECH_COUNT(ech_comm_size(comm) / here, "machine"), ECH_COUNT(here, "rank"),
                    ECH_COUNT(in->threads, "thread"));
    append_name(ech_device_is_processor(device) ? m->bench.machine.processor
                                                : ech_device_describe(device->name),
                &text);
    ech_text_append(&text, "\"\n");
    append_device(m, here, &text);
    append_shares(m, &text);
    append_levels(m, ech_comm_name(comm), &text);
    ECH_TRY(ech_cluster_parse(text.at, text.n, in->cluster, &again));
    ECH_TRY(ech_file_write_inside(in->cluster, text.at, text.n));
    printf("%s", text.at);
    return ECH_OK;
}

/* ---- the whole ---- */

static ech_status check_ranks(ech_comm *comm, ech_group *world)
{
    double most[] = {ech_comm_local_size(comm), -ech_comm_local_size(comm)};
    ECH_TRY(ech_group_fold(world, ECH_FOLD_MAX, most, 2));
    if (ech_comm_size(comm) < 2)
        ECH_FAIL(ECH_EUSAGE, "--cluster: measures messages between ranks, and there is one rank; "
                             "use --ranks 2");
    if (most[0] > -most[1])
        ECH_FAIL(ECH_EUSAGE,
                 "--cluster: machines have from %.0f to %.0f ranks; start as many on each",
                 -most[1], most[0]);
    return ECH_OK;
}

/* Level 0: ranks of this machine. Level 1: ranks with the same number on all machines; these groups
 * send at the same time, so a rank has its part of the machine's link. */
static ech_status measure_level(measured *m, ech_comm *comm, ech_group *world, int number)
{
    int here = ech_comm_local_size(comm), machines = ech_comm_size(comm) / here;
    int n = number ? machines : here, me = ech_comm_rank(comm);
    ech_bench_link *link = &m->link[m->cluster.levels];
    ECH_FREED int *ranks = ech_calloc((size_t)n, sizeof *ranks);
    ECH_CLEANUP(ech_group_destroy_at) ech_group *group = NULL;
    for (int i = 0; i < n; i++) ranks[i] = number ? me % here + i * here : me / here * here + i;
    if (n < 2) return ECH_OK;
    ECH_TRY(ech_group_create(comm, number ? "machines" : "machine", ranks, n, &group));
    ECH_TRY(ech_group_barrier(world));
    ECH_TRY(ech_bench_measure_link(group, m->bench.options->seconds / 10, link));
    double all[] = {link->latency, link->bandwidth, link->collectives};
    ECH_TRY(average(world, all, 3));
    m->cluster.level[m->cluster.levels++] =
        (ech_cluster_level){.ranks = number ? here * machines : here,
                            .latency = all[0],
                            .bandwidth = all[1],
                            .share = between(1e-3, all[2] / all[1], 1)};
    return ECH_OK;
}

/* Keeps the least times of both passes, and the highest quartile. */
static void merge_results(ech_bench *bench, size_t rows)
{
    for (size_t r = 0; r + rows < bench->result.n; r++) {
        ech_bench_result *of = &bench->result.at[r], *again = &bench->result.at[rows + r];
        of->seconds = fmin(of->seconds, again->seconds);
        of->low = fmin(of->low, again->low);
        of->high = fmax(of->high, again->high);
    }
    bench->result.n = rows;
}

/* All ranks have the same rows; their times become the means. */
static ech_status average_results(ech_bench *bench, ech_group *world)
{
    for (size_t r = 0; r < bench->result.n; r++) {
        ech_bench_result *of = &bench->result.at[r];
        double all[] = {of->seconds, of->low, of->high};
        ECH_TRY(average(world, all, 3));
        of->seconds = all[0];
        of->low = all[1];
        of->high = all[2];
    }
    return ECH_OK;
}

/* Measures all rates several times, as other programs may disturb one time. The rows are those that
 * the first pass chooses, by a rate that is the same on all ranks. */
static ech_status measure_device(measured *m, ech_group *world)
{
    ech_bench *bench = &m->bench;
    for (int pass = 0; pass < PASSES; pass++) {
        size_t rows = bench->result.n;
        ECH_TRY(measure_peaks(m, world));
        if (pass == 0) {
            bench->machine.flops = m->cluster.flops[ECH_F32];
            ECH_TRY(average(world, &bench->machine.flops, 1));
        }
        ECH_TRY(ech_bench_measure_kernels(bench));
        if (pass > 0) merge_results(bench, rows);
    }
    ECH_TRY(average(world, m->cluster.flops, ECH_DTYPES));
    ECH_TRY(average(world, &bench->machine.stream, 1));
    return average_results(bench, world);
}

static ech_status measure(measured *m, ech_comm *comm, ech_group *world)
{
    ech_bench *bench = &m->bench;
    int here = ech_comm_local_size(comm), number = ech_comm_local_rank(comm);
    const ech_device *device = bench->device;
    ECH_TRY(check_ranks(comm, world));
    if (device->use) device->use(number % device->count());
    int devices = device->count && device->count() < here ? device->count() : here;
    int sharing = device->count ? (here + devices - 1) / devices : here;
    m->cluster.device_memory = (double)device->memory_bytes() / sharing;
    ech_bench_name_machine(bench);
    ECH_TRY(measure_device(m, world));
    ECH_TRY(measure_copies(bench, &m->cluster.device_host));
    ECH_TRY(average(world, &m->cluster.device_host, 1));
    for (int i = 0; i < 2; i++) ECH_TRY(measure_level(m, comm, world, i));
    derive(m);
    return ech_comm_rank(comm) == 0 ? write_file(m, comm) : ECH_OK;
}

ech_status ech_bench_run_cluster(ech_comm *comm, const ech_bench_options *options)
{
    ECH_CLEANUP(ech_group_destroy_at) ech_group *world = NULL;
    ECH_TRY(ech_group_create_world(comm, "bench", &world));
    ech_bench_options own = *options;
    int cores = ech_device_find("cpu")->cores() / ech_comm_local_size(comm);
    if (!own.threads) own.threads = cores > 1 ? cores : 1;
    measured m = {.bench = {.options = &own,
                            .device = ech_device_find(options->device),
                            .ranks = ech_comm_size(comm),
                            .each = options->seconds / 2 / PASSES / ech_bench_cluster_count,
                            .together = world},
                  .cluster = {.step_factor = 1}};
    ech_status status = measure(&m, comm, world);
    free(m.bench.result.at);
    return status;
}
