/* SPDX-License-Identifier: Apache-2.0
 *
 * FOLDER/journal.json: how far an import has come, and of what.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "data/chat_template.h"
#include "data/import.h"

enum { VERSION = 5, MOST_BYTES = 1 << 20 };
#define JOURNAL "journal.json"
#define UNFINISHED                                                                                 \
    "journal.new" /* until it is whole: nothing else is left of one that was interrupted */

/* ---- what the result depends on ---- */

/* Texts with their NULs, so that none runs into the next. */
static void add_text(ech_text *all, const char *text)
{
    ech_text_append_bytes(all, text, strlen(text) + 1);
}

static void add_number(ech_text *all, int64_t number)
{
    ech_text_append_bytes(all, &number, sizeof number);
}

void ech_import_hash(const ech_import_options *options, const ech_texts *texts,
                     char hash[ECH_TOKENIZER_HASH])
{
    ECH_FREED_TEXT all = {0}, tokenizer = {0}, ends = {0};
    ech_ids begin = {0};
    ech_tokenizer_export(options->tokenizer, &tokenizer, &ends);
    ech_tokenizer_begin(options->tokenizer, options->begins, &begin);
    add_number(&all, VERSION);
    add_number(&all, (int64_t)tokenizer.n);
    ech_text_append_bytes(&all, tokenizer.at, tokenizer.n);
    add_text(&all, ends.at);
    add_text(&all, options->texts.text_key);
    add_text(&all, options->texts.prompt_key);
    add_text(&all, options->texts.completion_key);
    add_number(&all, options->texts.binary);
    add_number(&all, options->texts.as_text);
    add_number(&all, options->special);
    add_number(&all, options->texts.chat ? options->texts.chat - ech_chat_templates : -1);
    add_number(&all, options->trains_on_all);
    for (size_t i = 0; i < begin.n; i++) add_number(&all, begin.at[i]);
    free(begin.at);
    ech_text_append_bytes(&all, &options->valid, sizeof options->valid);
    for (size_t i = 0; i < texts->file.n; i++) {
        const ech_data_text_file *file = &texts->file.at[i];
        add_text(&all, file->path);
        add_number(&all, file->bytes);
        add_number(&all, file->seconds);
        add_number(&all, file->nanoseconds);
    }
    ech_data_hash(&all, hash);
}

/* ---- the file ---- */

/* Of all that a journal says: a damaged number would be believed. */
static void hash_object(const json_t *object, char hash[ECH_TOKENIZER_HASH])
{
    ECH_FREED char *text = json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS);
    ech_data_hash(&(ech_text){.at = text, .n = strlen(text)}, hash);
}

/* Every number of a journal, by name. */
typedef struct field {
    const char *name;
    int64_t *number;
} field;

enum { FIELDS = 15 };

static void list_fields(ech_import_journal *j, field out[FIELDS])
{
    const field fields[FIELDS] = {{"file", &j->position.file},
                                  {"at", &j->position.at},
                                  {"line", &j->position.line},
                                  {"done", &j->done},
                                  {"files", &j->count.files},
                                  {"documents", &j->count.documents},
                                  {"bytes", &j->count.bytes},
                                  {"tokens", &j->count.tokens},
                                  {"valid_tokens", &j->count.valid_tokens},
                                  {"bad", &j->count.bad},
                                  {"chats", &j->count.chats},
                                  {"unanswered", &j->count.unanswered},
                                  {"unwritten", &j->count.unwritten},
                                  {"kept", &j->count.kept},
                                  {"kept_id", &j->count.kept_id}};
    memcpy(out, fields, sizeof fields);
}

static json_t *pack_state(const ech_token_state *s)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:b, s:b}", "tokens", (json_int_t)s->tokens, "sequences",
                     (json_int_t)s->sequences, "documents", (json_int_t)s->documents, "open_length",
                     (json_int_t)s->open_length, "open", s->open, "prompts", s->prompts);
}

static bool unpack_state(const json_t *object, ech_token_state *out)
{
    const json_t *open = json_object_get(object, "open");
    const json_t *prompts = json_object_get(object, "prompts");
    int64_t open_length;
    if (!ech_json_to_int(json_object_get(object, "tokens"), 0, INT64_MAX / 8, &out->tokens) ||
        !ech_json_to_int(json_object_get(object, "sequences"), 0, INT64_MAX / 8, &out->sequences) ||
        !ech_json_to_int(json_object_get(object, "documents"), 0, INT64_MAX, &out->documents) ||
        !ech_json_to_int(json_object_get(object, "open_length"), 0, INT32_MAX, &open_length))
        return false;
    out->open_length = (int32_t)open_length;
    out->open = json_is_true(open);
    out->prompts = json_is_true(prompts);
    return json_is_boolean(open) && json_is_boolean(prompts);
}

ech_status ech_import_journal_write(const char *folder, const ech_import_journal *journal)
{
    ech_import_journal copy = *journal;
    field fields[FIELDS];
    list_fields(&copy, fields);
    json_auto_t *object = json_pack("{s:i, s:s, s:b, s:[o, o]}", "version", (int)VERSION, "hash",
                                    journal->hash, "sealed", journal->sealed, "parts",
                                    pack_state(&journal->part[0]), pack_state(&journal->part[1]));
    for (int i = 0; i < FIELDS; i++)
        json_object_set_new(object, fields[i].name, json_integer((json_int_t)*fields[i].number));
    char own[ECH_TOKENIZER_HASH];
    hash_object(object, own);
    json_object_set_new(object, "own_hash", json_string(own));
    ECH_FREED char *text = json_dumps(object, JSON_INDENT(1));
    ECH_FREED char *path = ech_file_join(folder, JOURNAL),
                   *unfinished = ech_file_join(folder, UNFINISHED);
    ECH_CLEANUP(ech_sink_close) ech_sink sink = {0};
    ECH_TRY(ech_sink_resume(unfinished, 0, &sink));
    ECH_TRY(ech_sink_put(&sink, text, strlen(text)));
    ECH_TRY(ech_sink_flush(&sink));
    ECH_TRY(ech_sink_rename(&sink, path));
    return ech_file_sync_folder(folder);
}

/* NULL: a journal of this version and import; or why it is none. */
static const char *unpack(json_t *object, const char *hash, ech_import_journal *out)
{
    static const char *const damaged = "is damaged";
    ech_import_journal journal = {0};
    field fields[FIELDS];
    const char *says, *said;
    char own[ECH_TOKENIZER_HASH], own_said[ECH_TOKENIZER_HASH] = "";
    int version, sealed;
    json_t *parts;
    if (json_unpack(object, "{s:i, s:s, s:b, s:o}", "version", &version, "hash", &says, "sealed",
                    &sealed, "parts", &parts) != 0)
        return damaged;
    if (version != VERSION) return "is of another version";
    if (strcmp(says, hash) != 0)
        return "is of another import: texts, tokenizer or options have changed";
    if ((said = json_string_value(json_object_get(object, "own_hash"))))
        snprintf(own_said, sizeof own_said, "%s", said);
    json_object_del(object, "own_hash");
    hash_object(object, own);
    if (strcmp(own, own_said) != 0) return damaged;
    list_fields(&journal, fields);
    for (int i = 0; i < FIELDS; i++) {
        const json_t *number = json_object_get(object, fields[i].name);
        if (!ech_json_to_int(number, 0, INT64_MAX, fields[i].number)) return damaged;
    }
    memcpy(journal.hash, hash, sizeof journal.hash);
    journal.sealed = sealed;
    if (!unpack_state(json_array_get(parts, 0), &journal.part[0])) return damaged;
    if (!unpack_state(json_array_get(parts, 1), &journal.part[1])) return damaged;
    *out = journal;
    return NULL;
}

ech_status ech_import_journal_read(const char *folder, const char *hash, bool *found,
                                   ech_import_journal *out)
{
    ECH_FREED char *path = ech_file_join(folder, JOURNAL), *text = NULL;
    size_t n;
    *found = false;
    if (!ech_file_exists(path)) return ECH_OK;
    ECH_TRY(ech_file_read(path, MOST_BYTES, &text, &n));
    json_auto_t *object = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
    const char *why = object ? unpack(object, hash, out) : "is no JSON";
    *found = !why;
    if (why) ech_log_warn("%s: %s; the import starts from the beginning", path, why);
    return ECH_OK;
}

void ech_import_journal_remove(const char *folder)
{
    ECH_FREED char *path = ech_file_join(folder, JOURNAL),
                   *unfinished = ech_file_join(folder, UNFINISHED);
    unlink(path);
    unlink(unfinished);
}
