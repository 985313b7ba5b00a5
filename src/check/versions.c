/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks versions of weights: each step reads the version that the schedule promises, and it is still in
 * its slot. Version k is in slot k mod versions; the checker tracks which version each slot has. Versions are counted
 * from the list's begin.
 */
#include <stdlib.h>

#include "check/checker.h"

enum { NOTHING = -1000000000 }; /* a place whose version is being made, or not read any more */

typedef struct shelf {
    const ech_plan *plan;
    const ech_list *list;
    int versions;
    int *place;  /* [buckets * versions]: the version that lies there */
    int *newest; /* [buckets] */
    /* [versions]: the newest version that has been in a slot, and how many buckets have it there now: if all have, none
     * needs to be looked at. */
    struct slot {
        int version, buckets;
    } * slot;
    int *read; /* [chunks * micro_batches]: version that its forward read, or NOTHING */
} shelf;

static int slot_of(const shelf *v, int version)
{
    int slot = version % v->versions;
    return slot < 0 ? slot + v->versions : slot;
}

static int *place_of(const shelf *v, int bucket, int version)
{
    return &v->place[bucket * v->versions + slot_of(v, version)];
}

static void set_place(shelf *v, int bucket, int version, int holds)
{
    int *place = place_of(v, bucket, version);
    struct slot *slot = &v->slot[slot_of(v, version)];
    if (slot->version == *place) slot->buckets--;
    if (slot->version < holds) *slot = (struct slot){.version = holds};
    if (slot->version == holds) slot->buckets++;
    *place = holds;
}

/* The version that F, B or W reads is the one that the schedule promises. */
static ech_status check_promise(shelf *v, int s)
{
    const ech_schedule *schedule = v->plan->schedule;
    const ech_step *step = &v->list->step.at[s];
    int newest = v->plan->bucket.n ? v->newest[0] : step->version;
    int *read = &v->read[step->chunk * v->list->micro_batches + step->micro], wanted;
    bool first = step->kind == ECH_STEP_FORWARD && *read == NOTHING;
    if (schedule->weights == ECH_WEIGHTS_FLUSHED)
        wanted = 0;
    else if (schedule->weights == ECH_WEIGHTS_BUFFERED)
        wanted = step->turn - 1;
    else if (first && schedule->vertical_sync) /* all ranks together: check/plans.c */
        wanted = step->version;
    else if (first || (step->kind != ECH_STEP_FORWARD && !schedule->stashing))
        wanted = newest;
    else
        wanted = *read;
    if (first) *read = step->version;
    if (step->version == wanted) return ECH_OK;
    return ech_list_reject(v->plan, v->list, s,
                           "reads version %d of the weights, and by its schedule should read %d",
                           step->version, wanted);
}

static ech_status check_there(const shelf *v, int s)
{
    const ech_step *step = &v->list->step.at[s];
    int buckets = (int)v->plan->bucket.n;
    const struct slot *slot = &v->slot[slot_of(v, step->version)];
    if (slot->version == step->version && slot->buckets == buckets) return ECH_OK;
    for (int b = 0; b < buckets; b++) {
        int there = *place_of(v, b, step->version);
        if (there == step->version) continue;
        if (there == NOTHING || there > step->version)
            return ech_list_reject(v->plan, v->list, s,
                                   "reads version %d of the weights, which is overwritten (of %d "
                                   "that are kept)",
                                   step->version, v->versions);
        return ech_list_reject(v->plan, v->list, s,
                               "reads version %d of the weights, which does not exist yet",
                               step->version);
    }
    return ECH_OK;
}

static ech_status stash(shelf *v, int s)
{
    const ech_step *step = &v->list->step.at[s];
    if (v->versions == 1) return ech_list_reject(v->plan, v->list, s, "has no second place");
    if (step->version != v->newest[step->index])
        return ech_list_reject(v->plan, v->list, s, "copies version %d; the newest is %d",
                               step->version, v->newest[step->index]);
    set_place(v, step->index, step->version + 1, NOTHING);
    return ECH_OK;
}

static ech_status update(shelf *v, int s)
{
    const ech_step *step = &v->list->step.at[s];
    int wanted = v->newest[step->index] + 1;
    if (step->version != wanted)
        return ech_list_reject(v->plan, v->list, s, "makes version %d; the next is %d",
                               step->version, wanted);
    set_place(v, step->index, step->version, step->version);
    v->newest[step->index] = step->version;
    return ECH_OK;
}

static ech_status check_step(shelf *v, int s)
{
    const ech_step *step = &v->list->step.at[s];
    switch (ech_step_params(step)) {
    case ECH_PARAMS_READ:
        ECH_TRY(check_promise(v, s));
        return check_there(v, s);
    case ECH_PARAMS_COPY:
        return stash(v, s);
    case ECH_PARAMS_UPDATE:
        return update(v, s);
    case ECH_PARAMS_NOTHING:
    case ECH_PARAMS_GRADIENTS:
        break;
    }
    return ECH_OK;
}

ech_status ech_check_versions(const ech_plan *plan, const ech_list *list)
{
    size_t buckets = plan->bucket.n, versions = plan->versions > 1 ? (size_t)plan->versions : 1;
    size_t reads = (size_t)plan->layout->chunks * (size_t)list->micro_batches;
    shelf v = {.plan = plan,
               .list = list,
               .versions = (int)versions,
               .place = ech_calloc(buckets * versions, sizeof *v.place),
               .newest = ech_calloc(buckets, sizeof *v.newest),
               .slot = ech_calloc(versions, sizeof *v.slot),
               .read = ech_calloc(reads, sizeof *v.read)};
    for (size_t i = 0; i < reads; i++) v.read[i] = NOTHING;
    for (size_t i = 0; i < versions; i++) v.slot[i].version = NOTHING;
    for (size_t i = 0; i < buckets * versions; i++) v.place[i] = NOTHING;
    for (size_t b = 0; b < buckets; b++) /* 0 and those before it */
        for (int i = 0; i < v.versions; i++) set_place(&v, (int)b, -i, -i);
    ech_status status = ECH_OK;
    for (int s = 0; s < (int)list->step.n && status == ECH_OK; s++) status = check_step(&v, s);
    free(v.place);
    free(v.newest);
    free(v.slot);
    free(v.read);
    return status;
}
