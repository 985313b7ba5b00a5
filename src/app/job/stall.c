/* SPDX-License-Identifier: Apache-2.0
 *
 * The rule by which a job has stalled.
 */
#include "app/job/stall.h"

/* Seconds: at most between observations; at most counted for one, however late it comes; and until ranks that
 * were told to continue and to stop, but are suspended all the same, count as stalled. */
static const double interval = 1, most_counted = 2, suspended_patience = 10;

double ech_stall_interval(const ech_stall *stall)
{
    return stall->deadline / 4 < interval ? stall->deadline / 4 : interval;
}

ech_stall_kind ech_stall_update(ech_stall *stall, const ech_observation *seen, double seconds)
{
    double time = seconds < most_counted ? seconds : most_counted;
    bool same = seen->pulse == stall->last.pulse;
    bool idle = same && seen->shown > 0 && seen->ticks == stall->last.ticks;
    bool suspended = seen->asked && seen->shown > 0 && seen->suspended == seen->shown;
    bool unresponsive = seen->asked && stall->last.asked && same;
    stall->idle = idle ? stall->idle + time : 0;
    stall->suspended = suspended ? stall->suspended + time : 0;
    stall->unresponsive = unresponsive ? stall->unresponsive + time : 0;
    stall->last = *seen;
    if (stall->idle >= stall->deadline) return ECH_STALL_IDLE;
    if (stall->suspended >= suspended_patience ||
        (suspended && stall->suspended >= stall->deadline))
        return ECH_STALL_SUSPENDED;
    return stall->unresponsive >= stall->deadline ? ECH_STALL_UNRESPONSIVE : ECH_STALL_NONE;
}
