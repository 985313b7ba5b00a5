/* SPDX-License-Identifier: Apache-2.0
 *
 * `echelon bench`: measures this machine, and how close kernels, matrix products and collectives
 * come to it.
 *
 * There are four tables (ech_bench_group): matrix products, kernels (both have rows in kernels.c),
 * collectives (collectives.c), and a disk (disk.c), which is measured only if named. A row of
 * products or kernels gives a result in fp32, and one in bf16 if the device has a fast bf16 kernel
 * for it. A collective gives one result per size (ECH_BENCH_SIZES), a disk row one per block size
 * (ECH_BENCH_BLOCKS). Products and kernels have a bound, a roofline: max(FLOPs / peak FLOP/s, bytes
 * / memory bandwidth). bf16 products are bound by bf16 FLOPs.
 * Kernels are measured on any device, between events of its queue. Collectives are measured between
 * threads and between processes, in the processor's memory.
 */
#ifndef ECH_PROGRAM_BENCH_BENCH_H
#define ECH_PROGRAM_BENCH_BENCH_H

#include <jansson.h>

#include "app/count.h"
#include "base/text.h"
#include "comm/comm.h"
#include "device/device.h"
#include "kernel/kernel.h"
#include "layout/cluster.h"

enum { ECH_BENCH_SIZES = 4 };  /* sizes of tensor for which each collective is measured */
enum { ECH_BENCH_BLOCKS = 3 }; /* sizes of one read or write of a disk */

/* The command's options. */
typedef struct ech_bench_options {
    const char *device; /* for kernels and products; a name of device.def */
    const char *isa;    /* instruction set of the process (kernel/isa.h); NULL: not chosen */
    /* for kernels and products; 0, only with `cluster`: the rank's share of the cores */
    int threads;
    int ranks;                   /* for collectives, as threads of this process */
    double seconds;              /* total time for measurements, approximately */
    const char *directory;       /* folder on the disk, which is written to */
    const char *cluster;         /* cluster file to write in place of tables; NULL: tables */
    bool json;                   /* print JSON instead of text */
    ECH_LIST(const char *) name; /* tables and rows to measure; empty: all */
    int64_t most; /* limit on sizes of kernels and elements of collectives, for tests; 0: none */
} ech_bench_options;

/* The tables, in the order in which they are printed. */
typedef enum ech_bench_group {
    ECH_BENCH_PRODUCTS,
    ECH_BENCH_KERNELS,
    ECH_BENCH_COLLECTIVES,
    ECH_BENCH_DISK,
    ECH_BENCH_GROUPS
} ech_bench_group;
const char *ech_bench_group_name(ech_bench_group group);

/* One line of a table. */
typedef struct ech_bench_result {
    ech_bench_group group;
    const char *name; /* of its row; static */
    ech_dtype dtype;  /* fp32 or bf16 */
    char shape[64];
    double seconds; /* of one call, the median; for disk rows, of the whole file, block by block */
    double flops;   /* number of FLOPs of one call; 0 for collectives */
    double bytes; /* read and written by one call; for collectives, bytes of the unsharded tensor */
    /* the kernel multiplies matrices of bf16 numbers, without converting them to fp32 first */
    bool of_products;
    double library;   /* seconds of the library's or MPI's own call; 0: not measured */
    double low, high; /* quartiles of the seconds; not of collectives and disks */
} ech_bench_result;

/* The measured machine. A device that is not immediate (ech_device.is_immediate: its work goes to
 * queues) is measured with its own kernels (machine.h). */
typedef struct ech_bench_machine {
    char processor[128], caches[128];
    int cores;
    /* peak FLOP/s of fp32 with all threads: multiply-adds in registers; of a device that is not
     * immediate, matrix products */
    double flops;
    double flops_alone; /* the same with one thread; 0: not measured */
    double flops_bf16;  /* as flops, of bf16 numbers with fp32 sums */
    double stream;      /* memory bandwidth in bytes/s, all threads */
} ech_bench_machine;

typedef struct ech_bench {
    const ech_bench_options *options; /* borrowed */
    const ech_device *device;
    ech_bench_machine machine;
    ECH_LIST(ech_bench_result) result;
    int ranks;      /* for collectives */
    bool processes; /* ranks are processes; otherwise threads of this process */
    bool is_direct; /* the disk was read and written without the page cache */
    double each;    /* seconds to spend on each result */
    /* For a cluster file: all ranks, which begin each measurement at the same time. NULL: for the
     * tables. Borrowed. */
    ech_group *together;
} ech_bench;

/* True if a row is to be measured: options->name is empty and it is not the disk's, or
 * options->name has the table's or the row's name. */
bool ech_bench_wants(const ech_bench_options *options, ech_bench_group group, const char *row);
/* Checks options->device. Errors, ECH_EUSAGE: an unknown one; this build or machine cannot compute
 * with it; it is not the processor and the ranks are processes, which measure collectives only. */
ech_status ech_bench_check_device(const ech_bench_options *options, bool processes);
/* Checks options->name. Errors, ECH_EUSAGE: an unknown name (the error suggests the nearest);
 * collectives are named and there are fewer than 2 ranks; other rows are named and the ranks are
 * processes, which measure collectives only. */
ech_status ech_bench_check_names(const ech_bench_options *options, bool processes);
/* The name of a table's row, from 0; NULL past the last. Several rows may have the same name. */
const char *ech_bench_row_name(ech_bench_group group, int row);
/* Number of rows of a table to measure. */
int ech_bench_count_rows(const ech_bench_options *options, ech_bench_group group);

/* Measures the machine and all wanted rows; ranks are threads of this process. Release
 * out->result.at with free(). */
ech_status ech_bench_measure(const ech_bench_options *options, ech_bench *out);
/* ech_bench_measure, then prints the results to standard output. */
ech_status ech_bench_run(const ech_bench_options *options);
/* For a rank that a launcher started: measures collectives only; rank 0 prints. Errors: ECH_EUSAGE
 * for one rank. Collective. */
ech_status ech_bench_run_rank(ech_comm *comm, const ech_bench_options *options);

/* Measures what a cluster file says of this machine (docs/clusters.md), and writes it to
 * options->cluster. The ranks (`comm`) measure their devices at the same time, then the links
 * between them; rank 0 writes. Errors: ECH_EUSAGE for one rank, or machines with different numbers
 * of ranks. Collective. */
ech_status ech_bench_run_cluster(ech_comm *comm, const ech_bench_options *options);

/* ---- parts of these functions ---- */

/* Fills the names and cores of bench->machine. */
void ech_bench_name_machine(ech_bench *bench);
/* FLOP/s of the fastest of some products of a type. 0: memory or threads were unavailable, or the
 * device fails (ech_peak_flops, ech_peak_flops_of). */
double ech_bench_peak(const ech_bench *bench, ech_dtype dtype);
/* Fills bench->machine. */
ech_status ech_bench_measure_machine(ech_bench *bench);
/* Measures the memory bandwidth once more and stores the larger: other virtual machines of the host
 * disturb it. */
void ech_bench_measure_memory(ech_bench *bench);
/* Measures products and kernels; appends to bench->result. */
ech_status ech_bench_measure_kernels(ech_bench *bench);
/* Measures collectives of options->ranks threads of this process; nothing for one rank. Appends to
 * bench->result. */
ech_status ech_bench_measure_collectives(ech_bench *bench);
/* Measures collectives as one rank of `comm`; on rank 0 appends to bench->result. Collective. */
ech_status ech_bench_measure_collectives_rank(ech_bench *bench, ech_comm *comm);
const char *ech_bench_collective_name(int row); /* NULL past the last */

/* Fits products_half_m, _n and _k of a cluster, whose other numbers are set, to the results named
 * "product". Returns the remaining error: the root mean square of the logarithms of measured over
 * predicted times. */
double ech_bench_fit_products(const ech_bench *bench, ech_cluster *cluster);

/* The link between the members of a group, all of which use it at the same time. */
typedef struct ech_bench_link {
    double latency;     /* seconds of a message of 4 bytes that each sends to the next member */
    double bandwidth;   /* bytes per second of large ones, beyond the latency */
    double collectives; /* the same of all-reduces, reduce-scatters and all-gathers */
} ech_bench_link;
/* Collective over the group; the result is of this member. */
ech_status ech_bench_measure_link(ech_group *group, double seconds, ech_bench_link *out);

/* Measures reads and writes of a file in options->directory, which is removed afterwards; appends
 * to bench->result. Errors: as for ech_disk_create. */
ech_status ech_bench_measure_disk(ech_bench *bench);
const char *ech_bench_disk_name(int row); /* NULL past the last */

/* Appends the results as tables. */
void ech_bench_print_text(const ech_bench *bench, ech_text *out);
/* Appends the results as one JSON object. */
ech_status ech_bench_print_json(const ech_bench *bench, ech_text *out);

#endif
