/* SPDX-License-Identifier: Apache-2.0
 *
 * For check_tokenizer.py, check_bpe.py and check_pieces.py:
 *     use_tokenizer SOURCE export FOLDER     writes its Hugging Face files into a folder
 *     use_tokenizer SOURCE encode            texts from standard input, ids to standard output
 *     use_tokenizer SOURCE pieces BYTES      the same; texts are cut at the last safe place within
 *                                            BYTES bytes, as long as there is one
 *     use_tokenizer SOURCE around            as encode, with the tokens before and after a text
 *     use_tokenizer IN learn OUT N PATTERN   learns N tokens from the texts IN
 * A text is its length in bytes (u32) and its bytes; its answer the count of ids (u32), the ids
 * (i32), the length of what they decode to (u32), and that.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "data/data.h"

static ech_status write_files(const ech_tokenizer *tokenizer, const char *folder)
{
    ech_text tokens = {0}, config = {0};
    ech_tokenizer_export(tokenizer, &tokens, &config);
    char *tokens_path = ech_file_join(folder, tokenizer->file);
    char *config_path = ech_file_join(folder, "tokenizer_config.json");
    ech_status status = ech_file_write(tokens_path, tokens.at, tokens.n);
    if (status == ECH_OK) status = ech_file_write(config_path, config.at, config.n);
    free(tokens_path);
    free(config_path);
    ech_text_free(&tokens);
    ech_text_free(&config);
    return status;
}

static void write_counted(const void *items, size_t n, size_t bytes)
{
    uint32_t count = (uint32_t)n;
    fwrite(&count, sizeof count, 1, stdout);
    if (n > 0) fwrite(items, bytes, n, stdout);
}

static void put_all(const ech_ids *from, bool around, ech_ids *out)
{
    for (size_t i = 0; i < from->n && around; i++) ECH_PUSH(*out, from->at[i]);
}

static ech_status answer(const ech_tokenizer *tokenizer, ech_coder *coder, const char *text,
                         size_t n, size_t most, bool around)
{
    ech_ids ids = {0};
    ech_text back = {0};
    put_all(&tokenizer->front, around, &ids);
    for (bool begins = true; n > 0; begins = false) {
        size_t piece = n > most ? ech_tokenizer_split(tokenizer, text, most) : n;
        if (piece == 0) piece = n;
        ECH_TRY(ech_coder_encode(coder, text, piece, begins, &ids));
        text += piece;
        n -= piece;
    }
    put_all(&tokenizer->back, around, &ids);
    for (size_t i = 0; i < ids.n; i++) ech_tokenizer_decode(tokenizer, ids.at[i], i == 0, &back);
    write_counted(ids.at, ids.n, sizeof *ids.at);
    write_counted(back.at, back.n, 1);
    ech_text_free(&back);
    free(ids.at);
    return ECH_OK;
}

static ech_status answer_all(const ech_tokenizer *tokenizer, size_t most, bool around)
{
    ech_coder *coder = ech_coder_create(tokenizer);
    ech_status status = ECH_OK;
    for (uint32_t n; status == ECH_OK && fread(&n, sizeof n, 1, stdin) == 1;) {
        char *text = ech_calloc(n, 1);
        if (fread(text, 1, n, stdin) != n) exit(2);
        status = answer(tokenizer, coder, text, n, most, around);
        free(text);
    }
    ech_coder_destroy(coder);
    return status;
}

static int learn(char **argv)
{
    const ech_bpe_training training = {.texts.in = argv[1],
                                       .out = argv[3],
                                       .pattern = argv[5],
                                       .vocabulary = strtol(argv[4], NULL, 10)};
    return ech_data_train_bpe(&training) == ECH_OK ? 0 : 1;
}

int main(int argc, char **argv)
{
    ech_tokenizer *tokenizer;
    if (argc == 6 && strcmp(argv[2], "learn") == 0) return learn(argv);
    if (argc < 3 || ech_tokenizer_open(argv[1], &tokenizer) != ECH_OK) return 2;
    ech_status status;
    if (strcmp(argv[2], "export") == 0)
        status = write_files(tokenizer, argv[3]);
    else
        status = answer_all(tokenizer, argc > 3 ? strtoul(argv[3], NULL, 10) : SIZE_MAX,
                            strcmp(argv[2], "around") == 0);
    ech_tokenizer_close(tokenizer);
    return status == ECH_OK ? 0 : 1;
}
