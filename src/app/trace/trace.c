/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's trace. Training copies the times of a list to a record writer, whose thread writes each
 * list as one record of a journal, so that a run that is killed leaves complete lists.
 */
#include "app/trace/trace.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/record_writer.h"
#include "base/file.h"
#include "base/journal.h"
#include "base/json.h"
#include "base/log.h"
#include "base/writing.h"

/* ---- events, one a line; all but the first begin with the comma that divides them ---- */

enum { LARGEST_FILE = 1 << 30 };

struct ech_trace_events {
    const ech_plan *plan;
    ech_comm_clock_offset clock;
    int64_t free[ECH_LANES][ECH_TRACE_THREADS]; /* nanosecond from which on the thread is free */
    int used[ECH_LANES];                        /* threads */
    uint32_t *messages; /* so far: [ranks][blocks + 1][ech_message_kind][sends, or receives] */
};

ech_trace_events *ech_trace_events_create(const ech_plan *plan, ech_comm_clock_offset clock)
{
    ech_trace_events *events = ech_calloc(1, sizeof *events);
    size_t rows = (size_t)plan->layout->world * (plan->model->block.n + 1) * ECH_MESSAGES;
    *events = (ech_trace_events){
        .plan = plan, .clock = clock, .messages = ech_calloc(rows * 2, sizeof *events->messages)};
    return events;
}

void ech_trace_events_destroy(ech_trace_events *events)
{
    if (!events) return;
    free(events->messages);
    free(events);
}

/* ---- names ---- */

/* thread -1: of the process. `more`: further args. */
static void print_name(int rank, int thread, const char *name, const char *more, ech_text *out)
{
    const char *what = thread < 0 ? "process" : "thread";
    ECH_FREED_TEXT owner = {0};
    ech_text_append(&owner, "\"ph\":\"M\",\"pid\":%d", rank);
    if (thread >= 0) ech_text_append(&owner, ",\"tid\":%d", thread);
    ech_text_append(out, "{\"name\":\"%s_name\",%s,\"args\":{\"name\":\"%s\"%s}}\n", what, owner.at,
                    name, more);
    ech_text_append(out, ",{\"name\":\"%s_sort_index\",%s,\"args\":{\"sort_index\":%d}}\n", what,
                    owner.at, thread < 0 ? rank : thread);
}

/* "rank 3 (stage 0, replica 1, tensor 1)": axes along which no rank is the second are left out. */
static void print_coordinates(const ech_layout *layout, int rank, ech_text *out)
{
    const ech_coordinates *here = &layout->coordinates[rank];
    bool replicas = false;
    for (int r = 0; r < layout->world; r++) replicas |= layout->coordinates[r].data > 0;
    if (ech_layout_serves(layout, rank)) {
        ech_text_append(out, "rank %d (server %d)", rank, here->data - layout->replicas[0]);
        return;
    }
    ech_text_append(out, "rank %d (stage %d", rank, here->stage);
    if (replicas) ech_text_append(out, ", replica %d", here->data);
    if (layout->context > 1) ech_text_append(out, ", context %d", here->context);
    if (layout->tensor > 1) ech_text_append(out, ", tensor %d", here->tensor);
    ech_text_append(out, ")");
}

void ech_trace_events_head(const ech_trace_events *events, int64_t first_step, ech_text *out)
{
    const ech_plan *plan = events->plan;
    ECH_FREED_TEXT row = {0}, more = {0};
    print_coordinates(plan->layout, plan->rank, &row);
    ech_text_append(&more, ",\"version\":%d,\"world\":%d,\"first_step\":%" PRId64,
                    ECH_TRACE_VERSION, plan->layout->world, first_step);
    ech_text_append(out, "[");
    print_name(plan->rank, -1, row.at, more.at, out);
    if (events->clock.error > 0)
        ech_text_append(
            out,
            ",{\"name\":\"process_labels\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"labels\":"
            "\"clock within %.1f us of rank 0's\"}}\n",
            plan->rank, 1e6 * events->clock.error);
}

/* ---- steps ---- */

static int64_t nanoseconds(const ech_trace_events *events, double time)
{
    return llround((time + events->clock.seconds) * 1e9);
}

static void append_microseconds(const char *key, int64_t nanoseconds, ech_text *out)
{
    ech_text_append(out, ",\"%s\":%" PRId64 ".%03" PRId64, key, nanoseconds / 1000,
                    nanoseconds % 1000);
}

/* A free thread of the lane, named when it is first used; if none is free, the last one. */
static int find_thread(ech_trace_events *events, ech_lane lane, int64_t begin, int64_t end,
                       ech_text *out)
{
    int thread = 0;
    while (thread < ECH_TRACE_THREADS - 1 && events->free[lane][thread] > begin) thread++;
    if (events->free[lane][thread] < end) events->free[lane][thread] = end;
    int id = (int)lane * ECH_TRACE_THREADS + thread;
    for (int *used = &events->used[lane]; *used <= thread; (*used)++) {
        char name[40];
        snprintf(name, sizeof name, *used ? "%s %d" : "%s", ech_lane_name(lane), *used + 1);
        ech_text_append(out, ",");
        print_name(events->plan->rank, id, name, "", out);
    }
    return id;
}

/* splitmix64's mixing: two different numbers collide with probability 2^-53. */
static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash + value + 1) * 0x9e3779b97f4a7c15u;
    hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
    hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebu;
    return hash ^ (hash >> 31);
}

/* The same for a send and for its receive, without a word between their ranks: messages of one kind
 * across one boundary keep their order. Below 2^53, so that every reader of JSON reads it
 * exactly. */
static int64_t number_message(ech_trace_events *events, const ech_step *step)
{
    bool sends = ech_step_sends(step);
    size_t kind = (size_t)ech_step_kind_message(step->kind);
    size_t boundaries = events->plan->model->block.n + 1,
           boundary = (size_t)ech_step_boundary(step);
    size_t row = (((size_t)step->peer * boundaries + boundary) * ECH_MESSAGES + kind) * 2 + sends;
    uint64_t hash = mix(boundary, kind);
    hash = mix(hash, (uint64_t)(sends ? events->plan->rank : step->peer));
    hash = mix(hash, (uint64_t)(sends ? step->peer : events->plan->rank));
    return (int64_t)(mix(hash, events->messages[row]++) >> 11);
}

/* One end of the arrow from a send to its receive. It must lie within the slice that it is tied
 * to. */
static void print_arrow(ech_trace_events *events, const ech_step *step, int64_t begin, int64_t end,
                        int thread, ech_text *out)
{
    bool sends = ech_step_sends(step);
    ech_text_append(out,
                    ",{\"name\":\"message\",\"cat\":\"message\",\"ph\":\"%s\",\"id\":%" PRId64
                    ",\"pid\":%d,\"tid\":%d",
                    sends ? "s" : "f\",\"bp\":\"e", number_message(events, step),
                    events->plan->rank, thread);
    append_microseconds("ts", sends || end == begin ? begin : end - 1, out);
    ech_text_append(out, "}\n");
}

static void print_step(ech_trace_events *events, const ech_step *step, int64_t list, int64_t begin,
                       int64_t end, ech_text *out)
{
    ECH_FREED_TEXT name = {0};
    int thread = find_thread(events, step->lane, begin, end, out);
    ech_step_print(step, &name);
    ech_text_append(out, ",{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d",
                    name.at, ech_step_name(step->kind), events->plan->rank, thread);
    append_microseconds("ts", begin, out);
    append_microseconds("dur", end - begin, out);
    ech_text_append(out, ",\"args\":{\"list\":%" PRId64 ",\"step\":%" PRId64 "}}\n", list,
                    list + step->turn);
    if (step->peer >= 0) print_arrow(events, step, begin, end, thread, out);
}

void ech_trace_events_list(ech_trace_events *events, int64_t step, const double *begin,
                           const double *end, ech_text *out)
{
    const ech_list *list = &events->plan->list[ECH_LIST_TRAIN];
    for (size_t s = 0; s < list->step.n; s++)
        print_step(events, &list->step.at[s], step, nanoseconds(events, begin[s]),
                   nanoseconds(events, end[s]), out);
}

/* ---- all ranks ---- */

char *ech_trace_path(const char *folder, int rank)
{
    char name[32];
    snprintf(name, sizeof name, "rank-%05d.json", rank);
    return ech_file_join(folder, name);
}

/* After the last newline a line is incomplete. */
static ech_status append_file(const char *path, bool first, ech_text *out)
{
    ECH_FREED char *text = NULL;
    size_t n;
    ECH_TRY(ech_file_read(path, LARGEST_FILE, &text, &n));
    while (n > 0 && text[n - 1] != '\n') n--;
    if (n == 0 || text[0] != '[')
        ECH_FAIL(ECH_EINPUT,
                 "%s: no array of trace events: damaged or written only in part; run again with "
                 "log.trace=true",
                 path);
    if (!first) ech_text_append(out, ",");
    ech_text_append_bytes(out, text + 1, n - 1);
    return ECH_OK;
}

ech_status ech_trace_merge(const char *folder, int ranks, const char *path)
{
    ECH_FREED_TEXT all = {0};
    ech_text_append(&all, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    for (int rank = 0; rank < ranks; rank++) {
        ECH_FREED char *from = ech_trace_path(folder, rank);
        ECH_TRY(append_file(from, rank == 0, &all));
    }
    ech_text_append(&all, "]}\n");
    return ech_file_write_inside(path, all.at, all.n);
}

/* ---- the file ---- */

enum { MOST_LISTS = 4 }; /* that may be queued */

/* The record of a list: at[2][steps], when its steps began and when they ended. */
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

/* Writes nothing after a record that was lost: readers need all lists from the first on. */
static void write_record(ech_trace *trace, ech_text *record)
{
    if (!trace->broken) trace->broken = !ech_journal_add(trace->journal, record->at, record->n);
    ech_text_free(record);
}

static ech_status open_file(ech_trace *trace)
{
    ECH_FREED char *path = ech_trace_path(trace->folder, trace->plan->rank);
    if (ech_file_is_link(trace->folder))
        ECH_FAIL(ECH_EIO, "%s: is a link, and nothing is written through it; remove or rename it",
                 trace->folder);
    ECH_TRY(ech_file_make_folder(trace->folder));
    ECH_TRY(ech_journal_open(path, true, &trace->journal));
    /* It is of an earlier start. */
    return trace->plan->rank == 0 ? ech_file_remove_all(trace->merged) : ECH_OK;
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

ech_status ech_trace_open(const ech_config *config, const ech_plan *plan, ech_comm *comm,
                          int64_t first_step, ech_trace **out)
{
    ech_comm_clock_offset clock;
    ECH_TRY(ech_comm_clock_agree(comm, plan->layout->world, ech_machine_of(comm), 0, &clock));
    ECH_CLEANUP(ech_trace_close_at) ech_trace *trace = ech_calloc(1, sizeof *trace);
    *trace = (ech_trace){.plan = plan,
                         .folder = ech_file_join(config->log.directory, "trace"),
                         .merged = ech_file_join(config->log.directory, "trace.json"),
                         .events = ech_trace_events_create(plan, clock),
                         .first_step = first_step,
                         .steps = config->log.trace_steps};
    const ech_record_writer_setup setup = {.what = trace->folder,
                                           .record_bytes = sizeof(trace_times) +
                                                           2 * steps_of(trace) * sizeof(double),
                                           .records = MOST_LISTS,
                                           .write = write_list,
                                           .context = trace};
    ech_text head = {0};
    ECH_TRY(open_file(trace));
    ech_trace_events_head(trace->events, first_step, &head);
    write_record(trace, &head);
    ECH_TRY(ech_record_writer_begin(&setup, &trace->writer));
    *out = trace;
    trace = NULL;
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
    memcpy(times->at, ech_exec_get_times(exec)->begins, bytes);
    memcpy(times->at + steps, ech_exec_get_times(exec)->ends, bytes);
    ech_record_writer_submit(trace->writer);
}

/* Ranks of other machines may have written to a disk that this one does not see. */
static bool merge(const ech_trace *trace)
{
    int ranks = trace->plan->layout->world;
    for (int rank = 0; rank < ranks; rank++) {
        ECH_FREED char *path = ech_trace_path(trace->folder, rank);
        if (ech_file_exists(path)) continue;
        ech_log_warn("no %s: %s is not there", trace->merged, path);
        return false;
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
