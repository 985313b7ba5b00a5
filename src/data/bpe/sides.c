/* SPDX-License-Identifier: Apache-2.0
 *
 * The files beside a tokenizer's own: tokenizer_config.json, special_tokens_map.json and
 * added_tokens.json. Hugging Face's transformers (tokenization_utils_base.py, version 5.24) is
 * followed. Flags of added tokens in tokenizer_config.json replace the flags in tokenizer.json.
 * Tokens that only tokenizer_config.json lists are added in the order of their ids; if it lists
 * none, the tokens of added_tokens.json are added. The first two files may name special tokens,
 * also with flags, which count for tokens that no list has. If both give flags, those in
 * special_tokens_map.json count; if tokenizer_config.json lists added tokens, transformers reads
 * only that file, and its flags alone count. In transformers a name that no file lists becomes a
 * token, and one of two different names wins; here both are errors.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "data/bpe/json.h"

enum { MOST_BYTES = 16 << 20 };

#define OF_ANOTHER                                                                                 \
    "; the two files are of different tokenizers: save both again with save_pretrained, or "       \
    "remove the token from %s"

/* Begin and end of the families that are known. */
static const char *const usual_ends[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<|eot_id|>"};
static const char *const usual_begins[] = {"<|begin_of_text|>", "<s>"};

const char *const ech_bpe_names[ECH_BPE_NAMES] = {"unk_token", "sep_token", "pad_token",
                                                  "cls_token", "mask_token"};

/* Lists of further tokens that are special. */
enum { SPECIAL_LISTS = 2 };
static const char *const special_lists[SPECIAL_LISTS] = {"additional_special_tokens",
                                                         "extra_special_tokens"};

typedef struct sides {
    ech_bpe *bpe;
    const char *main; /* path of the tokenizer's own file */
    char *config_path, *map_path, *added_path;
    json_t *config, *map, *added; /* NULL: there is none */
} sides;

/* The added token that is searched as this text. */
static ech_bpe_added *find_added(const ech_bpe *bpe, const char *text)
{
    size_t n = strlen(text);
    for (size_t i = 0; i < bpe->added.n; i++) {
        ech_bpe_added *added = &bpe->added.at[i];
        const ech_bpe_token *token = &bpe->token.at[added->id];
        size_t at = added->apart ? added->at : token->at,
               length = added->apart ? added->n : token->n;
        if (length == n && memcmp(bpe->bytes.at + at, text, n) == 0) return added;
    }
    return NULL;
}

/* The id of an added token, else of one of the model. */
static int32_t find_any(const ech_bpe *bpe, const char *name)
{
    size_t n = strlen(name);
    const ech_bpe_added *added = find_added(bpe, name);
    if (added) return added->id;
    for (size_t id = 0; id < bpe->token.n; id++) {
        const ech_bpe_token *token = &bpe->token.at[id];
        if (!token->plain && token->n == n && memcmp(bpe->bytes.at + token->at, name, n) == 0)
            return (int32_t)id;
    }
    return ech_bpe_find(bpe, name, n);
}

static int32_t find_usual(const ech_bpe *bpe, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int32_t id = find_any(bpe, names[i]);
        if (id != ECH_BPE_NONE) return id;
    }
    return ECH_BPE_NONE;
}

/* ---- added tokens ---- */

/* A token that a file beside the tokenizer's own lists. */
typedef struct listed {
    const char *text;
    size_t n;
    ech_bpe_added flags; /* with its stated id */
} listed;
typedef ECH_LIST(listed) listing;

static int compare_ids(const void *a, const void *b)
{
    int32_t x = ((const listed *)a)->flags.stated, y = ((const listed *)b)->flags.stated;
    return (x > y) - (x < y);
}

/* Whether the tokenizer's own file has it. Then it has the same id. */
static ech_status find_listed(const sides *s, const char *file, const char *key, const listed *l,
                              ech_bpe_added **added, bool *has)
{
    const ech_bpe *bpe = s->bpe;
    *added = find_added(bpe, l->text);
    int32_t id = *added             ? (*added)->stated
                 : bpe->sentencepiece ? find_any(bpe, l->text)
                                      : ECH_BPE_NONE;
    *has = id != ECH_BPE_NONE;
    if (id == l->flags.stated) return ECH_OK;
    if (*has)
        ECH_FAIL(ECH_EINPUT,
                 "%s: %s\"%.80s\" has id %d, and %d in %s: the files are of two "
                 "tokenizers; take both from one place",
                 file, key, l->text, (int)l->flags.stated, (int)id, s->main);
    if (!bpe->sentencepiece) return ECH_OK;
    ECH_FAIL(ECH_EINPUT,
             "%s: %s\"%.80s\" (%d) is no token of %s, so that its text would become other "
             "ids there; write both anew: AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)",
             file, key, l->text, (int)l->flags.stated, s->main);
}

static ech_status put_listed(const sides *s, const char *file, const char *key, listed *l)
{
    if (find_added(s->bpe, l->text))
        ECH_FAIL(ECH_EINPUT, "%s: %s\"%.80s\" comes twice; remove one", file, key, l->text);
    return ech_bpe_put_added(file, key, l->text, l->n, s->bpe, &l->flags);
}

/* Adds the tokens that the tokenizer's own file does not have, in the order of their ids. replaces:
 * the flags of the other tokens replace the flags in that file. */
static ech_status take_listed(const sides *s, const char *file, const char *key, listing *all,
                              bool replaces)
{
    listing more = {0};
    ech_status status = ECH_OK;
    for (size_t i = 0; i < all->n && status == ECH_OK; i++) {
        listed *l = &all->at[i];
        ech_bpe_added *added;
        bool has;
        status = find_listed(s, file, key, l, &added, &has);
        if (status != ECH_OK) break;
        if (!has) ECH_PUSH(more, *l);
        if (!added || !replaces || s->bpe->sentencepiece) continue;
        added->special = l->flags.special;
        added->normalized = l->flags.normalized;
        added->lstrip = l->flags.lstrip;
        added->rstrip = l->flags.rstrip;
        added->single_word = l->flags.single_word;
    }
    if (more.n) qsort(more.at, more.n, sizeof *more.at, compare_ids);
    for (size_t i = 0; i < more.n && status == ECH_OK; i++)
        status = put_listed(s, file, key, &more.at[i]);
    s->bpe->relisted |= more.n > 0;
    free(more.at);
    return status;
}

static bool is_id(int64_t id)
{
    return id >= 0 && id <= INT32_MAX;
}

static ech_status read_decoder(const sides *s, const json_t *decoder, listing *out)
{
    const char *number;
    json_t *token;
    json_object_foreach((json_t *)(uintptr_t)decoder, number, token)
    {
        int64_t id;
        const json_t *content = json_object_get(token, "content");
        if (!json_is_string(content) || !ech_text_to_int(number, &id) || !is_id(id))
            ECH_FAIL(ECH_EINPUT,
                     "%s: added_tokens_decoder: %.40s: must be an id with an object that has a "
                     "content" ECH_BPE_AGAIN,
                     s->config_path, number);
        listed l = {.text = json_string_value(content),
                    .n = json_string_length(content),
                    .flags.stated = (int32_t)id};
        ech_bpe_take_flags(token, &l.flags);
        if (!json_object_get(token, "normalized")) l.flags.normalized = !l.flags.special;
        ECH_PUSH(*out, l);
    }
    return ECH_OK;
}

static ech_status take_decoder(const sides *s)
{
    listing all = {0};
    const json_t *decoder = json_object_get(s->config, "added_tokens_decoder");
    ech_status status = read_decoder(s, decoder, &all);
    s->bpe->relisted = all.n > 0;
    if (status == ECH_OK)
        status = take_listed(s, s->config_path, "added_tokens_decoder: ", &all, true);
    free(all.at);
    return status;
}

static bool is_name(const json_t *value, const char *text)
{
    const json_t *content = json_object_get(value, "content");
    const char *name = json_string_value(content ? content : value);
    return name && strcmp(name, text) == 0;
}

static bool names(const json_t *root, const char *text)
{
    static const char *const keys[] = {"eos_token", "bos_token"};
    bool found = false;
    for (int i = 0; i < 2; i++) found |= is_name(json_object_get(root, keys[i]), text);
    for (int i = 0; i < ECH_BPE_NAMES; i++)
        found |= is_name(json_object_get(root, ech_bpe_names[i]), text);
    for (int k = 0; k < SPECIAL_LISTS; k++) {
        const json_t *list = json_object_get(root, special_lists[k]);
        for (size_t i = 0; i < json_array_size(list); i++)
            found |= is_name(json_array_get(list, i), text);
    }
    return found;
}

/* {"TEXT": ID} */
static ech_status read_added(const sides *s, listing *out)
{
    const char *text;
    json_t *id;
    json_object_foreach(s->added, text, id)
    {
        int64_t number = json_is_integer(id) ? json_integer_value(id) : -1;
        if (!is_id(number))
            ECH_FAIL(ECH_EINPUT, "%s: \"%.80s\": must be an id" ECH_BPE_AGAIN, s->added_path, text);
        bool special = names(s->config, text) || names(s->map, text);
        ech_bpe_added flags = {
            .stated = (int32_t)number, .special = special, .normalized = !special};
        ECH_PUSH(*out, ((listed){text, strlen(text), flags}));
    }
    return ECH_OK;
}

/* Without added tokens in tokenizer_config.json. */
static ech_status take_added(const sides *s)
{
    listing all = {0};
    if (json_object_get(s->config, "added_tokens_decoder")) return ECH_OK;
    ech_status status = read_added(s, &all);
    if (status == ECH_OK) status = take_listed(s, s->added_path, "", &all, false);
    free(all.at);
    return status;
}

/* ---- named tokens ---- */

/* A token's name: a string, or an object with "content". NULL: there is none. */
static ech_status name_in(const json_t *root, const char *key, const char *file, const char **name)
{
    const json_t *value = json_object_get(root, key);
    if (json_is_object(value)) value = json_object_get(value, "content");
    *name = NULL;
    if (!value || json_is_null(value)) return ECH_OK;
    *name = json_string_value(value);
    if (!*name)
        ECH_FAIL(ECH_EINPUT, "%s: %s: must be a string or an added token" ECH_BPE_AGAIN, file, key);
    return ECH_OK;
}

/* Tokens that files name are special, even if only the model's vocabulary has them. Then `value`,
 * a name or an object, gives the flags, and the last file that names the token counts. */
static void make_special(ech_bpe *bpe, const char *name, int32_t id, const json_t *value)
{
    if (bpe->sentencepiece) return;
    ech_bpe_added *added = find_added(bpe, name);
    if (!added) {
        ECH_PUSH(bpe->added, (ech_bpe_added){.id = id, .stated = id, .unlisted = true});
        added = &bpe->added.at[bpe->added.n - 1];
    }
    if (added->unlisted) ech_bpe_take_flags(value, added);
    added->special = true;
}

/* special_tokens_map.json, if its flags count: tokenizer_config.json lists no added tokens. */
static const json_t *flags_in_map(const sides *s)
{
    return json_object_get(s->config, "added_tokens_decoder") ? NULL : s->map;
}

/* *id: of the token that the files call `key`; unchanged if none does. */
static ech_status take_named(const sides *s, const char *key, int32_t *id)
{
    const char *name, *other, *file = s->config_path;
    ECH_TRY(name_in(s->config, key, s->config_path, &name));
    ECH_TRY(name_in(s->map, key, s->map_path, &other));
    if (name && other && strcmp(name, other) != 0)
        ECH_FAIL(ECH_EINPUT, "%s: %s is \"%.80s\", and \"%.80s\" in %s: make them say the same",
                 s->config_path, key, name, other, s->map_path);
    if (!name) file = s->map_path;
    if (!name) name = other;
    if (!name) return ECH_OK;
    *id = find_any(s->bpe, name);
    if (*id == ECH_BPE_NONE)
        ECH_FAIL(ECH_EINPUT,
                 "%s: %s: \"%.80s\" is no token of the tokenizer beside it, %s" OF_ANOTHER, file,
                 key, name, s->main, file);
    const json_t *value = json_object_get(other ? flags_in_map(s) : s->config, key);
    make_special(s->bpe, name, *id, value ? value : json_object_get(s->config, key));
    return ECH_OK;
}

/* A list of further tokens, "additional_special_tokens": all are the tokenizer's, and special. */
static ech_status take_list(const sides *s, const json_t *root, const char *file, const char *key)
{
    const json_t *list = json_object_get(root, key);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        const json_t *content = json_object_get(item, "content");
        const char *name = json_string_value(content ? content : item);
        if (!name)
            ECH_FAIL(ECH_EINPUT, "%s: %s[%zu]: must be a string or an added token" ECH_BPE_AGAIN,
                     file, key, i);
        int32_t id = find_any(s->bpe, name);
        if (id == ECH_BPE_NONE)
            ECH_FAIL(ECH_EINPUT,
                     "%s: %s: \"%.80s\" is no token of the tokenizer beside it, %s" OF_ANOTHER,
                     file, key, name, s->main, file);
        make_special(s->bpe, name, id, root == s->config || flags_in_map(s) ? item : NULL);
    }
    return ECH_OK;
}

static ech_status take_names(const sides *s)
{
    ECH_TRY(take_named(s, "bos_token", &s->bpe->begin_of_text));
    ECH_TRY(take_named(s, "eos_token", &s->bpe->end_of_text));
    for (int i = 0; i < ECH_BPE_NAMES; i++)
        ECH_TRY(take_named(s, ech_bpe_names[i], &s->bpe->named[i]));
    for (int i = 0; i < SPECIAL_LISTS; i++) {
        ECH_TRY(take_list(s, s->config, s->config_path, special_lists[i]));
        ECH_TRY(take_list(s, s->map, s->map_path, special_lists[i]));
    }
    return ECH_OK;
}

/* ---- blanks and tokens around a text ---- */

static ech_status take_prefix(const sides *s)
{
    const json_t *key = json_object_get(s->config, "add_prefix_space");
    bool wanted = json_is_true(key), has = s->bpe->prefix != ECH_BPE_NO_PREFIX;
    if (!json_is_boolean(key) || wanted == has) return ECH_OK;
    if (s->bpe->source.n == 0) { /* GPT-2's pair says nothing of it */
        s->bpe->prefix = ECH_BPE_PREFIX_PARTS;
        return ECH_OK;
    }
    ECH_FAIL(ECH_EINPUT,
             "%s: add_prefix_space is %s, and %s puts %s before a text; make them say the same",
             s->config_path, wanted ? "true" : "false", s->main, has ? "a blank" : "no blank");
}

/* "add_bos_token", "add_eos_token": where the class of the tokenizer looks at these, transformers
 * puts them around a text, whatever the post-processor says. */
static void take_around(const json_t *root, ech_bpe *bpe)
{
    const json_t *front = json_object_get(root, "add_bos_token");
    const json_t *back = json_object_get(root, "add_eos_token");
    if (!json_is_boolean(front) && !json_is_boolean(back)) return;
    bpe->front.n = bpe->back.n = 0;
    if (json_is_true(front) && bpe->begin_of_text != ECH_BPE_NONE)
        ECH_PUSH(bpe->front, bpe->begin_of_text);
    if (json_is_true(back) && bpe->end_of_text != ECH_BPE_NONE)
        ECH_PUSH(bpe->back, bpe->end_of_text);
}

/* ---- all ---- */

static ech_status find_ends(const sides *s)
{
    ech_bpe *bpe = s->bpe;
    if (bpe->end_of_text == ECH_BPE_NONE)
        bpe->end_of_text = find_usual(bpe, usual_ends, sizeof usual_ends / sizeof usual_ends[0]);
    if (bpe->begin_of_text == ECH_BPE_NONE)
        bpe->begin_of_text =
            find_usual(bpe, usual_begins, sizeof usual_begins / sizeof usual_begins[0]);
    if (bpe->begin_of_text == ECH_BPE_NONE) bpe->begin_of_text = bpe->end_of_text;
    if (bpe->end_of_text == ECH_BPE_NONE)
        ECH_FAIL(ECH_EINPUT,
                 "%s: which token ends a text? None is called <|endoftext|>, <|end_of_text|>, </s> "
                 "or <|eot_id|>; name it as \"eos_token\" in %s",
                 s->main, s->config_path);
    return ECH_OK;
}

/* A tokenizer.model beside tokenizer.json is what that was made of. One that cannot be read is of
 * another kind. */
static ech_status check_model(const sides *s, const char *folder)
{
    ECH_FREED char *path = ech_file_join(folder, "tokenizer.model");
    ECH_CLEANUP(ech_bpe_destroy_at) ech_bpe *other = ech_bpe_create();
    const ech_bpe *bpe = s->bpe;
    if (!bpe->characters || bpe->sentencepiece || !ech_file_exists(path)) return ECH_OK;
    bool quiet = ech_log_set_quiet(true);
    ech_status status = ech_bpe_read_sentencepiece(path, other);
    ech_log_set_quiet(quiet);
    for (size_t id = 0; status == ECH_OK && id < other->token.n && id < bpe->token.n; id++) {
        const ech_bpe_token *a = &bpe->token.at[id], *b = &other->token.at[id];
        const char *x = bpe->bytes.at + a->at, *y = other->bytes.at + b->at;
        if (a->n == 0 || (a->n == b->n && memcmp(x, y, a->n) == 0)) continue;
        ECH_FAIL(ECH_EINPUT, "%s: id %zu is \"%.*s\", and \"%.*s\" in %s: take both from one place",
                 s->main, id, a->n < 80 ? (int)a->n : 80, x, b->n < 80 ? (int)b->n : 80, y, path);
    }
    return ECH_OK;
}

/* Of tokenizer_config.json numbers are not read; some have integers of 30 digits. */
static ech_status load(const char *path, bool reals, json_t **out)
{
    return ech_file_exists(path) ? ech_bpe_load_json(path, MOST_BYTES, reals, NULL, out) : ECH_OK;
}

static void close_sides(sides *s)
{
    json_decref(s->config);
    json_decref(s->map);
    json_decref(s->added);
    free(s->config_path);
    free(s->map_path);
    free(s->added_path);
}

ech_status ech_bpe_read_sides(const char *path, const char *folder, ech_bpe *bpe)
{
    ECH_CLEANUP(close_sides)
    sides s = {.bpe = bpe,
               .main = path,
               .config_path = ech_file_join(folder, "tokenizer_config.json"),
               .map_path = ech_file_join(folder, "special_tokens_map.json"),
               .added_path = ech_file_join(folder, "added_tokens.json")};
    ECH_TRY(load(s.config_path, true, &s.config));
    ECH_TRY(load(s.map_path, false, &s.map));
    ECH_TRY(load(s.added_path, false, &s.added));
    ECH_TRY(take_decoder(&s));
    ECH_TRY(take_added(&s));
    ECH_TRY(take_names(&s));
    ECH_TRY(take_prefix(&s));
    ECH_TRY(ech_bpe_finish(bpe));
    ECH_TRY(find_ends(&s));
    take_around(s.config, bpe);
    return check_model(&s, folder);
}

ech_status ech_bpe_check_gpt2(const char *config_path)
{
    json_auto_t *root = NULL;
    if (!ech_file_exists(config_path)) return ECH_OK;
    ECH_TRY(ech_bpe_load_json(config_path, MOST_BYTES, true, NULL, &root));
    char name[64] = "GPT2";
    const char *class = json_string_value(json_object_get(root, "tokenizer_class"));
    if (class) snprintf(name, sizeof name, "%s", class);
    if (strncmp(name, "GPT2", 4) == 0) return ECH_OK;
    ECH_FAIL(
        ECH_EUNSUPPORTED,
        "%s: tokenizer_class is %s, and vocabulary and merges alone do not say how that splits "
        "text; save it as tokenizer.json",
        config_path, name);
}
