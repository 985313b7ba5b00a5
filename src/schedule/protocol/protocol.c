/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of protocols.
 */
#include "schedule/protocol/roles.h"

static const ech_protocol *const rows[ECH_PROTOCOLS] = {
#define X(NAME, name, sums, one, meets) [ECH_PROTOCOL_##NAME] = &ech_protocol_##name,
#include "config/protocols.def"
};

const ech_protocol *ech_protocol_of(const ech_layout *layout)
{
    return rows[layout->protocol];
}

const ech_protocol *ech_protocol_for(const ech_config *config)
{
    return rows[ech_strategy_protocol(config)];
}

const char *ech_protocol_span(const ech_layout *layout)
{
    return rows[layout->protocol]->span;
}

ech_space ech_protocol_space(const ech_layout *layout)
{
    return rows[layout->protocol]->space;
}

ech_layout_group ech_protocol_alike(const ech_layout *layout)
{
    return rows[layout->protocol]->alike;
}

ech_skipping ech_protocol_skipping(const ech_layout *layout)
{
    return rows[layout->protocol]->skipping;
}

ech_meeting ech_protocol_meeting(const ech_plan *plan, const ech_step *step)
{
    const struct {
        ech_meeting weights, states;
    } meetings[ECH_STEPS] = {
        [ECH_STEP_DIFFERENCE] = {ech_meeting_difference, ech_meeting_share},
        [ECH_STEP_OUTER_UPDATE] = {ech_protocol_of(plan->layout)->outer, ech_meeting_take},
        [ECH_STEP_EXCHANGE] = {.weights = ech_meeting_exchange},
    };
    bool states = plan->bucket.at[step->index].commits;
    return states ? meetings[step->kind].states : meetings[step->kind].weights;
}

double ech_protocol_delay(const ech_plan *plan, ech_step_kind kind)
{
    bool sleeps = ech_protocol_role(plan)->sleeps == kind;
    return sleeps ? ech_layout_delay(plan->layout, plan->rank) : 0;
}

const ech_role *ech_protocol_role(const ech_plan *plan)
{
    const ech_protocol *of = ech_protocol_of(plan->layout);
    return ech_layout_serves(plan->layout, plan->rank) ? &of->server : &of->worker;
}

bool ech_protocol_averages(const ech_plan *plan, const ech_bucket *bucket)
{
    return bucket->commits && ech_protocol_of(plan->layout)->averages;
}

uint64_t ech_protocol_stages(const ech_plan *plan, const ech_bucket *bucket)
{
    const ech_role *role = ech_protocol_role(plan);
    bool own = ech_protocol_averages(plan, bucket);
    const ech_bucket_stage *stage = own ? role->state_stage : role->stage;
    uint64_t stages = 0;
    for (int i = 0; i < (own ? role->state_stages : role->stages); i++)
        stages |= UINT64_C(1) << stage[i];
    return stages;
}
