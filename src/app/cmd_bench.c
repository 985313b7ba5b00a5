/* SPDX-License-Identifier: Apache-2.0
 *
 * echelon bench [--threads N] [--ranks N] [--seconds S] [--json] [NAME ...]
 */
#include <stdlib.h>

#include "app/bench/bench.h"
#include "app/command.h"
#include "app/job/launcher.h"
#include "app/setup/setup.h"
#include "base/log.h"
#include "kernel/isa.h"

static const char about[] =
    "Measures what this machine can do and how near the kernels come: multiply-adds in "
    "registers and the rate of memory; matrix products beside the library's own call; "
    "every fast kernel beside the least time that its FLOPs and bytes take at those "
    "rates; collectives between ranks. Times are medians."
    "\vNAMEs choose tables (products, kernels, collectives) or rows (gelu_forward, up_768, "
    "all_reduce). Ranks are threads; under mpirun or srun they are its processes, and "
    "only collectives are measured, beside MPI's own all-reduce.";

enum { OPTION_THREADS = 't', OPTION_RANKS = 'n', OPTION_SECONDS = 's', OPTION_JSON = 'j' };
enum { MOST_RANKS = 64, DEADLINE = 60 };
static const double most_seconds = 3600;

static const struct argp_option options[] = {
    {"threads", OPTION_THREADS, "N", 0, "threads of the kernels (one a core)", 0},
    {"ranks", OPTION_RANKS, "N", 0, "ranks of the collectives (2)", 0},
    {"seconds", OPTION_SECONDS, "S", 0, "time to measure in all, about (20)", 0},
    {"json", OPTION_JSON, NULL, 0, "as one JSON object", 0},
    {0}};

static error_t parse(int key, char *text, struct argp_state *state)
{
    ech_bench_options *in = state->input;
    switch (key) {
    case OPTION_THREADS:
        in->threads = (int)ech_option_int(state, "--threads", text, 1, ECH_MAX_THREADS);
        return 0;
    case OPTION_RANKS:
        in->ranks = (int)ech_option_int(state, "--ranks", text, 1, MOST_RANKS);
        return 0;
    case OPTION_SECONDS:
        in->seconds = ech_option_real(state, "--seconds", text);
        if (!(in->seconds > 0) || in->seconds > most_seconds)
            argp_error(state, "--seconds %s: must be above 0, and at most %g", text, most_seconds);
        return 0;
    case OPTION_JSON:
        in->json = true;
        return 0;
    case ARGP_KEY_ARG:
        ECH_PUSH(in->name, text);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const char *look_up(const char *name)
{
    return getenv(name);
}

static ech_status rank_main(ech_comm *comm, void *context)
{
    return ech_bench_run_rank(comm, context);
}

static ech_status bench(ech_bench_options *in)
{
    ech_launched launched;
    bool is_rank = ech_launcher_seen(look_up, &launched);
    bool others_speak = is_rank && launched.rank > 0, quiet = ech_log_set_quiet(others_speak);
    ech_status status = ech_bench_check_names(in, is_rank);
    ech_isa isa;
    if (status == ECH_OK) status = ech_isa_decide(&isa);
    ech_log_set_quiet(quiet);
    ECH_TRY(status);
    return is_rank ? ech_run_ranks("mpi", 0, DEADLINE, rank_main, in) : ech_bench_run(in);
}

ech_status ech_command_bench(int argc, char **argv, int *code)
{
    (void)code;
    const struct argp argp = {
        .options = options, .parser = parse, .args_doc = "[NAME ...]", .doc = about};
    ech_bench_options in = {.threads = ech_device_find("cpu")->cores(), .ranks = 2, .seconds = 20};
    argp_parse(&argp, argc, argv, 0, NULL, &in);
    ech_status status = bench(&in);
    free(in.name.at);
    return status;
}
