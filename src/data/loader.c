/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading ahead: one thread fills a ring of batches, one reader takes them in order.
 *
 *   slots      prefetch + 1; the batch of step k lies in slot k mod slots
 *   held       the step whose batch the reader may still use; before any, the first step
 *   filled     the steps before this one are complete
 *   invariant  held <= filled <= held + slots; the thread writes only slot `filled` mod slots, and
 *              only while filled < held + slots, so never what the reader holds
 *   rewind     sets both back. The thread may be writing another step's slot then. It finishes that
 *              and continues with step `filled`; the reader uses only steps before `filled`
 *
 * The thread logs nothing: its error is stored, and ech_loader_next logs it when it comes to that
 * step, with the reader's rank.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "device/cores.h"
#include "data/data.h"
#include "data/samples.h"

struct ech_loader {
    const ech_corpus *corpus;
    ech_loader_options options;
    int64_t slots;
    ech_batch *slot;
    char *memory;        /* of all slots, and after them the thread's; NULL with counts_only */
    void *scratch;       /* the thread's, to read a sample */
    int64_t first, last; /* steps: where it began; what the reader got last, or first - 1 */
    int64_t waits;
    pthread_t thread;
    atomic_bool stop;

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    int64_t held, filled;
    ech_status status; /* of step `filled`, once the thread has ended by itself */
    char *message;
};

/* Whether sample i of a step belongs to another local replica. */
static bool is_anothers(const ech_loader_options *options, int64_t i)
{
    int64_t q = i / options->micro_batch_size;
    return options->replicas > 0 && q % options->replicas != options->replica;
}

/* A sample of a source, at its place in the run. source NULL: padding. */
typedef struct place {
    const ech_source *source;
    int64_t position, s;
} place;

static ech_status find_sample(const ech_loader *loader, int64_t step, int64_t row, place *out)
{
    const ech_loader_options *options = &loader->options;
    int64_t i = ech_sample_index(options, row);
    *out = (place){0};
    ECH_TRY(ech_sample_position(options, step, i, &out->position));
    if (out->position >= options->last_position || is_anothers(options, i)) return ECH_OK;
    out->source = ech_sample_at(loader->corpus, options, out->position, &out->s);
    return ECH_OK;
}

static ech_status read_row(const ech_loader *loader, const place *from, const ech_batch *batch,
                           int64_t row)
{
    const ech_loader_options *options = &loader->options;
    if (from->source)
        return ech_sample_read(from->source, options, from->position, from->s, loader->scratch,
                               batch, row);
    ech_sample_clear(options, batch, row);
    return ECH_OK;
}

/* Finds each sample before the one in front of it is read. */
static ech_status fill_rows(const ech_loader *loader, const ech_batch *batch, int64_t rows)
{
    const ech_data_kind *kind = loader->corpus->kind;
    place own, next;
    ECH_TRY(find_sample(loader, batch->step, 0, &next));
    for (int64_t row = 0; row < rows && !atomic_load(&loader->stop); row++) {
        own = next;
        if (row + 1 < rows) ECH_TRY(find_sample(loader, batch->step, row + 1, &next));
        if (row + 1 < rows && next.source && kind->prefetch) kind->prefetch(next.source, next.s);
        ECH_TRY(read_row(loader, &own, batch, row));
    }
    return ECH_OK;
}

/* The number of targets in the step's samples of all ranks, or of this local replica. Each of these
 * ranks computes the same sum, without reading tokens. */
static ech_status count_tokens(const ech_loader *loader, int64_t step, double *out)
{
    const ech_loader_options *options = &loader->options;
    int64_t sum = 0;
    for (int64_t i = 0; i < options->global_batch_size && !atomic_load(&loader->stop); i++) {
        int64_t position, s;
        if (is_anothers(options, i) && !options->counts_others) continue;
        ECH_TRY(ech_sample_position(options, step, i, &position));
        if (position >= options->last_position) break;
        if (!loader->corpus->kind->count) {
            sum++; /* one target each, whichever samples they are */
            continue;
        }
        const ech_source *source = ech_sample_at(loader->corpus, options, position, &s);
        sum += ech_sample_count(source, options, s);
    }
    *out = (double)sum;
    return ECH_OK;
}

static ech_status fill_batch(ech_loader *loader, int64_t step)
{
    ech_batch *batch = &loader->slot[step % loader->slots];
    batch->step = step;
    ECH_TRY(count_tokens(loader, step, &batch->step_tokens));
    if (loader->options.counts_only) return ECH_OK;
    return fill_rows(loader, batch, batch->micro_batches * loader->options.micro_batch_size);
}

/* Waits until there is a free slot; false: the loader is being destroyed. */
static bool wait_for_slot(ech_loader *loader, int64_t *step)
{
    pthread_mutex_lock(&loader->lock);
    while (!atomic_load(&loader->stop) && loader->filled >= loader->held + loader->slots)
        pthread_cond_wait(&loader->changed, &loader->lock);
    *step = loader->filled;
    pthread_mutex_unlock(&loader->lock);
    return !atomic_load(&loader->stop);
}

/* A step that was read before a rewind is dropped, its error is not. */
static void publish(ech_loader *loader, int64_t step, ech_status st)
{
    pthread_mutex_lock(&loader->lock);
    if (st == ECH_OK)
        loader->filled += loader->filled == step;
    else
        loader->message = ech_strdup(ech_last_error());
    loader->status = st;
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->lock);
}

static void *run(void *argument)
{
    ech_loader *loader = argument;
    ech_log_set_quiet(true);
    ech_cores_release();
    ech_status st = ECH_OK;
    for (int64_t step; st == ECH_OK && wait_for_slot(loader, &step);) {
        st = fill_batch(loader, step);
        publish(loader, step, st);
    }
    return NULL;
}

/* One allocation: the arrays of each slot of the ring, and the thread's working memory. */
static ech_status create_arrays(ech_loader *loader, int64_t rows)
{
    const ech_loader_options *options = &loader->options;
    size_t sample = 0, bytes, scratch = loader->corpus->kind->scratch(options);
    for (ech_slot slot = 0; slot < ECH_BATCH_SLOTS; slot++)
        sample += ech_sample_bytes(options, slot);
    if (__builtin_mul_overflow(sample, (size_t)rows, &bytes) ||
        __builtin_mul_overflow(bytes, (size_t)loader->slots, &bytes) ||
        __builtin_add_overflow(bytes, scratch, &bytes))
        bytes = SIZE_MAX;
    loader->memory = bytes < INT64_MAX / 2 ? malloc(bytes) : NULL;
    if (!loader->memory)
        ECH_FAIL(ECH_ENOMEM,
                 "no memory for %lld batches of %lld samples of %lld bytes: make data.prefetch, "
                 "training.global_batch_size or the samples smaller",
                 (long long)loader->slots, (long long)rows, (long long)sample);
    char *at = loader->memory;
    for (int64_t i = 0; i < loader->slots; i++)
        for (ech_slot slot = 0; slot < ECH_BATCH_SLOTS; slot++) {
            size_t n = ech_sample_bytes(options, slot);
            loader->slot[i].slot[slot] = n ? at : NULL;
            at += n * (size_t)rows;
        }
    loader->scratch = at;
    return ECH_OK;
}

static ech_status create_slots(ech_loader *loader)
{
    const ech_loader_options *o = &loader->options;
    int64_t micro_batches = ech_sample_micro_batches(o);
    loader->slot = ech_calloc((size_t)loader->slots, sizeof *loader->slot);
    for (int64_t i = 0; i < loader->slots; i++) loader->slot[i].micro_batches = micro_batches;
    return o->counts_only ? ECH_OK : create_arrays(loader, micro_batches * o->micro_batch_size);
}

static ech_status start_thread(ech_loader *loader)
{
    int why = ech_thread_start(&loader->thread, run, loader);
    if (why) ECH_FAIL(ECH_EIO, "cannot start another thread to read batches: " ECH_NO_THREAD);
    return ECH_OK;
}

static void release(ech_loader *loader)
{
    pthread_cond_destroy(&loader->changed);
    pthread_mutex_destroy(&loader->lock);
    free(loader->message);
    free(loader->slot);
    free(loader->memory);
    free(loader);
}

ech_status ech_loader_create(const ech_corpus *corpus, const ech_loader_options *options,
                             int64_t first_step, ech_loader **out)
{
    int64_t micro_batches = options->global_batch_size / options->micro_batch_size;
    ECH_ASSERT(options->data_rank >= 0 && options->data_rank < options->data_degree);
    ECH_ASSERT(options->global_batch_size % options->micro_batch_size == 0);
    ECH_ASSERT(micro_batches >= options->data_degree && options->prefetch > 0 && first_step >= 0);
    ECH_ASSERT(options->shares > 0 && micro_batches % options->shares == 0);
    ECH_ASSERT(corpus->sequence_length == options->sequence_length);
    ECH_ASSERT(corpus->document_mask == options->document_mask);
    ECH_ASSERT(corpus->kind == ech_data_kind_of(options->samples));
    ech_loader *loader = ech_calloc(1, sizeof *loader);
    loader->corpus = corpus;
    loader->options = *options;
    loader->slots = (int64_t)options->prefetch + 1;
    loader->first = first_step;
    loader->last = first_step - 1;
    loader->held = loader->filled = first_step;
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->changed, NULL);
    ech_status st = create_slots(loader);
    if (st == ECH_OK) st = start_thread(loader);
    if (st != ECH_OK) {
        release(loader);
        return st;
    }
    *out = loader;
    return ECH_OK;
}

void ech_loader_destroy(ech_loader *loader)
{
    if (!loader) return;
    pthread_mutex_lock(&loader->lock);
    atomic_store(&loader->stop, true);
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->lock);
    pthread_join(loader->thread, NULL);
    release(loader);
}

/* Waits until the step is filled or the thread gave up before it. */
static ech_status wait_for_step(ech_loader *loader, int64_t step)
{
    pthread_mutex_lock(&loader->lock);
    loader->held = step;
    pthread_cond_broadcast(&loader->changed);
    if (loader->filled <= step && loader->status == ECH_OK) loader->waits++;
    while (loader->filled <= step && loader->status == ECH_OK)
        pthread_cond_wait(&loader->changed, &loader->lock);
    ech_status st = loader->filled > step ? ECH_OK : loader->status;
    pthread_mutex_unlock(&loader->lock);
    return st;
}

ech_status ech_loader_next(ech_loader *loader, int64_t step, const ech_batch **out)
{
    bool repeated = step == loader->last && step >= loader->first;
    if (!repeated && step != loader->last + 1)
        ECH_FAIL(ECH_EINTERNAL, "the batch of step %lld was requested after step %lld",
                 (long long)step, (long long)loader->last);
    if (!repeated) {
        ech_status st = wait_for_step(loader, step);
        if (st != ECH_OK) ECH_FAIL(st, "%s", loader->message);
        loader->last = step;
    }
    *out = &loader->slot[step % loader->slots];
    return ECH_OK;
}

void ech_loader_rewind(ech_loader *loader, int64_t step)
{
    pthread_mutex_lock(&loader->lock);
    loader->held = loader->filled = step;
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->lock);
    loader->first = step;
    loader->last = step - 1;
}

int64_t ech_loader_waits(const ech_loader *loader)
{
    return loader->waits;
}
