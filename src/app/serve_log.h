/* SPDX-License-Identifier: Apache-2.0
 *
 * serves.jsonl: the order in which the pushes of a run (schedule/protocol/serving.h) were served, a
 * line a push (docs/formats.md). By it another run is bound to the same order (parallel.serve_log).
 * A checkpoint's step is the end of a span, and lines of later ones are dropped before a run goes
 * on from there: so what the log says is what the weights have been updated by.
 *
 * Nothing is collective.
 */
#ifndef ECH_APP_SERVE_LOG_H
#define ECH_APP_SERVE_LOG_H

#include "config/config.h"
#include "schedule/protocol/serving.h"

#define ECH_SERVE_LOG_NAME "serves.jsonl"

typedef struct ech_serve_log {
    char *path;
    int64_t first, end;        /* training steps done before its first span, and behind its last */
    int turns;                 /* training steps of a span */
    int pushes;                /* of a span */
    ECH_LIST(ech_serve) serve; /* span by span */
} ech_serve_log;

/* Reads the log that a run is to repeat, up to training.steps. Takes as much memory as it has
 * pushes. Errors: ECH_EUSAGE: there is no such file; it does not reach training.steps. ECH_EINPUT,
 * with line: it is of another run, or incomplete; a push that cannot be served there. */
ech_status ech_serve_log_read(const char *path, const ech_config *config, const ech_layout *layout,
                              const ech_schedule *schedule, ech_serve_log **out);
void ech_serve_log_destroy(ech_serve_log *log); /* accepts NULL */
ECH_DESTROY_AT(ech_serve_log, ech_serve_log_destroy)
/* [pushes] Those of the span that begins when `step` training steps are done; NULL: it has none. */
const ech_serve *ech_serve_log_span(const ech_serve_log *log, int64_t step);

/* The training step of a worker's first push of that span; -1: the log has no such span. */
int64_t ech_serve_log_clock(const ech_serve_log *log, int64_t step, int worker);

/* Appends the line with which a start of a run begins, behind `step` training steps. */
void ech_serve_log_begin(const ech_config *config, const ech_layout *layout,
                         const ech_schedule *schedule, int64_t step, ech_text *out);
/* Appends the lines of a span of so many pushes, which ends with training step `step`. */
void ech_serve_log_add(int64_t step, const ech_serve *serve, int pushes, ech_text *out);
/* Removes the lines of spans behind `step` training steps, and a torn last line. No error if there
 * is no file. */
ech_status ech_serve_log_truncate(const char *path, int64_t step);

#endif
