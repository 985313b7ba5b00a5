/* SPDX-License-Identifier: Apache-2.0
 *
 * How a run's ranks come to be: threads, ranks of a launcher, or a launcher to be.
 */
#include <stdlib.h>
#include <string.h>

#include "app/launcher.h"
#include "app/run_arguments.h"
#include "base/log.h"

static const char *look_up(const char *name)
{
    return getenv(name);
}

/* Of the processes of a launcher one speaks, as long as they do not know each other. Returns what
 * ech_log_set_quiet wants back. */
static bool hush(void)
{
    ech_launched launched;
    bool others_speak = ech_launcher_seen(look_up, &launched) && launched.rank > 0;
    bool quiet = ech_log_set_quiet(others_speak);
    if (!others_speak) ech_log_set_quiet(quiet);
    return quiet;
}

ech_status ech_run_config(const ech_run_arguments *arguments, ech_config **out)
{
    bool quiet = hush();
    ech_status status = ech_setup_config(arguments->file, arguments->assignment.at,
                                         (int)arguments->assignment.n, out);
    ech_log_set_quiet(quiet);
    return status;
}

/* Whether the plan fits, where that does not depend on how many ranks share a machine. */
static ech_status check_memory(const ech_config *config, const ech_design *design)
{
    bool is_known =
        config->memory.device_limit != ECH_AUTO || strcmp(config->parallel.comm, "local") == 0;
    ech_plan *plan = NULL;
    ech_status status = is_known ? ech_design_plan(design, 0, false, &plan) : ECH_OK;
    ech_plan_destroy(plan);
    return status;
}

static ech_status check_tokens(const char *prefix)
{
    ech_token_file *file = NULL;
    ech_status status = ech_token_file_open(prefix, &file);
    ech_token_file_close(file);
    return status;
}

/* What can be refused without starting anything is refused once, not by every rank. */
static ech_status preflight(const ech_config *config, int ranks)
{
    ech_config *copy = ech_config_copy(config);
    ech_design design = {0};
    ech_status status = ech_setup_resolve(copy, ranks, ranks);
    if (status == ECH_OK) status = ech_design_create(copy, ranks, &design);
    if (status == ECH_OK) status = check_memory(config, &design);
    if (status == ECH_OK) status = check_tokens(copy->data.train);
    if (status == ECH_OK && copy->data.valid[0]) status = check_tokens(copy->data.valid);
    ech_design_destroy(&design);
    ech_config_destroy(copy);
    return status;
}

ech_status ech_run_ranks_of(const ech_config *config, int given, int *ranks)
{
    int64_t asked = given ? given : ech_setup_ranks(config);
    if (asked > ECH_MOST_RANKS)
        return ech_config_complain(config, "parallel.data", "at most %d ranks", ECH_MOST_RANKS);
    *ranks = asked ? (int)asked : 1;
    return ECH_OK;
}

static ech_status start_threads(const ech_start *start, const ech_launched *launched)
{
    const ech_config *config = start->config;
    int ranks = start->arguments->ranks;
    if (launched && launched->size > 1)
        return ech_config_complain(config, "parallel.comm",
                                   "%s started %lld processes, and each would train alone; use "
                                   "parallel.comm=mpi, or no launcher",
                                   launched->by, (long long)launched->size);
    ECH_TRY(ech_run_ranks_of(config, ranks, &ranks));
    ECH_TRY(preflight(config, ranks));
    return ech_run_ranks("local", ranks, config->parallel.deadline, start->main, start->context);
}

/* "train --option RUN.yaml section.key=value", without --ranks. */
static ech_status start_launcher(const ech_start *start, int *code)
{
    ECH_LIST(char *) words = {0};
    const ech_run_arguments *arguments = start->arguments;
    char *command = ech_strdup(start->command);
    ECH_PUSH(words, command);
    for (int i = 0; i < start->n; i++) ECH_PUSH(words, start->options[i]);
    ECH_PUSH(words, arguments->file);
    for (size_t i = 0; i < arguments->assignment.n; i++)
        ECH_PUSH(words, arguments->assignment.at[i]);
    int launcher_code = ECH_EXIT_FAILED;
    ech_status status = ech_launcher_run(arguments->ranks, words.at, (int)words.n,
                                         start->stop_signal, &launcher_code);
    bool is_ours = launcher_code == ECH_EXIT_DONE || launcher_code == ECH_EXIT_USAGE ||
                   launcher_code == ECH_EXIT_STOPPED;
    *code = is_ours ? launcher_code : ECH_EXIT_FAILED;
    free(words.at);
    free(command);
    return status;
}

static ech_status check_size(int ranks, const ech_launched *launched)
{
    if (!ranks || !launched->size || launched->size == ranks) return ECH_OK;
    ECH_FAIL(ECH_EUSAGE,
             "--ranks %d, but %s started %lld; leave --ranks out: it is for starting a launcher",
             ranks, launched->by, (long long)launched->size);
}

static ech_status start_processes(const ech_start *start, const ech_launched *launched, int *code)
{
    const ech_config *config = start->config;
    int ranks = start->arguments->ranks;
    if (launched) {
        ECH_TRY(check_size(ranks, launched));
    } else {
        ECH_TRY(preflight(config, ranks ? ranks : 1));
        if (ranks > 1) return start_launcher(start, code);
    }
    return ech_run_ranks(config->parallel.comm, 0, config->parallel.deadline, start->main,
                         start->context);
}

ech_status ech_start_ranks(const ech_start *start, int *code)
{
    ech_launched seen;
    const ech_launched *launched = ech_launcher_seen(look_up, &seen) ? &seen : NULL;
    bool is_local = strcmp(start->config->parallel.comm, "local") == 0;
    return is_local ? start_threads(start, launched) : start_processes(start, launched, code);
}
