/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.offload_activations (vDNN, Rhu et al. 2016): what the forward of a block keeps of a sequence chunk leaves the device
 * when the forward has ended, and comes back for R or B, whichever is first. A use is the forward or that; the uses of all
 * blocks that keep something are one sequence in the order of the compute lane, and ech_residency says what leaves, when it
 * must have gone and when it may come back. What W reads later stays until then.
 *
 * To and from disk values pass through the host: two steps in one lane.
 */
#include <stdlib.h>

#include "schedule/passes.h"
#include "schedule/residency.h"

/* Steps of a use. */
typedef struct visit {
    int first, last; /* of the compute lane; `last` also a collective behind it */
    int collective;  /* the first of R's or B's collectives, if it comes before `first`; -1: none */
} visit;

typedef struct offloading {
    const ech_plan *plan;
    const ech_list *list;
    int64_t *bytes; /* [blocks] of what it keeps; 0: nothing that leaves, or not this rank's */
    ECH_LIST(ech_use) use;
    ECH_LIST(visit) visit;
    int *collective; /* [resources] of a backward that no compute step has begun, + 1 */
    bool *returned;  /* [resources] its backward has begun */
    ech_insertion_list in;
    int *left; /* [resources] the insertion after which it is away, + 1 */
} offloading;

static int resource_of(const offloading *o, const ech_step *step)
{
    return step->block * o->list->micro_batches + step->micro;
}

/* Whether the step is of a block's work on what it keeps. */
static bool uses_kept(const offloading *o, const ech_step *step)
{
    bool works = ech_step_kind_phase(step->kind) >= 0 ||
                 (step->kind == ECH_STEP_COLLECTIVE && step->calls > 0);
    return works && o->bytes[step->block] > 0;
}

static void note_use(offloading *o, int s)
{
    const ech_step *step = &o->list->step.at[s];
    int resource = resource_of(o, step);
    bool computes = step->lane == ECH_LANE_COMPUTE, forward = step->phase == ECH_FORWARD;
    if (o->use.n && o->use.at[o->use.n - 1].resource == resource &&
        (o->use.at[o->use.n - 1].makes == forward || o->returned[resource])) {
        o->visit.at[o->visit.n - 1].last = s;
    } else if (!forward && o->returned[resource]) {
        return; /* W, later */
    } else if (!computes) {
        if (!forward && !o->collective[resource]) o->collective[resource] = s + 1;
    } else {
        ECH_PUSH(o->use, (ech_use){.resource = resource, .makes = forward});
        ECH_PUSH(o->visit, (visit){s, s, forward ? -1 : o->collective[resource] - 1});
        o->returned[resource] = !forward;
    }
}

static ech_insertion copy_of(const offloading *o, ech_step_kind kind, const ech_stay *stay)
{
    const ech_step *step = &o->list->step.at[o->visit.at[stay->first].first];
    ech_insertion copy = {.step = ech_step_make(kind), .before = {-1, -1}, .behind = -1};
    copy.step.block = step->block;
    copy.step.chunk = step->chunk;
    copy.step.micro = step->micro;
    copy.step.turn = step->turn;
    copy.step.resource = ECH_RESOURCE_KEPT;
    copy.step.bytes = o->bytes[step->block];
    return copy;
}

/* One hop further from the device, or towards it; the next one comes behind it. */
static void add_hop(offloading *o, ech_insertion *copy, ech_space from, ech_space to)
{
    copy->step.from = from;
    copy->step.to = to;
    ECH_PUSH(o->in, *copy);
    copy->behind = (int)o->in.n - 1;
}

/* The device's memory is free once the first hop has ended. */
static void leave(offloading *o, const ech_stay *stay)
{
    ech_insertion copy = copy_of(o, ECH_STEP_OFFLOAD, stay);
    copy.after = o->visit.at[stay->last].last;
    if (stay->gone_before >= 0) copy.before[0] = o->visit.at[stay->gone_before].first;
    add_hop(o, &copy, ECH_SPACE_DEVICE, ECH_SPACE_HOST);
    copy.before[0] = -1;
    if (o->plan->kept == ECH_SPACE_DISK) add_hop(o, &copy, ECH_SPACE_HOST, ECH_SPACE_DISK);
    o->left[stay->resource] = (int)o->in.n;
}

static void come_back(offloading *o, const ech_stay *stay)
{
    ech_insertion copy = copy_of(o, ECH_STEP_FETCH, stay);
    copy.after = stay->room_after < 0 ? -1 : o->visit.at[stay->room_after].last;
    copy.behind = o->left[stay->resource] - 1;
    if (o->plan->kept == ECH_SPACE_DISK) add_hop(o, &copy, ECH_SPACE_DISK, ECH_SPACE_HOST);
    copy.before[0] = o->visit.at[stay->first].first;
    copy.before[1] = o->visit.at[stay->first].collective;
    add_hop(o, &copy, ECH_SPACE_HOST, ECH_SPACE_DEVICE);
}

static void insert_copies(offloading *o, ech_list *list, int resources)
{
    ech_stay_list stays = {0};
    ech_residency(o->use.at, o->use.n, resources, o->plan->prefetch, &stays);
    for (size_t i = 0; i < stays.n; i++) {
        if (stays.at[i].returns) leave(o, &stays.at[i]);
        if (stays.at[i].brought) come_back(o, &stays.at[i]);
    }
    ech_list_insert(list, &o->in);
    free(stays.at);
}

void ech_pass_offload(const ech_plan *plan, ech_list *list)
{
    size_t blocks = plan->model->block.n, resources = blocks * (size_t)list->micro_batches;
    if (plan->kept == ECH_SPACE_DEVICE) return;
    ECH_FREED int64_t *bytes = ech_calloc(blocks, sizeof *bytes);
    ECH_FREED int *collective = ech_calloc(resources, sizeof *collective);
    ECH_FREED int *left = ech_calloc(resources, sizeof *left);
    ECH_FREED bool *returned = ech_calloc(resources, sizeof *returned);
    offloading o = {.plan = plan,
                    .list = list,
                    .bytes = bytes,
                    .collective = collective,
                    .returned = returned,
                    .left = left};
    for (int b = 0; b < (int)blocks; b++)
        if (ech_layout_has_block(plan->layout, plan->rank, b))
            bytes[b] = ech_plan_kept_bytes(plan, b);
    for (int s = 0; s < (int)list->step.n; s++)
        if (uses_kept(&o, &list->step.at[s])) note_use(&o, s);
    insert_copies(&o, list, (int)resources);
    free(o.use.at);
    free(o.visit.at);
    free(o.in.at);
}
