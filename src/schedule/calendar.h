/* SPDX-License-Identifier: Apache-2.0
 *
 * The CALENDAR says which list runs after which training step.
 */
#ifndef ECH_SCHEDULE_CALENDAR_H
#define ECH_SCHEDULE_CALENDAR_H

#include "schedule/schedule.h"

typedef struct ech_calendar {
    int64_t steps;                                   /* training steps of the run */
    int64_t validate_every, check_every, save_every; /* training steps; 0: only at the end */
    /* training steps between synchronizations of local SGD; 0: replicas never diverge */
    int64_t sync_every;
    /* diverged replicas average with neighbours after the steps without a synchronization */
    bool gossips;
    bool returns;   /* after a synchronization they continue from weights of their own */
    bool validates; /* there are validation samples */
    /* checkpoints kept for their validation losses; a validation with such a loss saves one */
    int64_t best;
} ech_calendar;
ech_calendar ech_calendar_of(const ech_config *config);
/* True if a checkpoint is due before the end of training: only then does a snapshot save time. */
bool ech_calendar_saves_amid(const ech_calendar *calendar);
/* True if the list runs after `step` training steps of the run; RETURN runs before the next one.
 * False for INIT and GENERATE. */
bool ech_calendar_due(const ech_calendar *calendar, ech_list_kind list, int64_t step);

#endif
