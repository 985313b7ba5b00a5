/* SPDX-License-Identifier: Apache-2.0
 *
 * echelon plan RUN.yaml|--model FOLDER [--ranks N] [--per-machine M] [--cluster FILE [--tokens N]]
 *              [--steps] [--simulate] [--memory-figure] [--json] [--svg FILE] [--html FILE]
 *              [section.key=value ...]
 * echelon plan RUN.yaml|--model FOLDER --search --cluster FILE [--ranks N] [--json] [--steps]
 *              [--emit FILE] [--html FILE]
 *     both also: [--emit-for SYSTEM --emit FILE]
 *                [--mtbf HOURS --restart SECONDS [--repair HOURS] [--spares N] [--goodput FILE]]
 */
#include <echelon.h>
#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program/command.h"
#include "base/terminal.h"
#include "program/run_line.h"
#include "base/clock.h"
#include "base/file.h"

static const char about[] =
    "Shows what the run file asks for, without running anything: the layout over ranks, the "
    "schedule in time, the buckets in which gradients are reduced, every byte of memory by kind, "
    "and the bytes sent and copied. A run that does not fit is refused with a table of its "
    "memory.\v" ECH_RUN_NOTE;

typedef struct plan_arguments {
    ech_run_line run;
    const char *svg;    /* NULL: no picture */
    const char *html;   /* NULL: no page */
    const char *tokens; /* of a whole training, as 300B; NULL: not given */
    bool json;
    int per_machine;
    bool steps, simulate, memory_figure;
    const char *cluster;
    bool search;
    const char *emit;     /* NULL: no file */
    const char *emit_for; /* whose arguments it has; NULL: it is a run file */
    double mtbf, restart, repair;
    int spares;
    const char *goodput; /* NULL: no picture */
} plan_arguments;

static const ech_option options[] = {
    ECH_RUN_RANKS,
    ECH_INT(plan_arguments, per_machine, "per-machine", 'm', "M", 1, ECHELON_MOST_RANKS,
            "ranks on one machine, which share its cores and memory (all, but not more than "
            "cores)"),
    ECH_FLAG(plan_arguments, steps, "steps", 's', "every step of a training step, too"),
    ECH_FLAG(plan_arguments, simulate, "simulate", 't',
             "step time, bubble, what compute waits for, micro-batches in flight, bytes per link; "
             "in seconds with "
             "parallel.profile"),
    ECH_FLAG(plan_arguments, memory_figure, "memory-figure", 0,
             "memory of a step without sharing of memory and gradients in place, with each, with "
             "both, and with recomputed segments"),
    ECH_PATH(plan_arguments, run.model, "model", 'o', "FOLDER",
             "in place of RUN.yaml: what `echelon init FOLDER` writes; only config.json is "
             "read"),
    ECH_PATH(plan_arguments, cluster, "cluster", 'c', "FILE",
             "for the devices and the network that FILE describes (docs/clusters.md), not for this "
             "machine"),
    ECH_TEXT(plan_arguments, tokens, "tokens", 'k', "N",
             "with --cluster: tokens (samples of images) of the whole training, as 300B or 1.5T"),
    ECH_FLAG(plan_arguments, search, "search", 'x',
             "with --cluster: searches degrees, micro-batch, schedule, ZeRO, recomputation and "
             "offload that the run does not set; lists the ten fastest layouts"),
    ECH_PATH(plan_arguments, emit, "emit", 'e', "FILE",
             "with --search: writes the run file of the fastest layout to FILE"),
    ECH_TEXT(plan_arguments, emit_for, "emit-for", 0, "SYSTEM",
             "--emit writes the layout as arguments of SYSTEM: megatron, torchtitan or deepspeed"),
    ECH_REAL(plan_arguments, mtbf, "mtbf", 0, "HOURS",
             "with --cluster: goodput if each rank fails once in HOURS on average, and the best "
             "interval of checkpoints; needs --restart"),
    ECH_REAL(plan_arguments, restart, "restart", 0, "SECONDS",
             "from a failure until the job trains again, if there is a spare machine"),
    ECH_REAL(plan_arguments, repair, "repair", 0, "HOURS",
             "until a machine that has failed is repaired (24)"),
    ECH_INT(plan_arguments, spares, "spares", 0, "N", 0, 1000000,
            "spare machines; without one the job waits for repair (0)"),
    ECH_PATH(plan_arguments, goodput, "goodput", 0, "FILE",
             "with --mtbf: draws goodput against ranks into FILE"),
    ECH_FLAG(plan_arguments, json, "json", 'j', "as one JSON object"),
    ECH_PATH(plan_arguments, svg, "svg", 'g', "FILE", "draws the timeline into FILE as well"),
    ECH_PATH(plan_arguments, html, "html", 'w', "FILE",
             "writes a page for browsers into FILE as well: ranks, memory, timeline, every step, "
             "bytes by level; with --search the layouts"),
    {0}};

/* ---- what a long plan is doing, on a terminal ---- */

static const double silent = 2, between = 0.5; /* seconds */

typedef struct progress {
    _Atomic(const char *) doing;
    pthread_t thread;
    bool started;
    sem_t ended;
} progress;

/* Waits until the plan is made, at most so many seconds; false: it is not. */
static bool await_end(progress *p, double seconds)
{
    double wall = ech_clock_wall() + seconds;
    struct timespec until = {.tv_sec = (time_t)wall};
    until.tv_nsec = (long)((wall - (double)until.tv_sec) * 1e9);
    return sem_timedwait(&p->ended, &until) == 0;
}

static void *draw_progress(void *argument)
{
    progress *p = argument;
    ech_terminal_line line;
    double began = ech_clock_now();
    ech_terminal_line_begin(&line);
    for (double wait = silent; !await_end(p, wait); wait = between) {
        char text[160];
        snprintf(text, sizeof text, "%s, %.0f s", p->doing, ech_clock_now() - began);
        ech_terminal_line_draw(&line, text, true);
    }
    ech_terminal_line_end(&line);
    return NULL;
}

/* Without a terminal, or a thread to be had, nothing is drawn. */
static void begin_progress(progress *p)
{
    *p = (progress){.doing = "choosing a layout"};
    sem_init(&p->ended, 0, 0);
    if (ech_terminal_columns())
        p->started = pthread_create(&p->thread, NULL, draw_progress, p) == 0;
}

static void end_progress(progress *p)
{
    sem_post(&p->ended);
    if (p->started) pthread_join(p->thread, NULL);
    sem_destroy(&p->ended);
}

/* ---- the plan ---- */

/* text NULL: it could not be made. */
static ech_status write_file(const char *path, const char *text)
{
    return text ? ech_file_write(path, text, strlen(text)) : ECH_EINPUT;
}

static ech_status print_plan(echelon_plan *plan, const plan_arguments *in)
{
    const char *text = in->json ? echelon_plan_json(plan) : echelon_plan_text(plan);
    if (!text) return ECH_EINPUT;
    fputs(text, stdout);
    if (in->memory_figure) {
        const char *figure = echelon_plan_memory_figure(plan);
        if (!figure) return ECH_EINPUT;
        printf("\n%s", figure);
    }
    if (in->svg) ECH_TRY(write_file(in->svg, echelon_plan_svg(plan)));
    if (in->emit) ECH_TRY(write_file(in->emit, echelon_plan_emitted(plan)));
    if (in->html) ECH_TRY(write_file(in->html, echelon_plan_html(plan)));
    return in->goodput ? write_file(in->goodput, echelon_plan_goodput_svg(plan)) : ECH_OK;
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
    ECH_FAIL(ECH_EUSAGE, "--tokens=%s: not a number of tokens; write it like 300B or 1.5T", text);
}

static void set_progress(const char *doing, void *context)
{
    progress *shown = context;
    shown->doing = doing;
}

static ech_status print_search(echelon_search *search, const plan_arguments *in)
{
    const char *text = in->json ? echelon_search_json(search) : echelon_search_text(search);
    if (!text) return ECH_EINPUT;
    fputs(text, stdout);
    if (in->emit)
        ECH_TRY(write_file(in->emit, in->emit_for ? echelon_search_emitted(search)
                                                  : echelon_search_run_file(search, 0)));
    if (in->html) ECH_TRY(write_file(in->html, echelon_search_html(search)));
    return in->goodput ? write_file(in->goodput, echelon_search_goodput_svg(search)) : ECH_OK;
}

static ech_status search(const plan_arguments *in, echelon_run *run,
                         const echelon_plan_options *wanted, progress *shown)
{
    echelon_search *found = NULL;
    if (in->svg || (in->steps && !in->json) || in->simulate || in->memory_figure)
        ECH_FAIL(ECH_EUSAGE,
                 "--search lists layouts; draw or simulate one of them with `echelon plan` and its "
                 "keys");
    begin_progress(shown);
    ech_status status = (ech_status)echelon_search_create(run, wanted, &found);
    end_progress(shown);
    if (status == ECH_OK) status = print_search(found, in);
    echelon_search_free(found);
    return status;
}

static const double usual_repair = 24; /* hours */

/* Options that need others. */
static ech_status check_options(const plan_arguments *in)
{
    if (in->tokens && !in->cluster)
        ECH_FAIL(ECH_EUSAGE, "--tokens=%s: needs a cluster; add --cluster FILE", in->tokens);
    if (in->emit && !in->search && !in->emit_for)
        ECH_FAIL(ECH_EUSAGE,
                 "--emit=%s: writes what --search finds, or what --emit-for names; add one of them",
                 in->emit);
    if (in->emit_for && !in->emit)
        ECH_FAIL(ECH_EUSAGE, "--emit-for=%s: which file? Add --emit FILE", in->emit_for);
    if (in->memory_figure && in->json)
        ECH_FAIL(ECH_EUSAGE, "--memory-figure prints text; remove --json");
    bool given = !isnan(in->mtbf), others = !isnan(in->restart) || !isnan(in->repair);
    if (!given && (others || in->spares || in->goodput))
        ECH_FAIL(ECH_EUSAGE, "--restart, --repair, --spares and --goodput are about failures; add "
                             "--mtbf");
    if (given && !(in->mtbf > 0 && in->mtbf < 1e12))
        ECH_FAIL(ECH_EUSAGE, "--mtbf: must be hours above 0");
    if (given && !(in->restart >= 0 && in->restart < 1e9))
        ECH_FAIL(ECH_EUSAGE, "--mtbf: a failure also costs the time until the job runs again; add "
                             "--restart SECONDS, from 0");
    if (!isnan(in->repair) && !(in->repair >= 0 && in->repair < 1e9))
        ECH_FAIL(ECH_EUSAGE, "--repair=%g: needs hours from 0", in->repair);
    return ECH_OK;
}

static ech_status plan(const plan_arguments *in, echelon_run *run)
{
    progress shown;
    echelon_plan *made = NULL;
    echelon_plan_options wanted = {.size = sizeof wanted,
                                   .ranks = in->run.ranks,
                                   .per_machine = in->per_machine,
                                   .steps = in->steps || (in->search && in->html),
                                   .simulate = in->simulate,
                                   .cluster = in->cluster,
                                   .progress = set_progress,
                                   .context = &shown,
                                   .emit_for = in->emit_for,
                                   .mtbf_hours = in->mtbf > 0 ? in->mtbf : 0,
                                   .restart_seconds = in->restart,
                                   .repair_hours = isnan(in->repair) ? usual_repair : in->repair,
                                   .spares = in->spares};
    ECH_TRY(read_tokens(in->tokens, &wanted.tokens));
    ECH_TRY(check_options(in));
    if (in->search) return search(in, run, &wanted, &shown);
    begin_progress(&shown);
    ech_status status = (ech_status)echelon_plan_create(run, &wanted, &made);
    end_progress(&shown);
    if (status == ECH_OK) status = print_plan(made, in);
    echelon_plan_free(made);
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
    plan_arguments in = {.mtbf = (double)NAN, .restart = (double)NAN, .repair = (double)NAN};
    echelon_run *run = NULL;
    (void)code;
    ech_command_line_parse(&line, argc, argv, &in);
    ech_status status = (ech_status)ech_run_line_open(&in.run, &run);
    if (status == ECH_OK) status = plan(&in, run);
    echelon_run_close(run);
    free(in.run.assignment.at);
    return status;
}
