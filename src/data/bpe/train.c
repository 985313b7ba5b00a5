/* SPDX-License-Identifier: Apache-2.0
 *
 * From texts to a vocabulary's files.
 */
#include "data/bpe/train.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "data/bpe/coder.h"
#include "data/data.h"
#include "data/text_chunk.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { BYTES = 256, MOST_TOKENS = 10000000 };

struct ech_bpe_trainer {
    ech_bpe *bytes; /* end-of-text, the bytes, the pattern */
    ech_bpe_counter counter;
};

/* End-of-text, then the bytes in the order of their visible characters: ids as Hugging Face's
 * trainer gives them. */
static ech_bpe *begin(ech_bpe_pattern pattern)
{
    ech_bpe *bpe = ech_bpe_create();
    bpe->file = "pattern";
    bpe->pattern = pattern;
    ech_bpe_put_end(bpe, 0);
    for (int hidden = 0; hidden < 2; hidden++)
        for (int i = 0; i < BYTES; i++) {
            unsigned char byte = (unsigned char)i;
            ECH_FREED_TEXT shown = {0};
            ech_bpe_show(&byte, 1, &shown);
            bool is_hidden = shown.n == 2 && (unsigned char)shown.at[0] >= 0xc4; /* U+0100 and on */
            if (is_hidden == (hidden == 1)) ech_bpe_put(bpe, (int32_t)bpe->token.n, &byte, 1, true);
        }
    return bpe;
}

ech_status ech_bpe_trainer_create(const char *pattern, ech_bpe_trainer **out)
{
    ech_bpe_pattern number;
    if (!ech_bpe_pattern_find(pattern, &number) || number == ECH_BPE_whole)
        ECH_FAIL(ECH_EUSAGE, "pattern %s: not one of: %s", pattern,
                 strchr(ech_bpe_pattern_names(), ' ') + 1); /* "whole" has no words to count */
    ECH_CLEANUP(ech_bpe_trainer_destroy_at)
    ech_bpe_trainer *trainer = ech_calloc(1, sizeof *trainer);
    trainer->bytes = begin(number);
    ECH_TRY(ech_bpe_finish(trainer->bytes));
    *out = trainer;
    trainer = NULL;
    return ECH_OK;
}

void ech_bpe_trainer_destroy(ech_bpe_trainer *trainer)
{
    if (!trainer) return;
    ech_bpe_destroy(trainer->bytes);
    free(trainer->counter.word.at);
    free(trainer->counter.index.entry);
    ech_text_free(&trainer->counter.bytes);
    free(trainer);
}

/* A word's key is its hash, or the next where others have that. */
static ech_status count_word(const char *word, size_t n, void *context)
{
    ech_bpe_counter *counter = context;
    uint64_t key = XXH3_64bits(word, n), i;
    for (; (i = ech_bpe_table_get(&counter->index, key)) != ECH_BPE_NO_VALUE; key++) {
        ech_bpe_counted *have = &counter->word.at[i];
        if (have->n != n || memcmp(counter->bytes.at + have->at, word, n) != 0) continue;
        have->count++;
        return ECH_OK;
    }
    ECH_ASSERT(counter->word.n < UINT32_MAX - 1);
    *ech_bpe_table_put(&counter->index, key) = counter->word.n;
    ECH_PUSH(counter->word, (ech_bpe_counted){counter->bytes.n, n, 1});
    ech_text_append_bytes(&counter->bytes, word, n);
    return ECH_OK;
}

static ech_status count_run(const char *run, size_t n, void *context)
{
    ech_bpe_trainer *trainer = context;
    return ech_bpe_each_word(trainer->bytes->splitter, run, n, count_word, &trainer->counter);
}

ech_status ech_bpe_trainer_add(ech_bpe_trainer *trainer, const void *bytes, size_t n)
{
    return ech_bpe_each_run(ECH_BPE_AS_IS, bytes, n, count_run, trainer);
}

ech_status ech_bpe_trainer_finish(const ech_bpe_trainer *trainer, int64_t vocabulary,
                                  void (*progress)(int64_t done, int64_t all),
                                  ech_text *tokenizer_json, ech_text *config_json)
{
    if (vocabulary < BYTES + 1 || vocabulary > MOST_TOKENS)
        ECH_FAIL(ECH_EUSAGE, "a vocabulary of %lld: must be %d (bytes and end-of-text) to %d",
                 (long long)vocabulary, BYTES + 1, MOST_TOKENS);
    ECH_CLEANUP(ech_bpe_destroy_at) ech_bpe *bpe = begin(trainer->bytes->pattern);
    memcpy(bpe->byte, trainer->bytes->byte, sizeof bpe->byte);
    ech_bpe_learn(&trainer->counter, bpe, vocabulary, progress);
    if ((int64_t)bpe->token.n < vocabulary)
        ECH_FAIL(ECH_EINPUT,
                 "the texts give a vocabulary of at most %zu tokens, and %lld are wanted: use "
                 "--train-bpe %zu, or more text",
                 bpe->token.n, (long long)vocabulary, bpe->token.n);
    ech_bpe_export(bpe, tokenizer_json, config_json);
    return ECH_OK;
}

/* ---- texts to learn from ---- */

static ech_status count(const ech_text_segment *segment, void *trainer)
{
    const ech_chat *chat = segment->chat;
    for (size_t i = 0; chat && i < chat->message.n; i++)
        ECH_TRY(ech_bpe_trainer_add(trainer, chat->text.at + chat->message.at[i].at,
                                    chat->message.at[i].n));
    if (chat) return ECH_OK;
    return ech_bpe_trainer_add(trainer, segment->bytes, segment->n);
}

static void free_chunk(ech_text_chunk *chunk)
{
    free(chunk->bytes);
}

static void free_bad(ech_text_bad *bad)
{
    ech_text_free(&bad->first);
}

static ech_status count_texts(const ech_bpe_training *training, ech_bpe_trainer *trainer)
{
    const ech_data_text_source source = ech_data_text_source_complete(training->texts);
    ECH_CLEANUP(ech_texts_free) ech_texts texts = {0};
    ECH_CLEANUP(free_chunk) ech_text_chunk chunk = {0};
    ECH_CLEANUP(free_bad) ech_text_bad bad = {0};
    int64_t all_bad = 0;
    ECH_CLEANUP(ech_text_chunk_reader_close)
    ech_text_chunk_reader reader = {.texts = &texts,
                                    .leaves_out = source.skip_bad > 0,
                                    .bpe = trainer->bytes,
                                    .position.line = 1};
    ECH_TRY(ech_texts_find(&source, &texts));
    for (int64_t done = 0;;) {
        bool found;
        ECH_TRY(ech_text_chunk_read(&reader, &chunk, &found));
        if (!found) return ECH_OK;
        ECH_TRY(ech_text_chunk_each(&source, &chunk, count, trainer, &bad));
        ECH_TRY(ech_text_bad_report(&source, &bad, &all_bad));
        done += ech_text_chunk_extent(&chunk);
        if (training->progress) training->progress(done, texts.bytes);
    }
}

static ech_status write_file(const char *folder, const char *name, const ech_text *text)
{
    ECH_FREED char *path = ech_file_join(folder, name);
    return ech_file_write(path, text->at, text->n);
}

ech_status ech_data_train_bpe(const ech_bpe_training *training)
{
    ECH_CLEANUP(ech_bpe_trainer_destroy_at) ech_bpe_trainer *trainer = NULL;
    ECH_FREED_TEXT tokens = {0}, config = {0};
    ECH_TRY(ech_bpe_trainer_create(training->pattern, &trainer));
    ECH_TRY(count_texts(training, trainer));
    ECH_TRY(
        ech_bpe_trainer_finish(trainer, training->vocabulary, training->learnt, &tokens, &config));
    ECH_TRY(ech_file_make_folder(training->out));
    ECH_TRY(write_file(training->out, "tokenizer_config.json", &config));
    return write_file(training->out, "tokenizer.json", &tokens);
}
