/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of step lists that several protocols share.
 */
#include "schedule/protocol/roles.h"

void ech_frame_count(ech_framing *f, int turn)
{
    /* it takes the next batch, which ends the last one's use */
    f->begun = ech_frame_add(f, ECH_STEP_COUNT, turn, -1, f->last_load);
}

int ech_frame_reduce(ech_framing *f, ech_layout_group group, int turn, ech_scalar first, int count,
                     int after)
{
    if (!ech_frame_is_shared(f->plan, group)) return -1;
    int reduce = ech_frame_add(f, ECH_STEP_REDUCE, turn, (int)first, after);
    f->list->step.at[reduce].count = count;
    f->list->step.at[reduce].group = group;
    return reduce;
}

/* All scalars from STOP on. */
int ech_frame_reduce_turn(ech_framing *f, ech_layout_group group, int turn, int after)
{
    return ech_frame_reduce(f, group, turn, ECH_SCALAR_STOP,
                            ech_plan_row(f->plan) - (int)ECH_SCALAR_STOP, after);
}

int ech_frame_reduce_span(ech_framing *f)
{
    int folded = -1;
    for (int turn = 0; turn < f->plan->schedule->turns; turn++)
        folded = ech_frame_reduce_turn(f, ECH_GROUP_WORLD, turn, ech_frame_last_compute(f->list));
    return folded;
}

const ech_bucket_stage ech_stages_of_own_states[2] = {ECH_BUCKET_WRITE, ECH_BUCKET_UPDATE};

/* The first turn's partials have been committed, so their value holds the exchanged data. */
int ech_frame_average(ech_framing *f, ech_step_kind kind, int bucket, int version, int after)
{
    int step = ech_frame_add(f, kind, 0, bucket, after);
    f->list->step.at[step].version = version;
    return step;
}

void ech_frame_clip(ech_framing *f, int turn)
{
    ech_frame_add(f, ECH_STEP_NORM_SUM, turn, -1, -1);
    ech_frame_add(f, ECH_STEP_CLIP, turn, -1, -1);
}

void ech_frame_update_summed(ech_framing *f, ech_layout_group whole, int turn)
{
    bool synchronous = ech_weights_are_synchronous(f->plan->schedule->weights);
    int folded = -1;
    if (synchronous)
        folded = ech_frame_reduce_turn(f, whole, turn, ech_frame_last_compute(f->list));
    int summed = ech_frame_add(f, ECH_STEP_NORM_SUM, turn, -1, folded);
    /* For a single stage, whose ranks have counted shards. */
    if (!synchronous)
        folded = ech_frame_reduce(f, ECH_GROUP_PARTIAL, turn, ECH_SCALAR_SQUARES_SUM, 1, summed);
    int clip = ech_frame_add(f, ECH_STEP_CLIP, turn, -1, synchronous ? -1 : folded);
    if (f->plan->states != ECH_SPACE_DEVICE && f->buckets.ordered)
        f->buckets.scalars = ech_frame_add(f, ECH_STEP_READ_UPDATE, turn, -1, clip);
    ech_frame_updates(f);
}

void ech_frame_update_all(ech_framing *f, int turn)
{
    ech_frame_update_summed(f, ECH_GROUP_WORLD, turn);
}

double ech_meeting_one(const ech_config *config, int replicas)
{
    (void)config;
    (void)replicas;
    return 1;
}

double ech_meeting_mean(const ech_config *config, int replicas)
{
    (void)config;
    return 1 / (double)replicas;
}

static double minus_one(const ech_config *config, int replicas)
{
    (void)config;
    (void)replicas;
    return -1;
}

static const ech_meeting_row differs[] = {
    ECH_COPIES(SUM, ANCHOR), {ECH_MEETING_SUM, ECH_MEETING_WEIGHTS, minus_one, ech_meeting_one}};
const ech_meeting ech_meeting_difference = ECH_MEETING(differs);
static const ech_meeting_row exchanges[] = {ECH_EXCHANGES};
const ech_meeting ech_meeting_exchange = ECH_MEETING(exchanges);
static const ech_meeting_row shares[] = {
    {ECH_MEETING_SUM, ECH_MEETING_WEIGHTS, ech_meeting_mean, NULL}};
const ech_meeting ech_meeting_share = ECH_MEETING(shares);
static const ech_meeting_row takes[] = {ECH_COPIES(WEIGHTS, SUM)};
const ech_meeting ech_meeting_take = ECH_MEETING(takes);

int ech_turns_of_span(const ech_schedule *schedule, const ech_layout *layout)
{
    (void)layout;
    return schedule->turns;
}

void ech_protocol_pulls(const ech_config *config, const ech_layout *layout, ech_schedule *schedule)
{
    (void)layout;
    schedule->weights = ECH_WEIGHTS_PULLED;
    schedule->staleness = ech_strategy_staleness(config);
}

ech_membership ech_protocol_each_owns(const ech_layout *layout, ech_membership of)
{
    (void)layout;
    return of;
}

/* Servers follow all workers. */
ech_membership ech_protocol_servers_own(const ech_layout *layout, ech_membership of)
{
    int servers = layout->servers, index = of.index - (of.size - servers);
    return (ech_membership){servers, index < 0 ? servers : index};
}

/* Stages complete a micro-batch at different times: sums over stages run once per turn, after all
 * others. Layer states are small, so each rank commits all of them. */
void ech_protocol_shares_by_zero(const ech_plan *plan, ech_bucket *bucket, bool members)
{
    bool each = plan->zero > 1 && bucket->group != ECH_GROUP_TIED && !bucket->compressed;
    if (!members || plan->zero == 0 || bucket->commits) return;
    bucket->of_states.whose = ECH_WHOSE_SHARD;
    if (each && !bucket->frozen) bucket->of_gradients.whose = ECH_WHOSE_SHARD;
    if (each && plan->zero > 2) bucket->of_weights.whose = ECH_WHOSE_SHARD;
}

void ech_protocol_shares_by_servers(const ech_plan *plan, ech_bucket *bucket, bool members)
{
    bool serves = ech_layout_serves(plan->layout, plan->rank);
    (void)members;
    if (serves || !ech_protocol_averages(plan, bucket)) bucket->of_states.whose = ECH_WHOSE_SERVERS;
    if (!serves) return;
    bucket->of_weights.whose = bucket->of_gradients.whose = ECH_WHOSE_SERVERS;
}

ech_joining ech_protocol_gathers(const ech_bucket *bucket)
{
    return (ech_joining){ECH_STEP_GATHER_WEIGHTS, bucket->group};
}

int64_t ech_protocol_never(const ech_config *config)
{
    (void)config;
    return 0;
}

int ech_protocol_no_ranks(const ech_layout *layout)
{
    (void)layout;
    return 0;
}

int ech_protocol_one_rank(const ech_layout *layout)
{
    (void)layout;
    return 1;
}
