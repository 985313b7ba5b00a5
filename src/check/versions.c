/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks versions of weights: each step reads the version that the schedule promises, and it is
 * still in its slot. Version k is in slot k mod versions, each a value of its bucket; the checker
 * tracks which version each slot has. Versions are counted from the list's beginning. The model and
 * the accesses decide what a step reads; in lists without accesses a step may read weights of all
 * buckets. Weights that ranks updated in shards become a version once they are gathered, for steps
 * that have waited for the gather.
 */
#include "check/promise.h"
#include "schedule/operands.h"
#include "schedule/states.h"

enum { NOTHING = -1000000000 }; /* a place whose version is being made, or is no longer read */

typedef struct shelf {
    const ech_plan *plan;
    const ech_list *list;
    int versions;
    struct place {
        int version; /* stored there */
        int gather;  /* the step that gathered it; -1: none in this list */
    } * place;       /* [buckets * versions] */
    int *newest;     /* [buckets] */
    int *made;       /* [buckets]: pieces of the next version so far */
    /* [versions]: the newest version that has been in a slot, the number of buckets that have it
     * there now, and the last step that gathered there. If all have it, and that step has ended, no
     * bucket needs to be checked. */
    struct slot {
        int version, buckets, gather;
    } * slot;
    ech_known known;
    int *read;     /* [chunks * micro_batches]: version that its forward read, or NOTHING */
    int *touched;  /* [buckets]: the last step that accesses its weights, + 1 */
    int *instance; /* [values of the list]: the version of weights */
} shelf;

static int slot_of(const shelf *v, int version)
{
    int slot = version % v->versions;
    return slot < 0 ? slot + v->versions : slot;
}

static struct place *place_of(const shelf *v, int bucket, int version)
{
    return &v->place[bucket * v->versions + slot_of(v, version)];
}

static void set_place(shelf *v, int bucket, int version, int holds)
{
    struct place *place = place_of(v, bucket, version);
    struct slot *slot = &v->slot[slot_of(v, version)];
    if (slot->version == place->version) slot->buckets--;
    if (slot->version < holds) *slot = (struct slot){.version = holds, .gather = slot->gather};
    if (slot->version == holds) slot->buckets++;
    place->version = holds;
}

static bool is_frozen(const shelf *v, int bucket)
{
    int first = v->plan->bucket_param.at[v->plan->bucket.at[bucket].first_param];
    return v->plan->model->param.at[first].frozen;
}

/* F, B and W read the version that the schedule promises. */
static ech_status check_promise(shelf *v, int s)
{
    const ech_schedule *schedule = v->plan->schedule;
    const ech_step *step = &v->list->step.at[s];
    int trained = 0, newest = step->version;
    while (trained < (int)v->plan->bucket.n && is_frozen(v, trained)) trained++;
    if (trained < (int)v->plan->bucket.n) newest = v->newest[trained];
    int *read = &v->read[step->chunk * v->list->micro_batches + step->micro], wanted;
    bool first = step->kind == ECH_STEP_FORWARD && *read == NOTHING;
    if (schedule->weights == ECH_WEIGHTS_FLUSHED || v->list->kind == ECH_LIST_UNDELAYED)
        wanted = 0;
    else if (ech_weights_keep_previous(schedule->weights))
        wanted = step->turn - 1;
    else if (first && schedule->vertical_sync) /* all ranks together: check/plans.c */
        wanted = step->version;
    else if (first || (step->kind != ECH_STEP_FORWARD && !schedule->stashing))
        wanted = newest;
    else
        wanted = *read;
    if (first) *read = step->version;
    if (step->version == wanted) return ECH_OK;
    return ECH_REJECT(v, s, "reads version %d of the weights, and by its schedule should read %d",
                      step->version, wanted);
}

/* Step s touches the slot of a version: gathered weights have arrived there. */
static ech_status check_gathered(const shelf *v, int s, int bucket, int version)
{
    int gather = place_of(v, bucket, version)->gather;
    if (v->known.step[v->list->step.at[s].lane][ECH_LANE_GATHER] >= gather) return ECH_OK;
    return ECH_REJECT(v, s, "does not wait for step %d, which gathers bucket %d", gather, bucket);
}

static ech_status check_place(const shelf *v, int s, int bucket)
{
    int version = v->list->step.at[s].version, there = place_of(v, bucket, version)->version;
    if (is_frozen(v, bucket)) return ECH_OK; /* in every version the same */
    if (there == version) return check_gathered(v, s, bucket, version);
    if (there == NOTHING || there > version)
        return ECH_REJECT(
            v, s, "reads version %d of the weights, which is overwritten (of %d that are kept)",
            version, v->versions);
    return ECH_REJECT(v, s, "reads version %d of the weights, which does not exist yet", version);
}

/* ---- accesses ---- */

/* An instance of weights has the version that was gathered. */
static ech_status check_instance(shelf *v, int s, const ech_access *access)
{
    int bucket = ech_plan_value(v->plan, v->list, access->value)->index;
    int *instance = &v->instance[access->value - (int)v->plan->persistent.n];
    int version = v->list->step.at[s].version;
    if (access->write) *instance = version;
    v->touched[bucket] = s + 1;
    if (*instance == version) return ECH_OK;
    return ECH_REJECT(v, s, "accesses weights of bucket %d that are not of version %d", bucket,
                      version);
}

/* At a list's end the mean of workers' layer states is one more version of these. */
static bool averages(const ech_step *step)
{
    return step->kind == ECH_STEP_OUTER_UPDATE;
}

/* A step accesses its version of weights, STASH also the next; only UPDATE, STASH, GATHER_WEIGHTS
 * and the mean of layer states write, and only their bucket's. */
static ech_status check_accesses(shelf *v, int s)
{
    const ech_step *step = &v->list->step.at[s];
    bool copies = ech_step_params(step) == ECH_PARAMS_COPY;
    bool writes = copies || ech_step_params(step) == ECH_PARAMS_UPDATE ||
                  ech_step_params(step) == ECH_PARAMS_GATHER || averages(step);
    for (int i = 0; i < step->accesses; i++) {
        const ech_access *access = &v->list->access.at[step->first_access + i];
        const ech_value *value = ech_plan_value(v->plan, v->list, access->value);
        int instance = access->value - (int)v->plan->persistent.n;
        if (!ech_memory_is_weights(value->kind)) continue;
        int version = step->version + (copies && access->write);
        if (instance >= 0) {
            ECH_TRY(check_instance(v, s, access));
            continue;
        }
        if (access->write && !writes)
            return ECH_REJECT(v, s, "writes weights of bucket %d", value->index);
        if (writes && value->index != step->index)
            return ECH_REJECT(v, s, "accesses weights of bucket %d", value->index);
        if (access->value != ech_plan_weights(v->plan, value->index, version))
            return ECH_REJECT(v, s, "accesses weights of bucket %d that are not of version %d",
                              value->index, version);
        if (access->write || !writes) v->touched[value->index] = s + 1;
    }
    return ECH_OK;
}

static ech_status expect_access(const shelf *v, int s, int bucket)
{
    if (!ech_list_has_accesses(v->plan, v->list) || v->touched[bucket] == s + 1) return ECH_OK;
    return ECH_REJECT(v, s, "does not access the weights of bucket %d, as it must", bucket);
}

/* ---- steps ---- */

static ech_status read_by_model(const shelf *v, int s)
{
    const ech_step *step = &v->list->step.at[s];
    const ech_block *block = v->plan->model->block.at[step->block];
    for (int c = step->first_call; c < step->first_call + step->calls; c++) {
        const ech_block_call *call = &block->program[step->phase].at[c];
        for (const ech_operand *o = NULL; (o = ech_call_next(block, call, v->list->purpose, o));) {
            if (o->port != ECH_PORT_PARAM) continue;
            ECH_TRY(expect_access(v, s, v->plan->param[o->value].bucket));
            ECH_TRY(check_place(v, s, v->plan->param[o->value].bucket));
        }
    }
    return ECH_OK;
}

static ech_status check_there(const shelf *v, int s)
{
    const ech_step *step = &v->list->step.at[s];
    int buckets = (int)v->plan->bucket.n;
    const struct slot *slot = &v->slot[slot_of(v, step->version)];
    bool all = slot->version == step->version && slot->buckets == buckets;
    bool has_accesses = ech_list_has_accesses(v->plan, v->list);
    if (all && v->known.step[step->lane][ECH_LANE_GATHER] >= slot->gather && !has_accesses)
        return ECH_OK;
    if (all || has_accesses) return read_by_model(v, s);
    for (int b = 0; b < buckets; b++) ECH_TRY(check_place(v, s, b));
    return ECH_OK;
}

static ech_status stash(shelf *v, int s)
{
    const ech_step *step = &v->list->step.at[s];
    if (v->versions == 1) return ECH_REJECT(v, s, "has no second place");
    if (step->version != v->newest[step->index])
        return ECH_REJECT(v, s, "copies version %d; the newest is %d", step->version,
                          v->newest[step->index]);
    ECH_TRY(check_gathered(v, s, step->index, step->version + 1));
    set_place(v, step->index, step->version + 1, NOTHING);
    bool copies = !ech_plan_has_masters(v->plan, &v->plan->bucket.at[step->index]);
    return copies ? expect_access(v, s, step->index) : ECH_OK;
}

static ech_status update(shelf *v, int s)
{
    const ech_step *step = &v->list->step.at[s];
    int wanted = v->newest[step->index] + 1;
    if (step->version != wanted)
        return ECH_REJECT(v, s, "makes version %d; the next is %d", step->version, wanted);
    ECH_TRY(check_gathered(v, s, step->index, step->version));
    const ech_bucket *bucket = &v->plan->bucket.at[step->index];
    bool made = ++v->made[step->index] == (ech_step_piece(step) ? bucket->pieces : 1);
    int64_t first;
    bool whole = made && ech_bucket_updated(bucket, &first) == ech_bucket_kept(bucket);
    set_place(v, step->index, step->version, whole ? step->version : NOTHING);
    if (made) v->newest[step->index] = step->version;
    if (made) v->made[step->index] = 0;
    return expect_access(v, s, step->index);
}

static ech_status gather(shelf *v, int s)
{
    const ech_step *step = &v->list->step.at[s];
    /* Others make it; after a span of pushes it includes other workers' updates. */
    v->newest[step->index] += ech_promise_is_served(v->plan);
    if (step->version != v->newest[step->index])
        return ECH_REJECT(v, s, "makes version %d whole; the newest is %d", step->version,
                          v->newest[step->index]);
    if (ech_step_brings_weights(step)) return expect_access(v, s, step->index);
    set_place(v, step->index, step->version, step->version);
    place_of(v, step->index, step->version)->gather = s;
    v->slot[slot_of(v, step->version)].gather = s;
    return expect_access(v, s, step->index);
}

static ech_status check_step(shelf *v, int s)
{
    const ech_step *step = &v->list->step.at[s];
    ech_known_learn(&v->known, v->list, step);
    ECH_TRY(check_accesses(v, s));
    switch (ech_step_params(step)) {
    case ECH_PARAMS_READ:
        ECH_TRY(check_promise(v, s));
        return check_there(v, s);
    case ECH_PARAMS_COPY:
        return stash(v, s);
    case ECH_PARAMS_UPDATE:
        return update(v, s);
    case ECH_PARAMS_GATHER:
        return gather(v, s);
    case ECH_PARAMS_GRADIENTS:
        return averages(step) ? update(v, s) : ECH_OK;
    case ECH_PARAMS_NOTHING:
        break;
    }
    return ECH_OK;
}

ech_status ech_check_versions(const ech_plan *plan, const ech_list *list)
{
    size_t buckets = plan->bucket.n, versions = plan->versions > 1 ? (size_t)plan->versions : 1;
    size_t reads = (size_t)plan->layout->chunks * (size_t)list->micro_batches;
    ECH_FREED struct place *place = ech_calloc(buckets * versions, sizeof *place);
    ECH_FREED int *newest = ech_calloc(buckets, sizeof *newest);
    ECH_FREED int *made = ech_calloc(buckets + 1, sizeof *made);
    ECH_FREED struct slot *slot = ech_calloc(versions, sizeof *slot);
    ECH_FREED int *read = ech_calloc(reads, sizeof *read);
    ECH_FREED int *touched = ech_calloc(buckets + 1, sizeof *touched);
    ECH_FREED int *instance = ech_calloc(list->value.n + 1, sizeof *instance);
    shelf v = {plan, list,    (int)versions, place, newest, made, slot, ech_known_begin(),
               read, touched, instance};
    for (size_t i = 0; i < list->value.n; i++) v.instance[i] = NOTHING;
    for (size_t i = 0; i < reads; i++) v.read[i] = NOTHING;
    for (size_t i = 0; i < versions; i++) v.slot[i] = (struct slot){NOTHING, 0, -1};
    for (size_t i = 0; i < buckets * versions; i++) v.place[i] = (struct place){NOTHING, -1};
    for (size_t b = 0; b < buckets; b++) /* 0 and earlier versions */
        for (int i = 0; i < v.versions; i++) set_place(&v, (int)b, -i, -i);
    for (int s = 0; s < (int)list->step.n; s++) ECH_TRY(check_step(&v, s));
    return ECH_OK;
}
