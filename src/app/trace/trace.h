/* SPDX-License-Identifier: Apache-2.0
 *
 * Traces of runs (log.trace): when each step of each rank began and ended. One file per rank in the
 * run directory, trace/rank-00000.json, and all ranks' merged in trace.json, for ui.perfetto.dev.
 * `echelon report` reads the ranks' files. docs/formats.md describes their keys. `step` and
 * `first_step` are training steps, from 0.
 */
#ifndef ECH_APP_TRACE_TRACE_H
#define ECH_APP_TRACE_TRACE_H

#include "comm/clock.h"
#include "exec/exec.h"
#include "schedule/plan.h"

/* ---- events ---- A rank's train lists in the Trace Event Format of Chrome and Perfetto: a process
 * per rank, a thread per lane, one event per line. Messages in flight at the same time are put on
 * further threads of the lane, since events of a thread must not overlap. Flow arrows lead from
 * sends to their receives. */

/* "version" in the "args" of a file's first event. */
enum { ECH_TRACE_VERSION = 4 };
/* Threads reserved per lane: an event's lane is its "tid" divided by this. */
enum { ECH_TRACE_THREADS = 32 };

typedef struct ech_trace_events ech_trace_events;

/* `clock`: the offset from this rank's clock to rank 0's. Borrows the plan, which may be an
 * outline. */
ech_trace_events *ech_trace_events_create(const ech_plan *plan, ech_comm_clock_offset clock);
void ech_trace_events_destroy(ech_trace_events *events); /* accepts NULL */

/* Appends the head of a file: the array's bracket, and events that name the rank. `first_step`:
 * where this start of the run began. */
void ech_trace_events_head(const ech_trace_events *events, int64_t first_step, ech_text *out);
/* Appends the events of the train list that began at `step`; begin and end, [steps of the list],
 * are seconds on this rank's clock. Call it in the order of execution. The JSON array is never
 * closed, as the format allows. */
void ech_trace_events_list(ech_trace_events *events, int64_t step, const double *begin,
                           const double *end, ech_text *out);

/* "FOLDER/rank-00003.json"; release with free(). */
char *ech_trace_path(const char *folder, int rank);
/* Merges the ranks' files of the folder into one file. Errors: a file is missing or is not a
 * trace. */
ech_status ech_trace_merge(const char *folder, int ranks, const char *path);

typedef struct ech_trace ech_trace;

/* Measures the offset of this rank's clock to rank 0's, recreates this rank's file and removes
 * RUNDIR/trace.json. Borrows the plan. Collective over all ranks. */
ech_status ech_trace_open(const ech_config *config, const ech_plan *plan, ech_comm *comm,
                          int64_t first_step, ech_trace **out);
void ech_trace_close(ech_trace *trace); /* flushes; accepts NULL */
ECH_DESTROY_AT(ech_trace, ech_trace_close)

/* True if the train list that begins at `step` is recorded: `step` is one of the first
 * log.trace_steps of this start. trace NULL: false. */
bool ech_trace_wants(const ech_trace *trace, int64_t step);
/* Submits the recorded times (ech_exec_record) of the train list that began at `step` to a record
 * writer; does nothing if it is not wanted. After a list that could not be written completely,
 * later ones are not written. */
void ech_trace_take(ech_trace *trace, const ech_exec *exec, int64_t step);
/* After the last list to be recorded: flushes, and rank 0 merges all ranks' files into
 * RUNDIR/trace.json. If it cannot, it only warns. *written: true on rank 0 if this call has merged
 * them. Further calls, and calls with trace NULL, do nothing. Collective. */
ech_status ech_trace_finish(ech_trace *trace, ech_group *world, bool *written);

#endif
