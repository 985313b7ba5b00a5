/* SPDX-License-Identifier: Apache-2.0
 *
 * The bench's table of a disk: sequential reads and writes of a disk arena's file (device/disk.h),
 * as fio makes them with one job and one request under way: the rates that copies to and from disk
 * can have.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "program/bench/bench.h"
#include "base/clock.h"
#include "base/file.h"
#include "device/disk.h"

enum { FEWEST = 3, MOST = 1000 };
static const int64_t file_bytes = (int64_t)256 << 20;
static const char *const names[] = {"disk_write", "disk_read"};

static const struct {
    int64_t bytes;
    const char *shape;
} blocks[] = {{64 << 10, "64 KiB"}, {1 << 20, "1 MiB"}, {16 << 20, "16 MiB"}};
_Static_assert(sizeof blocks / sizeof *blocks == ECH_BENCH_BLOCKS, "divide_time counts on so many");

const char *ech_bench_disk_name(int row)
{
    return row < (int)(sizeof names / sizeof *names) ? names[row] : NULL;
}

/* The whole file, block by block. What a pass writes may lie in the device's own cache afterwards,
 * as with fio. */
static ech_status pass(const ech_disk *disk, bool writes, char *data, int64_t block, int64_t bytes)
{
    for (int64_t at = 0; at < bytes; at += block)
        ECH_TRY(writes ? ech_disk_write(disk, at, data, (size_t)block)
                       : ech_disk_read(disk, at, data, (size_t)block));
    return ECH_OK;
}

static ech_status time_passes(const ech_disk *disk, bool writes, char *data, int64_t block,
                              int64_t bytes, double each, double *median)
{
    ech_numbers seconds = {0};
    double began = ech_clock_now();
    ech_status status = pass(disk, writes, data, block, bytes);
    for (int i = 0; status == ECH_OK && i < MOST; i++) {
        double from = ech_clock_now();
        if (i >= FEWEST && from - began >= each) break;
        status = pass(disk, writes, data, block, bytes);
        ECH_PUSH(seconds, ech_clock_now() - from);
    }
    if (status == ECH_OK) *median = ech_median(&seconds);
    free(seconds.at);
    return status;
}

static ech_status time_rows(ech_bench *bench, const ech_disk *disk, char *data, int64_t bytes)
{
    for (int row = 0; ech_bench_disk_name(row); row++)
        for (int b = 0; b < ECH_BENCH_BLOCKS; b++) {
            ech_bench_result result = {
                .group = ECH_BENCH_DISK, .name = names[row], .dtype = ECH_U8};
            int64_t block = blocks[b].bytes < bytes ? blocks[b].bytes : bytes;
            if (!ech_bench_wants(bench->options, ECH_BENCH_DISK, names[row])) continue;
            snprintf(result.shape, sizeof result.shape, "%s", blocks[b].shape);
            result.bytes = (double)bytes;
            ECH_TRY(time_passes(disk, row == 0, data, block, bytes, bench->each, &result.seconds));
            ECH_PUSH(bench->result, result);
        }
    return ECH_OK;
}

/* In a folder of its own, so that it is nobody's scratch. */
ech_status ech_bench_measure_disk(ech_bench *bench)
{
    int64_t most = bench->options->most, bytes = file_bytes;
    if (!ech_bench_count_rows(bench->options, ECH_BENCH_DISK)) return ECH_OK;
    if (most > 0) bytes = blocks[ECH_BENCH_BLOCKS - 1].bytes; /* for tests */
    ECH_FREED char *folder = ech_file_join(bench->options->directory, "echelon-bench");
    ECH_FREED char *data =
        aligned_alloc(ECH_DISK_ALIGNMENT, (size_t)blocks[ECH_BENCH_BLOCKS - 1].bytes);
    if (!data)
        ECH_FAIL(ECH_ENOMEM,
                 "disk: no memory for a block of 16 MiB; end other programs that use memory");
    for (int64_t i = 0; i < blocks[ECH_BENCH_BLOCKS - 1].bytes; i++) data[i] = (char)(i * 167 >> 3);
    ech_disk *disk;
    ECH_TRY(ech_disk_create(folder, "--directory", 0, bytes, &disk));
    ech_status status = pass(disk, true, data, blocks[1].bytes, bytes); /* blocks are allotted */
    if (status == ECH_OK) status = time_rows(bench, disk, data, bytes);
    bench->is_direct = ech_disk_is_direct(disk);
    ech_disk_destroy(disk);
    rmdir(folder);
    return status;
}
