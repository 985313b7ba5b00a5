/* SPDX-License-Identifier: Apache-2.0
 *
 * `echelon bench`: selects rows, divides the time among them, and runs the groups.
 */
#include "program/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "program/bench/kernels.h"

static const char *const group_names[] = {"products", "kernels", "collectives", "disk"};

const char *ech_bench_group_name(ech_bench_group group)
{
    return group_names[group];
}

bool ech_bench_wants(const ech_bench_options *options, ech_bench_group group, const char *row)
{
    for (size_t i = 0; i < options->name.n; i++)
        if (strcmp(options->name.at[i], group_names[group]) == 0 ||
            strcmp(options->name.at[i], row) == 0)
            return true;
    return options->name.n == 0 && group != ECH_BENCH_DISK;
}

const char *ech_bench_row_name(ech_bench_group group, int row)
{
    if (group == ECH_BENCH_COLLECTIVES) return ech_bench_collective_name(row);
    if (group == ECH_BENCH_DISK) return ech_bench_disk_name(row);
    for (int r = 0; r < ech_bench_kernel_count; r++)
        if (ech_bench_kernel_rows[r].group == group && row-- == 0)
            return ech_bench_kernel_rows[r].name;
    return NULL;
}

int ech_bench_count_rows(const ech_bench_options *options, ech_bench_group group)
{
    int rows = 0;
    const char *name;
    for (int row = 0; (name = ech_bench_row_name(group, row)); row++)
        rows += ech_bench_wants(options, group, name);
    return rows;
}

/* ---- names ---- */

typedef ECH_LIST(const char *) word_list;

/* A name that would print nothing is refused. */
static ech_status check_possible(const ech_bench_options *options, const char *name, bool processes)
{
    const ech_bench_options one = {.name = {.at = &name, .n = 1}};
    int collectives = ech_bench_count_rows(&one, ECH_BENCH_COLLECTIVES);
    if (collectives == 0 && processes)
        ECH_FAIL(ECH_EUSAGE,
                 "%s: under a launcher of processes only collectives are measured; run bench "
                 "without it",
                 name);
    if (collectives > 0 && !processes && options->ranks < 2)
        ECH_FAIL(ECH_EUSAGE, "%s: a collective needs at least two ranks; use --ranks 2", name);
    return ECH_OK;
}

static ech_status check_name(const char *name, const word_list *names)
{
    for (size_t i = 0; i < names->n; i++)
        if (strcmp(name, names->at[i]) == 0) return ECH_OK;
    const char *nearest = ech_text_nearest(name, names->at, names->n);
    if (nearest) ECH_FAIL(ECH_EUSAGE, "there is no benchmark %s; did you mean %s?", name, nearest);
    ECH_FAIL(ECH_EUSAGE, "there is no benchmark %s; name a row, or %s, %s, %s or %s", name,
             group_names[0], group_names[1], group_names[2], group_names[3]);
}

ech_status ech_bench_check_names(const ech_bench_options *options, bool processes)
{
    word_list names = {0};
    const char *name;
    for (int g = 0; g < ECH_BENCH_GROUPS; g++) {
        ECH_PUSH(names, group_names[g]);
        for (int row = 0; (name = ech_bench_row_name((ech_bench_group)g, row)); row++)
            ECH_PUSH(names, name);
    }
    ech_status status = ECH_OK;
    for (size_t i = 0; i < options->name.n && status == ECH_OK; i++)
        status = check_name(options->name.at[i], &names);
    free(names.at);
    for (size_t i = 0; i < options->name.n && status == ECH_OK; i++)
        status = check_possible(options, options->name.at[i], processes);
    ECH_TRY(status);
    bool writes = ech_bench_count_rows(options, ECH_BENCH_DISK) > 0;
    if (writes && !ech_file_is_folder(options->directory))
        ECH_FAIL(ECH_EUSAGE, "--directory %s: no such folder; name one on the disk to be measured",
                 options->directory);
    return ECH_OK;
}

#define X(name, ...) " " #name
static const char devices[] =
#include "device/device.def"
    ;
#undef X

ech_status ech_bench_check_device(const ech_bench_options *options, bool processes)
{
    const char *name = options->device;
    if (!ech_device_row_find(name))
        ECH_FAIL(ECH_EUSAGE, "--device %s: must be one of%s", name, devices);
    const char *lacks = ech_device_lacks(name);
    if (lacks) ECH_FAIL(ECH_EUSAGE, "--device %s: %s", name, lacks);
    if (processes && strcmp(name, "cpu") != 0)
        ECH_FAIL(ECH_EUSAGE,
                 "--device %s: under a launcher of processes only collectives are measured, in "
                 "the processor's memory; run bench without it",
                 name);
    return ECH_OK;
}

/* Seconds for each row. The machine takes about as long as a few rows. */
static double divide_time(const ech_bench_options *options)
{
    double rows = 5;
    for (int g = 0; g < ECH_BENCH_GROUPS; g++)
        rows += (g == ECH_BENCH_COLLECTIVES ? ECH_BENCH_SIZES
                 : g == ECH_BENCH_DISK      ? ECH_BENCH_BLOCKS
                                            : 1) *
                ech_bench_count_rows(options, (ech_bench_group)g);
    return options->seconds / rows;
}

/* ---- the whole ---- */

static ech_status print(const ech_bench *bench)
{
    ECH_FREED_TEXT text = {0};
    ech_status status = ECH_OK;
    if (bench->options->json)
        status = ech_bench_print_json(bench, &text);
    else
        ech_bench_print_text(bench, &text);
    if (status == ECH_OK) fwrite(text.at, 1, text.n, stdout);
    return status;
}

ech_status ech_bench_measure(const ech_bench_options *options, ech_bench *out)
{
    ech_bench bench = {.options = options,
                       .device = ech_device_find(options->device),
                       .ranks = options->ranks,
                       .each = divide_time(options)};
    ech_status status = ech_bench_measure_machine(&bench);
    if (status == ECH_OK) status = ech_bench_measure_kernels(&bench);
    if (status == ECH_OK) ech_bench_measure_memory(&bench);
    if (status == ECH_OK) status = ech_bench_measure_collectives(&bench);
    if (status == ECH_OK) status = ech_bench_measure_disk(&bench);
    if (status == ECH_OK)
        *out = bench;
    else
        free(bench.result.at);
    return status;
}

ech_status ech_bench_run(const ech_bench_options *options)
{
    ech_bench bench;
    ECH_TRY(ech_bench_measure(options, &bench));
    ech_status status = print(&bench);
    free(bench.result.at);
    return status;
}

ech_status ech_bench_run_rank(ech_comm *comm, const ech_bench_options *options)
{
    ech_bench bench = {.options = options,
                       .device = ech_device_find(options->device),
                       .ranks = ech_comm_size(comm),
                       .processes = true,
                       .each = divide_time(options)};
    if (bench.ranks < 2)
        ECH_FAIL(ECH_EUSAGE, "collectives need at least two ranks; start 2 or more, or run bench "
                             "without a launcher");
    ech_status status = ech_bench_measure_collectives_rank(&bench, comm);
    if (status == ECH_OK && ech_comm_rank(comm) == 0) status = print(&bench);
    free(bench.result.at);
    return status;
}
