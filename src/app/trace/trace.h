/* SPDX-License-Identifier: Apache-2.0
 *
 * Traces of real runs (log.trace): when every step of every rank began and ended, a file a rank in the
 * run directory, trace/rank-00000.json, which ui.perfetto.dev loads, and all ranks' in trace.json. `echelon report` reads
 * them. docs/formats.md has their keys.
 */
#ifndef ECH_APP_TRACE_TRACE_H
#define ECH_APP_TRACE_TRACE_H

#include "comm/clock.h"
#include "exec/exec.h"
#include "schedule/schedule.h"

/* ---- events ----
 *
 * A rank's train lists in the Trace Event Format of Chrome and Perfetto (ui.perfetto.dev): a process a rank, a
 * thread a lane, an event a line. Messages that are under way at the same time get threads of their own, since
 * events of a thread must not overlap. Arrows lead from sends to their receives. */

/* Of the "args" of a file's first event. */
enum { ECH_TRACE_VERSION = 4 };
/* Threads of a lane: its number is an event's "tid" divided by this. */
enum { ECH_TRACE_THREADS = 32 };

typedef struct ech_trace_events ech_trace_events;

/* `clock`: what makes this rank's times rank 0's. The plan must outlive the events; an outline will do. */
ech_trace_events *ech_trace_events_create(const ech_plan *plan, ech_comm_clock_offset clock);
void ech_trace_events_destroy(ech_trace_events *events); /* accepts NULL */

/* Appends what a file begins with: an array's bracket, and whose it is; `first_step`: of this start of the run. */
void ech_trace_events_head(const ech_trace_events *events, int64_t first_step, ech_text *out);
/* Appends the train list that began at training step `step`: the seconds at which each of its steps began and
 * ended on this rank's clock. Lists come in their order. The array is never closed: who reads it takes that. */
void ech_trace_events_list(ech_trace_events *events, int64_t step, const double *begin,
                           const double *end, ech_text *out);

/* FOLDER/rank-00003.json, released with free(). */
char *ech_trace_path(const char *folder, int rank);
/* Puts all ranks' files of the folder together as the one that `path` names. Errors: one is missing, or is none. */
ech_status ech_trace_merge(const char *folder, int ranks, const char *path);

typedef struct ech_trace ech_trace;

/* Begins this rank's file anew, with the offset of its clock to rank 0's, and removes RUNDIR/trace.json;
 * `first_step`: of this start of the run. Collective over all ranks. */
ech_status ech_trace_open(const ech_config *config, const ech_plan *plan, ech_comm *comm,
                          int64_t first_step, ech_trace **out);
void ech_trace_close(ech_trace *trace); /* all is written then; accepts NULL */

/* Whether the train list that begins at `step` is recorded: those of the first log.trace_steps steps are. NULL: no. */
bool ech_trace_wants(const ech_trace *trace, int64_t step);
/* Writes down, on a thread of its own, what ech_exec_record kept of the train list that began at `step`: all
 * of it, or, where that cannot be written, nothing of it and of later ones. */
void ech_trace_take(ech_trace *trace, const ech_exec *exec, int64_t step);
/* When no more is wanted: rank 0 puts all ranks' files together as RUNDIR/trace.json. Where it cannot, it
 * says why, and that is all. *written: it could. Once; NULL: nothing. Collective. */
ech_status ech_trace_finish(ech_trace *trace, ech_group *world, bool *written);

#endif
