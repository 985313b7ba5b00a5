/* SPDX-License-Identifier: Apache-2.0
 *
 * echelon bench [--device NAME] [--isa NAME] [--threads N] [--ranks N] [--seconds S]
 * [--directory DIR] [--json] [--cluster FILE] [NAME ...]
 */
#include <stdlib.h>
#include <string.h>

#include "program/bench/bench.h"
#include "program/command.h"
#include "program/options.h"
#include "app/setup/setup.h"
#include "base/log.h"
#include "comm/launch.h"
#include "kernel/isa.h"

static const char about[] =
    "Measures what this machine can do and how near the kernels come: multiply-adds in "
    "registers and the rate of memory; matrix products beside the library's own call; "
    "every fast kernel beside the least time that its FLOPs and bytes take at those "
    "rates; collectives between ranks. On a GPU the rates are measured with its own products "
    "and sums. Times are medians."
    "\vNAMEs choose tables (products, kernels, collectives, disk) or rows (gelu_forward, up_768, "
    "all_reduce, disk_read). The disk is measured only if it is named: 256 MiB of --directory are "
    "written and read, sequentially, as memory.offload_directory would be. Ranks are threads; "
    "under mpirun or srun they are its processes, and "
    "only collectives are measured, beside MPI's own all-reduce. With --cluster the ranks measure "
    "their devices and links for a cluster file.";

enum { MOST_RANKS = 64, DEADLINE = 60 };
static const double most_seconds = 3600;

static const ech_option options[] = {
    ECH_TEXT(ech_bench_options, device, "device", 'd', "NAME",
             "where products and kernels run: cpu (default), cuda; for tests queued, walled"),
    ECH_TEXT(ech_bench_options, isa, "isa", 'i', "NAME",
             "instruction set of the kernels on cpu, as ECHELON_ISA: portable, avx2, avx512, "
             "avx512bf16 (the machine's best)"),
    ECH_INT(ech_bench_options, threads, "threads", 't', "N", 1, ECH_MAX_THREADS,
            "threads of the kernels (one a core; with --cluster, its share of the cores)"),
    ECH_INT(ech_bench_options, ranks, "ranks", 'n', "N", 1, MOST_RANKS,
            "ranks of the collectives and of --cluster (2)"),
    ECH_REAL(ech_bench_options, seconds, "seconds", 's', "S", "time to measure in all, about (20)"),
    ECH_PATH(ech_bench_options, directory, "directory", 'D', "DIR",
             "folder of the disk that is measured (.)"),
    ECH_FLAG(ech_bench_options, json, "json", 'j', "as one JSON object"),
    ECH_PATH(
        ech_bench_options, cluster, "cluster", 'c', "FILE",
        "in place of tables: writes the cluster file of this machine, for plans; each rank has "
        "a device, by default a core"),
    {0}};

static void take_name(void *arguments, char *word, const struct argp_state *state)
{
    (void)state;
    ech_bench_options *in = arguments;
    ECH_PUSH(in->name, word);
}

static void check(void *arguments, const struct argp_state *state)
{
    const ech_bench_options *in = arguments;
    if (!(in->seconds > 0) || in->seconds > most_seconds)
        argp_error(state, "--seconds %g: must be above 0, and at most %g", in->seconds,
                   most_seconds);
    if (in->cluster && (in->name.n || in->json))
        argp_error(state, "%s: with --cluster no tables are measured",
                   in->json ? "--json" : in->name.at[0]);
}

static ech_status rank_main(ech_comm *comm, void *context)
{
    const ech_bench_options *in = context;
    return in->cluster ? ech_bench_run_cluster(comm, in) : ech_bench_run_rank(comm, in);
}

static ech_status check_isa(const char *name)
{
    ECH_FREED_TEXT sets = {0};
    for (ech_isa isa = 0; isa < ECH_ISAS; isa++) {
        if (!ech_isa_works(isa)) continue;
        if (strcmp(name, ech_isa_name(isa)) == 0) return ECH_OK;
        ech_text_append(&sets, " %s", ech_isa_name(isa));
    }
    ECH_FAIL(ECH_EUSAGE,
             "--isa %s: not an instruction set of this machine and build; use one of:%s", name,
             sets.at);
}

static ech_status bench(ech_bench_options *in)
{
    ech_launched launched;
    bool is_rank = ech_launched_here(&launched);
    bool others_speak = is_rank && launched.rank > 0, quiet = ech_log_set_quiet(others_speak);
    ech_status status = ech_bench_check_device(in, is_rank && !in->cluster);
    ech_isa isa;
    if (status == ECH_OK) status = ech_bench_check_names(in, is_rank);
    if (status == ECH_OK && in->isa) status = check_isa(in->isa);
    if (in->isa) setenv("ECHELON_ISA", in->isa, 1);
    if (status == ECH_OK) status = ech_isa_decide(&isa);
    ech_log_set_quiet(quiet);
    ECH_TRY(status);
    if (is_rank) return ech_run_ranks(ECH_COMM_mpi, 0, DEADLINE, rank_main, in);
    return in->cluster ? ech_run_ranks(ECH_COMM_local, in->ranks, DEADLINE, rank_main, in)
                       : ech_bench_run(in);
}

ech_status ech_command_bench(int argc, char **argv, int *code)
{
    (void)code;
    const ech_command_line line = {.usage = "[NAME ...]",
                                   .about = about,
                                   .option = options,
                                   .take = take_name,
                                   .check = check};
    ech_bench_options in = {.device = "cpu", .ranks = 2, .seconds = 20, .directory = "."};
    ech_command_line_parse(&line, argc, argv, &in);
    if (!in.threads && !in.cluster) in.threads = ech_device_find("cpu")->cores();
    ech_status status = bench(&in);
    free(in.name.at);
    return status;
}
