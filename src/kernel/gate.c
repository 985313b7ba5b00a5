/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of gates, and checks of a call's arguments.
 */
#include "kernel/gate.h"

#include "kernel/shape.h"

static const char *const names[ECH_GATES] = {
#define X(name, meaning) #name,
#include "kernel/gates.def"
};

const char *ech_gate_name(ech_gate_kind kind)
{
    return names[kind];
}

const char *ech_gate_names(void)
{
    return
#define X(name, meaning) #name " "
#include "kernel/gates.def"
        ;
}

void ech_gate_check(const ech_gate *gate, const ech_tensor *logits, const ech_tensor *noise,
                    const ech_tensor *all, const ech_tensor *all_noise, const ech_rows *rows,
                    const ech_tensor *statistics, const ech_tensor *partial)
{
    int64_t S = logits->shape[0];
    ECH_ASSERT(gate->kind != ECH_GATE_gshard || gate->chosen == 2);
    ECH_ASSERT(gate->kind != ECH_GATE_hierarchical ||
               (gate->experts % gate->groups == 0 && gate->chosen % gate->groups_chosen == 0));
    ECH_ASSERT(!partial || partial->shape[0] == ech_gate_partial(gate->experts));
    ECH_ASSERT(all || !ech_gate_looks_at_groups(gate));
    ECH_ASSERT(!all == !statistics);
    if (!all) return;
    int64_t members = gate->context * gate->tensor, N = all->shape[0], B = N / rows->whole;
    ECH_ASSERT(!noise == !all_noise);
    ECH_ASSERT(N == members * S && gate->member >= 0 && gate->member < members);
    ECH_ASSERT(rows->tokens * gate->context == rows->whole && B * rows->whole == N);
    ECH_ASSERT(!rows->position && rows->first == gate->member % gate->tensor * S);
    ECH_ASSERT(gate->samples >= 1 && rows->first_sample % gate->samples == 0);
    ECH_ASSERT(statistics->shape[0] * gate->samples == B);
    ECH_ASSERT(statistics->shape[1] == ech_gate_statistics(gate));
    ECH_ASSERT(ech_gate_capacity(gate, rows->whole) >= 1);
}
