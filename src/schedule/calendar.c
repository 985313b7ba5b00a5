/* SPDX-License-Identifier: Apache-2.0
 *
 * Which list runs after which training step.
 */
#include "schedule/calendar.h"

#include "schedule/protocol/protocol.h"

/* True if there is something to validate on: a separate set, or a share of the training
 * documents. */
static bool validates(const ech_config *config)
{
    int64_t bound[4];
    return config->data.valid[0] != '\0' ||
           (ech_text_to_bounds(config->data.split, bound) && bound[1] < bound[2]);
}

/* checkpoint.keep_best as a number. */
static int64_t count_best(const ech_config *config)
{
    int64_t n = config->checkpoint.keep_best;
    return n >= 0 ? n : n == ECH_WORD(ECH_KEEP_BEST_TRUE);
}

ech_calendar ech_calendar_of(const ech_config *config)
{
    return (ech_calendar){.steps = config->training.steps,
                          .validate_every = config->training.validate_every,
                          .check_every = config->training.check_every,
                          .save_every = config->checkpoint.every,
                          .sync_every = ech_protocol_for(config)->meets_every(config),
                          .gossips = ech_protocol_for(config)->mixes_every(config) > 0,
                          .returns = ech_strategy_meets(config) == ECH_MEETING_OWN,
                          .validates = validates(config),
                          .best = count_best(config)};
}

static bool is_multiple(int64_t step, int64_t every)
{
    return every > 0 && step > 0 && step % every == 0;
}

bool ech_calendar_saves_amid(const ech_calendar *calendar)
{
    const int64_t every[] = {calendar->save_every,
                             calendar->best && calendar->validates ? calendar->validate_every : 0};
    for (int i = 0; i < 2; i++)
        if (every[i] > 0 && every[i] < calendar->steps) return true;
    return false;
}

bool ech_calendar_due(const ech_calendar *calendar, ech_list_kind list, int64_t step)
{
    bool last = step == calendar->steps;
    switch (list) {
    case ECH_LIST_TRAIN:
        return step < calendar->steps;
    case ECH_LIST_SYNC:
        return is_multiple(step, calendar->sync_every);
    case ECH_LIST_GOSSIP:
        return calendar->gossips && !is_multiple(step, calendar->sync_every);
    case ECH_LIST_RETURN:
        return calendar->returns && !last && is_multiple(step, calendar->sync_every);
    case ECH_LIST_VALIDATE:
        return calendar->validates && (last || is_multiple(step, calendar->validate_every));
    case ECH_LIST_CHECK:
        return is_multiple(step, calendar->check_every) || (last && step > 0);
    case ECH_LIST_SAVE:
        return last || is_multiple(step, calendar->save_every);
    case ECH_LIST_UNDELAYED: /* in TRAIN's place: ech_schedule_list */
    case ECH_LIST_INIT:      /* run at the beginning, not by step */
    case ECH_LIST_GENERATE:
    case ECH_LIST_KINDS:
        break;
    }
    return false;
}
