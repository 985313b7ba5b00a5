/* SPDX-License-Identifier: Apache-2.0
 *
 * From texts to token files: rounds of reading chunks, encoding them and writing their ids; at
 * intervals a journal is written, from which an interrupted import resumes.
 */
#include "data/import.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "data/token_index.h"

/* Of a round, for each thread. */
enum { ROUND_CHUNKS = 64, ROUND_BYTES = 4 << 20 };
static const int64_t SAVE_BYTES = 256 << 20;

typedef struct importing {
    const ech_import_options *options;
    const ech_texts *texts;
    char *folder; /* OUT.tmp */
    int parts;
    char *prefix[2];
    ech_token_writer *writer[2];
    ech_text_chunk_reader reader;
    ech_coder **coder;          /* one a thread */
    ech_import_journal journal; /* how far it has come; on disk: how far it had come */
    int64_t before, saved;      /* bytes done when it began, and when it was saved last */
    bool resumable;             /* there is a journal on disk */
    ECH_LIST(ech_import_chunk) chunk;
} importing;

/* ---- rounds ---- */

/* The n chunks of the next round. */
static ech_status read_round(importing *im, size_t *n)
{
    size_t most = ROUND_CHUNKS * (size_t)im->options->workers;
    int64_t bytes = 0, limit = (int64_t)ROUND_BYTES * im->options->workers;
    if (limit > im->options->save_bytes) limit = im->options->save_bytes;
    bool found = true;
    for (*n = 0; found && *n < most && bytes < limit; *n += found) {
        if (*n == im->chunk.n) ECH_PUSH(im->chunk, (ech_import_chunk){0});
        ECH_TRY(ech_text_chunk_read(&im->reader, &im->chunk.at[*n].read, &found));
        if (found) bytes += ech_text_chunk_extent(&im->chunk.at[*n].read);
    }
    return ECH_OK;
}

static ech_status write_chunk(importing *im, ech_import_chunk *chunk)
{
    ECH_TRY(ech_text_bad_report(&im->options->texts, &chunk->bad, &im->journal.count.bad));
    if (chunk->status != ECH_OK) ECH_FAIL(chunk->status, "%s", chunk->message);
    const int32_t *ids = chunk->ids.at;
    for (size_t i = 0; i < chunk->segment.n; i++) {
        ech_text_segment s = chunk->segment.at[i];
        bool held = s.valid && im->parts > 1;
        ech_token_writer *writer = im->writer[held];
        ECH_TRY(s.prompt ? ech_token_writer_add_prompt(writer, ids, s.n)
                         : ech_token_writer_add(writer, ids, s.n));
        if (s.ends) ECH_TRY(ech_token_writer_end_document(writer));
        im->journal.count.documents += s.ends;
        *(held ? &im->journal.count.valid_tokens : &im->journal.count.tokens) += (int64_t)s.n;
        ids += s.n;
    }
    im->journal.count.chats += chunk->chats;
    im->journal.count.unanswered += chunk->unanswered;
    im->journal.count.unwritten += chunk->unwritten;
    im->journal.count.kept += chunk->kept;
    if (chunk->kept) im->journal.count.kept_id = chunk->kept_id;
    im->journal.done += ech_text_chunk_extent(&chunk->read);
    if (im->options->progress)
        im->options->progress(im->before, im->journal.done, im->texts->bytes);
    return ECH_OK;
}

/* First the tokens, then the journal that believes in them. */
static ech_status save(importing *im)
{
    for (int i = 0; i < im->parts; i++)
        ECH_TRY(ech_token_writer_sync(im->writer[i], &im->journal.part[i]));
    im->journal.position = im->reader.position;
    ECH_TRY(ech_import_journal_write(im->folder, &im->journal));
    im->saved = im->journal.done;
    im->resumable = true;
    return ECH_OK;
}

static ech_status run_rounds(importing *im)
{
    for (size_t n;;) {
        ECH_TRY(read_round(im, &n));
        if (n == 0) return ECH_OK;
        ECH_TRY(ech_import_encode_all(im->options, im->coder, im->chunk.at, n));
        for (size_t i = 0; i < n; i++) ECH_TRY(write_chunk(im, &im->chunk.at[i]));
        if (im->journal.done - im->saved >= im->options->save_bytes) ECH_TRY(save(im));
    }
}

/* ---- from begin to end ---- */

static ech_status check_count(const importing *im)
{
    const ech_import_count *count = &im->journal.count;
    const char *in = im->options->texts.in;
    if (count->documents == 0 && count->unanswered > 0)
        ECH_FAIL(ECH_EINPUT,
                 "%s: no conversation has an assistant's message (%s), so there is nothing to "
                 "train on; --train-on-all trains on all messages",
                 in, ECH_COUNT(count->unanswered, "conversation"));
    if (count->tokens == 0 && count->valid_tokens == 0)
        ECH_FAIL(ECH_EINPUT, "%s: holds no text; name a file that does", in);
    if (im->parts > 1 && (count->tokens == 0 || count->valid_tokens == 0))
        ECH_FAIL(ECH_EUSAGE,
                 "%s: too little text for a validation share of %g: nothing is left %s; use more "
                 "text, or another --valid",
                 in, im->options->valid, count->tokens == 0 ? "to train on" : "to validate on");
    return ECH_OK;
}

/* A model that should learn these tokens would never see them. */
static void warn_of_names(const importing *im)
{
    const ech_import_count *count = &im->journal.count;
    const ech_tokenizer *tokenizer = im->options->tokenizer;
    ECH_FREED_TEXT name = {0};
    if (count->kept == 0 || count->kept_id >= tokenizer->vocabulary) return;
    ech_chat_put_form(tokenizer, (int32_t)count->kept_id, &name);
    ech_log_warn("%s: %s of a special token, such as %s, %s text; --special-tokens makes "
                 "them its id",
                 im->options->texts.in, ECH_COUNT(count->kept, "name"), name.at,
                 count->kept == 1 ? "stays" : "stay");
}

static void close_writers(importing *im)
{
    for (int i = 0; i < im->parts; i++) {
        ech_token_writer_discard(im->writer[i]);
        im->writer[i] = NULL;
    }
}

static ech_status encode_texts(importing *im)
{
    int64_t vocabulary = im->options->tokenizer->vocabulary;
    for (int i = 0; i < im->parts; i++)
        ECH_TRY(ech_token_writer_resume(im->prefix[i], im->folder, vocabulary, &im->journal.part[i],
                                        &im->writer[i]));
    ech_ids begin = {0};
    ech_tokenizer_begin(im->options->tokenizer, im->options->begins, &begin);
    for (int i = 0; i < im->parts; i++) {
        im->writer[i]->tokenizer = im->options->tokenizer;
        im->writer[i]->begins = begin.n > 0;
    }
    free(begin.at);
    for (int i = 0; i < im->options->workers; i++)
        im->coder[i] = ech_coder_create(im->options->tokenizer);
    return run_rounds(im);
}

static ech_status seal(importing *im)
{
    ECH_TRY(check_count(im));
    warn_of_names(im);
    for (int i = 0; i < im->parts; i++) ECH_TRY(ech_token_writer_seal(im->writer[i]));
    close_writers(im);
    im->journal.sealed = true;
    return ech_import_journal_write(im->folder, &im->journal);
}

static void clear(const importing *im)
{
    ech_import_journal_remove(im->folder);
    for (int i = 0; i < im->parts; i++) ech_token_clear(im->prefix[i], im->folder);
    rmdir(im->folder);
}

/* From where the journal says, or from the beginning. */
static ech_status begin(importing *im)
{
    char hash[ECH_TOKENIZER_HASH];
    bool found;
    ech_import_hash(im->options, im->texts, hash);
    im->resumable = true; /* what cannot be read now may be there */
    ECH_TRY(ech_import_journal_read(im->folder, hash, &found, &im->journal));
    for (int i = 0; i < im->parts && found && im->journal.sealed; i++) {
        found = !ech_token_is_lost(im->prefix[i], im->folder);
        if (!found)
            ech_log_warn("%s: %s.idx is no longer there; the import starts from the beginning",
                         im->folder, im->prefix[i]);
    }
    if (found) {
        char done[32];
        ech_log_info("%s: continuing after %s that an earlier import has read", im->folder,
                     ech_text_from_bytes(im->journal.done, done, sizeof done));
    } else {
        im->journal = (ech_import_journal){0};
        for (int i = 0; i < im->parts; i++) ech_token_clear(im->prefix[i], im->folder);
        ech_import_journal_remove(im->folder);
        memcpy(im->journal.hash, hash, sizeof hash);
        im->journal.position.line = 1;
        im->journal.count.files = (int64_t)im->texts->file.n;
        im->journal.count.bytes = im->texts->bytes;
    }
    im->resumable = found;
    im->before = im->saved = im->journal.done;
    im->reader = (ech_text_chunk_reader){.texts = im->texts,
                                         .valid = im->options->valid,
                                         .leaves_out = im->options->texts.skip_bad > 0,
                                         .bpe = im->options->tokenizer->bpe,
                                         .position = im->journal.position};
    return ECH_OK;
}

static ech_status import_texts(importing *im)
{
    ECH_TRY(begin(im));
    ech_status st = ECH_OK;
    if (!im->journal.sealed) st = encode_texts(im);
    if (st == ECH_OK && !im->journal.sealed) st = seal(im);
    ech_text_chunk_reader_close(&im->reader);
    close_writers(im);
    for (int i = 0; i < im->parts && st == ECH_OK; i++)
        st = ech_token_publish(im->prefix[i], im->folder);
    return st;
}

/* After a system error an import can be resumed; other errors would be repeated. */
static ech_status import_locked(importing *im)
{
    ech_status st = import_texts(im);
    if (st == ECH_EIO && im->resumable) {
        ech_log_info("%s holds the finished part; the same command continues from there",
                     im->folder);
        return st;
    }
    if (st != ECH_OK && im->resumable)
        ech_log_info("%s is removed; the next import starts from the beginning", im->folder);
    clear(im);
    return st;
}

static void free_all(importing *im)
{
    for (size_t i = 0; i < im->chunk.n; i++) {
        free(im->chunk.at[i].read.bytes);
        free(im->chunk.at[i].ids.at);
        free(im->chunk.at[i].segment.at);
        free(im->chunk.at[i].message);
        ech_text_free(&im->chunk.at[i].bad.first);
    }
    free(im->chunk.at);
    for (int i = 0; i < im->options->workers; i++) ech_coder_destroy(im->coder[i]);
    free(im->coder);
    free(im->prefix[0]);
    free(im->prefix[1]);
    free(im->folder);
}

static ech_status import_found(const ech_import_options *options, const ech_texts *texts,
                               ech_import_count *count)
{
    int lock;
    ECH_CLEANUP(free_all)
    importing im = {
        .options = options,
        .texts = texts,
        .folder = ech_token_path(options->out, ".tmp"),
        .parts = options->valid > 0 ? 2 : 1,
        .prefix = {ech_token_path(options->out, options->valid > 0 ? "-train" : ""),
                   ech_token_path(options->out, "-valid")},
        .coder = ech_calloc((size_t)options->workers, sizeof *im.coder),
    };
    ECH_TRY(ech_file_make_folder(im.folder));
    ECH_TRY(ech_file_lock_folder(im.folder, 0, &lock));
    ech_status st = import_locked(&im);
    close(lock);
    if (st == ECH_OK) *count = im.journal.count;
    return st;
}

/* A template that the user did not name is needed only if there are conversations. *no_chat: why
 * there is none, owned by the caller. */
static ech_status find_template(ech_import_options *options, char **no_chat)
{
    bool quiet = options->chat_template ? false : ech_log_set_quiet(true);
    ech_status status =
        ech_chat_template_find(options->tokenizer, options->chat_template, &options->texts.chat);
    if (options->chat_template) return status;
    ech_log_set_quiet(quiet);
    if (status == ECH_OK) return ECH_OK;
    options->texts.chat = NULL;
    options->texts.no_chat = *no_chat = ech_strdup(ech_last_error());
    return ECH_OK;
}

ech_status ech_data_import(const ech_import_options *options, ech_import_count *count)
{
    ech_import_options o = *options;
    ECH_CLEANUP(ech_texts_free) ech_texts texts = {0};
    if (!(o.valid >= 0 && o.valid < 1))
        ECH_FAIL(ECH_EUSAGE, "a validation share of %g: it must be at least 0 and below 1",
                 o.valid);
    ECH_ASSERT(o.workers > 0);
    o.texts = ech_data_text_source_complete(o.texts);
    ECH_FREED char *no_chat = NULL;
    ECH_TRY(find_template(&o, &no_chat));
    if (o.save_bytes == 0) o.save_bytes = SAVE_BYTES;
    ECH_TRY(ech_texts_find(&o.texts, &texts));
    ECH_TRY(ech_texts_check_output(o.texts.in, o.out));
    ECH_TRY(import_found(&o, &texts, count));
    count->chat_template = o.texts.chat ? ech_chat_template_name(o.texts.chat) : NULL;
    return ECH_OK;
}

/* ---- the first conversation ---- */

typedef struct first_chat {
    const ech_import_options *options;
    ech_coder *coder;
    ech_chat_token_use use;
    void *context;
    bool found;
} first_chat;

static ech_status show_chat(const ech_text_segment *segment, void *context)
{
    first_chat *f = context;
    const ech_tokenizer *tokenizer = f->options->tokenizer;
    if (f->found || !segment->chat) return ECH_OK;
    if (!f->options->trains_on_all && !ech_chat_trains(segment->chat)) return ECH_OK;
    f->found = true;
    ech_chat_text text = {0};
    ech_chat_tokens tokens = {0};
    ECH_FREED_TEXT bytes = {0};
    ech_status status = ech_chat_render(segment->chat, f->options->texts.chat, tokenizer, &text);
    if (status == ECH_OK) status = ech_chat_encode(&text, tokenizer, f->coder, &tokens);
    for (size_t i = 0; i < tokens.n && status == ECH_OK; i++) {
        const ech_chat_token *token = &tokens.at[i];
        bytes.n = 0;
        ech_chat_put_form(tokenizer, token->id, &bytes);
        f->use(bytes.at, bytes.n, token->role, token->trained || f->options->trains_on_all,
               f->context);
    }
    ech_chat_text_free(&text);
    free(tokens.at);
    return status;
}

/* Invalid objects have been reported by the import. */
ech_status ech_data_first_chat(const ech_import_options *options, ech_chat_token_use use,
                               void *context)
{
    ech_import_options o = *options;
    ECH_CLEANUP(ech_texts_free) ech_texts texts = {0};
    ech_text_chunk_reader reader = {.texts = &texts,
                                    .leaves_out = o.texts.skip_bad > 0,
                                    .bpe = options->tokenizer->bpe,
                                    .position.line = 1};
    first_chat f = {&o, ech_coder_create(options->tokenizer), use, context, false};
    ech_text_chunk chunk = {0};
    ech_text_bad bad = {0};
    bool read = false;
    ECH_FREED char *no_chat = NULL;
    o.texts = ech_data_text_source_complete(o.texts);
    ech_status status = find_template(&o, &no_chat);
    if (status == ECH_OK) status = ech_texts_find(&o.texts, &texts);
    if (status == ECH_OK) status = ech_text_chunk_read(&reader, &chunk, &read);
    if (status == ECH_OK && read && chunk.form != ECH_TEXT_PLAIN)
        status = ech_text_chunk_each(&o.texts, &chunk, show_chat, &f, &bad);
    ech_text_chunk_reader_close(&reader);
    ech_coder_destroy(f.coder);
    free(chunk.bytes);
    ech_text_free(&bad.first);
    return status;
}
