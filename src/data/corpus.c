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
#include "data/token_index.h"
#include "data/token_origin.h"

/* ---- the texts of blends, as Megatron users write them ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n';
}

/* A word of the text: a path or a weight. */
typedef struct word {
    char *text; /* owned; NULL: there is none */
    bool quoted;
    bool open; /* its quote does not end */
} word;

static void free_word(word *w)
{
    free(w->text);
}

/* The next word; *at moves past it. One in quotes is a path, and ends at the next such quote. A
 * backslash before a blank, a quote or a backslash makes it part of the word. */
static word next_word(const char **at)
{
    while (is_blank(**at)) ++*at;
    if (**at == '\0') return (word){0};
    char quote = **at == '\'' || **at == '"' ? *(*at)++ : '\0';
    word w = {.text = ech_calloc(strlen(*at) + 1, 1), .quoted = quote != '\0'};
    for (size_t n = 0; **at != '\0' && (quote ? **at != quote : !is_blank(**at)); ++*at) {
        if (**at == '\\' && (*at)[1] && strchr(" \t\n\\'\"", (*at)[1])) ++*at;
        w.text[n++] = **at;
    }
    w.open = quote && **at != quote;
    *at += quote && **at == quote;
    return w;
}

static bool is_number(const word *w)
{
    int64_t weight;
    return !w->quoted && ech_text_to_weight(w->text, strlen(w->text), &weight);
}

/* Whether a token file has the word as its prefix. */
static bool has_file(const word *w)
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

typedef ECH_LIST(word) word_list;

static void free_words(word_list *list)
{
    for (size_t i = 0; i < list->n; i++) free_word(&list->at[i]);
    free(list->at);
}

/* Whether every other word, from the first on, is a weight. Numbers could be the names of token
 * files as well: if a file has such a name, the text means the files where it cannot mean weights,
 * and is an error where it can. */
static ech_status find_weights(const char *key, const char *text, const word_list *list,
                               bool *weighted)
{
    const word *named = NULL;
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
        word w = next_word(&at);
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

/* Restricts a source to the documents of its part of the split. */
static ech_status split_source(const ech_corpus_options *options, const char *path,
                               ech_token_file *file)
{
    static const char *const names[] = {"training", "validation", "test"};
    int64_t bound[4], all = ech_token_runs_documents(&file->runs);
    if (!ech_text_to_bounds(options->split, bound))
        ECH_FAIL(ECH_EUSAGE,
                 "the split \"%s\": must be up to three proportions, not all 0, for training, "
                 "validation "
                 "and test, such as 969,30,1",
                 options->split);
    int64_t from = bound[options->part], to = bound[options->part + 1];
    double scale = (double)all / (double)bound[3];
    int64_t first = (int64_t)nearbyint((double)from * scale);
    int64_t end = to == bound[3] ? all : (int64_t)nearbyint((double)to * scale);
    if (first >= end)
        ECH_FAIL(ECH_EUSAGE,
                 "the split \"%s\" leaves none of the %lld documents of %s for %s; give it a "
                 "larger proportion%s",
                 options->split, (long long)all, path, names[options->part],
                 options->part == ECH_SPLIT_VALID ? ", or 0 for no validation" : "");
    ech_token_file_select(file, first, end, options->document_mask || options->valued);
    return ECH_OK;
}

/* Checks a file whose documents are samples: each has features, which are a prompt, and then a
 * label. *samples: how many. */
static ech_status count_examples(const ech_corpus_options *options, const char *path,
                                 const ech_token_file *file, int64_t *samples)
{
    int64_t longest = 0, which = 0, n = (int64_t)file->runs.run.n;
    for (int64_t i = 0; i < n; i += 2) {
        const ech_token_run *run = &file->runs.run.at[i];
        bool whole = i + 1 < n && run[0].opens && run[0].silent && !run[1].opens && !run[1].silent;
        int64_t label = whole ? run[1].first : 0;
        if (!whole || ech_token_run_end(&file->runs, (size_t)i + 1) != label + 1)
            ECH_FAIL(ECH_EINPUT,
                     "%s: document %lld of %s is no sample of features and one label: damaged; "
                     "make it again with `echelon data`",
                     options->key, (long long)i / 2, path);
        if (label - run->first <= longest) continue;
        longest = label - run->first;
        which = i / 2;
    }
    if (longest > options->sequence_length)
        ECH_FAIL(ECH_EUSAGE,
                 "data.sequence_length = %lld: sample %lld of %s has %lld features, the most of "
                 "all; use %lld",
                 (long long)options->sequence_length, (long long)which, path, (long long)longest,
                 (long long)longest);
    *samples = n / 2;
    return ECH_OK;
}

/* Values that nobody reads are of another kind of model. */
static ech_status check_values(const ech_corpus_options *options, const char *path)
{
    ECH_FREED char *values = ech_token_path(path, ECH_TOKEN_VALUES);
    if (options->valued || !ech_file_exists(values)) return ECH_OK;
    ECH_FAIL(ECH_EUSAGE,
             "%s: %s has features with values, which a model of texts cannot read; use "
             "model.architecture = logistic, or name a file of tokens",
             options->key, path);
}

/* Targets of weight 1 in one epoch of a source of texts. */
static int64_t count_targets(const ech_corpus *corpus, const ech_source *source)
{
    const ech_token_runs *runs = &source->file->runs;
    if (corpus->whole) return source->documents.targets;
    return ech_token_runs_targets(runs, 1, runs->tokens, corpus->document_mask);
}

static ech_status check_targets(const ech_corpus_options *options, const char *path,
                                const ech_corpus *corpus, const ech_source *source)
{
    const ech_token_runs *runs = &source->file->runs;
    if (options->valued || count_targets(corpus, source) > 0) return ECH_OK;
    int64_t all = ech_token_runs_targets(runs, 1, runs->tokens, corpus->document_mask);
    if (all > 0) /* of whole documents that are truncated or dropped */
        ECH_FAIL(ECH_EINPUT,
                 "%s: %s has no target in samples of data.sequence_length = %lld tokens: with "
                 "data.packing = documents its %lld targets are left out with the ends of longer "
                 "documents; use longer samples, or data.packing = stream",
                 options->key, path, (long long)options->sequence_length, (long long)all);
    ECH_FAIL(ECH_EINPUT,
             "%s: %s has %lld tokens and no target: %s; name a file with texts to train on",
             options->key, path, (long long)runs->tokens,
             runs->silent ? "all of them are of prompts (mode 1 in the index), or begin a text"
                          : "with data.document_mask a document's first token is none, and "
                            "all documents have one token");
}

/* Makes samples of whole documents. */
static ech_status pack_documents(const ech_corpus_options *options, const char *path,
                                 ech_source *source)
{
    ech_documents *documents = &source->documents;
    ech_documents_pack(&source->file->runs, options->sequence_length, options->drop_longer,
                       documents);
    source->samples = ech_documents_samples(documents);
    if (source->samples > 0) return ECH_OK;
    ECH_FAIL(ECH_EINPUT,
             "%s: all %lld documents of %s have more than data.sequence_length = %lld tokens and "
             "are dropped; use a longer one, or data.long_documents = truncate",
             options->key, (long long)documents->longer, path, (long long)options->sequence_length);
}

static ech_status add_source(const ech_corpus_options *options, const char *path,
                             ech_corpus *corpus)
{
    bool split = options->split[0] != '\0';
    ech_token_options how = {.documents = options->document_mask || options->valued || split,
                             .end_of_text = options->end_of_text,
                             .valued = options->valued};
    ech_token_file *file;
    ECH_TRY(check_values(options, path));
    ECH_TRY(ech_token_file_open(path, &how, &file));
    ECH_PUSH(corpus->source, (ech_source){.file = file});
    ECH_TRY(ech_token_origin_check(options, path, file->runs.tokens));
    if (split) ECH_TRY(split_source(options, path, file));
    int64_t tokens = file->runs.tokens;
    ech_source *source = &corpus->source.at[corpus->source.n - 1];
    source->samples = ech_data_samples(tokens, options->sequence_length);
    if (options->valued) ECH_TRY(count_examples(options, path, file, &source->samples));
    if (source->samples == 0)
        ECH_FAIL(ECH_EINPUT, "%s: %s has %lld tokens%s; a sample needs at least two; use more text",
                 options->key, path, (long long)tokens, split ? " in this part of the split" : "");
    if (options->whole_documents) ECH_TRY(pack_documents(options, path, source));
    return check_targets(options, path, corpus, source);
}

ech_status ech_corpus_open(const ech_corpus_options *options, ech_corpus **out)
{
    ECH_ASSERT(!options->whole_documents || (options->document_mask && !options->valued));
    ECH_CLEANUP(ech_corpus_words_free) ech_corpus_words words = {0};
    ECH_CLEANUP(ech_corpus_close_at) ech_corpus *corpus = ech_calloc(1, sizeof *corpus);
    corpus->sequence_length = options->sequence_length;
    corpus->document_mask = options->document_mask;
    corpus->whole = options->whole_documents;
    corpus->valued = options->valued;
    ECH_TRY(ech_corpus_read_words(options->key, options->sources, &words));
    ECH_FREED int64_t *weights = ech_calloc(words.path.n, sizeof *weights);
    int64_t sum = 0;
    for (size_t i = 0; i < words.path.n; i++) {
        ECH_TRY(add_source(options, words.path.at[i], corpus));
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
    }
    free(corpus->source.at);
    ech_blend_free(&corpus->blend);
    free(corpus);
}

int64_t ech_corpus_tokens(const ech_corpus *corpus)
{
    int64_t sum = 0;
    for (size_t i = 0; i < corpus->source.n; i++)
        if (__builtin_add_overflow(sum, corpus->source.at[i].file->runs.tokens, &sum))
            return INT64_MAX;
    return sum;
}

const char *ech_corpus_undivided(const ech_corpus *corpus)
{
    for (size_t k = 0; k < corpus->source.n; k++) {
        const ech_token_file *file = corpus->source.at[k].file;
        if (file->runs.documents && ech_token_runs_documents(&file->runs) <= 1)
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
        const ech_token_runs *runs = &source->file->runs;
        double part = (double)blend->count[k] / (double)blend->period;
        double epochs = (double)samples * part / (double)source->samples;
        double tokens = (double)(corpus->whole ? source->documents.tokens : runs->tokens - 1);
        double targets = (double)count_targets(corpus, source);
        if (corpus->valued) targets = (double)source->samples;
        if (corpus->valued) tokens = (double)runs->tokens - targets;
        out->epoch_samples += source->samples;
        out->tokens += epochs * tokens;
        out->targets += epochs * targets;
        out->padding += epochs * ((double)source->samples * T - tokens);
        out->least_epochs = fmin(out->least_epochs, epochs);
        out->most_epochs = fmax(out->most_epochs, epochs);
        out->documents += runs->documents ? ech_token_runs_documents(runs) : 0;
        out->longer += source->documents.longer;
        if (corpus->whole) out->left_out += runs->tokens - source->documents.tokens;
    }
}
