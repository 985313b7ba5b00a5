/* SPDX-License-Identifier: Apache-2.0
 *
 * A device for tests. It has the memory of `walled` and the CPU's kernels, but each queue is a
 * thread that pauses at random before some of its work. This reveals code that relies on an order
 * without an event. The pauses depend only on the rank, the numbers of the queue and of the work,
 * and the seed ECHELON_QUEUED_SEED (default 0). A thread that submits work pauses after some of it,
 * too. This reveals code that assumes that no other thread submits work in between.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/text.h"
#include "device/cores.h"
#include "device/walled.h"

/* A queue pauses before one task in RESTS; a submitting thread pauses after one in
 * RESTS_BEHIND. No pause is longer than LONGEST_NS. */
enum { RESTS = 4, RESTS_BEHIND = 16, LONGEST_NS = 100000 };

/* A call. */
typedef struct task {
    struct task *next;
    void (*function)(void *argument);
    max_align_t argument[];
} task;

struct ech_queue {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    task *first, **end; /* not begun */
    bool quit;
    _Atomic uint64_t rested; /* how often threads that put work might have rested */
    /* of its rests; step: the rank, stream: its number among those that the rank's thread
     * made */
    ech_random_key key;
};

/* ---- queues ---- */

static void rest(const ech_queue *queue, uint64_t draw, uint32_t one_in)
{
    uint32_t word = ech_random_word(queue->key, draw);
    if (word % one_in > 0) return;
    nanosleep(&(struct timespec){.tv_nsec = (long)(ech_random_unit(word) * LONGEST_NS)}, NULL);
}

/* For submitting threads: they draw with numbers of work that no queue reaches. */
static void rest_behind(ech_queue *queue)
{
    rest(queue, UINT64_MAX - atomic_fetch_add(&queue->rested, 1), RESTS_BEHIND);
}

/* The oldest task, once there is one; NULL: the queue is to end. */
static task *take(ech_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    while (!queue->first && !queue->quit) pthread_cond_wait(&queue->changed, &queue->lock);
    task *p = queue->first;
    if (p) queue->first = p->next;
    if (!queue->first) queue->end = &queue->first;
    pthread_mutex_unlock(&queue->lock);
    return p;
}

static void *queue_main(void *argument)
{
    ech_queue *queue = argument;
    uint64_t work = 0;
    ech_cores_release();
    for (task *p; (p = take(queue)) != NULL; free(p)) {
        rest(queue, work++, RESTS);
        p->function(p->argument);
    }
    return NULL;
}

static void queue_destroy(ech_queue *queue)
{
    if (!queue) return;
    pthread_mutex_lock(&queue->lock);
    queue->quit = true;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
    pthread_join(queue->thread, NULL);
    pthread_mutex_destroy(&queue->lock);
    pthread_cond_destroy(&queue->changed);
    free(queue);
}

static ech_status read_seed(uint64_t *out)
{
    const char *text = getenv("ECHELON_QUEUED_SEED");
    int64_t seed = 0;
    if (text && !ech_text_to_int(text, &seed))
        ECH_FAIL(ECH_EUSAGE, "ECHELON_QUEUED_SEED is \"%s\": give a whole number", text);
    *out = (uint64_t)seed;
    return ECH_OK;
}

static ech_status queue_create(ech_queue **out)
{
    static _Thread_local uint32_t queues;
    uint64_t seed;
    ECH_TRY(read_seed(&seed));
    ech_queue *queue = ech_calloc(1, sizeof *queue);
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->changed, NULL);
    queue->end = &queue->first;
    queue->key =
        (ech_random_key){.seed = seed, .step = (uint32_t)ech_log_rank(), .stream = queues++};
    if (pthread_create(&queue->thread, NULL, queue_main, queue) != 0) {
        pthread_mutex_destroy(&queue->lock);
        pthread_cond_destroy(&queue->changed);
        free(queue);
        ECH_FAIL(ECH_EIO, "cannot start another thread for a queue: " ECH_NO_THREAD);
    }
    *out = queue;
    return ECH_OK;
}

/* For tests' stand-ins of libraries. */
static void *stream(const ech_queue *queue)
{
    return (void *)(uintptr_t)queue;
}

/* What the queue's own work puts there is done at once. */
static void call(ech_queue *queue, void (*function)(void *argument), void *argument, size_t bytes)
{
    if (pthread_equal(queue->thread, pthread_self())) {
        function(argument);
        return;
    }
    task *p = ech_calloc(1, sizeof *p + bytes);
    p->function = function;
    memcpy(p->argument, argument, bytes);
    pthread_mutex_lock(&queue->lock);
    *queue->end = p;
    queue->end = &p->next;
    pthread_cond_signal(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
    rest_behind(queue);
}

/* ---- copies and fills ---- */

typedef struct move {
    char *to;
    const char *from;
    size_t bytes;
    unsigned char byte;
} move;

static void do_copy(void *argument)
{
    const move *m = argument;
    if (m->bytes > 0) memcpy(m->to, m->from, m->bytes);
}

static void do_fill(void *argument)
{
    const move *m = argument;
    if (m->bytes > 0) memset(m->to, m->byte, m->bytes);
}

static void copy(ech_queue *queue, void *to, const void *from, size_t bytes)
{
    call(queue, do_copy,
         &(move){.to = ech_device_walled_reach(to),
                 .from = ech_device_walled_reach(from),
                 .bytes = bytes},
         sizeof(move));
}

static void fill(ech_queue *queue, void *to, unsigned char byte, size_t bytes)
{
    call(queue, do_fill, &(move){.to = ech_device_walled_reach(to), .byte = byte, .bytes = bytes},
         sizeof(move));
}

/* ---- events ---- */

/* A place in a queue. It lives as long as an event or work under way knows of it: so an event may
 * be recorded again, or destroyed, while queues wait for what it was. */
typedef struct mark {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int holders;
    bool reached;
    double at; /* when it was, in seconds of ech_clock_now */
} mark;

struct ech_event {
    pthread_mutex_t lock;
    mark *last; /* NULL: it was never recorded */
};

static ech_status event_create(ech_event **out)
{
    ech_event *event = ech_calloc(1, sizeof *event);
    pthread_mutex_init(&event->lock, NULL);
    *out = event;
    return ECH_OK;
}

static mark *hold(mark *m)
{
    pthread_mutex_lock(&m->lock);
    m->holders++;
    pthread_mutex_unlock(&m->lock);
    return m;
}

static void let_go(mark *m)
{
    if (!m) return;
    pthread_mutex_lock(&m->lock);
    bool last = --m->holders == 0;
    pthread_mutex_unlock(&m->lock);
    if (!last) return;
    pthread_mutex_destroy(&m->lock);
    pthread_cond_destroy(&m->changed);
    free(m);
}

static void event_destroy(ech_event *event)
{
    if (!event) return;
    let_go(event->last);
    pthread_mutex_destroy(&event->lock);
    free(event);
}

static void reach(void *argument)
{
    mark *m = *(mark **)argument;
    pthread_mutex_lock(&m->lock);
    m->reached = true;
    m->at = ech_clock_now();
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
    let_go(m);
}

static void await(void *argument)
{
    mark *m = *(mark **)argument;
    pthread_mutex_lock(&m->lock);
    while (!m->reached) pthread_cond_wait(&m->changed, &m->lock);
    pthread_mutex_unlock(&m->lock);
    let_go(m);
}

/* The mark as recorded last, held; NULL: never. */
static mark *last_of(ech_event *event)
{
    pthread_mutex_lock(&event->lock);
    mark *m = event->last ? hold(event->last) : NULL;
    pthread_mutex_unlock(&event->lock);
    return m;
}

/* Under the event's lock: its last mark is then the last one in the queue, whichever threads record
 * it. */
static void record(ech_event *event, ech_queue *queue)
{
    mark *m = ech_calloc(1, sizeof *m);
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->changed, NULL);
    m->holders = 2; /* the event and the queue */
    pthread_mutex_lock(&event->lock);
    call(queue, reach, &m, sizeof m);
    mark *before = event->last;
    event->last = m;
    pthread_mutex_unlock(&event->lock);
    let_go(before);
    rest_behind(queue);
}

static void wait(ech_queue *queue, ech_event *event)
{
    mark *m = last_of(event);
    if (m) call(queue, await, &m, sizeof m);
}

static ech_status query(ech_event *event, bool *reached)
{
    mark *m = last_of(event);
    *reached = true;
    if (!m) return ECH_OK;
    pthread_mutex_lock(&m->lock);
    *reached = m->reached;
    pthread_mutex_unlock(&m->lock);
    let_go(m);
    return ECH_OK;
}

static ech_status synchronize(ech_event *event)
{
    mark *m = last_of(event);
    if (m) await(&m);
    return ECH_OK;
}

static double elapsed(const ech_event *from, const ech_event *to)
{
    return to->last->at - from->last->at;
}

/* As an H100 has. */
static int multiprocessors(void)
{
    return 132;
}

const ech_device ech_device_queued = {
    .name = "queued",
    .is_immediate = false,
    .alloc = ech_device_walled_alloc,
    .release = ech_device_walled_release,
    .alloc_host = ech_device_cpu_alloc,
    .release_host = ech_device_cpu_release,
    .memory_bytes = ech_device_cpu_memory_bytes,
    .multiprocessors = multiprocessors,
    .cores = ech_device_cpu_cores,
    .reach = ech_device_walled_reach,
    .queue_create = queue_create,
    .queue_destroy = queue_destroy,
    .stream = stream,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .copy = copy,
    .fill = fill,
    .call = call,
    .record = record,
    .wait = wait,
    .query = query,
    .synchronize = synchronize,
    .elapsed = elapsed,
};
