/* SPDX-License-Identifier: Apache-2.0
 *
 * The rule by which a job stands still.
 */
#include "app/job/still.h"

/* Seconds: between looks, at most; how much one look can add, however late it comes; and what ranks
 * have that are still held after they were told to go on and to stop. */
static const double pace = 1, most_a_look = 2, held_patience = 10;

double ech_still_pace(const ech_still *still)
{
    return still->deadline / 4 < pace ? still->deadline / 4 : pace;
}

ech_still_why ech_still_note(ech_still *still, const ech_sight *sight, double seconds)
{
    double time = seconds < most_a_look ? seconds : most_a_look;
    bool same = sight->pulse == still->last.pulse;
    bool idle = same && sight->shown > 0 && sight->ticks == still->last.ticks;
    bool held = sight->asked && sight->shown > 0 && sight->held == sight->shown;
    bool deaf = sight->asked && still->last.asked && same;
    still->idle = idle ? still->idle + time : 0;
    still->held = held ? still->held + time : 0;
    still->deaf = deaf ? still->deaf + time : 0;
    still->last = *sight;
    if (still->idle >= still->deadline) return ECH_STILL_IDLE;
    if (still->held >= held_patience || (held && still->held >= still->deadline))
        return ECH_STILL_HELD;
    return still->deaf >= still->deadline ? ECH_STILL_DEAF : ECH_STILL_NOT;
}
