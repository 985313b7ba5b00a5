/* SPDX-License-Identifier: Apache-2.0
 *
 * echelon profile RUN.yaml [--ranks N] [--steps K] [--out FILE] [section.key=value ...]
 */
#include <stdio.h>
#include <stdlib.h>

#include "app/block_times.h"
#include "program/command.h"
#include "program/launch.h"
#include "program/run_arguments.h"
#include "app/count.h"
#include "base/file.h"
#include "base/log.h"

static const char about[] =
    "Measures what the blocks of a model cost on this machine: seconds of forward, backwards and "
    "recomputation, bytes saved for the backward and sent. Each rank trains the whole model alone "
    "for a few steps, and as many again for each kind of recomputation, all ranks at once. With "
    "the file as parallel.profile, `echelon plan --simulate' predicts seconds, and "
    "parallel.partition=auto uses the costs.\v" ECH_RUN_NOTE;

enum { MOST_STEPS = 10000 };

typedef struct profile_arguments {
    ech_run_line run;
    int64_t steps;
    const char *out;
} profile_arguments;

static const ech_option options[] = {
    ECH_RUN_RANKS,
    ECH_INT(profile_arguments, steps, "steps", 's', "K", 1, MOST_STEPS, "steps to measure (5)"),
    ECH_PATH(profile_arguments, out, "out", 'o', "FILE",
             "where it is written (profile.json in log.directory)"),
    {0}};

/* spread: the difference of the quartiles, divided by the time. */
static void print_times(const char *name, const double seconds[ECH_PROFILE_PHASES], double spread)
{
    printf("%-28s", name);
    for (int phase = 0; phase < ECH_PROFILE_PHASES; phase++)
        printf(" %10.3f", 1e3 * seconds[phase]);
    printf(" %6.1f %%", 100 * spread);
}

/* The share of non-zeros that sparse codes need room for; nothing without such codes. */
static void print_densities(const ech_profile *profile)
{
    double least = 1, most = 0;
    for (int b = 0; b < profile->blocks; b++) {
        double density = profile->block[b].density;
        if (density > 0 && density < least) least = density;
        if (density > most) most = density;
    }
    if (most > 0)
        printf("\nsparse codes: %.3f to %.3f of a block's values are not zero", least, most);
}

/* A line per block, also where neighbours cost the same. */
static void print_profile(const ech_profile *profile, const ech_model *model)
{
    double sums[ECH_PROFILE_PHASES] = {0};
    printf("%s\n", profile->model);
    printf("%-28s %10s %10s %10s %10s %10s %10s %8s %12s %12s %12s\n", "a micro-batch, ms", "F",
           "B", "W", "R selective", "R full", "R invert", "spread", "saved", "sent on",
           "parameters");
    for (int b = 0; b < profile->blocks; b++) {
        const ech_profile_block *cost = &profile->block[b];
        for (int phase = 0; phase < ECH_PROFILE_PHASES; phase++)
            sums[phase] += cost->seconds[phase];
        print_times(model->block.at[b]->name, cost->seconds, ech_measured_times_spread(cost, 1));
        printf(" %12s %12s %12s\n", ECH_BYTES(cost->activation_bytes),
               ECH_BYTES(cost->boundary_bytes), ECH_BYTES(cost->param_bytes));
    }
    print_times("all", sums, profile->spread);
    printf("\nnorm and update: %s of parameters; all else: %.3f ms a step",
           profile->update_seconds > 0 ? ECH_SCALED(1 / profile->update_seconds, "B/s") : "no time",
           1e3 * profile->other_seconds);
    if (profile->bandwidth > 0)
        printf("; messages: %s, %.1f us", ECH_SCALED(profile->bandwidth, "B/s"),
               1e6 * profile->latency);
    else
        printf("; messages: not measured, with one rank");
    print_densities(profile);
    printf("\n");
}

static ech_status write_profile(const ech_profile *profile, const ech_model *model,
                                const char *path)
{
    print_profile(profile, model);
    ECH_TRY(ech_profile_write(profile, path));
    printf("written to %s; use it with parallel.profile=%s\n", path, path);
    if (profile->busy)
        ech_log_warn("the machine was busy with other work: the quartiles of the times differ by "
                     "%.0f %%, and the compute lane had a processor for %.0f %% of the time; "
                     "predictions from this profile will be off as much. Measure again on an idle "
                     "machine, with a core for each thread",
                     100 * profile->spread, 100 * profile->processor_share);
    return ECH_OK;
}

static ech_status profile_rank(ech_comm *comm, const ech_design *design, void *context)
{
    const profile_arguments *in = context;
    const char *directory = design->config->log.directory;
    ECH_FREED char *path = in->out ? ech_strdup(in->out) : ech_file_join(directory, "profile.json");
    bool writes = ech_comm_rank(comm) == 0;
    ech_profile *profile;
    if (writes) ECH_TRY(in->out ? ech_file_check_place(path) : ech_file_make_folder(directory));
    ECH_TRY(ech_measure_blocks(design, comm, in->steps, &profile));
    ech_status status = ECH_OK;
    if (writes) status = write_profile(profile, design->model, path);
    ech_profile_destroy(profile);
    return status;
}

/* The layout may ask for the very profile that is to be made. */
static void adjust(ech_config *config)
{
    ech_config_replace_text(&config->parallel.profile, "");
    if (config->parallel.partition.word == ECH_PARTITION_AUTO)
        config->parallel.partition.word = ECH_PARTITION_EVEN;
}

static ech_status profile(profile_arguments *in, int ranks)
{
    ECH_CLEANUP(ech_run_close) ech_run run = {0};
    ech_run_arguments arguments = ech_run_line_arguments(&in->run);
    const ech_start start = {
        .command = "profile", .run = &run, .main = profile_rank, .context = in};
    arguments.ranks = ranks;
    ech_status status = ech_run_open(&arguments, &run);
    if (status == ECH_OK) {
        adjust(run.config);
        status = ech_start_ranks(&start);
    }
    free(arguments.assignment.at);
    return status;
}

ech_status ech_command_profile(int argc, char **argv, int *code)
{
    const ech_command_line line = {ECH_RUN_LINE, .about = about, .option = options};
    profile_arguments in = {.steps = 5};
    ech_launch_outcome outcome;
    ech_command_line_parse(&line, argc, argv, &in);
    char steps[40], out[4200], *words[] = {steps, out};
    snprintf(steps, sizeof steps, "--steps=%lld", (long long)in.steps);
    snprintf(out, sizeof out, "--out=%s", in.out ? in.out : "");
    const ech_launch_request request = {.command = "profile",
                                        .line = &in.run,
                                        .options = words,
                                        .n = in.out ? 2 : 1,
                                        .adjust = adjust};
    ech_status status = ech_launch_ranks(&request, &outcome);
    *code = outcome.code;
    if (status == ECH_OK && !outcome.is_done) status = profile(&in, outcome.ranks);
    free(in.run.assignment.at);
    return status;
}
