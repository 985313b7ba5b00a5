/* SPDX-License-Identifier: Apache-2.0
 *
 * The pass that makes a list of block steps a whole training step: LOAD and the token count before,
 * a reduction of each bucket as soon as it is complete, norms, clipping, updates behind. Where a
 * group has one member no communication is inserted.
 */
#include <stdlib.h>

#include "schedule/passes.h"

static bool is_shared(const ech_plan *plan, ech_group_kind group)
{
    return ech_layout_group_size(plan->layout, plan->rank, group) > 1;
}

/* REDUCE of scalars first .. last over the data ranks, after `after`. Returns its index, or -1. */
static int add_reduce(const ech_plan *plan, ech_list *list, ech_scalar first, ech_scalar last,
                      int after)
{
    if (!is_shared(plan, ECH_GROUP_DATA)) return -1;
    int reduce = ech_list_add(list, ECH_STEP_REDUCE);
    ech_step *step = &list->step.at[reduce];
    step->index = (int)first;
    step->count = (int)(last - first) + 1;
    step->group = ECH_GROUP_DATA;
    ech_list_add_after(list, after);
    return reduce;
}

static int add_of(ech_list *list, ech_step_kind kind, int index, int after)
{
    int step = ech_list_add(list, kind);
    list->step.at[step].index = index;
    if (after >= 0) ech_list_add_after(list, after);
    return step;
}

static int add_block(ech_list *list, const ech_step *from)
{
    int added = ech_list_add(list, from->kind);
    ech_step *step = &list->step.at[added];
    step->block = from->block;
    step->chunk = from->chunk;
    step->micro = from->micro;
    return added;
}

/* The block steps again, with each bucket's reduction behind the step that completes it; buckets are
 * in the order in which they become ready. reduced[b]: that reduction, or -1. */
static void add_training_blocks(ech_plan *plan, ech_list *list, const ech_step *steps, size_t n,
                                int *reduced)
{
    size_t b = 0;
    for (size_t s = 0; s < n; s++) {
        int here = add_block(list, &steps[s]);
        for (; b < plan->bucket.n && plan->bucket.at[b].ready == (int)s; b++) {
            ech_bucket *bucket = &plan->bucket.at[b];
            bucket->ready = here;
            reduced[b] = -1;
            if (!is_shared(plan, bucket->group)) continue;
            reduced[b] = add_of(list, ECH_STEP_REDUCE_GRADS, (int)b, here);
            list->step.at[reduced[b]].group = bucket->group;
        }
    }
}

static void add_update(const ech_plan *plan, ech_list *list, const int *reduced)
{
    for (size_t b = 0; b < plan->bucket.n; b++) add_of(list, ECH_STEP_NORM, (int)b, reduced[b]);
    int sum = ech_list_add(list, ECH_STEP_NORM_SUM);
    int folded = add_reduce(plan, list, ECH_SCALAR_LOSS, ECH_SCALAR_NONFINITE, sum);
    add_of(list, ECH_STEP_CLIP, -1, folded);
    for (size_t b = 0; b < plan->bucket.n; b++) add_of(list, ECH_STEP_UPDATE, (int)b, -1);
    ech_list_add(list, ECH_STEP_READ);
}

void ech_pass_frame_training(ech_plan *plan, ech_list *list)
{
    ech_step *blocks = list->step.at;
    size_t n = list->step.n;
    int *reduced = ech_calloc(plan->bucket.n + 1, sizeof *reduced);
    list->step.at = NULL;
    list->step.n = list->step.capacity = 0;

    int load = ech_list_add(list, ECH_STEP_LOAD);
    int counted = add_reduce(plan, list, ECH_SCALAR_TOKENS, ECH_SCALAR_SAVE_NOW, load);
    add_of(list, ECH_STEP_SCALE, -1, counted);
    add_training_blocks(plan, list, blocks, n, reduced);
    add_update(plan, list, reduced);
    free(blocks);
    free(reduced);
}

void ech_pass_frame_validation(const ech_plan *plan, ech_list *list)
{
    ech_step *blocks = list->step.at;
    size_t n = list->step.n;
    list->step.at = NULL;
    list->step.n = list->step.capacity = 0;

    ech_list_add(list, ECH_STEP_LOAD);
    for (size_t s = 0; s < n; s++) add_block(list, &blocks[s]);
    if (list->purpose == ECH_GENERATE) {
        ech_list_add(list, ECH_STEP_LOGITS);
    } else {
        int last = (int)list->step.n - 1;
        int folded = add_reduce(plan, list, ECH_SCALAR_LOSS, ECH_SCALAR_LOSS_WEIGHT, last);
        add_of(list, ECH_STEP_READ, -1, folded);
    }
    free(blocks);
}
