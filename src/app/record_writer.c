/* SPDX-License-Identifier: Apache-2.0
 *
 * A ring between the submitting thread and the writing thread.
 *
 *   submitted  records submitted since the beginning; record k is in slot k mod records
 *   written    how many of them are written
 *   invariant  written <= submitted <= written + records. The writing thread reads only the slots
 *              of records [written, submitted); the submitting thread fills only the slot of
 *              record `submitted`
 */
#include "app/record_writer.h"

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

/* Seconds of a full ring after which it is a stall, not a burst of short steps. */
enum { PATIENCE = 2 };

struct ech_record_writer {
    ech_record_writer_setup setup;
    char *what;
    char *ring;
    int rank;
    bool quiet;
    pthread_t thread;

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    int64_t submitted, written;
    bool quit;
};

static void *slot_of(const ech_record_writer *writer, int64_t record)
{
    size_t slot = (size_t)(record % writer->setup.records);
    return writer->ring + slot * writer->setup.record_bytes;
}

/* False: there is none, and there will be none. */
static bool wait_for_record(ech_record_writer *writer)
{
    pthread_mutex_lock(&writer->lock);
    while (writer->written == writer->submitted && !writer->quit)
        pthread_cond_wait(&writer->changed, &writer->lock);
    bool any = writer->written < writer->submitted;
    pthread_mutex_unlock(&writer->lock);
    return any;
}

static void *writer_main(void *argument)
{
    ech_record_writer *writer = argument;
    ech_log_set_rank(writer->rank);
    ech_log_set_quiet(writer->quiet);
    ech_cores_release();
    /* Waking up to write must not preempt a thread that computes; if the system refuses, that is
     * slower. */
    sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){0});
    for (int64_t record = 0; wait_for_record(writer); record++) {
        writer->setup.write(writer->setup.context, slot_of(writer, record));
        pthread_mutex_lock(&writer->lock);
        writer->written++;
        pthread_cond_broadcast(&writer->changed);
        pthread_mutex_unlock(&writer->lock);
    }
    return NULL;
}

static void release(ech_record_writer *writer)
{
    pthread_cond_destroy(&writer->changed);
    pthread_mutex_destroy(&writer->lock);
    free(writer->ring);
    free(writer->what);
    free(writer);
}

ech_status ech_record_writer_begin(const ech_record_writer_setup *setup, ech_record_writer **out)
{
    ECH_ASSERT(setup->records > 0 && setup->record_bytes > 0);
    ech_record_writer *writer = ech_calloc(1, sizeof *writer);
    writer->setup = *setup;
    writer->what = ech_strdup(setup->what);
    writer->ring = ech_calloc((size_t)setup->records, setup->record_bytes);
    writer->rank = ech_log_rank();
    writer->quiet = ech_log_is_quiet();
    pthread_mutex_init(&writer->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&writer->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int why = pthread_create(&writer->thread, NULL, writer_main, writer);
    if (why) {
        release(writer);
        ECH_FAIL(ECH_EIO, "%s: cannot start another thread to write them: " ECH_NO_THREAD,
                 setup->what);
    }
    *out = writer;
    return ECH_OK;
}

static bool is_full(const ech_record_writer *writer)
{
    return writer->submitted - writer->written >= writer->setup.records;
}

/* Under the lock. False: still full after PATIENCE. */
static bool wait_for_slot(ech_record_writer *writer)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += PATIENCE;
    int why = 0;
    while (is_full(writer) && why != ETIMEDOUT)
        why = pthread_cond_timedwait(&writer->changed, &writer->lock, &end);
    return !is_full(writer);
}

/* Logs without the lock, since the writing thread may be blocked on the same standard error. */
static void wait_loudly(ech_record_writer *writer)
{
    double start = ech_clock_now();
    pthread_mutex_unlock(&writer->lock);
    ech_log_warn(
        "%s: %d records wait for the disk, or for the reader of standard error, which does not "
        "accept them; training waits",
        writer->what, writer->setup.records);
    pthread_mutex_lock(&writer->lock);
    while (is_full(writer)) pthread_cond_wait(&writer->changed, &writer->lock);
    pthread_mutex_unlock(&writer->lock);
    ech_log_info("%s: records are written again; training waited for %.0f s", writer->what,
                 PATIENCE + ech_clock_now() - start);
    pthread_mutex_lock(&writer->lock);
}

void *ech_record_writer_slot(ech_record_writer *writer)
{
    pthread_mutex_lock(&writer->lock);
    if (is_full(writer) && !wait_for_slot(writer)) wait_loudly(writer);
    void *slot = slot_of(writer, writer->submitted);
    pthread_mutex_unlock(&writer->lock);
    return memset(slot, 0, writer->setup.record_bytes);
}

void ech_record_writer_submit(ech_record_writer *writer)
{
    pthread_mutex_lock(&writer->lock);
    writer->submitted++;
    pthread_mutex_unlock(&writer->lock);
    pthread_cond_broadcast(
        &writer->changed); /* so late that the woken thread finds the lock free */
}

void ech_record_writer_flush(ech_record_writer *writer)
{
    pthread_mutex_lock(&writer->lock);
    int64_t submitted = writer->submitted;
    while (writer->written < submitted) pthread_cond_wait(&writer->changed, &writer->lock);
    pthread_mutex_unlock(&writer->lock);
}

void ech_record_writer_end(ech_record_writer *writer)
{
    if (!writer) return;
    pthread_mutex_lock(&writer->lock);
    writer->quit = true;
    pthread_cond_broadcast(&writer->changed);
    pthread_mutex_unlock(&writer->lock);
    pthread_join(writer->thread, NULL);
    release(writer);
}
