/* SPDX-License-Identifier: Apache-2.0
 *
 * The built-in chat templates, and which one a model's folder asks for.
 */
#include "data/chat_template.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "data/bpe/json.h"
#include "data/chat.h"

/* The fields of a struct in a macro. */
#define FIELDS(...)                                                                                \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
/* The marks of system, user and assistant, which differ in these words alone. */
#define EACH(marks) FIELDS(marks("system"), marks("user"), marks("assistant"))
#define NO_MARKS    FIELDS("", "", false, "")

#define CHATML_MARKS(of) FIELDS("<|im_start|>" of "\n", "<|im_end|>", false, "\n")
#define CHATML           EACH(CHATML_MARKS)
#define CHATML_TOKENS    "<|im_start|> <|im_end|>"
#define LLAMA3_MARKS(of)                                                                           \
    FIELDS("<|start_header_id|>" of "<|end_header_id|>\n\n", "<|eot_id|>", false, "")
#define LLAMA3          EACH(LLAMA3_MARKS)
#define LLAMA3_TOKENS   "<|start_header_id|> <|end_header_id|> <|eot_id|>"
#define GEMMA_MARKS(of) FIELDS("<start_of_turn>" of "\n", "<end_of_turn>", false, "\n")
#define GEMMA           FIELDS(NO_MARKS, GEMMA_MARKS("user"), GEMMA_MARKS("model"))
#define GEMMA_TOKENS    "<start_of_turn> <end_of_turn>"
#define MISTRAL(begin, end, answer, rest)                                                          \
    FIELDS(NO_MARKS, FIELDS(begin, end, false, ""), FIELDS(answer, "", true, rest))
#define LLAMA31_DATES "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"
#define LLAMA31                                                                                    \
    FIELDS(FIELDS("<|start_header_id|>system<|end_header_id|>\n\n" LLAMA31_DATES, "<|eot_id|>",    \
                  false, ""),                                                                      \
           LLAMA3_MARKS("user"), LLAMA3_MARKS("assistant"))
#define PHI3_MARKS(of)   FIELDS("<|" of "|>\n", "<|end|>", false, "\n")
#define PHI3             EACH(PHI3_MARKS)
#define PHI3_TOKENS      "<|user|> <|assistant|> <|end|>"
#define ZEPHYR_MARKS(of) FIELDS("<|" of "|>\n", "", true, "\n")
#define ZEPHYR           EACH(ZEPHYR_MARKS)

const ech_chat_template ech_chat_templates[] = {
#include "data/chat_template.def"
};
const int ech_chat_template_count = sizeof ech_chat_templates / sizeof *ech_chat_templates;

const char *ech_chat_template_name(const ech_chat_template *chat_template)
{
    return chat_template->name;
}

void ech_chat_template_names(ech_text *out)
{
    for (int i = 0; i < ech_chat_template_count; i++)
        if (i == 0 || strcmp(ech_chat_templates[i].name, ech_chat_templates[i - 1].name) != 0)
            ech_text_append(out, "%s%s", i ? " " : "", ech_chat_templates[i].name);
}

/* ---- of a folder ---- */

enum { MOST_BYTES = 16 << 20 };

/* The text under "chat_template" of tokenizer_config.json: a string, or of a list the one that is
 * called "default". */
static const char *text_in(const json_t *config)
{
    const json_t *value = json_object_get(config, "chat_template");
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *row = json_array_get(value, i);
        const char *name = json_string_value(json_object_get(row, "name"));
        if (name && strcmp(name, "default") == 0)
            return json_string_value(json_object_get(row, "template"));
    }
    return json_string_value(value);
}

/* *path: the file with the folder's template, in new memory, and *text its text, likewise; both
 * NULL: the folder has no template. */
static ech_status read_folder(const char *folder, char **path, char **text)
{
    size_t n;
    ECH_FREED char *jinja = ech_file_join(folder, "chat_template.jinja");
    ECH_FREED char *config = ech_file_join(folder, "tokenizer_config.json");
    *path = *text = NULL;
    if (ech_file_exists(jinja)) {
        ECH_TRY(ech_file_read(jinja, MOST_BYTES, text, &n));
        *path = ech_strdup(jinja);
        return ECH_OK;
    }
    if (!ech_file_exists(config)) return ECH_OK;
    json_auto_t *root = NULL;
    ECH_TRY(ech_bpe_load_json(config, MOST_BYTES, true, NULL, &root));
    const char *found = text_in(root);
    if (!found) return ECH_OK;
    *text = ech_strdup(found);
    *path = ech_strdup(config);
    return ECH_OK;
}

const ech_chat_template *ech_chat_template_of(const char *jinja)
{
    char hash[ECH_TOKENIZER_HASH];
    size_t n = strlen(jinja);
    n -= n > 0 && jinja[n - 1] == '\n'; /* which Jinja leaves out */
    ECH_FREED_TEXT text = {0};
    ech_text_append_bytes(&text, jinja, n);
    ech_data_hash(&text, hash);
    for (int i = 0; i < ech_chat_template_count; i++)
        if (ech_text_has_word(ech_chat_templates[i].hashes, hash)) return &ech_chat_templates[i];
    return NULL;
}

static ech_status find_named(const char *name, const ech_chat_template **out)
{
    ECH_FREED_TEXT names = {0};
    ech_chat_template_names(&names);
    for (int i = 0; i < ech_chat_template_count; i++) {
        *out = &ech_chat_templates[i];
        if (strcmp((*out)->name, name) == 0) return ECH_OK;
    }
    ECH_FAIL(ECH_EUSAGE, "--chat-template %s: there is no such template; use one of: %s", name,
             names.at);
}

/* Names of tokens that are none would be trained on letter by letter. */
static ech_status check_tokens(const ech_chat_template *chat_template,
                               const ech_tokenizer *tokenizer)
{
    ech_coder *coder = ech_coder_create(tokenizer);
    ech_status status = ECH_OK;
    for (ECH_FREED_WORDS name = ech_words_in(chat_template->tokens);
         status == ECH_OK && ech_words_next(&name);) {
        ech_ids ids = {0};
        status = ech_coder_encode(coder, name.at, strlen(name.at), false, &ids);
        if (status == ECH_OK && ids.n != 1)
            status = ech_fail_at(__FILE__, __LINE__, ECH_EUSAGE,
                                 "the tokenizer %s has no token %s, which the chat template %s "
                                 "needs; use --chat-template plain, or add the token",
                                 tokenizer->name, name.at, chat_template->name);
        free(ids.at);
    }
    ech_coder_destroy(coder);
    return status;
}

ech_status ech_chat_template_find(const ech_tokenizer *tokenizer, const char *name,
                                  const ech_chat_template **out)
{
    ECH_FREED char *folder = ech_tokenizer_folder(tokenizer), *path = NULL, *text = NULL;
    if (name) {
        ECH_TRY(find_named(name, out));
        return check_tokens(*out, tokenizer);
    }
    if (folder) ECH_TRY(read_folder(folder, &path, &text));
    if (!text) return find_named("plain", out);
    *out = ech_chat_template_of(text);
    if (*out) return check_tokens(*out, tokenizer);
    ECH_FREED_TEXT names = {0};
    ech_chat_template_names(&names);
    ECH_FAIL(ECH_EUSAGE,
             "%s: its chat template is none of the built-in ones, each of which would give another "
             "text; render the conversations with it: python -m echelon.chats IN OUT --tokenizer "
             "FOLDER, then give OUT; or choose one of these with --chat-template NAME: %s",
             path, names.at);
}
