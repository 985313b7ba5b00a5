/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists that run no blocks: INIT, SYNC, GOSSIP, CHECK and SAVE.
 */
#include "schedule/passes.h"

/* Who has a shard of a master rounds that, into each slot. Whole weights that are offloaded each draws for itself. */
static void plan_init(ech_plan *plan, ech_list *list)
{
    int init = ech_list_add(list, ECH_STEP_INIT);
    for (int i = 0; i < (int)plan->bucket.n * plan->versions; i++) {
        const ech_bucket *bucket = &plan->bucket.at[i / plan->versions];
        if (!bucket->sharded || ech_bucket_is_brought(bucket)) continue;
        int gather =
            ech_list_add(list, bucket->central ? ECH_STEP_PUBLISH : ECH_STEP_GATHER_WEIGHTS);
        list->step.at[gather].index = i / plan->versions;
        list->step.at[gather].version = i % plan->versions;
        list->step.at[gather].group = plan->layout->pushes ? ECH_GROUP_SERVED : bucket->group;
        ech_list_add_after(list, init);
    }
}

/* The hash of what a group's members all hold, compared: in scalars from `first` on. */
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

/* Replicas that are apart are compared where they have just met. They have no expert groups. */
static void plan_check(ech_plan *plan, ech_list *list)
{
    const ech_layout_group groups[] = {
        ECH_GROUP_DATA, ECH_GROUP_TENSOR, ECH_GROUP_KEY_VALUE, ECH_GROUP_TIED,
        plan->layout->own_sums ? ECH_GROUP_REPLICAS : ECH_GROUP_EXPERT_DATA};
    int data = ech_layout_group_size(plan->layout, plan->model, plan->rank, ECH_GROUP_DATA);
    bool experts = plan->layout->sharding.expert > 1;
    for (int i = 0; i < ECH_HASHES; i++) {
        if (groups[i] == ECH_GROUP_EXPERT_DATA && !experts) continue; /* they are those of DATA */
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

/* All differences leave first, so that sums run while weights are updated. */
void ech_pass_sync(ech_plan *plan)
{
    ech_list *list = &plan->list[ECH_LIST_SYNC];
    int members = ech_layout_group_size(plan->layout, plan->model, plan->rank, ECH_GROUP_REPLICAS);
    ECH_FREED int *ready = ech_calloc(plan->bucket.n + 1, sizeof *ready);
    for (int b = 0; b < (int)plan->bucket.n; b++) {
        ready[b] = ech_list_add(list, ECH_STEP_DIFFERENCE);
        list->step.at[ready[b]].index = b;
        if (members < 2) continue;
        int sum = ech_list_add(list, ECH_STEP_REDUCE_GRADS);
        list->step.at[sum].index = b;
        list->step.at[sum].group = ECH_GROUP_REPLICAS;
        ech_list_add_after(list, ready[b]);
        ready[b] = sum;
    }
    for (int b = 0; b < (int)plan->bucket.n; b++) {
        int update = ech_list_add(list, ECH_STEP_OUTER_UPDATE);
        list->step.at[update].index = b;
        if (list->step.at[ready[b]].lane != ECH_LANE_COMPUTE) ech_list_add_after(list, ready[b]);
    }
}

/* Likewise; messages go while weights are mixed. */
void ech_pass_gossip(ech_plan *plan)
{
    ech_list *list = &plan->list[ECH_LIST_GOSSIP];
    int buckets = (int)plan->bucket.n;
    if (ech_layout_group_size(plan->layout, plan->model, plan->rank, ECH_GROUP_REPLICAS) < 2)
        return;
    for (int b = 0; b < buckets; b++) {
        int sent = ech_list_add(list, ECH_STEP_NEIGHBOURS);
        list->step.at[sent].index = b;
        list->step.at[sent].group = ECH_GROUP_REPLICAS;
    }
    for (int b = 0; b < buckets; b++) {
        int mix = ech_list_add(list, ECH_STEP_MIX);
        list->step.at[mix].index = b;
        ech_list_add_after(list, b);
    }
}

void ech_pass_other_lists(ech_plan *plan)
{
    plan_init(plan, &plan->list[ECH_LIST_INIT]);
    plan_save(plan, &plan->list[ECH_LIST_SAVE]);
    plan_check(plan, &plan->list[ECH_LIST_CHECK]);
}
