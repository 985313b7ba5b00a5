/* SPDX-License-Identifier: Apache-2.0
 *
 * `echelon bench`: what this machine can do, and how near the kernels come.
 *
 * Each group is a table of rows (kernels.c, products.c, collectives.c) and adds one
 * result a row. A row's bound is the longer of two times: its FLOPs at the rate of multiply-adds in
 * registers, and its bytes at the rate at which memory streams.
 */
#ifndef ECH_APP_BENCH_BENCH_H
#define ECH_APP_BENCH_BENCH_H

#include <jansson.h>

#include "app/count.h"
#include "app/bench/text.h"
#include "base/text.h"
#include "comm/comm.h"
#include "kernel/kernel.h"

enum { ECH_BENCH_PHASES = 3, ECH_BENCH_SIZES = 4 }; /* lines of a product, of a collective */

/* What was asked for. */
typedef struct ech_bench_options {
    int threads, ranks;
    double seconds; /* of measuring, about, in all */
    bool json;
    ECH_LIST(const char *) name; /* groups and rows; empty: all of them */
    int64_t most;                /* no size is above it, for tests; 0: as the tables say */
} ech_bench_options;

typedef enum ech_bench_group {
#define X(name, title) ECH_BENCH_##name,
#include "app/bench/groups.def"
#undef X
    ECH_BENCH_GROUPS
} ech_bench_group;
const char *ech_bench_group_name(ech_bench_group group);

/* One line of a table. */
typedef struct ech_bench_result {
    ech_bench_group group;
    const char *name;
    char shape[64];
    double seconds;      /* of one call, the median */
    double flops, bytes; /* of one call */
    double library;      /* seconds of the library's own call; 0: there is none to compare with */
} ech_bench_result;

/* The machine as measured. */
typedef struct ech_bench_machine {
    char processor[128], caches[128];
    int cores;
    double flops, flops_alone; /* multiply-adds a second in registers: all threads, one */
    double stream;             /* bytes a second to and from memory, all threads */
} ech_bench_machine;

typedef struct ech_bench {
    const ech_bench_options *options;
    ech_bench_machine machine;
    ECH_LIST(ech_bench_result) result;
    int ranks;
    bool processes; /* or threads of this one */
    double each;    /* seconds for one row */
} ech_bench;

/* Whether the row is to be measured: nothing was named, or its group, or itself. */
bool ech_bench_wants(const ech_bench_options *options, ech_bench_group group, const char *row);
/* An error that says which name is none, and the nearest that is, or which cannot be measured by as many
 * ranks or, `processes`, by ranks of a launcher. */
ech_status ech_bench_check_names(const ech_bench_options *options, bool processes);
/* Calls `row` with the name of each row of the group, some more than once. */
void ech_bench_each_name(ech_bench_group group, void (*row)(const char *name, void *context),
                         void *context);

/* Measures everything that is wanted, ranks being threads. free() out->result.at. */
ech_status ech_bench_measure(const ech_bench_options *options, ech_bench *out);
/* Measures and prints. */
ech_status ech_bench_run(const ech_bench_options *options);
/* As one rank of a launcher's: collectives alone; rank 0 prints. Collective. */
ech_status ech_bench_run_rank(ech_comm *comm, const ech_bench_options *options);

/* ---- groups ---- */

ech_status ech_bench_measure_machine(ech_bench *bench);
/* The rate of memory once more, which other machines on the same host change: the best counts. */
void ech_bench_measure_memory(ech_bench *bench);
ech_status ech_bench_measure_products(ech_bench *bench);
ech_status ech_bench_measure_kernels(ech_bench *bench);
/* Between options->ranks threads of this process; nothing where that is one. */
ech_status ech_bench_measure_collectives(ech_bench *bench);
/* One rank's part; rank 0 adds the results. Collective. */
ech_status ech_bench_measure_collectives_rank(ech_bench *bench, ech_comm *comm);
/* Call `row` with the name of each row. */
void ech_bench_product_names(void (*row)(const char *name, void *context), void *context);
void ech_bench_kernel_names(void (*row)(const char *name, void *context), void *context);
void ech_bench_collective_names(void (*row)(const char *name, void *context), void *context);

/* ---- for groups ---- */

/* Operands begin at pages. */
static inline size_t ech_bench_aligned(size_t bytes)
{
    return (bytes + 4095) / 4096 * 4096;
}

/* Seconds of one call: the median of as many as `seconds` allow, after one that does not count. */
double ech_bench_time(double seconds, void (*call)(void *context), void *context);

/* The longer of the two times that a result's FLOPs and bytes take at the machine's rates. */
double ech_bench_bound(const ech_bench *bench, const ech_bench_result *result);

void ech_bench_print_text(const ech_bench *bench, ech_text *out);
ech_status ech_bench_print_json(const ech_bench *bench, ech_text *out);

#endif
