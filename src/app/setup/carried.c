/* SPDX-License-Identifier: Apache-2.0
 *
 * Handing on what is not ours.
 */
#include "app/setup/carried.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"

static ech_status read_text(const char *path, ech_checkpoint_file file, ech_checkpoint_info *out)
{
    if (!ech_file_exists(path)) return ECH_OK;
    return ech_file_read(path, ECH_TEXT_LIMIT, &out->text[file].at, &out->text[file].n);
}

static ech_status read_from(const char *folder, ech_checkpoint_file file, ech_checkpoint_info *out)
{
    ECH_FREED char *path = ech_file_join(folder, ech_checkpoint_text_name(file));
    return read_text(path, file, out);
}

/* ---- the tokenizer's ---- */

/* The others are words about a tokenizer, and none by themselves. */
static bool is_vocabulary(ech_checkpoint_file file)
{
    return file != ECH_FILE_TOKENIZER_CONFIG && file != ECH_FILE_SPECIAL_TOKENS &&
           file != ECH_FILE_ADDED_TOKENS && file != ECH_FILE_CHAT_TEMPLATE;
}

/* Takes over the text, unless there is one. */
static void put(ech_text text, ech_checkpoint_file file, ech_checkpoint_info *out)
{
    if (out->text[file].at) {
        ech_text_free(&text);
        return;
    }
    out->text[file].at = text.at;
    out->text[file].n = text.n;
}

/* Which of the files the tokenizer itself is. */
static ech_checkpoint_file file_of(const ech_tokenizer *tokenizer)
{
    const char *sentencepiece = ech_checkpoint_text_name(ECH_FILE_SENTENCEPIECE);
    bool is = strcmp(ech_tokenizer_file(tokenizer), sentencepiece) == 0;
    return is ? ECH_FILE_SENTENCEPIECE : ECH_FILE_TOKENIZER;
}

/* In the place of files that it does not come from. */
static void add_exported(const ech_tokenizer *tokenizer, ech_checkpoint_info *out)
{
    ech_text bytes = {0}, config = {0};
    ech_checkpoint_file file = file_of(tokenizer);
    if (out->text[file].at && out->text[ECH_FILE_TOKENIZER_CONFIG].at) return;
    ech_tokenizer_export(tokenizer, &bytes, &config);
    put(bytes, file, out);
    put(config, ECH_FILE_TOKENIZER_CONFIG, out);
}

static ech_status read_tokenizer_of(const ech_tokenizer *tokenizer, const char *from,
                                    ech_checkpoint_info *out)
{
    const char *name = ech_tokenizer_name(tokenizer);
    ech_checkpoint_file own = file_of(tokenizer);
    if (!ech_file_is_folder(name)) ECH_TRY(read_text(name, own, out));
    /* A tokenizer.json beside a tokenizer.model that was named would be taken in its place. */
    for (int f = ECH_FILE_TOKENIZER; f < ECH_FILES; f++)
        if (!out->text[f].at && (f != ECH_FILE_TOKENIZER || own == ECH_FILE_TOKENIZER))
            ECH_TRY(read_from(from, (ech_checkpoint_file)f, out));
    return ECH_OK;
}

static ech_status read_tokenizer(const ech_tokenizer *tokenizer, const char *folder,
                                 ech_checkpoint_info *out)
{
    if (!tokenizer) {
        for (int f = ECH_FILE_TOKENIZER; folder && f < ECH_FILES; f++)
            if (!is_vocabulary((ech_checkpoint_file)f))
                ECH_TRY(read_from(folder, (ech_checkpoint_file)f, out));
        return ECH_OK;
    }
    ECH_FREED char *from = ech_tokenizer_folder(tokenizer);
    ech_status status = from ? read_tokenizer_of(tokenizer, from, out) : ECH_OK;
    if (status == ECH_OK) add_exported(tokenizer, out);
    return status;
}

/* ---- the model's ---- */

static ech_status make_config(const ech_config *config, const ech_tokenizer *tokenizer,
                              const char *folder, ech_dtype dtype, ech_checkpoint_info *out)
{
    ech_text text = {0};
    ech_checkpoint_info carried = {0};
    char *path = ech_file_join(folder ? folder : "", "config.json");
    ech_text_ends ends = {0};
    if (tokenizer) {
        ends.begin = ech_tokenizer_begin_of_text(tokenizer);
        ends.end = ech_tokenizer_end_of_text(tokenizer);
    }
    ech_status status = folder ? read_text(path, ECH_FILE_CONFIG, &carried) : ECH_OK;
    const ech_model_export_options options = {.dtype = dtype,
                                              .ends = tokenizer ? &ends : NULL,
                                              .path = path,
                                              .text = carried.text[ECH_FILE_CONFIG].at,
                                              .n = carried.text[ECH_FILE_CONFIG].n,
                                              .came_together =
                                                  strcmp(config->data.tokenizer, "auto") == 0};
    if (status == ECH_OK) status = ech_model_export(config, &options, &text);
    if (status == ECH_OK) put(text, ECH_FILE_CONFIG, out);
    ech_checkpoint_info_free(&carried);
    free(path);
    return status;
}

ech_status ech_carried_read(const ech_config *config, const ech_tokenizer *tokenizer,
                            const char *folder, ech_dtype dtype, ech_checkpoint_info *out)
{
    ECH_TRY(make_config(config, tokenizer, folder, dtype, out));
    if (folder) ECH_TRY(read_from(folder, ECH_FILE_GENERATION_CONFIG, out));
    return read_tokenizer(tokenizer, folder, out);
}
