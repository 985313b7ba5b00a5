/* SPDX-License-Identifier: Apache-2.0
 *
 * For perfetto.c alone: which send belongs to which receive.
 */
#ifndef ECH_APP_TRACE_PERFETTO_ARROWS_H
#define ECH_APP_TRACE_PERFETTO_ARROWS_H

#include "app/trace/read.h"

/* A number for each step of the trace, in new memory: the same for a send and for its receive, which is
 * in another rank's trace; 0: the step is no message. It is below 2^53, so that every reader of JSON keeps it. */
int64_t *ech_perfetto_arrows(const ech_rank_trace *trace);

static inline bool ech_perfetto_is_send(const ech_traced_step *step)
{
    return step->kind == ECH_STEP_SEND_ACT || step->kind == ECH_STEP_SEND_GRAD;
}

#endif
