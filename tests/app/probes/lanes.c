/* SPDX-License-Identifier: Apache-2.0
 *
 * LANES run their steps in order, and no step begins before the steps that it comes after have
 * ended: by the times of a training list that is recorded.
 */
#include "app/probe.h"

/* Steps of turns that a worker has no push for have no times; those on queues have times of another
 * clock. */
static bool applies(const ech_design *design)
{
    const char *device = ech_config_name(design->config, "parallel.device");
    return design->layout->sums != ECH_SUMS_SERVERS && ech_device_find(device)->is_immediate;
}

static bool is_message(const ech_step *step)
{
    return step->lane == ECH_LANE_SEND || step->lane == ECH_LANE_RECEIVE;
}

static void check_step(const probe_run *run, const ech_list *list, int s, const int *before)
{
    const ech_exec_times *times = ech_exec_get_times(run->session->exec);
    const ech_step *step = &list->step.at[s];
    int last = before[step->lane];
    for (int i = 0; i < step->afters; i++) {
        int after = list->after.at[step->first_after + i];
        if (times->begins[s] < times->ends[after])
            probe_fail("rank %d: step %d (%s) begins %g s before step %d (%s), which it comes "
                       "after, has ended",
                       run->rank, s, ech_step_name(step->kind),
                       times->ends[after] - times->begins[s], after,
                       ech_step_name(list->step.at[after].kind));
    }
    if (last >= 0 && !is_message(step) && times->begins[s] < times->ends[last])
        probe_fail("rank %d: step %d (%s) begins before step %d of its lane has ended", run->rank,
                   s, ech_step_name(step->kind), last);
}

static void observe(void *state, const probe_run *run, probe_moment moment)
{
    int before[ECH_LANES];
    (void)state;
    if (moment != PROBE_AFTER) return;
    const ech_list *list = probe_list(run);
    for (int lane = 0; lane < ECH_LANES; lane++) before[lane] = -1;
    for (int s = 0; s < (int)list->step.n; s++) {
        check_step(run, list, s, before);
        before[list->step.at[s].lane] = s;
    }
}

const probe probe_lanes = {
    .name = "lanes", .applies = applies, .observe = observe, .lists = PROBE_TIMED};
