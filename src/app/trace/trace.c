/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's trace. A list is one record of a journal: a run that is killed leaves whole lists. A thread of its
 * own prints and writes them; training copies the times.
 */
#include "app/trace/trace.h"

#include <stdlib.h>
#include <string.h>

#include "app/record_writer.h"
#include "app/trace/events.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/journal.h"
#include "base/log.h"

enum { MOST_LISTS = 4 }; /* that may wait to be written */

/* What is kept of a list: [2][steps], when they began and when they ended. */
typedef struct trace_times {
    int64_t step; /* training step at which the list began */
    double at[];
} trace_times;

struct ech_trace {
    const ech_plan *plan;
    char *folder, *merged; /* RUNDIR/trace, RUNDIR/trace.json */
    ech_record_writer *writer;
    ech_trace_events *events; /* the record writer's, and so are the next two */
    ech_journal *journal;
    bool broken;
    int64_t first_step, steps;
    bool finished;
};

/* A record that is lost leaves a hole; what follows would not be understood. */
static void write_record(ech_trace *trace, ech_text *record)
{
    if (!trace->broken) trace->broken = !ech_journal_add(trace->journal, record->at, record->n);
    ech_text_free(record);
}

static ech_status open_file(ech_trace *trace)
{
    ECH_FREED char *path = ech_trace_path(trace->folder, trace->plan->rank);
    ech_status status = ech_file_make_folder(trace->folder);
    if (status == ECH_OK) status = ech_journal_open(path, true, &trace->journal);
    /* What is there tells of another start. */
    if (status == ECH_OK && trace->plan->rank == 0) status = ech_file_remove_all(trace->merged);
    return status;
}

static size_t steps_of(const ech_trace *trace)
{
    return trace->plan->list[ECH_LIST_TRAIN].step.n;
}

/* On the record writer's thread. */
static void write_list(void *context, void *record)
{
    ech_trace *trace = context;
    const trace_times *times = record;
    ech_text lines = {0};
    ech_trace_events_list(trace->events, times->step, times->at, times->at + steps_of(trace),
                          &lines);
    write_record(trace, &lines);
}

static ech_status begin_writer(ech_trace *trace)
{
    const ech_record_writer_setup setup = {.what = trace->folder,
                                           .record_bytes = sizeof(trace_times) +
                                                           2 * steps_of(trace) * sizeof(double),
                                           .records = MOST_LISTS,
                                           .write = write_list,
                                           .context = trace};
    return ech_record_writer_begin(&setup, &trace->writer);
}

static double read_clock(const void *context)
{
    (void)context;
    return ech_clock_now();
}

ech_status ech_trace_open(const ech_config *config, const ech_plan *plan, ech_comm *comm,
                          int64_t first_step, ech_trace **out)
{
    ech_comm_clock_offset clock;
    ECH_TRY(ech_comm_clock_agree(comm, ech_machine_of(comm), read_clock, NULL, &clock));
    ech_trace *trace = ech_calloc(1, sizeof *trace);
    *trace = (ech_trace){.plan = plan,
                         .folder = ech_file_join(config->log.directory, "trace"),
                         .merged = ech_file_join(config->log.directory, "trace.json"),
                         .events = ech_trace_events_create(plan, clock),
                         .first_step = first_step,
                         .steps = config->log.trace_steps};
    ech_status status = open_file(trace);
    if (status == ECH_OK) {
        ech_text head = {0};
        ech_trace_events_head(trace->events, first_step, &head);
        write_record(trace, &head);
        status = begin_writer(trace);
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
    ech_record_writer_end(trace->writer);
    ech_journal_close(trace->journal);
    ech_trace_events_destroy(trace->events);
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
    size_t steps = steps_of(trace), bytes = steps * sizeof(double);
    trace_times *times = ech_record_writer_slot(trace->writer);
    times->step = step;
    memcpy(times->at, ech_exec_begins(exec), bytes);
    memcpy(times->at + steps, ech_exec_ends(exec), bytes);
    ech_record_writer_submit(trace->writer);
}

/* Ranks of other machines may have written where this one does not look. */
static bool merge(const ech_trace *trace)
{
    int ranks = trace->plan->layout->world;
    for (int rank = 0; rank < ranks; rank++) {
        char *path = ech_trace_path(trace->folder, rank);
        bool there = ech_file_exists(path);
        if (!there) ech_log_warn("no %s: %s is not there", trace->merged, path);
        free(path);
        if (!there) return false;
    }
    if (ech_trace_merge(trace->folder, ranks, trace->merged) == ECH_OK) return true;
    ech_log_warn("no %s: the run goes on without it", trace->merged);
    return false;
}

ech_status ech_trace_finish(ech_trace *trace, ech_group *world, bool *written)
{
    *written = false;
    if (!trace || trace->finished) return ECH_OK;
    trace->finished = true;
    ech_record_writer_flush(trace->writer);
    ECH_TRY(ech_group_barrier(world)); /* all files are whole */
    if (trace->plan->rank == 0) *written = merge(trace);
    return ECH_OK;
}
