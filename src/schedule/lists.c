/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists that run no blocks: INIT, CHECK and SAVE.
 */
#include "schedule/passes.h"
#include "schedule/protocol/protocol.h"

/* A rank with a shard of a master rounds it, into each slot. Each rank draws offloaded whole
 * weights itself, and each worker layer states of its own. */
static void plan_init(ech_plan *plan, ech_list *list)
{
    int init = ech_list_add(list, ECH_STEP_INIT);
    for (int i = 0; i < (int)plan->bucket.n * plan->versions; i++) {
        const ech_bucket *bucket = &plan->bucket.at[i / plan->versions];
        if (i % plan->versions >= bucket->versions) continue;
        if (!ech_bucket_is_sharded(bucket) || ech_bucket_is_brought(bucket)) continue;
        if (ech_protocol_averages(plan, bucket)) continue;
        ech_joining joining = ech_protocol_of(plan->layout)->joining(bucket);
        int gather = ech_list_add(list, joining.kind);
        list->step.at[gather].index = i / plan->versions;
        list->step.at[gather].version = i % plan->versions;
        list->step.at[gather].group = joining.group;
        ech_list_add_after(list, init);
    }
}

/* Hashes the data that all members of a group hold, and compares: in scalars from `first` on. */
static void check_group(ech_plan *plan, ech_list *list, ech_layout_group group, int first)
{
    int hash = ech_list_add(list, ECH_STEP_HASH);
    list->step.at[hash].group = group;
    list->step.at[hash].index = first;
    if (ech_layout_group_size(plan->layout, plan->model, plan->rank, group) < 2) return;
    int added = ech_list_add(list, ECH_STEP_REDUCE);
    ech_step *reduce = &list->step.at[added];
    reduce->index = first;
    reduce->count = ECH_HASH_SCALARS;
    reduce->group = group;
    reduce->maximum = true;
    ech_list_add_after(list, hash);
}

/* Diverging replicas are compared right after a synchronization. They have no expert groups. */
static void plan_check(ech_plan *plan, ech_list *list)
{
    const ech_layout_group groups[] = {ECH_GROUP_DATA, ECH_GROUP_TENSOR, ECH_GROUP_KEY_VALUE,
                                       ECH_GROUP_TIED, ech_protocol_alike(plan->layout)};
    int data = ech_layout_group_size(plan->layout, plan->model, plan->rank, ECH_GROUP_DATA);
    bool experts = plan->layout->sharding.expert > 1;
    for (int i = 0; i < ECH_HASHES; i++) {
        /* the same as DATA's */
        if (groups[i] == ECH_GROUP_EXPERT_DATA && !experts) continue;
        int size = ech_layout_group_size(plan->layout, plan->model, plan->rank, groups[i]);
        int least = groups[i] == ECH_GROUP_DATA        ? 1
                    : groups[i] == ECH_GROUP_KEY_VALUE ? data + 1
                                                       : 2;
        if (size >= least)
            check_group(plan, list, groups[i], (int)ECH_SCALAR_HASH + i * ECH_HASH_SCALARS);
    }
    int last = (int)list->step.n - 1;
    ech_list_add(list, ECH_STEP_READ);
    if (last >= 0) ech_list_add_after(list, last); /* a server compares nothing */
}

static void plan_save(ech_plan *plan, ech_list *list)
{
    int snapshot = plan->snapshots ? ech_list_add(list, ECH_STEP_SNAPSHOT) : -1;
    ech_list_add(list, ECH_STEP_SAVE);
    if (snapshot >= 0) ech_list_add_after(list, snapshot);
}

void ech_pass_other_lists(ech_plan *plan)
{
    plan_init(plan, &plan->list[ECH_LIST_INIT]);
    plan_save(plan, &plan->list[ECH_LIST_SAVE]);
    plan_check(plan, &plan->list[ECH_LIST_CHECK]);
}
