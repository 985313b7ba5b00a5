/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening the sources of a corpus, each with the split's documents.
 */
#include "data/corpus.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/divisor.h"
#include "base/memory.h"
#include "base/file.h"
#include "base/path.h"
#include "data/token_index.h"

/* ---- the texts of blends, as Megatron users write them ---- */

static bool is_number(const ech_path_word *w)
{
    int64_t weight;
    return !w->quoted && ech_text_to_weight(w->text, strlen(w->text), &weight);
}

/* Whether a token file has the word as its prefix. */
static bool has_file(const ech_path_word *w)
{
    ECH_FREED char *index = ech_token_path(w->text, ".idx");
    return ech_file_exists(index);
}

static ech_status add_weight(const char *key, const char *text, const char *number,
                             ech_corpus_words *words)
{
    int64_t weight;
    if (!ech_text_to_weight(number, strlen(number), &weight))
        ECH_FAIL(ECH_EUSAGE,
                 "%s \"%s\": %s should be a weight: either each path has one before it, as in "
                 "\"0.3 A 0.7 B\", or none has",
                 key, text, number);
    if (weight == 0)
        ECH_FAIL(ECH_EUSAGE,
                 "%s \"%s\": a weight of 0: remove that source; a path that is a number stands in "
                 "quotes: '%s'",
                 key, text, number);
    ECH_PUSH(words->weight, weight);
    return ECH_OK;
}

typedef ECH_LIST(ech_path_word) word_list;

static void free_words(word_list *list)
{
    for (size_t i = 0; i < list->n; i++) ech_path_word_free(&list->at[i]);
    free(list->at);
}

/* Whether every other word, from the first on, is a weight. Numbers could be the names of token
 * files as well: if a file has such a name, the text means the files where it cannot mean weights,
 * and is an error where it can. */
static ech_status find_weights(const char *key, const char *text, const word_list *list,
                               bool *weighted)
{
    const ech_path_word *named = NULL;
    bool can = list->n % 2 == 0;
    *weighted = list->n > 0 && is_number(&list->at[0]);
    for (size_t i = 0; i < list->n; i += 2) {
        can = can && is_number(&list->at[i]);
        if (!named && is_number(&list->at[i]) && has_file(&list->at[i])) named = &list->at[i];
    }
    if (*weighted && can && named)
        ECH_FAIL(ECH_EUSAGE,
                 "%s \"%s\": %s is a number, and there is a token file %s.idx: if that is meant, "
                 "write it in quotes, '%s'; if a weight is, write %s%s",
                 key, text, named->text, named->text, named->text, named->text,
                 strchr(named->text, '.') ? "0" : ".0");
    if (!can && named) *weighted = false;
    return ECH_OK;
}

ech_status ech_corpus_read_words(const char *key, const char *text, ech_corpus_words *out)
{
    ECH_CLEANUP(ech_corpus_words_free) ech_corpus_words words = {0};
    ECH_CLEANUP(free_words) word_list list = {0};
    bool weighted;
    for (const char *at = text;;) {
        ech_path_word w = ech_path_next_word(&at);
        if (!w.text) break;
        ECH_PUSH(list, w);
        if (w.open) ECH_FAIL(ECH_EUSAGE, "%s \"%s\": a quote is not closed", key, text);
    }
    ECH_TRY(find_weights(key, text, &list, &weighted));
    for (size_t i = 0; i < list.n; i++) {
        if (weighted && i % 2 == 0)
            ECH_TRY(add_weight(key, text, list.at[i].text, &words));
        else
            ECH_PUSH(words.path, ech_strdup(list.at[i].text));
    }
    if (words.path.n < words.weight.n)
        ECH_FAIL(ECH_EUSAGE,
                 "%s \"%s\": no path after the last weight (a path that is a number stands in "
                 "quotes: '%s')",
                 key, text, list.at[list.n - 1].text);
    if (words.path.n == 0)
        ECH_FAIL(ECH_EUSAGE, "%s: names no token file; give the prefix of one, without .bin", key);
    if (words.path.n > ECH_BLEND_MOST)
        ECH_FAIL(ECH_EUSAGE, "%s: %zu sources; a blend has at most %d; join some of the files", key,
                 words.path.n, (int)ECH_BLEND_MOST);
    *out = words;
    words = (ech_corpus_words){0};
    return ECH_OK;
}

void ech_corpus_words_free(ech_corpus_words *words)
{
    for (size_t i = 0; i < words->path.n; i++) free(words->path.at[i]);
    free(words->path.at);
    free(words->weight.at);
    *words = (ech_corpus_words){0};
}

/* ---- the table of a blend's period ---- */

static void find_counts(const int64_t *weights, int64_t longest, ech_blend *blend)
{
    int64_t sum = 0, divisor = 0;
    for (int k = 0; k < blend->sources; k++) {
        sum += weights[k];
        divisor = ech_common_divisor(weights[k], divisor);
    }
    bool exact = sum / divisor <= longest;
    for (int k = 0; k < blend->sources; k++) {
        double part = (double)weights[k] / (double)sum * (double)longest;
        blend->count[k] = exact ? weights[k] / divisor : part < 1 ? 1 : llround(part);
        blend->period += blend->count[k];
    }
}

/* The source of the next sample after t samples, had[k] of them from source k. With
 * e = 1 / (2 K - 2), a source is due if it lacks at least e of its share of t + 1 samples. The due
 * source that would be the first to lack 1 - e, at sample (had + 1 - e) / share, is chosen. Then no
 * source is ever more than 1 - e from its share (Tijdeman). */
static int choose(const ech_blend *blend, const int64_t *had, int64_t t)
{
    int64_t whole = blend->sources > 1 ? 2 * blend->sources - 2 : 1; /* 1 / e */
    int best = -1;
    for (int k = 0; k < blend->sources; k++) {
        int64_t lacks = blend->count[k] * (t + 1) - had[k] * blend->period;
        if (lacks * whole < blend->period) continue;
        if (best < 0 || ((had[k] + 1) * whole - 1) * blend->count[best] <
                            ((had[best] + 1) * whole - 1) * blend->count[k])
            best = k;
    }
    ECH_ASSERT(best >= 0);
    return best;
}

void ech_blend_create(const int64_t *weights, int sources, int64_t longest, ech_blend *out)
{
    ECH_ASSERT(sources > 0 && sources <= ECH_BLEND_MOST);
    ECH_ASSERT(longest > 0 && longest <= ECH_BLEND_PERIOD);
    ech_blend blend = {.sources = sources};
    blend.count = ech_calloc((size_t)sources, sizeof *blend.count);
    find_counts(weights, longest, &blend);
    blend.source = ech_calloc((size_t)blend.period, sizeof *blend.source);
    blend.before = ech_calloc((size_t)blend.period, sizeof *blend.before);
    ECH_FREED int64_t *had = ech_calloc((size_t)sources, sizeof *had);
    for (int64_t t = 0; t < blend.period; t++) {
        int k = choose(&blend, had, t);
        blend.source[t] = (uint16_t)k;
        blend.before[t] = (uint32_t)had[k]++;
    }
    *out = blend;
}

void ech_blend_free(ech_blend *blend)
{
    free(blend->count);
    free(blend->source);
    free(blend->before);
    *blend = (ech_blend){0};
}

int64_t ech_blend_position(const ech_blend *blend, int k, int64_t j)
{
    int64_t position, r = 0;
    while (blend->source[r] != k || blend->before[r] != j % blend->count[k]) r++;
    if (__builtin_mul_overflow(j / blend->count[k], blend->period, &position) ||
        __builtin_add_overflow(position, r, &position))
        return INT64_MAX;
    return position;
}

ech_status ech_source_split(const ech_corpus_options *options, const char *path, const char *what,
                            int64_t all, int64_t *first, int64_t *end)
{
    static const char *const names[] = {"training", "validation", "test"};
    int64_t bound[4];
    if (!ech_text_to_bounds(options->split, bound))
        ECH_FAIL(ECH_EUSAGE,
                 "the split \"%s\": must be up to three proportions, not all 0, for training, "
                 "validation "
                 "and test, such as 969,30,1",
                 options->split);
    int64_t from = bound[options->part], to = bound[options->part + 1];
    double scale = (double)all / (double)bound[3];
    *first = (int64_t)nearbyint((double)from * scale);
    *end = to == bound[3] ? all : (int64_t)nearbyint((double)to * scale);
    if (*first >= *end)
        ECH_FAIL(ECH_EUSAGE,
                 "the split \"%s\" leaves none of the %lld %s of %s for %s; give it a larger "
                 "proportion%s",
                 options->split, (long long)all, what, path, names[options->part],
                 options->part == ECH_SPLIT_VALID ? ", or 0 for no validation" : "");
    return ECH_OK;
}

ech_status ech_corpus_open(const ech_corpus_options *options, ech_corpus **out)
{
    ECH_ASSERT(!options->whole_documents || options->document_mask);
    ECH_CLEANUP(ech_corpus_words_free) ech_corpus_words words = {0};
    ECH_CLEANUP(ech_corpus_close_at) ech_corpus *corpus = ech_calloc(1, sizeof *corpus);
    corpus->sequence_length = options->sequence_length;
    corpus->document_mask = options->document_mask;
    corpus->whole = options->whole_documents;
    corpus->kind = ech_data_kind_of(options->samples);
    ECH_TRY(ech_corpus_read_words(options->key, options->sources, &words));
    ECH_FREED int64_t *weights = ech_calloc(words.path.n, sizeof *weights);
    int64_t sum = 0;
    for (size_t i = 0; i < words.path.n; i++) {
        ECH_PUSH(corpus->source, (ech_source){0});
        ECH_TRY(corpus->kind->open(options, words.path.at[i], &corpus->source.at[i]));
        weights[i] = words.weight.n ? words.weight.at[i] : corpus->source.at[i].samples;
        if (__builtin_add_overflow(sum, weights[i], &sum))
            ECH_FAIL(ECH_EUSAGE,
                     "%s: the weights add up to more than 2^63 units; make them smaller",
                     options->key);
    }
    ech_blend_create(weights, (int)words.path.n, ECH_BLEND_PERIOD, &corpus->blend);
    *out = corpus;
    corpus = NULL;
    return ECH_OK;
}

void ech_corpus_close(ech_corpus *corpus)
{
    if (!corpus) return;
    for (size_t i = 0; i < corpus->source.n; i++) {
        ech_token_file_close(corpus->source.at[i].file);
        ech_documents_free(&corpus->source.at[i].documents);
        if (corpus->kind->close) corpus->kind->close(&corpus->source.at[i]);
    }
    free(corpus->source.at);
    ech_blend_free(&corpus->blend);
    free(corpus);
}

const char *ech_corpus_undivided(const ech_corpus *corpus)
{
    for (size_t k = 0; k < corpus->source.n; k++) {
        const ech_token_file *file = corpus->source.at[k].file;
        if (file && file->runs.documents && ech_token_runs_documents(&file->runs) <= 1)
            return file->part.at[0].path;
    }
    return NULL;
}

int64_t ech_corpus_samples(const ech_corpus *corpus)
{
    int64_t least = INT64_MAX;
    for (int k = 0; k < corpus->blend.sources; k++) {
        int64_t second = ech_blend_position(&corpus->blend, k, corpus->source.at[k].samples);
        if (second < least) least = second;
    }
    return least;
}

void ech_corpus_count(const ech_corpus *corpus, int64_t samples, ech_corpus_counts *out)
{
    const ech_blend *blend = &corpus->blend;
    double T = (double)corpus->sequence_length;
    *out = (ech_corpus_counts){.samples = samples, .least_epochs = (double)INFINITY};
    for (int k = 0; k < blend->sources; k++) {
        const ech_source *source = &corpus->source.at[k];
        double part = (double)blend->count[k] / (double)blend->period;
        double epochs = (double)samples * part / (double)source->samples;
        ech_source_counts epoch = {.units = source->samples, .targets = source->samples};
        if (corpus->kind->measure) corpus->kind->measure(source, &epoch);
        out->epoch_samples += source->samples;
        out->tokens += epochs * (double)epoch.units;
        out->targets += epochs * (double)epoch.targets;
        out->padding += epochs * ((double)source->samples * T - (double)epoch.units);
        out->least_epochs = fmin(out->least_epochs, epochs);
        out->most_epochs = fmax(out->most_epochs, epochs);
        out->documents += epoch.documents;
        out->longer += epoch.longer;
        out->left_out += epoch.left_out;
    }
}
