/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of bucket_stages.def.
 */
#include "schedule/bucket_way.h"

enum {
    ALONE = 0,
    TENSOR = ECH_GROUP_TENSOR,
    ADDENDS = ECH_BUCKET_ADDENDS,
    FACTORS = ECH_BUCKET_FACTORS
};
enum { NONE = -1, NEWEST, NEXT };

static const ech_bucket_row rows[ECH_BUCKET_STAGES] = {
#define X(name, kind, point, over, version, repeats, condition)                                    \
    {ECH_STEP_##kind, ECH_POINT_##point, over, version, ECH_REPEATS_##repeats},
#include "schedule/bucket_stages.def"
#undef X
};

const ech_bucket_row *ech_bucket_row_of(ech_bucket_stage stage)
{
    return &rows[stage];
}

static bool takes_part(const ech_bucket_way *way, ech_bucket_stage stage, int round)
{
    ech_bucket_repeats repeats =
        stage < ECH_BUCKET_STAGES ? rows[stage].repeats : ECH_REPEATS_PIECE;
    if (repeats == ECH_REPEATS_ONCE && !way->last) return false;
    if (repeats == ECH_REPEATS_ROUND && !way->first) return false;
    if (stage < ECH_BUCKET_STAGES && !(way->stages >> stage & 1)) return false;
    switch (stage) {
#define X(name, kind, point, over, version, repeats, condition)                                    \
    case ECH_BUCKET_##name:                                                                        \
        return condition;
#include "schedule/bucket_stages.def"
#undef X
    case ECH_BUCKET_STAGES:
        break;
    }
    return true;
}

static bool is_round(ech_bucket_stage stage)
{
    return stage < ECH_BUCKET_STAGES && rows[stage].repeats == ECH_REPEATS_ROUND;
}

/* After the last stage of a round, the first stage of the next round follows. */
static ech_bucket_position after(const ech_bucket_way *way, ech_bucket_position at)
{
    ech_bucket_position next = {at.stage + 1, at.round};
    if (is_round(next.stage)) return next;
    bool again = is_round(at.stage) && at.round + 1 < way->rounds;
    next.round = again ? at.round + 1 : 0;
    while (again && is_round(next.stage - 1)) next.stage--;
    return next;
}

int ech_step_piece(const ech_step *step)
{
    for (int stage = 0; stage < ECH_BUCKET_STAGES; stage++)
        if (rows[stage].kind == step->kind && rows[stage].repeats == ECH_REPEATS_PIECE)
            return step->count;
    return 0;
}

ech_bucket_position ech_bucket_next(const ech_bucket_way *way, ech_bucket_position at)
{
    do at = after(way, at);
    while (!takes_part(way, at.stage, at.round));
    return at;
}
