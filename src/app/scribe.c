/* SPDX-License-Identifier: Apache-2.0
 *
 * A ring between who hands records over and the thread that writes them.
 *
 *   handed     records handed over since the beginning; record k lies in slot k mod records
 *   written    those of them that are written
 *   invariant  written <= handed <= written + records; the thread reads only slots of records in
 *              [written, handed), the other side writes only that of record `handed`
 */
#include "app/scribe.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "device/cores.h"

/* Seconds after which a full ring is no longer a matter of short steps. */
enum { PATIENCE = 2 };

struct ech_scribe {
    ech_scribe_setup setup;
    char *what;
    char *ring;
    int rank;
    bool quiet;
    pthread_t thread;

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    int64_t handed, written;
    bool quit;
};

static void *slot_of(const ech_scribe *scribe, int64_t record)
{
    size_t place = (size_t)(record % scribe->setup.records);
    return scribe->ring + place * scribe->setup.record_bytes;
}

/* False: there is none, and there will be none. */
static bool wait_for_record(ech_scribe *scribe)
{
    pthread_mutex_lock(&scribe->lock);
    while (scribe->written == scribe->handed && !scribe->quit)
        pthread_cond_wait(&scribe->changed, &scribe->lock);
    bool any = scribe->written < scribe->handed;
    pthread_mutex_unlock(&scribe->lock);
    return any;
}

static void *scribe_main(void *argument)
{
    ech_scribe *scribe = argument;
    ech_log_set_rank(scribe->rank);
    ech_log_set_quiet(scribe->quiet);
    ech_cores_release();
    /* Who wakes up to write takes no core from who computes on it; a system that refuses is slower. */
    sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){0});
    for (int64_t record = 0; wait_for_record(scribe); record++) {
        scribe->setup.write(scribe->setup.context, slot_of(scribe, record));
        pthread_mutex_lock(&scribe->lock);
        scribe->written++;
        pthread_cond_broadcast(&scribe->changed);
        pthread_mutex_unlock(&scribe->lock);
    }
    return NULL;
}

static void release(ech_scribe *scribe)
{
    pthread_cond_destroy(&scribe->changed);
    pthread_mutex_destroy(&scribe->lock);
    free(scribe->ring);
    free(scribe->what);
    free(scribe);
}

ech_status ech_scribe_begin(const ech_scribe_setup *setup, ech_scribe **out)
{
    ECH_ASSERT(setup->records > 0 && setup->record_bytes > 0);
    ech_scribe *scribe = ech_calloc(1, sizeof *scribe);
    scribe->setup = *setup;
    scribe->setup.what = scribe->what = ech_strdup(setup->what);
    scribe->ring = ech_calloc((size_t)setup->records, setup->record_bytes);
    scribe->rank = ech_log_rank();
    scribe->quiet = ech_log_is_quiet();
    pthread_mutex_init(&scribe->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&scribe->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int why = pthread_create(&scribe->thread, NULL, scribe_main, scribe);
    if (why) {
        release(scribe);
        ECH_FAIL(ECH_EIO, "%s: the system starts no further thread to write them: " ECH_NO_THREAD,
                 setup->what);
    }
    *out = scribe;
    return ECH_OK;
}

static bool is_full(const ech_scribe *scribe)
{
    return scribe->handed - scribe->written >= scribe->setup.records;
}

/* Under the lock. False: still full after PATIENCE. */
static bool wait_for_slot(ech_scribe *scribe)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += PATIENCE;
    int why = 0;
    while (is_full(scribe) && why != ETIMEDOUT)
        why = pthread_cond_timedwait(&scribe->changed, &scribe->lock, &end);
    return !is_full(scribe);
}

/* Without the lock while it speaks: the thread may stand still at the same standard error. */
static void wait_loudly(ech_scribe *scribe)
{
    double start = ech_clock_now();
    pthread_mutex_unlock(&scribe->lock);
    ech_log_warn(
        "%s: %d records are to be written, and the disk, or who reads standard error, stands "
        "still; training waits for it",
        scribe->what, scribe->setup.records);
    pthread_mutex_lock(&scribe->lock);
    while (is_full(scribe)) pthread_cond_wait(&scribe->changed, &scribe->lock);
    pthread_mutex_unlock(&scribe->lock);
    ech_log_info("%s: written again; training has waited for %.0f s", scribe->what,
                 PATIENCE + ech_clock_now() - start);
    pthread_mutex_lock(&scribe->lock);
}

void *ech_scribe_slot(ech_scribe *scribe)
{
    pthread_mutex_lock(&scribe->lock);
    if (is_full(scribe) && !wait_for_slot(scribe)) wait_loudly(scribe);
    void *slot = slot_of(scribe, scribe->handed);
    pthread_mutex_unlock(&scribe->lock);
    return memset(slot, 0, scribe->setup.record_bytes);
}

void ech_scribe_hand(ech_scribe *scribe)
{
    pthread_mutex_lock(&scribe->lock);
    scribe->handed++;
    pthread_mutex_unlock(&scribe->lock);
    pthread_cond_broadcast(&scribe->changed); /* so late that who wakes finds the lock free */
}

void ech_scribe_settle(ech_scribe *scribe)
{
    pthread_mutex_lock(&scribe->lock);
    int64_t handed = scribe->handed;
    while (scribe->written < handed) pthread_cond_wait(&scribe->changed, &scribe->lock);
    pthread_mutex_unlock(&scribe->lock);
}

void ech_scribe_end(ech_scribe *scribe)
{
    if (!scribe) return;
    pthread_mutex_lock(&scribe->lock);
    scribe->quit = true;
    pthread_cond_broadcast(&scribe->changed);
    pthread_mutex_unlock(&scribe->lock);
    pthread_join(scribe->thread, NULL);
    release(scribe);
}
