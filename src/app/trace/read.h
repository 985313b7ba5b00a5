/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading one rank's trace (trace.h writes it, docs/formats.md has its keys): a file that nobody
 * vouches for, and that may be cut off where the run was.
 */
#ifndef ECH_APP_TRACE_READ_H
#define ECH_APP_TRACE_READ_H

#include "schedule/schedule.h"

/* One step of a train list, as it ran. */
typedef struct ech_traced_step {
    int64_t step; /* training step that it belongs to */
    ech_lane lane;
    ech_step_kind kind;
    int chunk, micro, block; /* -1: it has none */
    int peer;                /* of a message: the rank at its other end; -1: it is none */
    size_t name;             /* "F0.3/5": where it begins in the trace's names */
    double begin, end;       /* seconds on rank 0's clock */
} ech_traced_step;

/* The steps of one list are neighbours. */
typedef struct ech_traced_list {
    int64_t step;    /* training step at which it began */
    size_t first, n; /* in the trace's steps */
} ech_traced_list;

typedef struct ech_rank_trace {
    int rank, world; /* world 0: nothing had been written yet */
    int stage, data, context, tensor;
    int64_t first_step; /* of that start of the run */
    double
        clock_offset; /* seconds: how far rank 0's clock is ahead of this rank's; it has been added to all times, */
    double clock_error; /* which are at most so far off */
    ECH_LIST(ech_traced_step) step;
    ECH_LIST(ech_traced_list) list; /* ascending; the last may be cut off */
    ech_text names;                 /* each ends in a NUL */
} ech_rank_trace;

/* Errors name file:line and key: a line that is no such object, numbers out of bounds, an unknown lane
 * or kind, another version. What follows the last newline was being written and is not looked at. A file
 * has at most 1 GiB, a line at most 4 KiB. */
ech_status ech_rank_trace_read(const char *path, ech_rank_trace *out);
/* The same from memory; `name` stands for the file in errors. */
ech_status ech_rank_trace_parse(const char *text, size_t n, const char *name, ech_rank_trace *out);
void ech_rank_trace_free(ech_rank_trace *trace);

const char *ech_rank_trace_name(const ech_rank_trace *trace, const ech_traced_step *step);

#endif
