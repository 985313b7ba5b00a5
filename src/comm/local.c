/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend `local`: ranks are threads of one process, messages are copies between their buffers.
 * Each rank has a box of posts: the sends to it and its receives that have no counterpart yet. The
 * side that comes first leaves a post; the second removes it from the box and copies from the
 * sender's buffer directly to the receiver's, in chunks; the first copies some of them while it
 * waits. Nothing is buffered, so a send never completes before its receive is started.
 *
 * Between queues of devices the second side puts the copy on the first one's queue, after an event
 * of its own queue, which in turn waits for an event after the copy. Every wait is for an event
 * that has been recorded before, so queues never form a cycle of waits.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "comm/backend.h"

/* The number of transfers open at the same time depends on timing, but only the first training step
 * may allocate: so posts are allocated SLAB at a time. */
enum { CHUNK = 128 * 1024, MOST_RANKS = 4096, SLAB = 64 };

/* WAITING -> COPYING -> DONE, or WAITING -> MISFIT (other size), or WAITING -> WITHDRAWN. Under the
 * box's lock while it is in the box; later changed by the side that removed it. */
enum { WAITING, COPYING, DONE, MISFIT, WITHDRAWN };

typedef struct post {
    struct post *next; /* in a box's list or in the owner's free list */
    int source, destination, tag;
    const ech_comm_queue *on; /* the owner's; NULL: host memory */
    size_t bytes, other_bytes;
    const char *from;
    char *to;
    atomic_int state;
    atomic_size_t claimed, copied; /* bytes of the copy */
} post;

typedef struct slab {
    struct slab *next;
    post post[SLAB];
} slab;

typedef struct box {
    pthread_mutex_t lock;
    ech_bell bell;          /* of the rank */
    post *sends, *receives; /* oldest first */
} box;

/* What all ranks share (ech_comm_map_shared). */
typedef struct shared_memory {
    pthread_mutex_t lock;
    int takers; /* number of ranks that have it; 0: there is none */
    const ech_device *device;
    void *memory;
    size_t bytes;
} shared_memory;

/* Shared by all endpoints; the last to close frees it. */
typedef struct job {
    atomic_int open;
    shared_memory shared;
    int size;
    ech_board *board;
    bool board_is_given; /* mapped, from the job monitor; else in memory */
    box boxes[];         /* [size], by destination */
} job;

typedef struct local_state {
    job *job;
    slab *slabs; /* all posts of this endpoint */
    post *free;
} local_state;

static void open_board(job *shared)
{
    ech_transient file;
    shared->board = ech_board_file_take_given(shared->size, &file);
    shared->board_is_given = shared->board != NULL;
    if (shared->board_is_given) {
        ech_transient_remove(&file); /* no other process opens it */
        return;
    }
    shared->board = ech_calloc(1, ech_board_bytes(shared->size));
    ech_board_init(shared->board, shared->size);
}

/* ---- posts ---- */

static void add_slab(local_state *state)
{
    slab *more = ech_calloc(1, sizeof *more);
    more->next = state->slabs;
    state->slabs = more;
    for (int i = SLAB - 1; i >= 0; i--) {
        post *p = &more->post[i];
        atomic_store_explicit(&p->state, DONE, memory_order_relaxed);
        p->next = state->free;
        state->free = p;
    }
}

/* A post of this endpoint, reused once done: there are as many as transfers were ever open at the
 * same time, and up to a slab more. */
static post *new_post(local_state *state)
{
    if (!state->free) add_slab(state);
    post *p = state->free;
    state->free = p->next;
    p->next = NULL;
    p->from = NULL;
    p->to = NULL;
    atomic_store_explicit(&p->claimed, 0, memory_order_relaxed);
    atomic_store_explicit(&p->copied, 0, memory_order_relaxed);
    atomic_store_explicit(&p->state, WAITING, memory_order_relaxed);
    return p;
}

static void append(post **list, post *p)
{
    while (*list) list = &(*list)->next;
    *list = p;
}

/* Removes the oldest post with this source and tag; NULL if there is none. */
static post *take(post **list, int source, int tag)
{
    for (; *list; list = &(*list)->next) {
        post *p = *list;
        if (p->source != source || p->tag != tag) continue;
        *list = p->next;
        p->next = NULL;
        return p;
    }
    return NULL;
}

/* Removes this post; false if it is not in the list. */
static bool take_out(post **list, const post *p)
{
    while (*list && *list != p) list = &(*list)->next;
    if (!*list) return false;
    *list = p->next;
    return true;
}

/* ---- copies ---- */

/* Copies chunks until none is left to claim; both sides may run this. */
static void copy_chunks(post *p)
{
    for (;;) {
        size_t at = atomic_fetch_add_explicit(&p->claimed, CHUNK, memory_order_relaxed);
        if (at >= p->bytes) return;
        size_t n = p->bytes - at < CHUNK ? p->bytes - at : CHUNK;
        memcpy(p->to + at, p->from + at, n);
        atomic_fetch_add_explicit(&p->copied, n, memory_order_release);
    }
}

/* `on`: the second side's queue. */
static void put_copy(const post *p, const ech_comm_queue *on)
{
    const ech_comm_queue *first = p->on;
    on->device->record(on->mark, on->queue);
    first->device->wait(first->queue, on->mark);
    first->device->copy(first->queue, p->to, p->from, p->bytes);
    first->device->record(first->mark, first->queue);
    on->device->wait(on->queue, first->mark);
}

static ech_status fail_misfit(const post *p, size_t sent, size_t expected)
{
    ECH_FAIL(ECH_EINTERNAL,
             "rank %d sends %zu bytes to rank %d with tag %d, but the receive is for %zu bytes",
             p->source, sent, p->destination, p->tag, expected);
}

/* Tells the first side, whose rank is the other one of the request, that its post has changed. */
static void ring_owner(const ech_comm *comm, const ech_request *request)
{
    const local_state *state = comm->state;
    ech_bell_ring(&state->job->boxes[request->peer].bell);
}

/* The second side's part: `p` is the first side's, removed from the box. */
static ech_status meet(const ech_comm *comm, post *p, ech_request *request, const void *from,
                       void *to)
{
    if (p->bytes != request->bytes) {
        ech_status st = request->sends ? fail_misfit(p, request->bytes, p->bytes)
                                       : fail_misfit(p, p->bytes, request->bytes);
        p->other_bytes = request->bytes;
        atomic_store_explicit(&p->state, MISFIT, memory_order_release);
        ring_owner(comm, request);
        return st;
    }
    if (request->sends)
        p->from = from;
    else
        p->to = to;
    if (p->on) {
        put_copy(p, request->on);
    } else {
        atomic_store_explicit(&p->state, COPYING, memory_order_release);
        if (p->bytes > CHUNK) ring_owner(comm, request); /* which then copies, too */
        copy_chunks(p);
        while (atomic_load_explicit(&p->copied, memory_order_acquire) < p->bytes) sched_yield();
    }
    atomic_store_explicit(&p->state, DONE,
                          memory_order_release); /* from now on the owner may reuse it */
    ring_owner(comm, request);
    request->done = true;
    return ECH_OK;
}

static ech_status start_on(ech_comm *comm, ech_request *request, const ech_comm_queue *on,
                           const void *from, void *to)
{
    local_state *state = comm->state;
    int source = request->sends ? comm->rank : request->peer;
    int destination = request->sends ? request->peer : comm->rank;
    box *at = &state->job->boxes[destination];

    pthread_mutex_lock(&at->lock);
    post *other = take(request->sends ? &at->receives : &at->sends, source, request->tag);
    if (!other) {
        post *own = new_post(state);
        own->source = source;
        own->destination = destination;
        own->tag = request->tag;
        own->on = on;
        own->bytes = request->bytes;
        if (request->sends)
            own->from = from;
        else
            own->to = to;
        request->handle = own;
        append(request->sends ? &at->sends : &at->receives, own);
    }
    pthread_mutex_unlock(&at->lock);
    ECH_ASSERT(!other || !other->on == !on);
    return other ? meet(comm, other, request, from, to) : ECH_OK;
}

static ech_status start(ech_comm *comm, ech_request *request, const void *from, void *to)
{
    return start_on(comm, request, NULL, from, to);
}

static ech_status put(ech_comm *comm, ech_request *requests, int n)
{
    ech_status status = ECH_OK;
    pthread_mutex_lock(&comm->lock);
    for (int i = 0; i < n && status == ECH_OK; i++)
        status = comm->dead ? ECH_EABORTED
                            : start_on(comm, &requests[i], requests[i].on, requests[i].data,
                                       requests[i].data);
    pthread_mutex_unlock(&comm->lock);
    return status;
}

static ech_status test(ech_comm *comm, ech_request *request)
{
    local_state *state = comm->state;
    post *p = request->handle;
    switch (atomic_load_explicit(&p->state, memory_order_acquire)) {
    case COPYING:
        copy_chunks(p);
        return ECH_OK;
    case DONE:
        request->done = true;
        request->handle = NULL;
        p->next = state->free;
        state->free = p;
        return ECH_OK;
    case MISFIT:
        return request->sends ? fail_misfit(p, p->bytes, p->other_bytes)
                              : fail_misfit(p, p->other_bytes, p->bytes);
    default:
        return ECH_OK;
    }
}

/* ---- the beginning and the end ---- */

static ech_status open_all(int size, double deadline_seconds, ech_comm **endpoints)
{
    if (size < 1 || size > MOST_RANKS)
        ECH_FAIL(ECH_EUSAGE,
                 "parallel.comm local runs ranks as threads: %d ranks is not between 1 "
                 "and %d, give --ranks N",
                 size, MOST_RANKS);
    job *shared = ech_calloc(1, sizeof *shared + (size_t)size * sizeof(box));
    shared->size = size;
    pthread_mutex_init(&shared->shared.lock, NULL);
    atomic_store(&shared->open, size);
    open_board(shared);
    for (int rank = 0; rank < size; rank++) {
        pthread_mutex_init(&shared->boxes[rank].lock, NULL);
        ech_bell_create(&shared->boxes[rank].bell);
        local_state *state = ech_calloc(1, sizeof *state);
        state->job = shared;
        add_slab(state);
        endpoints[rank] =
            ech_comm_make(&ech_comm_local, rank, size, rank, size, deadline_seconds, shared->board);
        endpoints[rank]->state = state;
        endpoints[rank]->bell = &shared->boxes[rank].bell;
    }
    return ECH_OK;
}

/* Ends this post's transfer, if it is not over: unused posts are DONE. */
static void withdraw_post(job *shared, post *p)
{
    box *at = &shared->boxes[p->destination];
    pthread_mutex_lock(&at->lock);
    if (take_out(&at->sends, p) || take_out(&at->receives, p))
        atomic_store_explicit(&p->state, WITHDRAWN, memory_order_release);
    pthread_mutex_unlock(&at->lock);
    /* The other side has removed it and copies or is about to: a matter of microseconds. */
    for (;;) {
        int state = atomic_load_explicit(&p->state, memory_order_acquire);
        if (state != WAITING && state != COPYING) return;
        sched_yield();
    }
}

static void withdraw(ech_comm *comm)
{
    local_state *state = comm->state;
    for (slab *own = state->slabs; own; own = own->next)
        for (int i = 0; i < SLAB; i++) withdraw_post(state->job, &own->post[i]);
}

static void close_one(ech_comm *comm)
{
    local_state *state = comm->state;
    job *shared = state->job;
    withdraw(comm);
    ech_board_leave(comm->board, comm->rank);
    for (slab *own = state->slabs; own;) {
        slab *next = own->next;
        free(own);
        own = next;
    }
    free(state);
    if (atomic_fetch_sub(&shared->open, 1) > 1) return;
    for (int rank = 0; rank < shared->size; rank++) {
        ech_bell_destroy(&shared->boxes[rank].bell);
        pthread_mutex_destroy(&shared->boxes[rank].lock);
    }
    pthread_mutex_destroy(&shared->shared.lock);
    if (shared->board_is_given)
        ech_board_file_unmap(shared->board);
    else
        free(shared->board);
    free(shared);
}

/* ---- shared memory ---- */

static ech_status map_shared(ech_comm *comm, const ech_device *device, size_t bytes, void **out)
{
    shared_memory *s = &((local_state *)comm->state)->job->shared;
    ech_status status = ECH_OK;
    pthread_mutex_lock(&s->lock);
    if (s->takers == 0) status = device->alloc(bytes, &s->memory);
    if (status == ECH_OK) {
        ECH_ASSERT(s->takers == 0 || (s->device == device && s->bytes == bytes));
        ECH_ASSERT(s->takers < comm->size);
        s->takers++;
        s->device = device;
        s->bytes = bytes;
        *out = s->memory;
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

static void unmap_shared(ech_comm *comm)
{
    shared_memory *s = &((local_state *)comm->state)->job->shared;
    pthread_mutex_lock(&s->lock);
    ECH_ASSERT(s->takers > 0);
    if (--s->takers == 0) s->device->release(s->memory, s->bytes);
    pthread_mutex_unlock(&s->lock);
}

static const ech_comm_data data = {.put = put, .test = test};

const ech_comm_backend ech_comm_local = {
    .name = "local",
    .data = &data,
    .open = open_all,
    .close = close_one,
    .start = start,
    .test = test,
    .withdraw = withdraw,
    .rings = true,
    .map_shared = map_shared,
    .unmap_shared = unmap_shared,
};
