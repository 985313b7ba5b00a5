/* SPDX-License-Identifier: Apache-2.0
 *
 * Items of multiple choice, as the common data sets have them.
 */
#include "program/choices.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"

enum { LARGEST = 1 << 30 };

/* The line that is read. `where`: "FILE:12". */
typedef struct reader {
    const char *where;
    const json_t *object;
    ech_choices *out;
    ech_choice_item item;
    const char *label[ECH_CHOICES_MOST]; /* of its choices, borrowed; NULL: none */
} reader;

static char *printed(ech_text *text)
{
    char *at = text->at;
    *text = (ech_text){0};
    return at;
}

/* The value of the first key that the object has; *key: its name. */
static const json_t *find(const json_t *object, const char *const *keys, const char **key)
{
    for (; *keys; keys++) {
        const json_t *value = json_object_get(object, *keys);
        if (!value || json_is_null(value)) continue;
        *key = *keys;
        return value;
    }
    return NULL;
}

/* ---- the prompt ---- */

static ech_status read_prompt(reader *r)
{
    static const char *const plain[] = {"context", "ctx", "query", NULL};
    static const char *const asked[] = {"question", "goal", NULL};
    const char *key = "";
    ech_text text = {0};
    const json_t *context = find(r->object, plain, &key), *question;
    if (context && !json_is_string(context))
        ECH_FAIL(ECH_EINPUT, "%s: \"%s\" is no text; write it in quotes", r->where, key);
    question = find(r->object, asked, &key);
    if (json_is_object(question)) question = json_object_get(question, "stem");
    if (question && !json_is_string(question))
        ECH_FAIL(ECH_EINPUT, "%s: \"%s\" is no text; write it in quotes", r->where, key);
    if (!context && !question)
        ECH_FAIL(ECH_EINPUT,
                 "%s: no prompt; it is \"context\", \"ctx\" or \"query\", or \"question\" or "
                 "\"goal\"",
                 r->where);
    ech_text_append(&text, "%s", context ? json_string_value(context) : "");
    if (question)
        ech_text_append(&text, "%sQuestion: %s\nAnswer:", text.n ? "\n" : "",
                        json_string_value(question));
    r->item.prompt = printed(&text);
    return ECH_OK;
}

/* ---- the choices ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n';
}

/* label: NULL: none. A blank divides the choice from the prompt, unless one of them has it. */
static ech_status add_choice(reader *r, const json_t *text, const json_t *label)
{
    const char *at = json_string_value(text), *prompt = r->item.prompt;
    int index = r->item.n;
    size_t n = strlen(prompt);
    ech_text appended = {0}, name = {0};
    if (!at || !at[0])
        ECH_FAIL(ECH_EINPUT, "%s: choice %d is no text, or an empty one; write it in quotes",
                 r->where, index);
    if (index == ECH_CHOICES_MOST)
        ECH_FAIL(ECH_EINPUT, "%s: more than %d choices; divide the item", r->where,
                 ECH_CHOICES_MOST);
    bool divided = n == 0 || is_blank(prompt[n - 1]) || is_blank(at[0]);
    ech_text_append(&appended, "%s%s", divided ? "" : " ", at);
    ech_text_append(&name, "%s: choice %d", r->where, index);
    ECH_PUSH(r->out->choice, (ech_choice){ech_strdup(at), printed(&appended), printed(&name)});
    r->label[index] = json_string_value(label);
    r->item.n++;
    return ECH_OK;
}

/* A list of texts, or of objects. */
static ech_status add_list(reader *r, const json_t *list, const json_t *labels)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i), *label = json_array_get(labels, i);
        if (json_is_object(one)) label = json_object_get(one, "label");
        ECH_TRY(add_choice(r, json_is_object(one) ? json_object_get(one, "text") : one, label));
    }
    return ECH_OK;
}

static ech_status read_choices(reader *r)
{
    static const char *const lists[] = {"choices", "endings", "options", NULL};
    const char *key = "";
    const json_t *question = json_object_get(r->object, "question");
    const json_t *from = json_is_object(question) ? question : r->object;
    const json_t *value = find(from, lists, &key), *labels = NULL;
    if (json_is_object(value)) {
        labels = json_object_get(value, "label");
        value = json_object_get(value, "text");
    }
    if (json_is_array(value)) {
        ECH_TRY(add_list(r, value, labels));
    } else if (!value && json_object_get(from, "sol1")) {
        ECH_TRY(add_choice(r, json_object_get(from, "sol1"), NULL));
        ECH_TRY(add_choice(r, json_object_get(from, "sol2"), NULL));
    } else {
        ECH_FAIL(ECH_EINPUT,
                 "%s: no choices; they are \"choices\", \"endings\" or \"options\", or \"sol1\" "
                 "and \"sol2\"",
                 r->where);
    }
    if (r->item.n < 2)
        ECH_FAIL(ECH_EINPUT, "%s: %s; an item needs two", r->where, ECH_COUNT(r->item.n, "choice"));
    return ECH_OK;
}

/* ---- the answer ---- */

/* -1: it is none of the choices. */
static int find_answer(const reader *r, const json_t *value)
{
    const char *text = json_string_value(value);
    int64_t index = -1;
    for (int i = 0; text && i < r->item.n; i++)
        if (r->label[i] && strcmp(r->label[i], text) == 0) return i;
    if (text && r->label[0]) return -1;
    if (text && text[0] >= 'A' && text[0] <= 'Z' && !text[1]) index = text[0] - 'A';
    if (text && index < 0 && !ech_text_to_int(text, &index)) return -1;
    if (!text && !ech_json_to_int(value, 0, ECH_CHOICES_MOST, &index)) return -1;
    return index >= 0 && index < r->item.n ? (int)index : -1;
}

static ech_status read_answer(reader *r)
{
    static const char *const keys[] = {"answer", "answerKey", "label", "gold", NULL};
    const char *key = "";
    const json_t *value = find(r->object, keys, &key);
    if (!value)
        ECH_FAIL(ECH_EINPUT,
                 "%s: no answer; it is \"answer\", \"answerKey\", \"label\" or \"gold\"", r->where);
    r->item.answer = find_answer(r, value);
    if (r->item.answer >= 0) return ECH_OK;
    ECH_FREED char *shown = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    ECH_FAIL(ECH_EINPUT,
             "%s: the answer \"%s\" is %.40s, none of the %d choices; it is a label of theirs, an "
             "index from 0 to %d, or a letter from A to %c",
             r->where, key, shown ? shown : "", r->item.n, r->item.n - 1,
             'A' + (r->item.n - 1) % ('Z' - 'A' + 1));
}

/* ---- the file ---- */

static ech_status read_item(reader *r)
{
    ECH_TRY(read_prompt(r));
    ECH_TRY(read_choices(r));
    return read_answer(r);
}

static ech_status read_line(const char *path, int64_t line, const char *text, size_t n,
                            ech_choices *out)
{
    static const ech_json_limits limits = {
        .depth = 16, .containers = 4096, .values = 1 << 16, .reals = false};
    ECH_FREED_TEXT where = {0};
    json_auto_t *object = NULL;
    ech_text_append(&where, "%s:%" PRId64, path, line);
    ECH_TRY(ech_json_parse(where.at, text, n, limits, &object));
    reader r = {.where = where.at,
                .object = object,
                .out = out,
                .item = {.line = line, .first = (int64_t)out->choice.n}};
    ech_status status = read_item(&r);
    if (r.item.prompt) ECH_PUSH(out->item, r.item); /* owns the prompt, also after errors */
    return status;
}

ech_status ech_choices_parse(const char *path, const char *text, size_t n, ech_choices *out)
{
    int64_t line = 1;
    for (size_t at = 0; at < n; line++) {
        const char *end = memchr(text + at, '\n', n - at);
        size_t bytes = end ? (size_t)(end - text) - at : n - at, blanks = 0;
        while (blanks < bytes && (is_blank(text[at + blanks]) || text[at + blanks] == '\r'))
            blanks++;
        if (blanks < bytes) ECH_TRY(read_line(path, line, text + at, bytes, out));
        at += bytes + 1;
    }
    if (out->item.n == 0)
        ECH_FAIL(ECH_EINPUT, "%s: has no items; it needs a JSON object a line", path);
    return ECH_OK;
}

ech_status ech_choices_read(const char *path, ech_choices *out)
{
    ECH_FREED char *text = NULL;
    size_t n;
    ECH_TRY(ech_file_read(path, LARGEST, &text, &n));
    return ech_choices_parse(path, text, n, out);
}

void ech_choices_free(ech_choices *choices)
{
    for (size_t i = 0; i < choices->item.n; i++) free(choices->item.at[i].prompt);
    for (size_t i = 0; i < choices->choice.n; i++) {
        free(choices->choice.at[i].text);
        free(choices->choice.at[i].appended);
        free(choices->choice.at[i].name);
    }
    free(choices->item.at);
    free(choices->choice.at);
    *choices = (ech_choices){0};
}

/* ---- scores ---- */

const char *ech_accuracy_name(ech_accuracy which)
{
    static const char *const names[ECH_ACCURACIES] = {"acc", "acc_norm", "acc_bytes"};
    return names[which];
}

/* What the log-likelihood of a choice is divided by. */
static double length_of(const char *text, ech_accuracy which)
{
    size_t bytes = strlen(text), characters = 0;
    if (which == ECH_ACC) return 1;
    for (size_t i = 0; i < bytes; i++) characters += ((unsigned char)text[i] & 0xc0) != 0x80;
    return (double)(which == ECH_ACC_NORM ? characters : bytes);
}

int ech_choices_pick(const ech_choices *choices, const ech_choice_item *item,
                     const double *log_likelihood, ech_accuracy which)
{
    int best = 0;
    double most = -(double)INFINITY;
    for (int i = 0; i < item->n; i++) {
        double length = length_of(choices->choice.at[item->first + i].text, which);
        double value = log_likelihood[item->first + i] / length;
        if (!(value > most)) continue;
        most = value;
        best = i;
    }
    return best;
}

double ech_choices_score(const ech_choices *choices, const double *log_likelihood,
                         ech_accuracy which, double *error)
{
    double n = (double)choices->item.n, right = 0;
    for (size_t i = 0; i < choices->item.n; i++) {
        const ech_choice_item *item = &choices->item.at[i];
        right += ech_choices_pick(choices, item, log_likelihood, which) == item->answer;
    }
    double mean = right / n;
    *error = n > 1 ? sqrt(mean * (1 - mean) / (n - 1)) : (double)NAN;
    return mean;
}
