/* SPDX-License-Identifier: Apache-2.0
 *
 * Encoding chunks on threads. The assignment of chunks to threads does not change results.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "data/import.h"

typedef struct encoding {
    const ech_import_options *options;
    ech_coder *coder;
    int32_t end_of_text;
    ech_chat_text text; /* of a conversation */
    ech_chat_tokens tokens;
    ech_import_chunk *chunk;
    ech_ids begin; /* before each document */
} encoding;

/* Puts the ids that begin a document before those from `at` on, unless the text has the last of
 * them there. */
static void put_begin(const ech_ids *begin, size_t at, ech_ids *ids)
{
    if (begin->n == 0 || (ids->n > at && ids->at[at] == begin->at[begin->n - 1])) return;
    for (size_t i = 0; i < begin->n; i++) ECH_PUSH(*ids, 0);
    memmove(ids->at + at + begin->n, ids->at + at, (ids->n - at - begin->n) * sizeof *ids->at);
    memcpy(ids->at + at, begin->at, begin->n * sizeof *ids->at);
}

/* Appends the tokens as segments, each trained on or not. */
static void put_tokens(const ech_chat_tokens *tokens, const ech_text_segment *chat, bool all,
                       ech_import_chunk *chunk)
{
    for (size_t i = 0, end; i < tokens->n; i = end) {
        bool trained = all || tokens->at[i].trained;
        for (end = i; end < tokens->n && (all || tokens->at[end].trained) == trained; end++)
            ECH_PUSH(chunk->ids, tokens->at[end].id);
        ech_text_segment segment = {.n = end - i,
                                    .valid = chat->valid,
                                    .opens = i == 0,
                                    .prompt = !trained,
                                    .ends = end == tokens->n};
        ECH_PUSH(chunk->segment, segment);
    }
}

static ech_status encode_chat(const ech_text_segment *segment, encoding *e)
{
    const ech_import_options *options = e->options;
    bool all = options->trains_on_all,
         used = all ? segment->chat->message.n > 0 : ech_chat_trains(segment->chat);
    *(used ? &e->chunk->chats : &e->chunk->unanswered) += 1;
    if (!used) return ECH_OK;
    e->chunk->unwritten += ech_chat_loses_system(segment->chat, options->texts.chat);
    e->tokens.n = 0;
    ech_coder_keep_special(e->coder, false);
    ECH_TRY(ech_chat_render(segment->chat, options->texts.chat, options->tokenizer, &e->text));
    ECH_TRY(ech_chat_encode(&e->text, options->tokenizer, e->coder, &e->tokens));
    ech_coder_keep_special(e->coder, !options->special);
    put_tokens(&e->tokens, segment, all, e->chunk);
    return ECH_OK;
}

static ech_status encode(const ech_text_segment *segment, void *context)
{
    encoding *e = context;
    if (segment->chat) return encode_chat(segment, e);
    ech_ids *ids = &e->chunk->ids;
    size_t before = ids->n;
    ECH_TRY(ech_coder_encode(e->coder, segment->bytes, segment->n, segment->begins, ids));
    if (segment->opens) put_begin(&e->begin, before, ids);
    if (segment->ends) ECH_PUSH(*ids, e->end_of_text);
    ECH_PUSH(e->chunk->segment, *segment);
    e->chunk->segment.at[e->chunk->segment.n - 1].n = ids->n - before;
    return ECH_OK;
}

void ech_import_encode(const ech_import_options *options, ech_coder *coder, ech_import_chunk *chunk)
{
    encoding e = {.options = options,
                  .coder = coder,
                  .end_of_text = options->tokenizer->end_of_text,
                  .chunk = chunk};
    ech_tokenizer_begin(options->tokenizer, options->begins, &e.begin);
    ech_coder_keep_special(coder, !options->special);
    bool quiet = ech_log_set_quiet(true);
    chunk->ids.n = chunk->segment.n = chunk->bad.first.n = 0;
    chunk->bad.n = chunk->chats = chunk->unanswered = chunk->unwritten = 0;
    free(chunk->message);
    chunk->message = NULL;
    chunk->status = ech_text_chunk_each(&options->texts, &chunk->read, encode, &e, &chunk->bad);
    if (chunk->status != ECH_OK) chunk->message = ech_strdup(ech_last_error());
    chunk->kept = ech_coder_report_kept(coder, &chunk->kept_id);
    ech_log_set_quiet(quiet);
    free(e.begin.at);
    ech_chat_text_free(&e.text);
    free(e.tokens.at);
}

/* Each thread takes the next chunk until all are taken. */
typedef struct round {
    const ech_import_options *options;
    ech_import_chunk *chunk;
    size_t n;
    atomic_size_t taken;
} round;

typedef struct worker {
    round *round;
    ech_coder *coder;
    pthread_t thread;
} worker;

static void *work(void *argument)
{
    worker *w = argument;
    round *r = w->round;
    for (size_t i; (i = atomic_fetch_add(&r->taken, 1)) < r->n;)
        ech_import_encode(r->options, w->coder, &r->chunk[i]);
    return NULL;
}

ech_status ech_import_encode_all(const ech_import_options *options, ech_coder *const *coders,
                                 ech_import_chunk *chunks, size_t n)
{
    round r = {.options = options, .chunk = chunks, .n = n};
    ECH_FREED worker *workers = ech_calloc((size_t)options->workers, sizeof *workers);
    int started = 1, why = 0;
    for (int i = 0; i < options->workers; i++) workers[i] = (worker){&r, coders[i], 0};
    for (; started < options->workers; started++) {
        why = pthread_create(&workers[started].thread, NULL, work, &workers[started]);
        if (why) break;
    }
    work(&workers[0]);
    for (int i = 1; i < started; i++) pthread_join(workers[i].thread, NULL);
    if (why)
        ECH_FAIL(ECH_EIO, "cannot start a thread that encodes: %s; try fewer --workers",
                 strerror(why));
    return ECH_OK;
}
