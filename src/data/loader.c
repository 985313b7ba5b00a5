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
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "device/cores.h"
#include "base/memory.h"
#include "data/data.h"
#include "data/samples.h"

struct ech_loader {
    const ech_corpus *corpus;
    ech_loader_options options;
    int64_t slots;
    ech_batch *slot;
    void *memory;        /* of all slots, and ids; NULL with counts_only */
    int32_t *ids;        /* T + 1, the thread's */
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

static ech_status fill_row(ech_loader *loader, const ech_batch *batch, int64_t row)
{
    const ech_loader_options *options = &loader->options;
    int64_t position, i = ech_sample_index(options, row);
    ECH_TRY(ech_sample_position(options, batch->step, i, &position));
    if (position >= options->last_position || is_anothers(options, i)) {
        ech_sample_clear(options, batch, row);
        return ECH_OK;
    }
    int64_t s;
    const ech_source *source = ech_sample_at(loader->corpus, options, position, &s);
    return ech_sample_read(source, options, s, loader->ids, batch, row);
}

/* The number of targets in the step's samples of all ranks, or of this local replica. Each of these
 * ranks computes the same sum, without reading tokens. */
static ech_status count_tokens(const ech_loader *loader, int64_t step, double *out)
{
    const ech_loader_options *options = &loader->options;
    int64_t sum = 0;
    for (int64_t i = 0; i < options->global_batch_size && !atomic_load(&loader->stop); i++) {
        int64_t position, s;
        if (is_anothers(options, i)) continue;
        ECH_TRY(ech_sample_position(options, step, i, &position));
        if (position >= options->last_position) break;
        if (options->valued) {
            sum++; /* a label each: which samples they are is for those who read them */
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
    int64_t rows = batch->micro_batches * loader->options.micro_batch_size;
    for (int64_t row = 0; row < rows && !atomic_load(&loader->stop); row++)
        ECH_TRY(fill_row(loader, batch, row));
    return ECH_OK;
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

/* One allocation: the ids, then tokens, targets, weights, lengths and perhaps starts and values of
 * every slot. */
static ech_status create_arrays(ech_loader *loader, int64_t rows)
{
    int64_t T = loader->options.sequence_length, row, items, bytes;
    int64_t arrays = 3 + loader->options.document_mask + loader->options.valued;
    _Static_assert(sizeof(float) == sizeof(int32_t), "one size of item");
    if (__builtin_mul_overflow(T, arrays, &row) || __builtin_add_overflow(row, 1, &row) ||
        __builtin_mul_overflow(rows, loader->slots, &items) ||
        __builtin_mul_overflow(items, row, &items) ||
        __builtin_add_overflow(items, T + 1, &items) ||
        __builtin_mul_overflow(items, (int64_t)sizeof(int32_t), &bytes))
        bytes = INT64_MAX;
    loader->memory = bytes < INT64_MAX / 2 ? malloc((size_t)bytes) : NULL;
    if (!loader->memory)
        ECH_FAIL(ECH_ENOMEM,
                 "no memory for %lld batches of %lld samples x %lld tokens: make data.prefetch, "
                 "training.global_batch_size or data.sequence_length smaller",
                 (long long)loader->slots, (long long)rows, (long long)T);
    loader->ids = loader->memory;
    int32_t *at = loader->ids + T + 1;
    for (int64_t i = 0; i < loader->slots; i++, at += rows * row) {
        loader->slot[i].tokens = at;
        loader->slot[i].targets = at + rows * T;
        loader->slot[i].weights = (float *)(void *)(at + 2 * rows * T);
        loader->slot[i].lengths = at + 3 * rows * T;
        int32_t *more = at + 3 * rows * T + rows;
        if (loader->options.document_mask) loader->slot[i].starts = more;
        if (loader->options.valued)
            loader->slot[i].values =
                (float *)(void *)(more + loader->options.document_mask * rows * T);
    }
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

/* Signals are for the thread that trains. */
static ech_status start_thread(ech_loader *loader)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int why = pthread_create(&loader->thread, NULL, run, loader);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
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
    ECH_ASSERT(corpus->valued == options->valued);
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
