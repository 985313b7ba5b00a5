/* SPDX-License-Identifier: Apache-2.0
 *
 * echelon plan RUN.yaml|--model FOLDER [--ranks N] [--per-machine M] [--cluster FILE [--tokens N]]
 *              [--steps] [--simulate] [--json] [--svg FILE] [section.key=value ...]
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/command.h"
#include "app/plan/report.h"
#include "app/setup/initial.h"
#include "app/setup/run_arguments.h"
#include "app/status_line.h"
#include "base/clock.h"
#include "base/file.h"

static const char about[] =
    "Shows what the run file asks for, without running anything: the layout over ranks, the "
    "schedule in time, the buckets in which gradients are reduced, every byte of memory by kind, "
    "and the bytes sent and copied. A run that does not fit is refused with a table of its "
    "memory.\v" ECH_RUN_NOTE;

typedef struct plan_arguments {
    ech_run_arguments run;
    int per_machine; /* 0: not given */
    const char *svg; /* NULL: no picture */
    const char *cluster; /* cluster file; NULL: this machine */
    const char *tokens;  /* of a whole training, as 300B; NULL: not given */
    bool json;
    ech_plan_options options;
} plan_arguments;

static const ech_option options[] = {
    ECH_RUN_RANKS,
    ECH_INT(plan_arguments, per_machine, "per-machine", 'm', "M", 1, ECH_MOST_RANKS,
            "ranks on one machine, which share its cores and memory (all, but not more than "
            "cores)"),
    ECH_FLAG(plan_arguments, options.steps, "steps", 's', "every step of a training step, too"),
    ECH_FLAG(plan_arguments, options.simulate, "simulate", 't',
             "step time, bubble, what compute waits for, micro-batches in flight, bytes per link; "
             "in seconds with "
             "parallel.profile"),
    ECH_PATH(plan_arguments, run.model, "model", 'o', "FOLDER",
             "in place of RUN.yaml: what `echelon init FOLDER` writes; only config.json is "
             "read"),
    ECH_PATH(plan_arguments, cluster, "cluster", 'c', "FILE",
             "for the devices and the network that FILE describes (docs/clusters.md), not for this "
             "machine"),
    ECH_TEXT(plan_arguments, tokens, "tokens", 'k', "N",
             "with --cluster: tokens of the whole training, as 300B or 1.5T"),
    ECH_FLAG(plan_arguments, json, "json", 'j', "as one JSON object"),
    ECH_PATH(plan_arguments, svg, "svg", 'g', "FILE", "draws the timeline into FILE as well"),
    {0}};

static ech_status find_ranks(const ech_config *config, const plan_arguments *in, int *ranks,
                             int *local_ranks)
{
    int cores = ech_device_find("cpu")->cores();
    ECH_TRY(ech_run_ranks_of(config, in->run.ranks, ranks));
    *local_ranks = in->per_machine ? in->per_machine : *ranks;
    if (ech_comm_has_threads((ech_comm_kind)config->parallel.comm) || *local_ranks > *ranks)
        *local_ranks = *ranks;
    else if (!in->per_machine && *local_ranks > cores)
        *local_ranks = cores;
    return ECH_OK;
}

/* ---- what a long plan is doing, on a terminal ---- */

static const double silent = 2, between = 0.5; /* seconds */

typedef struct progress {
    _Atomic(const char *) doing;
    pthread_t thread;
    bool started;
    pthread_mutex_t mutex; /* guards the next field */
    bool ended;
    pthread_cond_t changed;
} progress;

static void wait_until(progress *p, double wall)
{
    struct timespec until = {.tv_sec = (time_t)wall};
    until.tv_nsec = (long)((wall - (double)until.tv_sec) * 1e9);
    pthread_cond_timedwait(&p->changed, &p->mutex, &until);
}

static void *draw_progress(void *argument)
{
    progress *p = argument;
    ech_status_line line;
    double began = ech_clock_now(), next = silent;
    ech_status_line_begin(&line);
    pthread_mutex_lock(&p->mutex);
    while (!p->ended) {
        double seconds = ech_clock_now() - began;
        char text[160];
        snprintf(text, sizeof text, "%s, %.0f s", p->doing, seconds);
        if (seconds >= next) ech_status_line_draw(&line, text, true);
        if (seconds >= next) next = seconds + between;
        wait_until(p, ech_clock_wall() + next - seconds);
    }
    pthread_mutex_unlock(&p->mutex);
    ech_status_line_end(&line);
    return NULL;
}

/* Without a terminal, or a thread to be had, nothing is drawn. */
static void begin_progress(progress *p)
{
    *p = (progress){.doing = "choosing a layout",
                    .mutex = PTHREAD_MUTEX_INITIALIZER,
                    .changed = PTHREAD_COND_INITIALIZER};
    if (ech_terminal_columns())
        p->started = pthread_create(&p->thread, NULL, draw_progress, p) == 0;
}

static void end_progress(progress *p)
{
    if (!p->started) return;
    pthread_mutex_lock(&p->mutex);
    p->ended = true;
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->mutex);
    pthread_join(p->thread, NULL);
    p->started = false;
}

/* ---- the plan ---- */

static ech_status print_report(const ech_design *design, const plan_arguments *in, progress *shown)
{
    ECH_CLEANUP(ech_plan_report_destroy) ech_plan_report report = {0};
    ECH_FREED_TEXT text = {0}, svg = {0};
    ECH_TRY(ech_plan_report_create(design, &in->options, &report));
    end_progress(shown);
    if (in->json)
        ECH_TRY(ech_plan_report_json(&report, &text));
    else
        ech_plan_report_text(&report, &text);
    fwrite(text.at, 1, text.n, stdout);
    if (!in->svg) return ECH_OK;
    ECH_TRY(ech_plan_report_svg(&report, &svg));
    return ech_file_write(in->svg, svg.at, svg.n);
}

/* "1.5T", "300B". */
static ech_status read_tokens(const char *text, double *out)
{
    static const char letters[] = "kMBT";
    char *end;
    double number = text ? strtod(text, &end) : 0;
    *out = number;
    if (!text) return ECH_OK;
    const char *letter = *end ? strchr(letters, *end) : NULL;
    for (long i = letter ? letter - letters + 1 : 0; i > 0; i--) *out *= 1000;
    bool whole = end > text && !strpbrk(text, "xX") && (!*end || (letter && !end[1]));
    if (whole && *out >= 1 && *out <= 1e18) return ECH_OK;
    ECH_FAIL(ECH_EUSAGE, "--tokens=%s: not a number of tokens, as 300B or 1.5T", text);
}

/* Sets keys that the run leaves open to what the cluster has. */
static ech_status read_cluster(ech_config *config, const char *path, int ranks, ech_cluster *out)
{
    static const char *const replaced[] = {"parallel.profile", "parallel.node_bandwidth",
                                           "parallel.network_bandwidth",
                                           "memory.offload_bandwidth"};
    char text[32];
    ECH_TRY(ech_cluster_read(path, out));
    ECH_TRY(ech_cluster_check(out, path, ranks));
    for (size_t i = 0; i < sizeof replaced / sizeof *replaced; i++)
        if (ech_config_is_set(config, replaced[i]))
            return ech_config_complain(
                config, replaced[i], "not with --cluster: %s has the speeds; remove the key", path);
    ech_dtype dtype = ech_model_types(config).compute;
    if (!(out->flops[dtype] > 0))
        ECH_FAIL(ECH_EUSAGE, "%s: flops.%s: not set, and the run computes in this type", path,
                 ech_dtype_name(dtype));
    int node = out->level[0].ranks < ranks ? out->level[0].ranks : ranks;
    snprintf(text, sizeof text, "%d", node);
    ECH_TRY(ech_config_fill(config, "parallel.node_ranks", text, path, true));
    snprintf(text, sizeof text, "%.0f", out->device_memory - out->device_reserved);
    return ech_config_fill(config, "memory.device_limit", text, path, true);
}

static ech_status plan_shown(const ech_run *run, plan_arguments *in, progress *shown)
{
    int ranks = 1, local_ranks = 1;
    int64_t step = 0; /* from which a run would go on */
    ECH_CLEANUP(ech_design_destroy) ech_design design = {0};
    ech_cluster cluster;
    ECH_TRY(find_ranks(run->config, in, &ranks, &local_ranks));
    ECH_TRY(read_tokens(in->tokens, &in->options.tokens));
    if (in->tokens && !in->cluster)
        ECH_FAIL(ECH_EUSAGE, "--tokens=%s: needs a cluster; add --cluster FILE", in->tokens);
    if (in->cluster) ECH_TRY(read_cluster(run->config, in->cluster, ranks, &cluster));
    ECH_TRY(ech_design_create(run->config, run->tokenizer, ranks, local_ranks, &design));
    if (in->cluster) design.cluster = &cluster;
    if (design.serves) ECH_TRY(ech_initial_step(design.config, &step));
    ECH_TRY(ech_design_check_repeat(&design, step));
    in->options.doing = &shown->doing;
    return print_report(&design, in, shown);
}

static ech_status plan(const ech_run *run, void *arguments, int *code)
{
    progress shown;
    (void)code;
    begin_progress(&shown);
    ech_status status = plan_shown(run, arguments, &shown);
    end_progress(&shown);
    return status;
}

static void check(void *arguments, const struct argp_state *state)
{
    const plan_arguments *in = arguments;
    if (!in->run.file == !in->run.model)
        argp_error(state, in->run.file ? "a run file and --model; give one of them"
                                       : "which run file? Or which model: --model FOLDER?");
}

ech_status ech_command_plan(int argc, char **argv, int *code)
{
    static const ech_word file = {offsetof(plan_arguments, run.file), NULL, false};
    const ech_command_line line = {.usage = "RUN.yaml|--model FOLDER [section.key=value ...]",
                                   .about = about,
                                   .option = options,
                                   .word = &file,
                                   .words = 1,
                                   .take = ech_run_take_word,
                                   .check = check};
    plan_arguments in = {.run.plans = true};
    return ech_run_command(&line, argc, argv, &in.run, plan, code);
}
