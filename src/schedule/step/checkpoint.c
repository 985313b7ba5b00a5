/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints: SNAPSHOT, SAVE. What this rank writes of them.
 */
#include "schedule/step/step.h"

static void touch_snapshot(ech_accessor *a, const ech_plan_param *p, bool write)
{
    for (int i = 0; i < a->plan->snapshots; i++) ech_access_value(a, p->snapshot + i, write);
}

/* Of the versions of weights the run knows which is the newest. */
static void read_training(ech_accessor *a, const ech_plan_param *p)
{
    for (int v = 0; v < a->plan->versions; v++) ech_access_value(a, p->value + v, false);
    for (int s = 0; s < a->plan->states && a->plan->partials >= 0; s++)
        ech_access_value(a, p->state[s], false);
}

static const ech_plan_param *written_param(const ech_accessor *a, int param)
{
    const ech_plan_param *p = &a->plan->param[param];
    bool writes = ech_layout_writes(a->plan->layout, a->plan->model, a->plan->rank, param);
    return p->value >= 0 && writes ? p : NULL;
}

static void take_snapshot(ech_accessor *a)
{
    for (int i = 0; i < (int)a->plan->model->param.n; i++) {
        const ech_plan_param *p = written_param(a, i);
        if (!p) continue;
        read_training(a, p);
        touch_snapshot(a, p, true);
    }
}

static void read_copies(ech_accessor *a)
{
    for (int i = 0; i < (int)a->plan->model->param.n; i++) {
        const ech_plan_param *p = written_param(a, i);
        if (!p) continue;
        if (a->plan->snapshots)
            touch_snapshot(a, p, false);
        else
            read_training(a, p);
    }
}

const ech_step_methods ech_snapshot_methods = {take_snapshot, ech_step_prints_nothing,
                                               ech_step_has_no_work, ech_step_takes_no_time,
                                               ech_step_sends_nothing};
const ech_step_methods ech_save_methods = {read_copies, ech_step_prints_nothing,
                                           ech_step_has_no_work, ech_step_takes_no_time,
                                           ech_step_sends_nothing};
