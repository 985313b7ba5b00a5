/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks have of weights and optimizer states, put together to whole tensors.
 */
#ifndef ECH_TESTS_APP_PROBES_PARTS_H
#define ECH_TESTS_APP_PROBES_PARTS_H

#include <stdlib.h>
#include <string.h>

#include "app/probe.h"
#include "schedule/states.h"

/* What a rank has of a tensor. */
typedef struct part {
    ech_held held;
    double *at; /* NULL: nothing */
} part;

/* Of a parameter's weights (state -1) or a state. To be freed: at. */
static inline part part_take(const ech_session *session, int param, int state)
{
    const ech_plan *plan = session->plan;
    const ech_state *is =
        state < 0 ? NULL : &plan->state.at[plan->param[param].first_state + state].is;
    ech_held_kind kind = is ? ECH_HELD_STATE : ECH_HELD_WEIGHTS;
    ech_tensor x =
        is ? ech_exec_state(session->exec, param, state) : ech_exec_param(session->exec, param);
    part p = {.held = probe_diverges(plan->layout)
                          ? ech_layout_held(plan->layout, plan->model, plan->rank, param, kind,
                                            is ? &is->shape : NULL)
                          : ech_plan_held(plan, plan->rank, param, kind, state)};
    p.at = ech_calloc((size_t)ech_tensor_count(&x) + 1, sizeof *p.at);
    if (ech_tensor_count(&x)) ech_exec_read(session->exec, &x, p.at);
    return p;
}

/* Copies the part to where it is in the whole. has: which elements are there; of these the part
 * must have the same bits, or false is returned. */
static inline bool part_put(const part *p, const ech_shape *shape, double *whole, bool *has)
{
    bool same = true;
    for (int b = 0; b < p->held.boxes; b++) {
        ech_box_runs runs = ech_box_split(shape->dims, shape->size, &p->held.box[b]);
        for (int64_t i = 0; i < runs.count; i++) {
            ech_box_offset at = ech_box_run_at(&runs, i);
            for (int64_t k = 0; k < runs.length; k++) {
                double *to = &whole[at.in_whole + k];
                const double *from = &p->at[at.in_memory + k];
                if (has[at.in_whole + k]) same = same && memcmp(to, from, sizeof *to) == 0;
                *to = *from;
                has[at.in_whole + k] = true;
            }
        }
    }
    return same;
}

/* Returns the replica of a rank if replicas are independent, else 0. */
static inline int part_replica(const ech_plan *plan)
{
    return probe_diverges(plan->layout) ? plan->layout->coordinates[plan->rank].data : 0;
}

#endif
