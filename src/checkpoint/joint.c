/* SPDX-License-Identifier: Apache-2.0
 *
 * Meetings are folds: whether anybody has failed, and whether anybody still works.
 */
#include "checkpoint/joint.h"

#include "base/clock.h"
#include "base/tick.h"

enum { MEETINGS = 4 }; /* in the time that a wait may last */

/* True if somebody still works. */
static bool meet(ech_joint *joint, bool failed, bool works)
{
    double value[2] = {failed, works};
    joint->met = ech_group_fold(joint->group, ECH_FOLD_MAX, value, 2);
    if (joint->met != ECH_OK) return false;
    joint->failed |= value[0] > 0;
    return value[1] > 0;
}

static void on_tick(void *context)
{
    ech_joint *joint = context;
    if (joint->met != ECH_OK || ech_clock_now() < joint->next) return;
    meet(joint, false, true);
    ech_group_show_life(joint->group); /* nobody meets in a group of one */
    joint->next = ech_clock_now() + joint->every;
}

void ech_joint_begin(ech_joint *joint, ech_group *group)
{
    double every = ech_group_deadline(group) / MEETINGS;
    *joint = (ech_joint){.group = group, .every = every, .next = ech_clock_now() + every};
    ech_tick_set(on_tick, joint);
}

ech_status ech_joint_end(ech_joint *joint, ech_status work)
{
    ech_tick_set(NULL, NULL);
    while (joint->met == ECH_OK && meet(joint, work != ECH_OK, false)) continue;
    ECH_TRY(work);
    ECH_TRY(joint->met);
    return joint->failed ? ECH_EABORTED : ECH_OK;
}
