/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups: their members, channels, tags and counters, and batches of messages.
 *
 * Tags: two ranks number the groups that contain both of them in order of creation, which is the
 * same on both. The n-th such group has the n-th block of tags between these two, and each lane has
 * a part of that block. So members agree on tags without a message, and no two channels use the
 * same tags, nor do point-to-point messages. All groups use one communicator of MPI (mpi.c);
 * LIBRARY reductions have one more each.
 */
#include "comm/reduce.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "comm/reduce.h"

/* Tags of a group, for all of its lanes; and the most groups that can contain the same two
 * ranks. */
enum {
    TAGS = ECH_GROUP_LANES * ECH_CALLS,
    MOST_SHARED = ((1 << ECH_COMM_TAG_BITS) - ECH_COMM_TAGS) / TAGS
};

/* This rank's index among the members. Checks the members against the rules of comm.h, and that
 * tags are left. */
static ech_status find_index(const ech_comm *comm, const char *name, const int *ranks, int n,
                             int *index)
{
    *index = -1;
    for (int i = 0; i < n; i++) {
        bool ascending = i == 0 || ranks[i] > ranks[i - 1];
        if (ranks[i] < 0 || ranks[i] >= comm->size || !ascending)
            ECH_FAIL(ECH_EINTERNAL,
                     "group %s: member %d is rank %d, but members must ascend within 0..%d", name,
                     i, ranks[i], comm->size - 1);
        if (comm->shared[ranks[i]] >= MOST_SHARED)
            ECH_FAIL(ECH_EINTERNAL, "group %s: more than %d groups with rank %d", name, MOST_SHARED,
                     ranks[i]);
        if (ranks[i] == comm->rank) *index = i;
    }
    if (*index < 0)
        ECH_FAIL(ECH_EINTERNAL, "group %s: rank %d is not one of its %d members", name, comm->rank,
                 n);
    return ECH_OK;
}

/* ---- location of data ---- */

static int64_t segment_on(const ech_device *device)
{
    return (int64_t)ech_device_row_of(device->name)->segment;
}

ech_status ech_group_set_queue(ech_group *group, const ech_comm_queue *on)
{
    char name[64];
    snprintf(name, sizeof name, "group %s, lane %d", group->of->name, group->lane);
    group->on = *on;
    group->segment = segment_on(on->device);
    group->on.joined = NULL;
    ECH_TRY(ech_comm_join(group->comm, &group->on, name, group->of->ranks, group->size));
    return ech_library_connect(group);
}

void ech_group_copy(const ech_group *group, void *to, const void *from, size_t bytes)
{
    group->on.device->copy(group->on.queue, to, from, bytes);
}

/* ---- channels ---- */

/* Called under the endpoint's lock. */
static ech_group *add_channel(ech_comm *comm, ech_members *of, int size, int index, int lane)
{
    ECH_ASSERT(lane >= 0 && lane < ECH_GROUP_LANES && !(of->lanes & 1u << lane));
    of->lanes |= 1u << lane;
    of->channels++;
    ech_group *group = ech_calloc(1, sizeof *group);
    *group = (ech_group){.comm = comm,
                         .of = of,
                         .lane = lane,
                         .size = size,
                         .index = index,
                         .segment = segment_on(ech_device_find("cpu")),
                         .host = {.threads = 1},
                         .on = {.device = ech_device_find("cpu"), .context = &group->host}};
    if (index == 0) group->folds = ech_calloc((size_t)size * ECH_FOLD_VALUES, sizeof(double));
    for (int b = 0; b < ECH_BATCHES; b++)
        group->batch[b].at = ech_calloc(2 * (size_t)size, sizeof(ech_request));
    return group;
}

static ech_status create_group(ech_comm *comm, const char *name, const int *ranks, int n,
                               ech_group **out)
{
    int index;
    ECH_TRY(find_index(comm, name, ranks, n, &index));
    ech_members *of = ech_calloc(1, sizeof *of);
    of->name = ech_strdup(name);
    of->ranks = ech_calloc((size_t)n, sizeof *of->ranks);
    memcpy(of->ranks, ranks, (size_t)n * sizeof *of->ranks);
    of->tags = ech_calloc((size_t)n, sizeof *of->tags);
    for (int i = 0; i < n; i++) of->tags[i] = ECH_COMM_TAGS + (int)comm->shared[ranks[i]]++ * TAGS;
    *out = add_channel(comm, of, n, index, 0);
    return ECH_OK;
}

ech_status ech_group_create(ech_comm *comm, const char *name, const int *ranks, int n,
                            ech_group **out)
{
    pthread_mutex_lock(&comm->lock);
    ech_status st = create_group(comm, name, ranks, n, out);
    pthread_mutex_unlock(&comm->lock);
    return st;
}

ech_status ech_group_create_world(ech_comm *comm, const char *name, ech_group **out)
{
    ECH_FREED int *ranks = ech_calloc((size_t)comm->size, sizeof *ranks);
    for (int r = 0; r < comm->size; r++) ranks[r] = r;
    return ech_group_create(comm, name, ranks, comm->size, out);
}

ech_group *ech_group_open(const ech_group *group, int lane)
{
    pthread_mutex_lock(&group->comm->lock);
    ech_group *out = add_channel(group->comm, group->of, group->size, group->index, lane);
    pthread_mutex_unlock(&group->comm->lock);
    return out;
}

void ech_group_destroy(ech_group *group)
{
    if (!group) return;
    ech_comm_disconnect(group->comm, &group->on);
    pthread_mutex_lock(&group->comm->lock);
    if (group->library) group->comm->backend->library_forget(group->comm, group->library);
    ech_members *of = group->of;
    bool last = --of->channels == 0;
    pthread_mutex_unlock(&group->comm->lock);
    if (last) {
        free(of->first);
        free(of->tags);
        free(of->ranks);
        free(of->name);
        free(of);
    }
    for (int b = 0; b < ECH_BATCHES; b++) free(group->batch[b].at);
    free(group->folds);
    free(group);
}

void ech_group_set_saves(ech_group *group)
{
    group->thread = ECH_BOARD_SAVER;
}

void ech_group_show_life(ech_group *group)
{
    if (group->thread == ECH_BOARD_SAVER)
        ech_board_set_wait(group->comm->board, group->comm->local_rank, ECH_BOARD_SAVER, -1);
}

double ech_group_deadline(const ech_group *group)
{
    return group->comm->deadline;
}

int ech_group_size(const ech_group *group)
{
    return group->size;
}

int ech_group_index(const ech_group *group)
{
    return group->index;
}

void ech_group_set_machines(ech_group *group, const int *first, int machines)
{
    ech_members *of = group->of;
    ECH_ASSERT(!of->first && first[0] == 0 && first[machines] == group->size);
    of->machines = machines;
    of->first = ech_calloc((size_t)machines + 1, sizeof *of->first);
    memcpy(of->first, first, ((size_t)machines + 1) * sizeof *of->first);
}

void ech_group_set_stores(ech_group *group, int stores)
{
    ECH_ASSERT(stores < group->size);
    group->of->stores = stores;
}

ech_lineup ech_group_lineup(const ech_group *group)
{
    return (ech_lineup){.size = group->size,
                        .machines = group->of->machines,
                        .segment = group->segment,
                        .stores = group->of->stores,
                        .first = group->of->first};
}

ech_comm_count ech_group_count(const ech_group *group, ech_comm_counted kind)
{
    return group->counts[kind];
}

const char *ech_comm_call_name(ech_comm_call call)
{
    static const char *const names[] = {
        [ECH_CALL_REDUCE] = "reduce",
        [ECH_CALL_FOLD] = "fold",
        [ECH_CALL_GATHER] = "gather",
        [ECH_CALL_BARRIER] = "barrier",
        [ECH_CALL_BROADCAST] = "broadcast",
        [ECH_CALL_SCATTER] = "scatter",
        [ECH_CALL_GATHER_SHARDS] = "gather of shards",
#define X(name, text, help) [ECH_CALL_##name] = text,
#include "comm/collective.def"
#undef X
    };
    return names[call];
}

void ech_group_begin(ech_group *group, ech_comm_call call)
{
    group->call = call;
    group->count = &group->counts[call == ECH_CALL_REDUCE          ? ECH_COMM_REDUCES
                                  : call == ECH_CALL_SCATTER       ? ECH_COMM_SCATTERS
                                  : call == ECH_CALL_GATHER_SHARDS ? ECH_COMM_GATHERS
                                  : call >= ECH_CALL_NONE          ? ECH_COMM_COLLECTIVES
                                                                   : ECH_COMM_OTHERS];
    group->count->calls++;
}

/* ---- batches ---- */

void ech_comm_batch_enter(ech_group *group, ech_comm_batch *batch, int member, bool sends,
                          void *data, size_t bytes)
{
    ECH_ASSERT(batch->n < 2 * group->size);
    batch->at[batch->n++] =
        (ech_request){.on = &group->on,
                      .data = data,
                      .peer = group->of->ranks[member],
                      .tag = group->of->tags[member] + group->lane * ECH_CALLS + (int)group->call,
                      .bytes = bytes,
                      .sends = sends};
    if (!sends) return;
    group->count->messages++;
    group->count->bytes += (int64_t)bytes;
}

void ech_comm_batch_send(ech_group *group, ech_comm_batch *batch, int member, const void *data,
                         size_t bytes)
{
    if (bytes) ech_comm_batch_enter(group, batch, member, true, (void *)(uintptr_t)data, bytes);
}

void ech_comm_batch_receive(ech_group *group, ech_comm_batch *batch, int member, void *data,
                            size_t bytes)
{
    if (bytes) ech_comm_batch_enter(group, batch, member, false, data, bytes);
}

ech_status ech_comm_batch_put(ech_group *group, ech_comm_batch *batch)
{
    int first = batch->put;
    batch->put = batch->n;
    return ech_transfers_put(group->comm, batch->at + first, batch->n - first);
}

ech_status ech_comm_batch_wait(ech_group *group, ech_comm_batch *batch)
{
    ECH_TRY(ech_comm_batch_put(group, batch));
    int n = batch->n;
    batch->n = batch->put = 0;
    ech_wait_for what = {group->of->name, ech_comm_call_name(group->call), group->thread};
    ECH_TRY(ech_wait_all(group->comm, batch->at, n, &what));
    for (int i = 0; i < n; i++) group->lost |= batch->at[i].lost;
    return ECH_OK;
}

bool ech_group_take_loss(ech_group *group)
{
    bool lost = group->lost;
    group->lost = false;
    return lost;
}
