/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads that encode chunks: each takes the next free one until all are taken; then they wait for the next chunks.
 * The assignment of chunks to threads does not change results.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "data/import.h"

typedef struct encoding {
    ech_coder *coder;
    int32_t end_of_text;
    ech_import_chunk *chunk;
} encoding;

static ech_status encode(const ech_text_segment *segment, void *context)
{
    const encoding *e = context;
    ech_ids *ids = &e->chunk->ids;
    size_t before = ids->n;
    ECH_TRY(ech_coder_encode(e->coder, segment->bytes, segment->n, segment->begins, ids));
    if (segment->ends) ECH_PUSH(*ids, e->end_of_text);
    ECH_PUSH(e->chunk->segment, (ech_import_segment){.n = ids->n - before,
                                                     .valid = segment->valid,
                                                     .prompt = segment->prompt,
                                                     .ends = segment->ends});
    return ECH_OK;
}

void ech_import_encode(const ech_import_options *options, ech_coder *coder, ech_import_chunk *chunk)
{
    encoding e = {coder, options->tokenizer->end_of_text, chunk};
    bool quiet = ech_log_set_quiet(true);
    chunk->ids.n = chunk->segment.n = 0;
    free(chunk->message);
    chunk->message = NULL;
    chunk->status = ech_text_chunk_each(&options->texts, &chunk->read, encode, &e);
    if (chunk->status != ECH_OK) chunk->message = ech_strdup(ech_last_error());
    ech_log_set_quiet(quiet);
}

struct ech_import_crew {
    const ech_import_options *options;
    ech_coder *own; /* the caller's */
    pthread_t *thread;
    int threads;          /* that run */
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    ech_import_chunk *chunk;
    size_t n, taken, done;
    bool stop;
};

/* The next chunk that nobody has; NULL: none. Holds the lock. */
static ech_import_chunk *take(ech_import_crew *crew)
{
    return crew->taken < crew->n ? &crew->chunk[crew->taken++] : NULL;
}

/* Encodes chunks as long as there are any. Holds the lock, but not meanwhile. */
static void work(ech_import_crew *crew, ech_coder *coder)
{
    for (ech_import_chunk *chunk; (chunk = take(crew));) {
        pthread_mutex_unlock(&crew->lock);
        ech_import_encode(crew->options, coder, chunk);
        pthread_mutex_lock(&crew->lock);
        if (++crew->done == crew->n) pthread_cond_broadcast(&crew->changed);
    }
}

static void *run(void *argument)
{
    ech_import_crew *crew = argument;
    ech_coder *coder = ech_coder_create(crew->options->tokenizer);
    pthread_mutex_lock(&crew->lock);
    while (!crew->stop) {
        work(crew, coder);
        if (!crew->stop && crew->taken == crew->n) pthread_cond_wait(&crew->changed, &crew->lock);
    }
    pthread_mutex_unlock(&crew->lock);
    ech_coder_destroy(coder);
    return NULL;
}

ech_status ech_import_crew_create(const ech_import_options *options, ech_import_crew **out)
{
    ech_import_crew *crew = ech_calloc(1, sizeof *crew);
    crew->options = options;
    crew->own = ech_coder_create(options->tokenizer);
    crew->thread = ech_calloc((size_t)options->workers, sizeof *crew->thread);
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->changed, NULL);
    for (; crew->threads < options->workers - 1; crew->threads++) {
        int why = pthread_create(&crew->thread[crew->threads], NULL, run, crew);
        if (!why) continue;
        ech_import_crew_destroy(crew);
        ECH_FAIL(ECH_EIO, "cannot start a thread that encodes: %s; try fewer --workers",
                 strerror(why));
    }
    *out = crew;
    return ECH_OK;
}

void ech_import_crew_destroy(ech_import_crew *crew)
{
    if (!crew) return;
    pthread_mutex_lock(&crew->lock);
    crew->stop = true;
    pthread_cond_broadcast(&crew->changed);
    pthread_mutex_unlock(&crew->lock);
    for (int i = 0; i < crew->threads; i++) pthread_join(crew->thread[i], NULL);
    pthread_cond_destroy(&crew->changed);
    pthread_mutex_destroy(&crew->lock);
    ech_coder_destroy(crew->own);
    free(crew->thread);
    free(crew);
}

void ech_import_crew_encode(ech_import_crew *crew, ech_import_chunk *chunk, size_t n)
{
    pthread_mutex_lock(&crew->lock);
    crew->chunk = chunk;
    crew->n = n;
    crew->taken = crew->done = 0;
    pthread_cond_broadcast(&crew->changed);
    work(crew, crew->own);
    while (crew->done < crew->n) pthread_cond_wait(&crew->changed, &crew->lock);
    pthread_mutex_unlock(&crew->lock);
}
