/* SPDX-License-Identifier: Apache-2.0
 *
 * serves.jsonl: the order in which the pushes of a run (schedule/protocol/serving.h) were served,
 * one line per push (docs/formats.md). Another run can repeat this order (parallel.serve_log).
 * Checkpoints are taken at the end of a span. When a run resumes, lines after its checkpoint are
 * removed first, so the log always matches the updates that the weights contain. No call is
 * collective.
 */
#ifndef ECH_APP_SERVE_LOG_H
#define ECH_APP_SERVE_LOG_H

#include "config/config.h"
#include "schedule/protocol/serving.h"

#define ECH_SERVE_LOG_NAME "serves.jsonl"

typedef struct ech_serve_log {
    char *path;
    /* training steps completed before the first span, and after the last span */
    int64_t first, end;
    int turns;                 /* training steps of a span */
    int pushes;                /* of a span */
    ECH_LIST(ech_serve) serve; /* span by span */
} ech_serve_log;

/* Reads the log that a run repeats, up to training.steps, into memory. Errors: ECH_EUSAGE: there is
 * no such file, or it ends before training.steps. ECH_EINPUT, with the line: the log belongs to
 * another run or is incomplete, or a push cannot be served there. */
ech_status ech_serve_log_read(const char *path, const ech_config *config, const ech_layout *layout,
                              const ech_schedule *schedule, ech_serve_log **out);
void ech_serve_log_destroy(ech_serve_log *log); /* accepts NULL */
ECH_DESTROY_AT(ech_serve_log, ech_serve_log_destroy)
/* [pushes] The pushes of the span that begins after `step` training steps; NULL: none. */
const ech_serve *ech_serve_log_span(const ech_serve_log *log, int64_t step);

/* The training step of a worker's first push in that span; -1: the log does not have the span. */
int64_t ech_serve_log_clock(const ech_serve_log *log, int64_t step, int worker);

/* Appends the line that marks a start of a run after `step` training steps. */
void ech_serve_log_begin(const ech_config *config, const ech_layout *layout,
                         const ech_schedule *schedule, int64_t step, ech_text *out);
/* Appends the lines of a span of `pushes` pushes that ends with training step `step`. */
void ech_serve_log_add(int64_t step, const ech_serve *serve, int pushes, ech_text *out);
/* Removes the lines of spans after `step` training steps, and an incomplete last line. A missing
 * file is not an error. */
ech_status ech_serve_log_truncate(const char *path, int64_t step);

#endif
