/* SPDX-License-Identifier: Apache-2.0
 *
 * Traces in the Trace Event Format of Chrome and Perfetto (ui.perfetto.dev): a process a rank, a
 * thread a lane. Messages that are under way at the same time get threads of their own, since events of a
 * thread must not overlap. Arrows lead from sends to their receives.
 */
#ifndef ECH_APP_TRACE_PERFETTO_H
#define ECH_APP_TRACE_PERFETTO_H

#include "app/trace/read.h"

/* Appends one JSON object with all ranks' steps, in microseconds since the first of them began; events
 * have three decimals. */
void ech_perfetto_print(const ech_rank_trace *traces, int n, ech_text *out);

/* The same into a file, by a temporary name. */
ech_status ech_perfetto_write(const ech_rank_trace *traces, int n, const char *path);

#endif
