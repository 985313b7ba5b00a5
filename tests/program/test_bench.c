/* SPDX-License-Identifier: Apache-2.0
 *
 * `echelon bench`: the texts of its rows, what they count, that every fast kernel has a row and
 * every row runs, names, and JSON. Nothing here looks at a time.
 */

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "program/bench/bench.h"
#include "program/bench/kernels.h"
#include "app/setup/setup.h"
#include "base/log.h"
#include "unit.h"

/* Sizes small enough to run all rows in no time. */
static ech_bench_options small_options(void)
{
    return (ech_bench_options){
        .device = "cpu", .threads = 2, .ranks = 2, .seconds = 1e-3, .most = 8};
}

TEST(texts_are_read)
{
    ech_bench_sizes sizes = ech_bench_parse_sizes("B=3 T=50 C=7 N=4097", 0);
    assert_int_equal(ech_bench_size(&sizes, 'R'), 150);
    assert_int_equal(ech_bench_size(&sizes, 'S'), 2);
    assert_true(ech_bench_count("7RC 2.5C", &sizes) == 7 * 150 * 7 + 2.5 * 7);
    assert_true(ech_bench_count("RC", &sizes) == 150 * 7);
    assert_true(ech_bench_count("", &sizes) == 0);
    ech_bench_operands o = ech_bench_parse_operands("<BTC ~C =iR >dR3 <d <wC", &sizes, ECH_BF16);
    assert_int_equal(o.n, 6);
    assert_int_equal(o.tensor[0].dtype, ECH_BF16);
    assert_int_equal(o.tensor[5].dtype, ECH_F32);
    assert_int_equal(o.tensor[0].dims, 3);
    assert_int_equal(o.tensor[0].shape[1], 50);
    assert_int_equal(o.tensor[2].dtype, ECH_I32);
    assert_int_equal(o.tensor[3].dtype, ECH_F64);
    assert_int_equal(o.tensor[3].shape[1], 3);
    assert_int_equal(o.tensor[4].dims, 0);
    const bool reads[] = {true, true, true, false, true, true};
    for (int i = 0; i < 6; i++) assert_true(o.reads[i] == reads[i]);
    assert_true(o.bytes == 2 * 1050 + 2 * 4 * 150 + 8 * 450 + 8 + 4 * 7);
    sizes = ech_bench_parse_sizes("S=6 N=4097", 0);
    assert_int_equal(ech_bench_size(&sizes, 'S'), 6);
    o = ech_bench_parse_operands("<nS >cN", &sizes, ECH_F32);
    assert_true(o.table[0] == 'n' && o.table[1] == 'c' && o.tensor[0].dtype == ECH_I32);
    sizes = ech_bench_parse_sizes("B=3 T=50 C=7", 5);
    assert_int_equal(ech_bench_size(&sizes, 'R'), 15);
    assert_int_equal(ech_bench_size(&sizes, 'C'), 5);
}

/* By hand, from the formulas of kernel.def. */
TEST(rows_count_what_kernels_do)
{
    const double R = 16.0 * 1024, C = 1024, N = 16777216, V = 50257;
    const struct {
        ech_op op;
        double flops, bytes;
    } known[] = {
        {ECH_OP_add, R * C, 3 * 4 * R * C},
        {ECH_OP_layernorm_forward, 8 * R * C, 4 * (2 * R * C + 2 * C + 2 * R)},
        {ECH_OP_rmsnorm_backward, 10 * R * C, 4 * (3 * R * C + 2 * C + R)},
        {ECH_OP_swiglu_backward, 11 * R * C, 4 * 5 * R * C},
        {ECH_OP_adamw, 15 * N, 4 * 7 * N},
        {ECH_OP_sgd, 7 * N, 4 * 5 * N},
        {ECH_OP_square_sums, 2 * N, 4 * N},
        {ECH_OP_embedding_forward, 0, 4 * (2 * R * C + R)},
        {ECH_OP_loss_gradient, 4 * 512 * V, 4 * (2 * 512 * V + 2 * 512) + 8 * (3 * 512 + 1 + 4)},
    };
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        int found = 0;
        for (int r = 0; r < ech_bench_kernel_count; r++) {
            ech_bench_result row;
            if (ech_bench_kernel_rows[r].op != known[k].op) continue;
            ech_bench_kernel_describe(&ech_bench_kernel_rows[r], ECH_F32, 0, &row);
            assert_string_equal(row.name, ech_op_name(known[k].op));
            assert_true(row.flops == known[k].flops && row.bytes == known[k].bytes);
            found++;
        }
        assert_int_equal(found, 1);
    }
}

/* The causal half, and the same work per token and head from T to 4 T but for the length. */
TEST(attention_counts_its_half)
{
    int found = 0;
    for (int r = 0; r < ech_bench_kernel_count; r++) {
        const ech_bench_kernel *row = &ech_bench_kernel_rows[r];
        bool forward = row->op == ECH_OP_attention_forward;
        if (!forward && row->op != ECH_OP_attention_backward) continue;
        ech_bench_result result;
        ech_bench_sizes sizes = ech_bench_parse_sizes(row->sizes, 0);
        double B = (double)ech_bench_size(&sizes, 'B'), T = (double)ech_bench_size(&sizes, 'T'),
               H = (double)ech_bench_size(&sizes, 'H'), D = (double)ech_bench_size(&sizes, 'D');
        ech_bench_kernel_describe(row, ECH_F32, 0, &result);
        int products = forward ? 2 : 5;
        assert_true(result.flops == products * (2 * B * H * T * T * D) / 2);
        int tensors = forward ? 4 : 8;
        assert_true(result.bytes == 4 * (tensors * B * T * H * D + B * H * T));
        ech_bench_kernel_describe(row, ECH_BF16, 0, &result);
        assert_true(result.bytes == 2 * tensors * B * T * H * D + 4 * B * H * T);
        found++;
    }
    assert_true(found >= 4);
}

TEST(every_fast_kernel_has_a_row)
{
    const ech_kernels *fast = ech_kernels_fast(ECH_F32), *ref = ech_kernels_ref(ECH_F32);
    const bool is_fast[ECH_OPS] = {
#define X(op, ...) [ECH_OP_##op] = fast->op != ref->op,
#include "kernel/kernel.def"
#undef X
    };
    for (int op = 0; op < ECH_OPS; op++) {
        bool found = false;
        for (int r = 0; r < ech_bench_kernel_count; r++)
            found |= (int)ech_bench_kernel_rows[r].op == op;
        if (is_fast[op] && !found)
            fail_msg("%s has a fast version, but no row in bench/kernels.c",
                     ech_op_name((ech_op)op));
    }
}

static int count_rows(ech_bench_group group)
{
    int n = 0;
    while (ech_bench_row_name(group, n)) n++;
    return n;
}

static int count_results(const ech_bench *bench, ech_bench_group group, ech_dtype dtype)
{
    int n = 0;
    for (size_t r = 0; r < bench->result.n; r++)
        n += bench->result.at[r].group == group && bench->result.at[r].dtype == dtype;
    return n;
}

/* Rows that are measured in a type. */
static int count_rows_of(const char *device, ech_dtype dtype)
{
    int n = 0;
    for (int r = 0; r < ech_bench_kernel_count; r++)
        n += ech_bench_kernel_has(device, &ech_bench_kernel_rows[r], dtype);
    return n;
}

static void every_row_runs_on(const char *device)
{
    ech_bench_options options = small_options();
    options.device = device;
    ech_bench bench;
    assert_int_equal(ech_bench_measure(&options, &bench), ECH_OK);
    assert_int_equal(count_results(&bench, ECH_BENCH_PRODUCTS, ECH_F32),
                     count_rows(ECH_BENCH_PRODUCTS));
    assert_int_equal(count_rows(ECH_BENCH_PRODUCTS) % 3, 0);
    assert_int_equal(count_results(&bench, ECH_BENCH_PRODUCTS, ECH_F32) +
                         count_results(&bench, ECH_BENCH_KERNELS, ECH_F32),
                     ech_bench_kernel_count);
    assert_int_equal(count_results(&bench, ECH_BENCH_PRODUCTS, ECH_BF16) +
                         count_results(&bench, ECH_BENCH_KERNELS, ECH_BF16),
                     count_rows_of(device, ECH_BF16));
    assert_int_equal(count_results(&bench, ECH_BENCH_COLLECTIVES, ECH_F32),
                     ECH_BENCH_SIZES * count_rows(ECH_BENCH_COLLECTIVES));
    for (size_t r = 0; r < bench.result.n; r++) {
        const ech_bench_result *result = &bench.result.at[r];
        assert_true(result->seconds > 0 && result->bytes > 0);
        if (result->group == ECH_BENCH_PRODUCTS) assert_true(result->flops == 2.0 * 8 * 8 * 8);
        if (result->group == ECH_BENCH_COLLECTIVES) assert_true(result->bytes == 4 * 8);
    }
    assert_true(bench.machine.flops > 0 && bench.machine.stream > 0);
    assert_true(bench.machine.flops_bf16 > 0);

    ech_text text = {0}, json = {0};
    ech_bench_print_text(&bench, &text);
    for (size_t r = 0; r < bench.result.n; r++)
        assert_non_null(strstr(text.at, bench.result.at[r].name));
    assert_int_equal(ech_bench_print_json(&bench, &json), ECH_OK);
    json_error_t error;
    json_t *all = json_loads(json.at, JSON_REJECT_DUPLICATES, &error);
    assert_non_null(all);
    assert_int_equal(json_integer_value(json_object_get(all, "version")), 1);
    const json_t *machine = json_object_get(all, "machine");
    assert_true(json_real_value(json_object_get(machine, "stream_bytes_per_second")) > 0);
    assert_string_equal(json_string_value(json_object_get(machine, "device")), device);
    assert_true(bench.device->is_immediate == !strstr(text.at, "  device  "));
    size_t rows = 0;
    for (int g = 0; g < ECH_BENCH_GROUPS; g++)
        rows += json_array_size(json_object_get(all, ech_bench_group_name((ech_bench_group)g)));
    assert_int_equal(rows, bench.result.n);
    json_decref(all);
    ech_text_free(&text);
    ech_text_free(&json);
    free(bench.result.at);
}

TEST(every_row_runs)
{
    every_row_runs_on("cpu");
}

/* By queues and events, and host code never touches a device's memory. */
TEST(every_row_runs_on_devices)
{
    every_row_runs_on("queued");
    every_row_runs_on("walled");
}

static ech_status cluster_rank(ech_comm *comm, void *context)
{
    return ech_bench_run_cluster(comm, context);
}

static void writes_a_cluster_file_of(const char *device)
{
    ech_bench_options options = small_options();
    char path[] = "cluster-XXXXXX";
    int file = mkstemp(path);
    ech_cluster cluster;
    assert_true(file >= 0);
    close(file);
    options.device = device;
    options.cluster = path;
    assert_int_equal(ech_run_ranks(ECH_COMM_local, 2, 60, cluster_rank, &options), ECH_OK);
    assert_int_equal(ech_cluster_read(path, &cluster), ECH_OK);
    unlink(path);
    assert_int_equal(cluster.levels, 1);
    assert_int_equal(cluster.level[0].ranks, 2);
    for (ech_dtype d = 0; d < ECH_DTYPES; d++)
        if (d == ECH_F64 || d == ECH_F32 || d == ECH_BF16) assert_true(cluster.flops[d] > 0);
    double memory = (double)ech_device_find(device)->memory_bytes();
    assert_true(fabs(cluster.device_memory / (memory / 2) - 1) < 1e-3);
    assert_int_equal(ech_cluster_check(&cluster, path, 2), ECH_OK);
    assert_int_equal(ech_cluster_check(&cluster, path, 4), ECH_EUSAGE);
}

TEST(cluster_files_are_written)
{
    writes_a_cluster_file_of("cpu");
    writes_a_cluster_file_of("queued");
    writes_a_cluster_file_of("walled");
    ech_bench_options options = small_options();
    options.cluster = "cluster.yaml";
    assert_int_equal(ech_run_ranks(ECH_COMM_local, 1, 60, cluster_rank, &options), ECH_EUSAGE);
}

/* Results that a cluster predicts are fitted by that cluster, whatever its numbers. */
TEST(products_are_fitted)
{
    static const double halves[][3] = {{0, 0, 0}, {8, 16, 32}, {256, 64, 0}};
    ech_bench_options options = small_options();
    options.most = 0;
    for (size_t h = 0; h < sizeof halves / sizeof *halves; h++) {
        ech_bench bench = {.options = &options};
        ech_cluster known = {.step_factor = 1,
                             .flops[ECH_F32] = 1e11,
                             .device_bandwidth = 1e12,
                             .kernels_share = 1,
                             .products_share = 0.8,
                             .products_half_m = halves[h][0],
                             .products_half_n = halves[h][1],
                             .products_half_k = halves[h][2]};
        ech_cluster fitted = known;
        fitted.products_half_m = fitted.products_half_n = fitted.products_half_k = 0;
        for (int r = 0; r < ech_bench_cluster_count; r++) {
            ech_bench_result result;
            const ech_bench_kernel *row = &ech_bench_cluster_rows[r];
            if (strcmp(row->name, "product") != 0) continue;
            ech_bench_kernel_describe(row, ECH_F32, 0, &result);
            ech_bench_sizes of = ech_bench_parse_sizes(row->sizes, 0);
            ech_products products = {(double)ech_bench_size(&of, 'M'),
                                     (double)ech_bench_size(&of, 'N'),
                                     (double)ech_bench_size(&of, 'K'), 1};
            result.seconds = ech_cluster_products(&known, &products, ECH_F32, false, result.bytes);
            ECH_PUSH(bench.result, result);
        }
        assert_int_equal(bench.result.n % 3, 0);
        assert_true(ech_bench_fit_products(&bench, &fitted) < 0.01);
        assert_true(fabs(fitted.products_share / 0.8 - 1) < 0.02);
        for (size_t r = 0; r < bench.result.n; r++) bench.result.at[r].seconds *= 2;
        assert_true(ech_bench_fit_products(&bench, &fitted) < 0.01);
        assert_true(fabs(fitted.products_share / 0.4 - 1) < 0.02);
        free(bench.result.at);
    }
}

TEST(every_row_runs_on_a_gpu)
{
    const char *lacks = ech_device_lacks("cuda");
    if (lacks) {
        print_message("skipped: %s\n", lacks);
        skip();
    }
    every_row_runs_on("cuda");
}

TEST(devices_that_are_not_here)
{
    ech_bench_options options = small_options();
    options.device = "queued";
    assert_int_equal(ech_bench_check_device(&options, false), ECH_OK);
    assert_int_equal(ech_bench_check_device(&options, true), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "only collectives"));
    options.device = "gpu";
    assert_int_equal(ech_bench_check_device(&options, false), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "--device gpu: "));
    options.device = "cuda";
    const char *lacks = ech_device_lacks("cuda");
    assert_int_equal(ech_bench_check_device(&options, false), lacks ? ECH_EUSAGE : ECH_OK);
    if (lacks) assert_non_null(strstr(ech_last_error(), lacks));
}

TEST(names_choose)
{
    ech_bench_options options = small_options();
    ech_bench bench;
    ECH_PUSH(options.name, "add");
    ECH_PUSH(options.name, "collectives");
    assert_int_equal(ech_bench_check_names(&options, false), ECH_OK);
    assert_int_equal(ech_bench_measure(&options, &bench), ECH_OK);
    assert_int_equal(count_results(&bench, ECH_BENCH_PRODUCTS, ECH_F32), 0);
    assert_int_equal(count_results(&bench, ECH_BENCH_KERNELS, ECH_F32), 1);
    assert_int_equal(count_results(&bench, ECH_BENCH_COLLECTIVES, ECH_F32),
                     ECH_BENCH_SIZES * count_rows(ECH_BENCH_COLLECTIVES));
    free(bench.result.at);

    ECH_PUSH(options.name, "gelu_forwards");
    assert_int_equal(ech_bench_check_names(&options, false), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "did you mean gelu_forward?"));
    free(options.name.at);
}

/* What would print nothing is refused, and says what would work. */
TEST(names_that_cannot_be_measured_here)
{
    ech_bench_options options = small_options();
    assert_int_equal(ech_bench_check_names(&options, true), ECH_OK);
    ECH_PUSH(options.name, "broadcast");
    assert_int_equal(ech_bench_check_names(&options, true), ECH_OK);
    options.ranks = 1;
    assert_int_equal(ech_bench_check_names(&options, true),
                     ECH_OK); /* the launcher's ranks count */
    assert_int_equal(ech_bench_check_names(&options, false), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "broadcast: "));
    options.name.at[0] = "add";
    assert_int_equal(ech_bench_check_names(&options, false), ECH_OK);
    assert_int_equal(ech_bench_check_names(&options, true), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "add: "));
    free(options.name.at);
}

/* A disk is written to only if it is named; nothing is left there. */
TEST(a_disk_is_measured_if_it_is_named)
{
    char folder[] = "/tmp/echelon-bench-XXXXXX";
    ech_bench_options options = small_options();
    ech_bench bench;
    assert_non_null(mkdtemp(folder));
    options.directory = folder;
    assert_int_equal(ech_bench_count_rows(&options, ECH_BENCH_DISK), 0);
    ECH_PUSH(options.name, "disk");
    assert_int_equal(ech_bench_check_names(&options, false), ECH_OK);
    assert_int_equal(ech_bench_check_names(&options, true), ECH_EUSAGE);
    assert_int_equal(ech_bench_measure(&options, &bench), ECH_OK);
    assert_int_equal(bench.result.n, ECH_BENCH_BLOCKS * count_rows(ECH_BENCH_DISK));
    for (size_t r = 0; r < bench.result.n; r++)
        assert_true(bench.result.at[r].seconds > 0 && bench.result.at[r].bytes > 0);
    free(bench.result.at);
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(ech_bench_check_names(&options, false), ECH_EUSAGE);
    options.directory = "/proc";
    assert_int_equal(ech_bench_measure(&options, &bench), ECH_EIO);
    free(options.name.at);
}

/* One rank has nobody to talk to. */
TEST(one_rank_has_no_collectives)
{
    ech_bench_options options = small_options();
    ech_bench bench;
    options.ranks = 1;
    ECH_PUSH(options.name, "collectives");
    assert_int_equal(ech_bench_measure(&options, &bench), ECH_OK);
    assert_int_equal(bench.result.n, 0);
    free(bench.result.at);
    free(options.name.at);
}
