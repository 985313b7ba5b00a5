/* SPDX-License-Identifier: Apache-2.0
 *
 * Model cards.
 */
#include "app/train/card.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "model/model.h"

/* ---- names ---- */

/* Appends text that Markdown shows as it is: CommonMark lets a backslash stand before any ASCII
 * punctuation. Control characters become blanks. */
static void append_plain(const char *text, size_t n, ech_text *out)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x80 && ispunct(c))
            ech_text_append(out, "\\%c", c);
        else
            ech_text_append(out, "%c", c < 0x20 || c == 0x7f ? ' ' : c);
    }
}

/* The last part of a path of n bytes. */
static const char *last_part(const char *path, size_t *n)
{
    while (*n > 1 && path[*n - 1] == '/') --*n;
    size_t begin = *n;
    while (begin > 0 && path[begin - 1] != '/') begin--;
    *n -= begin;
    return path + begin;
}

/* The base model's name: "org/name" of a folder "models--org--name/snapshots/..." of the Hub's
 * cache, else the folder's name. */
static void append_base(const char *path, ech_text *out)
{
    static const char cache[] = "models--";
    const char *at = strstr(path, cache);
    size_t n = strlen(path);
    if (!at || (at > path && at[-1] != '/')) {
        at = last_part(path, &n);
        ech_text_append_bytes(out, at, n);
        return;
    }
    at += strlen(cache);
    n = strcspn(at, "/");
    for (size_t i = 0; i < n; i++) {
        bool divides = at[i] == '-' && at[i + 1] == '-';
        ech_text_append_bytes(out, divides ? "/" : at + i, 1);
        i += divides;
    }
}

/* The names of the token files of data.train: last parts of paths, and weights. */
static void append_sources(const char *sources, ech_text *out)
{
    bool first = true;
    for (size_t at = 0; sources[at];) {
        size_t n = 0;
        while (sources[at + n] && sources[at + n] != ' ')
            n += sources[at + n] == '\\' && sources[at + n + 1] ? 2 : 1;
        if (n) {
            size_t length = n;
            const char *name = last_part(sources + at, &length);
            if (!first) ech_text_append(out, " ");
            append_plain(name, length, out);
            first = false;
        }
        at += n + (sources[at + n] == ' ');
    }
}

/* ---- the metadata ---- */

static bool has_base(const ech_config *config)
{
    return config->model.init_from[0] != '\0';
}

static void append_metadata(const ech_card *card, ech_text *out)
{
    const ech_family *family = ech_family_of(card->config);
    ECH_FREED_TEXT base = {0}, quoted = {0};
    ech_text_append(out, "---\n");
    if (ech_model_reads_texts(card->config))
        ech_text_append(out, "library_name: transformers\npipeline_tag: text-generation\n");
    if (has_base(card->config)) append_base(card->config->model.init_from, &base);
    if (base.n && ech_json_append_string(&quoted, base.at)) /* of YAML, too */
        ech_text_append(out, "base_model: %s\n", quoted.at);
    ech_text_append(out, "tags:\n- echelon\n- %s\n---\n\n", family->name);
}

/* ---- the text ---- */

static void append_row(const char *name, ech_text *out)
{
    ech_text_append(out, "| %s | ", name);
}

static void append_names(const ech_card *card, ech_text *out)
{
    const ech_config *config = card->config;
    ECH_FREED_TEXT base = {0};
    if (has_base(config)) {
        append_base(config->model.init_from, &base);
        append_row("base model", out);
        append_plain(base.at ? base.at : "", base.n, out);
        ech_text_append(out, " |\n");
    }
    append_row("data", out);
    append_sources(config->data.train, out);
    ech_text_append(out, " |\n");
    if (!config->data.valid[0]) return;
    append_row("validation data", out);
    append_sources(config->data.valid, out);
    ech_text_append(out, " |\n");
}

static void append_table(const ech_card *card, ech_text *out)
{
    ech_text_append(out, "| | |\n|---|---|\n| architecture | %s, %" PRId64 " parameters |\n",
                    ech_family_of(card->config)->name, card->parameters);
    append_names(card, out);
    ech_text_append(out, "| training steps | %" PRId64 " |\n| %ss | %" PRId64 " |\n", card->step,
                    ech_sample_row_of(ech_family_of(card->config)->samples)->unit, card->tokens);
    if (isfinite(card->loss))
        ech_text_append(out, "| loss of the last step | %.4f |\n", card->loss);
    if (card->valid_step >= 0 && isfinite(card->valid_loss))
        ech_text_append(out, "| validation loss | %.4f, after step %" PRId64 " |\n",
                        card->valid_loss, card->valid_step);
}

/* Keys whose values never depend on the layout, or is a path. */
static bool is_listed(const char *section, const char *key, size_t n)
{
    static const char *const keys[] = {"sequence_length",
                                       "packing",
                                       "long_documents",
                                       "document_mask",
                                       "global_batch_size",
                                       "seed",
                                       "loss"};
    if (strcmp(section, "optimizer") == 0 || strcmp(section, "precision") == 0) return true;
    if (strcmp(section, "data") != 0 && strcmp(section, "training") != 0) return false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strlen(keys[i]) == n && strncmp(keys[i], key, n) == 0) return true;
    return false;
}

/* From the resolved run file, whose lines are sections, and keys after two blanks. */
static void append_keys(const char *yaml, ech_text *out)
{
    char section[40] = "";
    bool named = false;
    for (size_t n; *yaml; yaml += n + (yaml[n] == '\n')) {
        n = strcspn(yaml, "\n");
        size_t blanks = strspn(yaml, " "), end = strcspn(yaml + blanks, ":");
        if (blanks == 0 && end < sizeof section) {
            memcpy(section, yaml, end);
            section[end] = '\0';
            named = false;
        }
        if (blanks == 0 || !is_listed(section, yaml + blanks, end)) continue;
        if (!named) ech_text_append(out, "%s:\n", section);
        named = true;
        ech_text_append_bytes(out, yaml, n);
        ech_text_append(out, "\n");
    }
}

void ech_card_append(const ech_card *card, ech_text *out)
{
    const char *directory = card->config->log.directory;
    size_t n = strlen(directory);
    const char *name = last_part(directory, &n);
    append_metadata(card, out);
    ech_text_append(out, "# ");
    append_plain(name, n, out);
    ech_text_append(out, "\n\n%s\n\n", ECH_CARD_MARK);
    append_table(card, out);
    ech_text_append(out, "\n## Hyperparameters\n\n```yaml\n");
    append_keys(card->run_yaml, out);
    ech_text_append(out, "```\n\nTrained with Echelon %s.\n", ECH_VERSION);
}
