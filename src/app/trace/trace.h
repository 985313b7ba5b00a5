/* SPDX-License-Identifier: Apache-2.0
 *
 * Traces of real runs (log.trace): when every step of every rank began and ended, a file a rank in the
 * run directory, trace/rank-00000.json, which ui.perfetto.dev loads, and all ranks' in trace.json. `echelon report` reads
 * them. docs/formats.md has their keys.
 */
#ifndef ECH_APP_TRACE_TRACE_H
#define ECH_APP_TRACE_TRACE_H

#include "exec/exec.h"

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
