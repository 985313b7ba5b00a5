/* SPDX-License-Identifier: Apache-2.0
 *
 * echelon profile RUN.yaml [--ranks N] [--steps K] [--out FILE] [section.key=value ...]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/command.h"
#include "app/count.h"
#include "app/plan/measure.h"
#include "app/setup/run_arguments.h"
#include "base/file.h"
#include "base/log.h"

static const char about[] =
    "Measures what the blocks of a model cost on this machine: seconds of forward and backwards, "
    "bytes "
    "saved for the backward and sent. Each rank trains the whole model alone for a few steps, all "
    "ranks at once. "
    "With "
    "the file as parallel.profile, `echelon plan --simulate' speaks of seconds, and "
    "parallel.partition=auto knows where to cut."
    "\v" ECH_RUN_NOTE;

enum { MOST_STEPS = 10000 };

typedef struct profile_arguments {
    ech_run_arguments run;
    int64_t steps;
    const char *out;
} profile_arguments;

static const ech_option options[] = {
    ECH_RUN_RANKS,
    ECH_INT(profile_arguments, steps, "steps", 's', "K", 1, MOST_STEPS, "steps to measure (5)"),
    ECH_TEXT(profile_arguments, out, "out", 'o', "FILE",
             "where it is written (profile.json in log.directory)"),
    {0}};

/* How far a block's quartiles are apart, in percent of its time. */
static double spread_percent(const ech_profile_block *cost)
{
    double apart = 0, sum = 0;
    for (int phase = 0; phase < ECH_PHASES; phase++) {
        apart += cost->high[phase] - cost->low[phase];
        sum += cost->seconds[phase];
    }
    return sum > 0 ? 100 * apart / sum : 0;
}

static void warn_of_others(const ech_profile *profile)
{
    if (profile->busy)
        ech_log_warn("the machine did something else, too: quartiles are %.0f %% apart, and the "
                     "compute lane had a processor for %.0f %% of the time; what is predicted from "
                     "this profile will be off as much, so measure again when nothing else runs "
                     "(or with fewer ranks and threads, if these have no core each)",
                     100 * profile->spread, 100 * profile->processor_share);
}

/* A line per block, also where neighbours cost the same. */
static void print_profile(const ech_profile *profile, const ech_model *model, const char *path)
{
    char update[ECH_COUNT_BYTES], saved[32], sent[32], held[32];
    double sums[ECH_PHASES] = {0};
    printf("%s\n", profile->model);
    printf("%-28s %10s %10s %10s %8s %12s %12s %12s\n", "a micro-batch, ms", "F", "B", "W",
           "spread", "saved", "sent on", "parameters");
    for (int b = 0; b < profile->blocks; b++) {
        const ech_profile_block *cost = &profile->block[b];
        for (int phase = 0; phase < ECH_PHASES; phase++) sums[phase] += cost->seconds[phase];
        printf("%-28s %10.3f %10.3f %10.3f %6.1f %% %12s %12s %12s\n", model->block.at[b]->name,
               1e3 * cost->seconds[ECH_FORWARD], 1e3 * cost->seconds[ECH_BACKWARD_INPUT],
               1e3 * cost->seconds[ECH_BACKWARD_WEIGHT], spread_percent(cost),
               ech_text_from_bytes(cost->activation_bytes, saved, sizeof saved),
               ech_text_from_bytes(cost->boundary_bytes, sent, sizeof sent),
               ech_text_from_bytes(cost->param_bytes, held, sizeof held));
    }
    printf("%-28s %10.3f %10.3f %10.3f %6.1f %%\n", "all", 1e3 * sums[ECH_FORWARD],
           1e3 * sums[ECH_BACKWARD_INPUT], 1e3 * sums[ECH_BACKWARD_WEIGHT], 100 * profile->spread);
    printf("norm and update: %s of parameters; all else: %.3f ms a step",
           profile->update_seconds > 0
               ? ech_count_scaled(1 / profile->update_seconds, "B/s", update)
               : "no time",
           1e3 * profile->other_seconds);
    if (profile->bandwidth > 0)
        printf("; messages: %s, %.1f us", ech_count_scaled(profile->bandwidth, "B/s", update),
               1e6 * profile->latency);
    else
        printf("; messages: not measured, with one rank");
    printf("\nwritten to %s; use it: parallel.profile=%s\n", path, path);
}

static ech_status write_profile(const ech_profile *profile, const ech_config *config,
                                const ech_model *model, const char *out)
{
    ECH_FREED char *path =
        out ? ech_strdup(out) : ech_file_join(config->log.directory, "profile.json");
    ech_status status = out ? ECH_OK : ech_file_make_folder(config->log.directory);
    if (status == ECH_OK) status = ech_profile_write(profile, path);
    if (status == ECH_OK) print_profile(profile, model, path);
    if (status == ECH_OK) warn_of_others(profile);
    return status;
}

static ech_status profile_rank(ech_comm *comm, const ech_design *design, void *context)
{
    const profile_arguments *in = context;
    ech_profile *profile;
    ECH_TRY(ech_measure_blocks(design, comm, in->steps, &profile));
    ech_status status = ECH_OK;
    if (ech_comm_rank(comm) == 0)
        status = write_profile(profile, design->config, design->model, in->out);
    ech_profile_destroy(profile);
    return status;
}

static ech_status profile(const ech_run *given, void *arguments, int *code)
{
    profile_arguments *in = arguments;
    ech_config *config = given->config;
    char steps[40], out[4200], *words[] = {steps, out};
    snprintf(steps, sizeof steps, "--steps=%lld", (long long)in->steps);
    snprintf(out, sizeof out, "--out=%s", in->out ? in->out : "");
    /* The layout may ask for the very profile that is to be made. */
    ech_config_replace_text(&config->parallel.profile, "");
    if (config->parallel.partition.word == ECH_PARTITION_AUTO)
        config->parallel.partition.word = ECH_PARTITION_EVEN;
    ech_start start = {.command = "profile",
                       .run = given,
                       .arguments = &in->run,
                       .options = words,
                       .n = in->out ? 2 : 1,
                       .main = profile_rank,
                       .context = in};
    return ech_start_ranks(&start, code);
}

ech_status ech_command_profile(int argc, char **argv, int *code)
{
    const ech_command_line line = {ECH_RUN_LINE, .about = about, .option = options};
    profile_arguments in = {.steps = 5};
    return ech_run_command(&line, argc, argv, &in.run, profile, code);
}
