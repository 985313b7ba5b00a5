/* SPDX-License-Identifier: Apache-2.0
 *
 * Activation offloading, memory.offload_activations (vDNN, Rhu et al. 2016): values that leave the
 * device between their uses. There are three kinds of resources:
 *
 * - KEPT: what the forward of a block keeps of a sequence chunk. It leaves when the forward has
 *   ended, and returns for R or B, whichever is first. These are its two uses. Values that W reads
 *   later stay until then.
 * - CARRIED: a block's keys and values (KV cache) of a micro-batch, to which the forward of each
 *   sequence chunk appends, and which its R and B read. A use is the block's work for one chunk.
 *   After a use that only reads, nothing need be copied back.
 * - CARRIED_GRADIENTS: their gradients, to which the B of each chunk adds.
 *
 * The uses of all resources of a kind are one sequence in the order of the compute lane.
 * ech_residency decides what leaves, when it must have gone and when another may come. Carried
 * values go and come all the time: an arriving value waits until the value whose memory it reuses
 * has gone (inherit.c). Values go to and from disk through the host: two steps in one lane.
 */
#include <stdlib.h>

#include "schedule/operands.h"
#include "schedule/segments.h"
#include "schedule/passes.h"
#include "schedule/residency.h"

/* Steps of a use. */
typedef struct visit {
    int first, last; /* of the compute lane; `last` may be a collective after it */
    int collective;  /* R's or B's first collective, if it comes before `first`; -1: none */
} visit;

/* The resources of a kind. */
typedef struct offloading {
    const ech_plan *plan;
    const ech_list *list;
    ech_resource kind;
    int64_t *bytes; /* [blocks] of one resource; 0: none that leaves, or not this rank's */
    ECH_LIST(ech_use) use;
    ECH_LIST(visit) visit;
    int *collective; /* [resources] of a backward that no compute step has begun, + 1 */
    bool *known; /* [resources] kept: its backward has begun; carried: one of its uses has begun */
    ech_insertion_list *in;
    int *left; /* [resources] the insertion after which it is away, + 1 */
    int *gone; /* [stays] the insertion after which it has left the device, + 1; 0: none */
} offloading;

/* Carried values are one resource for all chunks of a micro-batch. */
static int resource_of(const offloading *o, const ech_step *step)
{
    int micro = step->micro;
    if (o->kind != ECH_RESOURCE_KEPT)
        micro -= ech_micro_at(o->list->numbering, micro).sequence_chunk;
    return step->block * o->list->micro_batches + micro;
}

/* True if the step belongs to a block's work on its kept values. */
static bool uses_kept(const offloading *o, const ech_step *step)
{
    bool works = ech_step_kind_phase(step->kind) >= 0 ||
                 (step->kind == ECH_STEP_COLLECTIVE && step->calls > 0);
    return works && o->bytes[step->block] > 0;
}

static void add_use(offloading *o, ech_use use, visit steps)
{
    ECH_PUSH(o->use, use);
    ECH_PUSH(o->visit, steps);
}

static void note_kept(offloading *o, int s)
{
    const ech_step *step = &o->list->step.at[s];
    int resource = resource_of(o, step);
    bool computes = step->lane == ECH_LANE_COMPUTE, forward = step->phase == ECH_FORWARD;
    if (!uses_kept(o, step)) return;
    if (o->use.n && o->use.at[o->use.n - 1].resource == resource &&
        (o->use.at[o->use.n - 1].makes == forward || o->known[resource])) {
        o->visit.at[o->visit.n - 1].last = s;
    } else if (!forward && o->known[resource]) {
        return; /* W, later */
    } else if (!computes) {
        if (!forward && !o->collective[resource]) o->collective[resource] = s + 1;
    } else {
        add_use(o, (ech_use){.resource = resource, .makes = forward},
                (visit){s, s, forward ? -1 : o->collective[resource] - 1});
        o->known[resource] = !forward;
    }
}

/* *writes: some call of the step does more than read carried values. Returns true if any accesses
 * them. */
static bool uses_carried(const offloading *o, const ech_step *step, bool *writes)
{
    bool some = *writes = false;
    if (ech_step_kind_phase(step->kind) < 0 || o->bytes[step->block] == 0) return false;
    const ech_block *block = o->plan->model->block.at[step->block];
    for (int c = step->first_call; c < step->first_call + step->calls; c++) {
        const ech_block_call *call = &block->program[step->phase].at[c];
        for (const ech_operand *p = NULL; (p = ech_call_next(block, call, o->list->purpose, p));) {
            if (!ech_operand_is_value(p) || !ech_list_carries(o->list, block, p->value, o->kind))
                continue;
            some = true;
            *writes |= p->mode != ECH_READ;
        }
    }
    return some;
}

static void note_carried(offloading *o, int s)
{
    const ech_step *step = &o->list->step.at[s];
    bool writes;
    if (!uses_carried(o, step, &writes)) return;
    int resource = resource_of(o, step);
    if (o->use.n && o->use.at[o->use.n - 1].resource == resource) {
        o->visit.at[o->visit.n - 1].last = s;
        o->use.at[o->use.n - 1].writes |= writes;
        return;
    }
    bool makes = !o->known[resource];
    add_use(o, (ech_use){.resource = resource, .makes = makes, .writes = writes},
            (visit){s, s, -1});
    o->known[resource] = true;
}

static int64_t carried_bytes(const offloading *o, int index)
{
    const ech_block *block = o->plan->model->block.at[index];
    int64_t bytes = 0;
    for (int v = 0; v < (int)block->value.n; v++)
        if (ech_list_carries(o->list, block, v, o->kind))
            bytes += (int64_t)ech_block_value_bytes(block, v, o->list->extent, o->plan->types);
    return bytes;
}

static ech_insertion copy_of(const offloading *o, ech_step_kind kind, const ech_stay *stay)
{
    int use = kind == ECH_STEP_OFFLOAD ? stay->last : stay->first;
    const ech_step *step = &o->list->step.at[o->visit.at[use].first];
    ech_insertion copy = {.step = ech_step_make(kind), .before = {-1, -1}, .follows = {-1, -1}};
    copy.step.block = step->block;
    copy.step.chunk = step->chunk;
    copy.step.micro = step->micro;
    copy.step.turn = step->turn;
    copy.step.resource = o->kind;
    copy.step.bytes = o->bytes[step->block];
    return copy;
}

/* Adds a hop further from the device, or towards it; the next hop follows it. */
static void add_hop(offloading *o, ech_insertion *copy, ech_space from, ech_space to)
{
    copy->step.from = from;
    copy->step.to = to;
    ECH_PUSH(*o->in, *copy);
    copy->follows[0] = (int)o->in->n - 1;
}

/* The device's memory is free once the first hop has ended. */
static void leave(offloading *o, const ech_stay *stay, int *gone)
{
    ech_insertion copy = copy_of(o, ECH_STEP_OFFLOAD, stay);
    copy.after = o->visit.at[stay->last].last;
    if (stay->gone_before >= 0) copy.before[0] = o->visit.at[stay->gone_before].first;
    add_hop(o, &copy, ECH_SPACE_DEVICE, ECH_SPACE_HOST);
    *gone = (int)o->in->n;
    copy.before[0] = -1;
    if (o->plan->kept == ECH_SPACE_DISK) add_hop(o, &copy, ECH_SPACE_HOST, ECH_SPACE_DISK);
    o->left[stay->resource] = (int)o->in->n;
}

static void come_back(offloading *o, const ech_stay *stay)
{
    ech_insertion copy = copy_of(o, ECH_STEP_FETCH, stay);
    copy.after = stay->room_after < 0 ? -1 : o->visit.at[stay->room_after].last;
    copy.follows[0] = o->left[stay->resource] - 1;
    if (o->plan->kept == ECH_SPACE_DISK) add_hop(o, &copy, ECH_SPACE_DISK, ECH_SPACE_HOST);
    copy.before[0] = o->visit.at[stay->first].first;
    copy.before[1] = o->visit.at[stay->first].collective;
    if (o->kind != ECH_RESOURCE_KEPT && stay->takes >= 0)
        copy.follows[1] = o->gone[stay->takes] - 1;
    add_hop(o, &copy, ECH_SPACE_HOST, ECH_SPACE_DEVICE);
}

static void insert_copies(offloading *o, int resources)
{
    ECH_FREED ech_stay_list stays = {0};
    ech_residency(o->use.at, o->use.n, resources, o->plan->prefetch, &stays);
    ECH_FREED int *gone = o->gone = ech_calloc(stays.n + 1, sizeof *gone);
    for (size_t i = 0; i < stays.n; i++) {
        const ech_stay *stay = &stays.at[i];
        if (stay->brought) come_back(o, stay);
        if (stay->returns && stay->written) leave(o, stay, &gone[i]);
    }
}

static void offload(const ech_plan *plan, const ech_list *list, ech_resource kind,
                    ech_insertion_list *in)
{
    static void (*const note[ECH_RESOURCES])(offloading *, int) = {
        [ECH_RESOURCE_KEPT] = note_kept,
        [ECH_RESOURCE_CARRIED] = note_carried,
        [ECH_RESOURCE_CARRIED_GRADIENTS] = note_carried};
    size_t blocks = plan->model->block.n, resources = blocks * (size_t)list->micro_batches;
    ECH_FREED int64_t *bytes = ech_calloc(blocks, sizeof *bytes);
    ECH_FREED int *collective = ech_calloc(resources, sizeof *collective);
    ECH_FREED int *left = ech_calloc(resources, sizeof *left);
    ECH_FREED bool *known = ech_calloc(resources, sizeof *known);
    offloading o = {.plan = plan,
                    .list = list,
                    .kind = kind,
                    .bytes = bytes,
                    .collective = collective,
                    .known = known,
                    .in = in,
                    .left = left};
    for (int b = 0; b < (int)blocks; b++)
        if (ech_layout_has_block(plan->layout, plan->rank, b))
            bytes[b] =
                kind == ECH_RESOURCE_KEPT ? ech_plan_kept_bytes(plan, b) : carried_bytes(&o, b);
    for (int s = 0; s < (int)list->step.n; s++) note[kind](&o, s);
    insert_copies(&o, (int)resources);
    free(o.use.at);
    free(o.visit.at);
}

void ech_pass_offload(const ech_plan *plan, ech_list *list)
{
    ECH_FREED ech_insertion_list in = {0};
    if (plan->kept == ECH_SPACE_DEVICE) return;
    if (list->purpose == ECH_TRAIN) offload(plan, list, ECH_RESOURCE_KEPT, &in);
    if (list->numbering.sequence_chunks > 1) {
        offload(plan, list, ECH_RESOURCE_CARRIED, &in);
        offload(plan, list, ECH_RESOURCE_CARRIED_GRADIENTS, &in);
    }
    ech_list_insert(list, &in);
}
