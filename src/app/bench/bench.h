/* SPDX-License-Identifier: Apache-2.0
 *
 * `echelon bench`: measures this machine and how close kernels, matrix products and collectives come to it.
 *
 * Each group is a table of rows (kernels.c, collectives.c), each measured to a result. A row's bound is a roofline:
 * the longer of the times that its FLOPs take at the peak rate of multiply-adds and its bytes at the bandwidth of
 * memory.
 */
#ifndef ECH_APP_BENCH_BENCH_H
#define ECH_APP_BENCH_BENCH_H

#include <jansson.h>

#include "app/count.h"
#include "base/text.h"
#include "comm/comm.h"
#include "kernel/kernel.h"

enum { ECH_BENCH_SIZES = 4 }; /* lines of a collective */

/* The command's options. */
typedef struct ech_bench_options {
    int threads, ranks;
    double seconds; /* to spend on measuring, in all, roughly */
    bool json;
    ECH_LIST(const char *) name; /* groups and rows to measure; empty: all */
    int64_t most;                /* limit on sizes, for tests; 0: none */
} ech_bench_options;

/* The tables, in the order in which they are printed. */
typedef enum ech_bench_group {
    ECH_BENCH_PRODUCTS,
    ECH_BENCH_KERNELS,
    ECH_BENCH_COLLECTIVES,
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
    double library;      /* seconds of a library's call for the same; 0: none */
} ech_bench_result;

/* The measured machine. */
typedef struct ech_bench_machine {
    char processor[128], caches[128];
    int cores;
    double flops,
        flops_alone; /* peak FLOP/s of multiply-adds in registers: all threads, one thread */
    double stream;   /* memory bandwidth in bytes/s, all threads */
} ech_bench_machine;

typedef struct ech_bench {
    const ech_bench_options *options;
    ech_bench_machine machine;
    ECH_LIST(ech_bench_result) result;
    int ranks;
    bool processes; /* ranks are processes; else threads of this one */
    double each;    /* seconds to spend on a row */
} ech_bench;

/* Whether a row is to be measured: no names were given, or its group's or its own. */
bool ech_bench_wants(const ech_bench_options *options, ech_bench_group group, const char *row);
/* Errors: ECH_EUSAGE for an unknown name, with the nearest known one; for collectives with fewer than 2 ranks;
 * and for other rows if `processes`: ranks of a launcher measure collectives only. */
ech_status ech_bench_check_names(const ech_bench_options *options, bool processes);
/* The name of a group's row, from 0; NULL past the last. Rows may have the same name. */
const char *ech_bench_row_name(ech_bench_group group, int row);
/* How many of its rows are to be measured. */
int ech_bench_count_rows(const ech_bench_options *options, ech_bench_group group);

/* Measures the machine and all wanted rows, with ranks as threads. Release out->result.at with free(). */
ech_status ech_bench_measure(const ech_bench_options *options, ech_bench *out);
/* The same, and prints the results to standard output. */
ech_status ech_bench_run(const ech_bench_options *options);
/* For a rank that a launcher started: measures collectives only; rank 0 prints. Errors: ECH_EUSAGE for one rank.
 * Collective. */
ech_status ech_bench_run_rank(ech_comm *comm, const ech_bench_options *options);

/* ---- groups ---- */

/* Fills bench->machine. */
ech_status ech_bench_measure_machine(ech_bench *bench);
/* Measures the memory bandwidth again and stores the larger: other virtual machines of a host disturb it. */
void ech_bench_measure_memory(ech_bench *bench);
/* Append their results to bench->result. */
ech_status ech_bench_measure_kernels(ech_bench *bench); /* of products, too */
/* Among options->ranks threads of this process; does nothing for one. */
ech_status ech_bench_measure_collectives(ech_bench *bench);
/* One rank's part; rank 0 adds the results. Collective. */
ech_status ech_bench_measure_collectives_rank(ech_bench *bench, ech_comm *comm);
const char *ech_bench_collective_name(int row); /* NULL past the last */

/* Append the results as tables, and as one JSON object. */
void ech_bench_print_text(const ech_bench *bench, ech_text *out);
ech_status ech_bench_print_json(const ech_bench *bench, ech_text *out);

#endif
