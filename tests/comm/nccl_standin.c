/* SPDX-License-Identifier: Apache-2.0
 *
 * The stand-in for NCCL (nccl_standin.h).
 */
#include "comm/nccl_standin.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/nccl_library.h"

#define EXPORTED __attribute__((visibility("default")))

#define X(name, arguments) EXPORTED int nccl##name arguments;
ECH_NCCL_CALLS(X)
#undef X
EXPORTED const char *ncclGetErrorString(int result);
EXPORTED const char *ncclGetLastError(ech_nccl_comm comm);

enum { INTERNAL = 3, INVALID = 4, MOST_MEMBERS = 16, MOST_CALLS = 64, BYTES = ECH_NCCL_ID_BYTES };
/* Thread blocks of a communicator that names no number; and that run on a GPU at once. */
enum { BLOCKS = 32, MULTIPROCESSORS = 132 };
enum { VERSION = 23007 };
/* Of collectives. */
enum { NO_KIND, SUM, SCATTER, GATHER, KINDS };

/* A send or receive of a group. */
typedef struct call {
    struct call *next; /* of those that wait for their other side */
    char *data;
    char *from; /* of collectives, whose `data` is the result */
    size_t n;
    int type, peer;
    bool sends, done;
} call;

/* One for all its members; it stays. */
typedef struct clique {
    struct clique *next;
    char id[BYTES];
    int size, arrived, left_by; /* members that have come; that have been finalized */
    call *waiting[2][MOST_MEMBERS][MOST_MEMBERS]; /* [sends][from][to], oldest first */
    bool called[2][MOST_MEMBERS][MOST_MEMBERS];   /* [sends][from][to]: some such call was put */
    /* The sum under way. */
    int summed, left;
    char *from[MOST_MEMBERS], *to[MOST_MEMBERS];
    size_t n;
    int type, kind;
} clique;

/* What a member's last call has begun and not done. */
typedef enum wish { NOTHING, TO_JOIN, TO_LAUNCH, TO_LEAVE } wish;

/* A member of a clique: an ncclComm_t. It stays, so that calls after its end are seen. */
typedef struct member {
    struct member *next;
    clique *of;
    int rank, gpu;
    int blocks; /* of its kernels */
    bool ended, aborted, finalized;
    bool did[KINDS]; /* of the library's collectives */
    wish wish;
    struct launch *pending; /* TO_LAUNCH */
    pthread_t caller;       /* of the last call */
    int calling;            /* threads in a call */
    int launched;           /* groups on the stream */
    void *stream;
    int error;
} member;

/* What a group of calls puts on a stream. */
typedef struct launch {
    member *by;
    int calls;
    int kind; /* NO_KIND: messages */
    call call[];
} launch;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static const ech_device *device;
static nccl_standin_counts counts;
static clique *cliques;
static member *members;
static long long ids;
static int (*find_gpu)(void);

static _Thread_local int depth;
static _Thread_local member *to_abort[MOST_CALLS];
static _Thread_local int aborts;
static _Thread_local struct {
    member *by;
    call call;
} entered[MOST_CALLS];
static _Thread_local int entries;

EXPORTED void nccl_standin_use(const ech_device *of, int (*gpu)(void))
{
    pthread_mutex_lock(&lock);
    if (of) device = of;
    if (gpu) find_gpu = gpu;
    counts = (nccl_standin_counts){0};
    pthread_mutex_unlock(&lock);
}

EXPORTED nccl_standin_counts nccl_standin_count(void)
{
    pthread_mutex_lock(&lock);
    nccl_standin_counts now = counts;
    pthread_mutex_unlock(&lock);
    return now;
}

/* Under the lock, as all that follows but the exported functions. */
static int forbid(member *m, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "the stand-in for NCCL: member %d of %d: ", m ? m->rank : -1,
            m ? m->of->size : 0);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    counts.violations++;
    if (m) m->error = INVALID;
    return INVALID;
}

/* ---- a GPU ---- */

/* Another communicator's kernels, on the GPU or waiting for their stream; NULL: there are none. */
static const member *find_running(const member *m)
{
    for (const member *other = members; other; other = other->next)
        if (other != m && other->gpu == m->gpu && other->launched > 0 && !other->aborted)
            return other;
    return NULL;
}

/* Loading a kernel, connecting, and freeing and allocating memory wait until the GPU is idle: a
 * kernel there may wait for a rank that waits for this one. */
static void expect_idle(member *m, const char *what)
{
    const member *other = find_running(m);
    if (other)
        forbid(m, "%s on GPU %d while kernels of another communicator, of %d members, run there",
               what, m->gpu, other->of->size);
}

/* The thread blocks of all kernels that the GPU may have at once, this one's among them: a
 * communicator's kernels follow each other. Kernels that wait for each other must all run. */
static void expect_room(member *m)
{
    int blocks = 0;
    for (const member *other = members; other; other = other->next)
        if (other->gpu == m->gpu && other->launched > 0 && !other->aborted) blocks += other->blocks;
    if (blocks > MULTIPROCESSORS)
        forbid(m, "%d thread blocks wait on GPU %d, which has %d multiprocessors", blocks, m->gpu,
               MULTIPROCESSORS);
}

EXPORTED void nccl_standin_load(const char *what)
{
    pthread_mutex_lock(&lock);
    int gpu = find_gpu ? find_gpu() : 0;
    for (member *m = members; m; m = m->next)
        if (m->gpu == gpu && m->launched > 0 && !m->aborted) {
            forbid(NULL, "%s is loaded on GPU %d while kernels of a communicator run there", what,
                   gpu);
            break;
        }
    pthread_mutex_unlock(&lock);
}

static char *reach(const void *data)
{
    return device->reach ? device->reach(data) : (char *)(uintptr_t)data;
}

static size_t bytes_of(const call *c)
{
    return c->n * (c->type == ECH_NCCL_FLOAT64 ? 8 : c->type == ECH_NCCL_FLOAT32 ? 4 : 1);
}

/* ---- on the stream ---- */

static call **queue_of(const member *m, const call *c, bool sends)
{
    int from = c->sends ? m->rank : c->peer, to = c->sends ? c->peer : m->rank;
    return &m->of->waiting[sends][from][to];
}

static void meet(member *m, call *one, call *other)
{
    call *from = one->sends ? one : other, *to = one->sends ? other : one;
    if (from->n != to->n || from->type != to->type)
        forbid(m, "a send of %zu of type %d meets a receive of %zu of type %d", from->n, from->type,
               to->n, to->type);
    else if (from->n > 0)
        memcpy(reach(to->data), reach(from->data), bytes_of(from));
    one->done = other->done = true;
    pthread_cond_broadcast(&changed);
}

static void post(member *m, call *c)
{
    call **theirs = queue_of(m, c, !c->sends), **own = queue_of(m, c, c->sends);
    if (*theirs) {
        call *other = *theirs;
        *theirs = other->next;
        meet(m, c, other);
        return;
    }
    while (*own) own = &(*own)->next;
    *own = c;
    c->next = NULL;
}

static void withdraw(member *m, const call *c)
{
    call **at = queue_of(m, c, c->sends);
    while (*at && *at != c) at = &(*at)->next;
    if (*at) *at = c->next;
}

static bool all_done(const launch *l)
{
    bool all = true;
    for (int i = 0; i < l->calls; i++) all &= l->call[i].done;
    return all;
}

static void exchange(launch *l)
{
    for (int i = 0; i < l->calls && !l->by->aborted; i++) post(l->by, &l->call[i]);
    while (!all_done(l) && !l->by->aborted) pthread_cond_wait(&changed, &lock);
    for (int i = 0; i < l->calls; i++)
        if (!l->call[i].done) withdraw(l->by, &l->call[i]);
}

/* Element i of all members' addends, in member order. */
static double add_up(const clique *of, size_t i)
{
    double sum = 0;
    for (int r = 0; r < of->size; r++) {
        char *at = reach(of->from[r]);
        sum += of->type == ECH_NCCL_FLOAT64 ? ((double *)at)[i] : (double)((float *)at)[i];
    }
    return sum;
}

static void write(const clique *of, int to, size_t i, double value)
{
    char *at = reach(of->to[to]);
    if (of->type == ECH_NCCL_FLOAT64)
        ((double *)at)[i] = value;
    else
        ((float *)at)[i] = (float)value;
}

/* A result may lie where the addends of the same element lie, and no others. */
static void sum_all(const clique *of)
{
    for (size_t i = 0; i < of->n; i++) {
        double sum = add_up(of, i);
        for (int r = 0; r < of->size; r++) write(of, r, i, sum);
    }
}

static void sum_shards(const clique *of)
{
    for (int r = 0; r < of->size; r++)
        for (size_t i = 0; i < of->n; i++) write(of, r, i, add_up(of, (size_t)r * of->n + i));
}

static void gather_shards(const clique *of)
{
    for (int r = 0; r < of->size; r++)
        for (int s = 0; s < of->size; s++)
            memmove(reach(of->to[r]) + (size_t)s * of->n, reach(of->from[s]), of->n);
}

static void collect(const launch *l)
{
    static void (*const ways[KINDS])(const clique *) = {
        [SUM] = sum_all, [SCATTER] = sum_shards, [GATHER] = gather_shards};
    clique *of = l->by->of;
    const call *c = &l->call[0];
    while (of->left > 0 && !l->by->aborted) pthread_cond_wait(&changed, &lock);
    if (of->summed > 0 && (of->n != c->n || of->type != c->type || of->kind != l->kind))
        forbid(l->by, "a collective %d of %zu of type %d meets one %d of %zu of type %d", l->kind,
               c->n, c->type, of->kind, of->n, of->type);
    of->n = c->n;
    of->type = c->type;
    of->kind = l->kind;
    of->from[l->by->rank] = c->from;
    of->to[l->by->rank] = c->data;
    if (++of->summed == of->size) {
        ways[of->kind](of);
        of->left = of->size;
        of->summed = 0;
        pthread_cond_broadcast(&changed);
    }
    while (of->left == 0 && !l->by->aborted) pthread_cond_wait(&changed, &lock);
    if (of->left > 0) of->left--;
    pthread_cond_broadcast(&changed);
}

static void run(void *argument)
{
    launch *l = *(launch **)argument;
    pthread_mutex_lock(&lock);
    if (l->kind && !l->by->aborted)
        collect(l);
    else
        exchange(l);
    l->by->launched--;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    free(l);
}

/* ---- calls of the host ---- */

static int enter(member *m)
{
    m->caller = pthread_self();
    if (m->ended) return forbid(m, "a call after its end");
    if (m->calling++ > 0) return forbid(m, "two threads call at once");
    if (m->wish != NOTHING) return forbid(m, "a call before the last one is done");
    return ECH_NCCL_SUCCESS;
}

static int leave(member *m, int result)
{
    m->calling--;
    pthread_cond_broadcast(&changed);
    return m->aborted ? INTERNAL : result;
}

static bool *called(const member *m, const call *c, bool sends)
{
    int from = c->sends ? m->rank : c->peer, to = c->sends ? c->peer : m->rank;
    return &m->of->called[sends][from][to];
}

/* True once each first call has been met by its other side's. */
static bool is_connected(const member *m, const launch *l)
{
    bool all = true;
    for (int i = 0; i < l->calls && !l->kind; i++)
        all &= *called(m, &l->call[i], !l->call[i].sends);
    return all;
}

static void connect_all(member *m, const launch *l)
{
    bool first = false;
    for (int i = 0; i < l->calls && !l->kind; i++) {
        bool *at = called(m, &l->call[i], l->call[i].sends);
        first |= !*at;
        *at = true;
    }
    if (first) expect_idle(m, "a first message");
    if (l->kind && !m->did[l->kind]) expect_idle(m, "a first collective of a kind");
    m->did[l->kind] = true;
}

/* Does what the member's last call has begun, as far as others let it. */
static int advance(member *m)
{
    bool done = m->wish == NOTHING || (m->wish == TO_JOIN && m->of->arrived == m->of->size) ||
                (m->wish == TO_LEAVE && m->of->left_by == m->of->size) ||
                (m->wish == TO_LAUNCH && is_connected(m, m->pending));
    if (m->error) return m->error;
    if (!done) return ECH_NCCL_IN_PROGRESS;
    if (m->wish == TO_LAUNCH) {
        m->launched++;
        expect_room(m);
        device->call(m->stream, run, &m->pending, sizeof m->pending);
        m->pending = NULL;
    }
    m->wish = NOTHING;
    return m->error;
}

static int launch_calls(member *m, void *stream, launch *l)
{
    int result = enter(m);
    if (result == ECH_NCCL_SUCCESS && m->stream && m->stream != stream)
        result = forbid(m, "calls on two streams");
    m->stream = stream;
    for (int i = 0; i < l->calls; i++)
        if (!l->kind &&
            (l->call[i].peer == m->rank || l->call[i].peer < 0 || l->call[i].peer >= m->of->size))
            result = forbid(m, "a message to %d", l->call[i].peer);
    if (result != ECH_NCCL_SUCCESS || m->aborted) {
        free(l);
        return leave(m, result);
    }
    connect_all(m, l);
    m->wish = TO_LAUNCH;
    m->pending = l;
    return leave(m, advance(m));
}

static launch *make(member *m, int calls)
{
    launch *l = calloc(1, sizeof *l + (size_t)calls * sizeof *l->call);
    l->by = m;
    l->calls = calls;
    return l;
}

static _Thread_local void *stream_of_group;

static int end_group(void)
{
    if (entries == 0) return ECH_NCCL_SUCCESS;
    launch *l = make(entered[0].by, entries);
    int result = ECH_NCCL_SUCCESS;
    for (int i = 0; i < entries; i++) {
        l->call[i] = entered[i].call;
        if (entered[i].by != l->by) result = forbid(l->by, "a group of two communicators");
        counts.sends += l->call[i].sends;
        counts.receives += !l->call[i].sends;
        if (l->call[i].sends) counts.bytes += (long long)bytes_of(&l->call[i]);
    }
    counts.groups++;
    entries = 0;
    int launched = launch_calls(l->by, stream_of_group, l);
    return result ? result : launched;
}

static int enter_call(call c, ech_nccl_comm comm, void *stream)
{
    int result = ECH_NCCL_SUCCESS;
    pthread_mutex_lock(&lock);
    if (entries == MOST_CALLS) {
        result = forbid(comm, "more than %d calls in a group", MOST_CALLS);
    } else {
        entered[entries].by = comm;
        entered[entries++].call = c;
        stream_of_group = stream;
        if (depth == 0) result = end_group();
    }
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORTED int ncclGroupStart(void)
{
    depth++;
    return ECH_NCCL_SUCCESS;
}

/* Frees memory, so kernels of the GPU that are not aborted, too, would hold it up. */
static int abort_entered(void)
{
    int result = ECH_NCCL_SUCCESS;
    for (int i = 0; i < aborts; i++) {
        member *m = to_abort[i];
        if (m->ended) result = forbid(m, "aborted after its end");
        m->aborted = m->ended = true;
        free(m->pending);
        m->pending = NULL;
        counts.aborted++;
    }
    for (int i = 0; i < aborts; i++) expect_idle(to_abort[i], "an abort by itself");
    aborts = 0;
    pthread_cond_broadcast(&changed);
    return result;
}

EXPORTED int ncclGroupEnd(void)
{
    pthread_mutex_lock(&lock);
    int result = depth > 0 ? ECH_NCCL_SUCCESS : forbid(NULL, "a group ends that has not begun");
    if (depth > 0 && --depth == 0) {
        result = end_group();
        if (aborts) result = abort_entered();
    }
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORTED int ncclSend(const void *from, size_t n, int type, int peer, ech_nccl_comm comm,
                      void *stream)
{
    return enter_call(
        (call){.data = (char *)(uintptr_t)from, .n = n, .type = type, .peer = peer, .sends = true},
        comm, stream);
}

EXPORTED int ncclRecv(void *to, size_t n, int type, int peer, ech_nccl_comm comm, void *stream)
{
    return enter_call((call){.data = to, .n = n, .type = type, .peer = peer}, comm, stream);
}

static int enter_collective(int kind, call c, bool is_valid, member *m, void *stream)
{
    pthread_mutex_lock(&lock);
    launch *l = make(m, 1);
    l->kind = kind;
    l->call[0] = c;
    counts.sums += kind != GATHER;
    counts.gathers += kind == GATHER;
    int result = is_valid ? ECH_NCCL_SUCCESS : forbid(m, "a collective of overlapping buffers");
    int launched = launch_calls(m, stream, l);
    pthread_mutex_unlock(&lock);
    return result ? result : launched;
}

static call collective_of(const void *from, void *to, size_t n, int type)
{
    return (call){.data = to, .from = (char *)(uintptr_t)from, .n = n, .type = type};
}

EXPORTED int ncclAllReduce(const void *from, void *to, size_t n, int type, int operation,
                           ech_nccl_comm comm, void *stream)
{
    bool is_valid = from == to && operation == ECH_NCCL_SUM;
    return enter_collective(SUM, collective_of(from, to, n, type), is_valid, comm, stream);
}

/* A shard may be in its place. */
static bool is_apart(const char *shard, const char *whole, size_t bytes, const member *m)
{
    bool inside = shard + bytes > whole && shard < whole + bytes * (size_t)m->of->size;
    return !inside || shard == whole + bytes * (size_t)m->rank;
}

EXPORTED int ncclReduceScatter(const void *from, void *to, size_t n, int type, int operation,
                               ech_nccl_comm comm, void *stream)
{
    call c = collective_of(from, to, n, type);
    bool is_valid = is_apart(to, from, bytes_of(&c), comm) && operation == ECH_NCCL_SUM;
    return enter_collective(SCATTER, c, is_valid, comm, stream);
}

EXPORTED int ncclAllGather(const void *from, void *to, size_t n, int type, ech_nccl_comm comm,
                           void *stream)
{
    call c = collective_of(from, to, n, type);
    bool is_valid = type == ECH_NCCL_BYTE && is_apart(from, to, n, comm);
    return enter_collective(GATHER, c, is_valid, comm, stream);
}

/* ---- communicators ---- */

EXPORTED int ncclGetUniqueId(ech_nccl_id *out)
{
    pthread_mutex_lock(&lock);
    snprintf(out->bytes, sizeof out->bytes, "clique %lld", ++ids);
    pthread_mutex_unlock(&lock);
    return ECH_NCCL_SUCCESS;
}

static clique *find_clique(const ech_nccl_id *id, int size)
{
    clique *c = cliques;
    while (c && memcmp(c->id, id->bytes, BYTES) != 0) c = c->next;
    if (c) return c;
    c = calloc(1, sizeof *c);
    memcpy(c->id, id->bytes, BYTES);
    c->size = size;
    c->next = cliques;
    return cliques = c;
}

EXPORTED int ncclGetVersion(int *out)
{
    const char *named = getenv("NCCL_STANDIN_VERSION");
    *out = named ? atoi(named) : VERSION;
    return ECH_NCCL_SUCCESS;
}

static member *make_member(const ech_nccl_id *id, int size, int rank, const ech_nccl_config *config)
{
    member *m = calloc(1, sizeof *m);
    m->of = find_clique(id, size);
    m->rank = rank;
    m->gpu = find_gpu ? find_gpu() : rank;
    m->blocks = config->most_blocks > 0 ? config->most_blocks : BLOCKS;
    m->wish = TO_JOIN;
    m->caller = pthread_self();
    m->next = members;
    return members = m;
}

EXPORTED int ncclCommInitRankConfig(ech_nccl_comm *out, int size, ech_nccl_id id, int rank,
                                    ech_nccl_config *config)
{
    const ech_nccl_config wanted = ECH_NCCL_CONFIG;
    pthread_mutex_lock(&lock);
    member *m = make_member(&id, size, rank, config);
    counts.made++;
    if (config->size < sizeof wanted || config->magic != wanted.magic || config->blocking != 0)
        forbid(m, "a configuration that blocks, or none");
    if (m->of->size != size || size > MOST_MEMBERS || rank < 0 || rank >= size)
        forbid(m, "joins as %d of %d", rank, size);
    if (++m->of->arrived > size) forbid(m, "an id is used twice");
    expect_idle(m, "a start");
    *out = m;
    int result = advance(m);
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORTED int ncclCommFinalize(ech_nccl_comm comm)
{
    member *m = comm;
    pthread_mutex_lock(&lock);
    int result = enter(m);
    if (m->launched > 0) result = forbid(m, "ends with calls under way");
    m->finalized = true;
    m->of->left_by++;
    m->wish = TO_LEAVE;
    result = leave(m, result ? result : advance(m));
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORTED int ncclCommDestroy(ech_nccl_comm comm)
{
    member *m = comm;
    pthread_mutex_lock(&lock);
    int result = enter(m);
    if (!m->finalized) result = forbid(m, "destroyed before it is finalized");
    expect_idle(m, "an end");
    m->ended = true;
    counts.destroyed++;
    result = leave(m, result);
    pthread_mutex_unlock(&lock);
    return result;
}

/* Ends what the member waits for; others go on waiting for it. */
EXPORTED int ncclCommAbort(ech_nccl_comm comm)
{
    int result = ECH_NCCL_SUCCESS;
    pthread_mutex_lock(&lock);
    if (aborts == MOST_CALLS)
        result = forbid(comm, "more than %d aborts in a group", MOST_CALLS);
    else
        to_abort[aborts++] = comm;
    if (depth == 0) result = abort_entered();
    pthread_mutex_unlock(&lock);
    return result;
}

/* The library joins the thread of the last call, and frees its facts: not twice. */
EXPORTED int ncclCommGetAsyncError(ech_nccl_comm comm, int *error)
{
    member *m = comm;
    pthread_mutex_lock(&lock);
    if (m->wish != NOTHING && !m->error && !pthread_equal(m->caller, pthread_self()))
        forbid(m, "another thread asks before a call is done");
    int result = m->ended ? forbid(m, "asked after its end") : ECH_NCCL_SUCCESS;
    *error = m->ended ? INVALID : advance(m);
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORTED const char *ncclGetErrorString(int result)
{
    return result == INVALID    ? "invalid argument"
           : result == INTERNAL ? "internal error"
                                : "no error";
}

EXPORTED const char *ncclGetLastError(ech_nccl_comm comm)
{
    (void)comm;
    return "the last error of the stand-in";
}
