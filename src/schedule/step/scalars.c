/* SPDX-License-Identifier: Apache-2.0
 *
 * Scalars that ranks fold: REDUCE.
 */
#include "schedule/step/step.h"

static void touch(ech_accessor *a)
{
    ech_access_value(a, a->plan->scalars, true);
}

static void print(const ech_step *step, ech_text *out)
{
    ech_text_append(out, " %s", ech_scalar_name((ech_scalar)step->index));
    int last = step->index + step->count - 1;
    if (last >= ECH_SCALARS)
        ech_text_append(out, "..squares");
    else if (step->count > 1)
        ech_text_append(out, "..%s", ech_scalar_name((ech_scalar)last));
    ech_text_append(out, " %s over %s", step->maximum ? "maximum" : "sum",
                    ech_layout_group_name(step->group));
}

/* A few numbers, gathered and sent out again. */
static double seconds(const ech_costs *costs, const ech_plan *plan, const ech_step *step,
                      ech_participants among)
{
    (void)plan;
    (void)step;
    return costs->rates.latency * 2 * ech_cost_rounds(among.members);
}

/* Traffic leaves scalars out. */
const ech_step_methods ech_scalars_methods = {touch, print, ech_step_has_no_work, seconds,
                                              ech_step_sends_nothing};
