/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's trace: one JSON object a line. The first says what the file is; then one for each step of
 * each recorded list, in the list's order, with seconds on the machine's clock. A list is one record of a
 * journal: a run that is killed leaves whole lists. A thread of its own writes them; training copies the times.
 */
#include "app/trace/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/trace/perfetto.h"
#include "app/trace/recording.h"
#include "app/metrics.h"
#include "app/scribe.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/journal.h"
#include "base/log.h"
#include "comm/clock.h"

enum { VERSION = 3, MOST_LISTS = 4 }; /* lists that may wait to be written */

/* What is kept of a list: [2][steps], when they began and when they ended. */
typedef struct trace_times {
    int64_t step; /* training step at which the list began */
    double at[];
} trace_times;

struct ech_trace {
    const ech_plan *plan;
    char *folder, *merged; /* RUNDIR/trace, RUNDIR/trace.json */
    ech_scribe *scribe;
    ech_journal *journal; /* the scribe's, and so is `broken` */
    ech_clock_offset clock;
    int64_t first_step, steps;
    bool broken, finished;
};

static ech_text print_head(const ech_trace *trace)
{
    const ech_layout *layout = trace->plan->layout;
    const ech_place *place = &layout->place[trace->plan->rank];
    ech_text line = {0};
    ech_metrics_int(&line, "version", VERSION);
    ech_metrics_int(&line, "rank", trace->plan->rank);
    ech_metrics_int(&line, "world", layout->world);
    ech_metrics_int(&line, "stage", place->stage);
    ech_metrics_int(&line, "data", place->data);
    ech_metrics_int(&line, "context", place->context);
    ech_metrics_int(&line, "tensor", place->tensor);
    ech_metrics_int(&line, "first_step", trace->first_step);
    ech_metrics_real(&line, "clock_offset", trace->clock.seconds);
    ech_metrics_real(&line, "clock_error", trace->clock.error);
    ech_text_append(&line, "}\n");
    return line;
}

/* A record that is lost leaves a hole; what follows would not be understood. */
static void write_record(ech_trace *trace, ech_text *record)
{
    if (!trace->broken) trace->broken = !ech_journal_add(trace->journal, record->at, record->n);
    ech_text_free(record);
}

static ech_status open_file(ech_trace *trace)
{
    char name[32];
    snprintf(name, sizeof name, "rank-%05d.jsonl", trace->plan->rank);
    char *path = ech_file_join(trace->folder, name);
    ech_status status = ech_file_make_folder(trace->folder);
    if (status == ECH_OK) status = ech_journal_open(path, true, &trace->journal);
    /* What is there tells of another start. */
    if (status == ECH_OK && trace->plan->rank == 0) status = ech_file_remove_all(trace->merged);
    free(path);
    return status;
}

/* The steps of the lists that are recorded. */
static const ech_list *list_of(const ech_trace *trace)
{
    return &trace->plan->list[ECH_LIST_TRAIN];
}

static void print_step(const trace_times *times, const ech_list *list, size_t s, ech_text *out)
{
    const ech_step *of = &list->step.at[s];
    ech_text line = {0}, name = {0};
    ech_step_print(of, &name);
    ech_metrics_int(&line, "list", times->step);
    ech_metrics_int(&line, "step", times->step + of->turn);
    ech_metrics_text(&line, "lane", ech_lane_name(of->lane));
    ech_metrics_text(&line, "kind", ech_step_name(of->kind));
    ech_metrics_text(&line, "name", name.at);
    if (of->block >= 0) {
        ech_metrics_int(&line, "chunk", of->chunk);
        ech_metrics_int(&line, "micro", of->micro);
        ech_metrics_int(&line, "block", of->block);
    }
    if (of->peer >= 0) ech_metrics_int(&line, "peer", of->peer);
    ech_text_append(out, "%s,\"begin\":%.9f,\"end\":%.9f}\n", line.at, times->at[s],
                    times->at[list->step.n + s]);
    ech_text_free(&line);
    ech_text_free(&name);
}

/* On the scribe's thread. */
static void write_list(void *context, void *record)
{
    ech_trace *trace = context;
    const ech_list *list = list_of(trace);
    ech_text lines = {0};
    for (size_t s = 0; s < list->step.n; s++) print_step(record, list, s, &lines);
    write_record(trace, &lines);
}

static ech_status begin_scribe(ech_trace *trace)
{
    size_t steps = list_of(trace)->step.n;
    const ech_scribe_setup setup = {.what = trace->folder,
                                    .record_bytes =
                                        sizeof(trace_times) + 2 * steps * sizeof(double),
                                    .records = MOST_LISTS,
                                    .write = write_list,
                                    .context = trace};
    return ech_scribe_begin(&setup, &trace->scribe);
}

static double read_clock(const void *context)
{
    (void)context;
    return ech_clock_now();
}

ech_status ech_trace_open(const ech_config *config, const ech_plan *plan, ech_comm *comm,
                          int64_t first_step, ech_trace **out)
{
    ech_clock_offset clock;
    ECH_TRY(ech_clock_agree(comm, ech_machine_of(comm), read_clock, NULL, &clock));
    ech_trace *trace = ech_calloc(1, sizeof *trace);
    *trace = (ech_trace){.plan = plan,
                         .folder = ech_file_join(config->log.directory, "trace"),
                         .merged = ech_file_join(config->log.directory, "trace.json"),
                         .clock = clock,
                         .first_step = first_step,
                         .steps = config->log.trace_steps};
    ech_status status = open_file(trace);
    if (status == ECH_OK) {
        ech_text head = print_head(trace);
        write_record(trace, &head);
        status = begin_scribe(trace);
    }
    if (status != ECH_OK) {
        ech_trace_close(trace);
        return status;
    }
    *out = trace;
    return ECH_OK;
}

void ech_trace_close(ech_trace *trace)
{
    if (!trace) return;
    ech_scribe_end(trace->scribe);
    ech_journal_close(trace->journal);
    free(trace->folder);
    free(trace->merged);
    free(trace);
}

bool ech_trace_wants(const ech_trace *trace, int64_t step)
{
    return trace && step < trace->first_step + trace->steps;
}

void ech_trace_take(ech_trace *trace, const ech_exec *exec, int64_t step)
{
    if (!ech_trace_wants(trace, step)) return;
    size_t steps = list_of(trace)->step.n, bytes = steps * sizeof(double);
    trace_times *times = ech_scribe_slot(trace->scribe);
    times->step = step;
    memcpy(times->at, ech_exec_begins(exec), bytes);
    memcpy(times->at + steps, ech_exec_ends(exec), bytes);
    ech_scribe_hand(trace->scribe);
}

static bool merge(const ech_trace *trace)
{
    ech_recording recording = {0};
    ech_text why = {0};
    ech_status status = ech_recording_read(trace->folder, &recording, &why);
    if (status == ECH_OK && recording.ranks)
        status = ech_perfetto_write(recording.trace, recording.ranks, trace->merged);
    bool written = status == ECH_OK && recording.ranks;
    if (why.n) ech_log_warn("no %s: %s", trace->merged, why.at);
    if (status != ECH_OK) ech_log_warn("no %s: the run goes on without it", trace->merged);
    ech_recording_free(&recording);
    ech_text_free(&why);
    return written;
}

ech_status ech_trace_finish(ech_trace *trace, ech_group *world, bool *written)
{
    *written = false;
    if (!trace || trace->finished) return ECH_OK;
    trace->finished = true;
    ech_scribe_settle(trace->scribe);
    ECH_TRY(ech_group_barrier(world)); /* all files are whole */
    if (trace->plan->rank == 0) *written = merge(trace);
    return ECH_OK;
}
