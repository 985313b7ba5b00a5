/* SPDX-License-Identifier: Apache-2.0
 *
 * A line in LIBSVM's format (Chang and Lin 2011), word by word.
 */
#include "data/libsvm.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_WORD = 128 };

/* Where a line's words come from. */
typedef struct words {
    const char *path;
    int64_t line;
    const char *at, *end;
    char word[LONGEST_WORD]; /* the last one */
} words;

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* *found: there is another word. It has no NUL inside. */
static ech_status next_word(words *w, bool *found)
{
    while (w->at < w->end && is_blank(*w->at)) w->at++;
    size_t n = 0, left = (size_t)(w->end - w->at);
    while (n < left && !is_blank(w->at[n])) n++;
    size_t shown = n < LONGEST_WORD ? n : LONGEST_WORD - 1;
    memcpy(w->word, w->at, shown);
    w->word[shown] = '\0';
    if (n >= LONGEST_WORD || strlen(w->word) < n)
        ECH_FAIL(ECH_EINPUT,
                 "%s:%lld: %.40s...: neither a label nor INDEX:VALUE; if it is a text, rename it "
                 "and leave out --libsvm",
                 w->path, (long long)w->line, w->word);
    w->at += n;
    *found = n > 0;
    return ECH_OK;
}

/* A number, before which a + may stand. */
static bool to_number(const char *text, double *out)
{
    if (*text == '+' && text[1] != '-') text++;
    return ech_text_to_real(text, out);
}

static ech_status read_label(words *w, ech_libsvm *sample)
{
    double label;
    bool is_number = to_number(w->word, &label);
    if (!is_number || (label != 1 && label != 0 && label != -1))
        ECH_FAIL(ECH_EINPUT,
                 "%s:%lld: the label is %.40s; each line must begin with 1 or -1, or with 1 or 0",
                 w->path, (long long)w->line, w->word);
    sample->label = label == 1;
    sample->minus = sample->minus || label == -1;
    sample->zero = sample->zero || label == 0;
    if (sample->minus && sample->zero)
        ECH_FAIL(ECH_EINPUT,
                 "%s:%lld: the label %.40s: other labels are %s, but 1, 0 and -1 would be three "
                 "classes; use two",
                 w->path, (long long)w->line, w->word, label == 0 ? "-1" : "0");
    return ECH_OK;
}

static ech_status read_index(const words *w, const char *text, int64_t features, int64_t before,
                             int64_t *index)
{
    if (!ech_text_to_int(text, index))
        ECH_FAIL(ECH_EINPUT,
                 "%s:%lld: %.40s is no index of a feature: pairs are INDEX:VALUE with whole "
                 "numbers from 1",
                 w->path, (long long)w->line, text);
    if (*index < 1)
        ECH_FAIL(ECH_EINPUT, "%s:%lld: index %lld: the first is 1; count features from 1", w->path,
                 (long long)w->line, (long long)*index);
    if (*index > features)
        ECH_FAIL(ECH_EINPUT, "%s:%lld: index %lld exceeds the %lld features%s", w->path,
                 (long long)w->line, (long long)*index, (long long)features,
                 features < INT32_MAX ? "; --features sets their number" : " at most");
    if (*index <= before)
        ECH_FAIL(ECH_EINPUT,
                 "%s:%lld: index %lld after %lld: indices must ascend; sort the pairs of this line",
                 w->path, (long long)w->line, (long long)*index, (long long)before);
    return ECH_OK;
}

static ech_status read_pair(words *w, int64_t features, ech_libsvm *sample)
{
    char *colon = strchr(w->word, ':');
    size_t n = sample->ids.n;
    int64_t index;
    double value;
    if (strncmp(w->word, "qid:", 4) == 0)
        ECH_FAIL(ECH_EINPUT,
                 "%s:%lld: %.40s is for rankings, which Echelon does not train; remove "
                 "it",
                 w->path, (long long)w->line, w->word);
    if (!colon)
        ECH_FAIL(ECH_EINPUT, "%s:%lld: %.40s is no INDEX:VALUE; write it like 3:0.5", w->path,
                 (long long)w->line, w->word);
    *colon = '\0';
    ECH_TRY(read_index(w, w->word, features, n ? sample->ids.at[n - 1] + (int64_t)1 : 0, &index));
    if (!to_number(colon + 1, &value) || !isfinite((float)value))
        ECH_FAIL(ECH_EINPUT,
                 "%s:%lld: the value %.40s of index %lld is no number within the range of fp32",
                 w->path, (long long)w->line, colon + 1, (long long)index);
    ECH_PUSH(sample->ids, (int32_t)(index - 1));
    ECH_PUSH(sample->values, (float)value);
    return ECH_OK;
}

ech_status ech_libsvm_parse(const char *path, int64_t number, const char *line, size_t n,
                            int64_t features, ech_libsvm *sample, bool *found)
{
    const char *comment = memchr(line, '#', n);
    words w = {.path = path, .line = number, .at = line, .end = comment ? comment : line + n};
    bool more;
    sample->ids.n = sample->values.n = 0;
    ECH_TRY(next_word(&w, found));
    if (!*found) return ECH_OK;
    ECH_TRY(read_label(&w, sample));
    ECH_TRY(next_word(&w, &more));
    while (more) {
        ECH_TRY(read_pair(&w, features, sample));
        ECH_TRY(next_word(&w, &more));
    }
    if (sample->ids.n > 0) return ECH_OK;
    ECH_PUSH(sample->ids, 0); /* which adds nothing */
    ECH_PUSH(sample->values, 0.0f);
    return ECH_OK;
}

void ech_libsvm_free(ech_libsvm *sample)
{
    free(sample->ids.at);
    free(sample->values.at);
    *sample = (ech_libsvm){0};
}
