/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples of texts: streams of tokens, divided into samples of T tokens or packed from whole
 * documents (the rules are in data.h).
 */
#include <string.h>

#include "base/file.h"
#include "data/samples.h"
#include "data/token_index.h"
#include "data/token_origin.h"

static bool is_whole(const ech_source *source)
{
    return source->documents.begin.n > 0;
}

/* ---- opening ---- */

/* Restricts a source to the documents of its part of the split. */
static ech_status split_source(const ech_corpus_options *options, const char *path, bool documents,
                               ech_token_file *file)
{
    int64_t first, end;
    ECH_TRY(ech_source_split(options, path, "documents", ech_token_runs_documents(&file->runs),
                             &first, &end));
    ech_token_file_select(file, first, end, documents);
    return ECH_OK;
}

/* Values that nobody reads are of another kind of samples. */
static ech_status check_values(const ech_corpus_options *options, const char *path)
{
    ECH_FREED char *values = ech_token_path(path, ECH_TOKEN_VALUES);
    if (!ech_file_exists(values)) return ECH_OK;
    ECH_FAIL(ECH_EUSAGE,
             "%s: %s has features with values, which a model of texts cannot read; use "
             "model.architecture = logistic, or name a file of tokens",
             options->key, path);
}

/* Targets of weight 1 in one epoch of a source of texts. */
static int64_t count_targets(const ech_source *source)
{
    const ech_token_runs *runs = &source->file->runs;
    if (is_whole(source)) return source->documents.targets;
    return ech_token_runs_targets(runs, 1, runs->tokens, source->document_mask);
}

static ech_status check_targets(const ech_corpus_options *options, const char *path,
                                const ech_source *source)
{
    const ech_token_runs *runs = &source->file->runs;
    if (count_targets(source) > 0) return ECH_OK;
    int64_t all = ech_token_runs_targets(runs, 1, runs->tokens, options->document_mask);
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

ech_status ech_source_open_tokens(const ech_corpus_options *options, const char *path, bool values,
                                  ech_source *source)
{
    bool split = options->split[0] != '\0', documents = options->document_mask || values;
    ech_token_options how = {
        .documents = documents || split, .end_of_text = options->end_of_text, .values = values};
    ECH_TRY(ech_token_file_open(path, &how, &source->file));
    ECH_TRY(ech_token_origin_check(options, path, source->file->runs.tokens));
    source->document_mask = options->document_mask;
    if (split) ECH_TRY(split_source(options, path, documents, source->file));
    return ECH_OK;
}

static ech_status open_texts(const ech_corpus_options *options, const char *path,
                             ech_source *source)
{
    ECH_TRY(check_values(options, path));
    ECH_TRY(ech_source_open_tokens(options, path, false, source));
    int64_t tokens = source->file->runs.tokens;
    source->samples = ech_data_samples(tokens, options->sequence_length);
    if (source->samples == 0)
        ECH_FAIL(ECH_EINPUT, "%s: %s has %lld tokens%s; a sample needs at least two; use more text",
                 options->key, path, (long long)tokens,
                 options->split[0] ? " in this part of the split" : "");
    if (options->whole_documents) ECH_TRY(pack_documents(options, path, source));
    return check_targets(options, path, source);
}

static void measure(const ech_source *source, ech_source_counts *out)
{
    const ech_token_runs *runs = &source->file->runs;
    bool whole = is_whole(source);
    *out = (ech_source_counts){.units = whole ? source->documents.tokens : runs->tokens - 1,
                               .targets = count_targets(source),
                               .documents = runs->documents ? ech_token_runs_documents(runs) : 0,
                               .longer = source->documents.longer,
                               .left_out = whole ? runs->tokens - source->documents.tokens : 0};
}

/* ---- reading ---- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The documents of sample s; *n: how many. */
static const ech_document *documents_of(const ech_source *source, int64_t s, int64_t *n)
{
    const int64_t *begin = &source->documents.begin.at[s];
    *n = begin[1] - begin[0];
    return &source->documents.document.at[begin[0]];
}

/* The index in the stream of the first token of sample s, and its pairs. */
static int64_t first_of(const ech_source *source, int64_t T, int64_t s, int64_t *pairs)
{
    int64_t shift = s * source->apart;
    *pairs = ech_sample_pairs(source->file->runs.tokens - shift, T, s);
    return s * T + shift;
}

static int64_t count_pairs(const ech_source *source, const ech_loader_options *options, int64_t s)
{
    const ech_token_runs *runs = &source->file->runs;
    int64_t T = options->sequence_length, documents, pairs, count = 0;
    if (!is_whole(source)) {
        int64_t first = first_of(source, T, s, &pairs) + 1;
        return ech_token_runs_targets(runs, first, first + pairs, options->document_mask);
    }
    const ech_document *document = documents_of(source, s, &documents);
    for (int64_t i = 0; i < documents; i++)
        count += ech_token_runs_targets(runs, document[i].first + 1,
                                        document[i].first + document[i].n, options->document_mask);
    return count;
}

/* Part of a row: places `at` .. at + places - 1 of the sample are tokens of the stream from `first`
 * on, `pairs` of them with a target. */
typedef struct stretch {
    int64_t at, places, first, pairs;
} stretch;

/* Weight 0 for targets that are not trained on, and with document_mask for the first token of each
 * document; there, starts. */
static void mark_runs(const ech_token_runs *runs, const ech_loader_options *options,
                      const stretch *part, int32_t *starts, float *weights)
{
    int64_t start = part->at;
    if (!options->document_mask && !runs->silent) return;
    for (size_t i = ech_token_runs_find(runs, part->first); i < runs->run.n; i++) {
        ech_token_run run = runs->run.at[i];
        int64_t from = run.first - part->first, end = ech_token_run_end(runs, i) - part->first;
        if (from > part->pairs) break;
        if (run.silent)
            for (int64_t t = most(from, 1); t < end && t <= part->pairs; t++) weights[t - 1] = 0;
        if (!options->document_mask) continue;
        bool opens = from > 0 && run.opens;
        if (opens) weights[from - 1] = 0;
        if (opens) start = part->at + from;
        for (int64_t t = most(from, 0); t < end && t < part->places; t++)
            starts[t] = (int32_t)start;
    }
    /* The padding of a stream's last sample belongs to its last document. */
    for (int64_t t = part->pairs + 1; options->document_mask && t < part->places; t++)
        starts[t] = (int32_t)start;
}

/* Fills a part of a row, which is padding so far. */
static ech_status read_stretch(const ech_token_file *file, const ech_loader_options *options,
                               const stretch *part, int32_t *ids, const ech_batch *batch,
                               int64_t row)
{
    int64_t at = row * options->sequence_length + part->at, n = part->pairs + 1;
    ECH_TRY(ech_token_file_read(file, part->first, n, options->vocabulary, ids));
    memcpy(batch->tokens + at, ids, (size_t)least(n, part->places) * sizeof *ids);
    memcpy(batch->targets + at, ids + 1, (size_t)part->pairs * sizeof *ids);
    for (int64_t t = 0; t < part->pairs; t++) batch->weights[at + t] = 1;
    mark_runs(&file->runs, options, part, batch->starts ? batch->starts + at : NULL,
              batch->weights + at);
    return ECH_OK;
}

/* Places that no document takes are a document of their own, which no other token sees. */
static ech_status read_whole(const ech_source *source, const ech_loader_options *options, int64_t s,
                             int32_t *ids, const ech_batch *batch, int64_t row)
{
    int64_t T = options->sequence_length, documents, used = 0;
    const ech_document *document = documents_of(source, s, &documents);
    for (int64_t i = 0; i < documents; i++) {
        stretch part = {used, document[i].n, document[i].first, document[i].n - 1};
        ECH_TRY(read_stretch(source->file, options, &part, ids, batch, row));
        used += document[i].n;
    }
    batch->lengths[row] = (int32_t)used;
    for (int64_t t = used; t < T; t++) batch->starts[row * T + t] = (int32_t)used;
    return ECH_OK;
}

static ech_status read_texts(const ech_source *source, const ech_loader_options *options,
                             int64_t position, int64_t s, void *scratch, const ech_batch *batch,
                             int64_t row)
{
    int64_t T = options->sequence_length, pairs, first = first_of(source, T, s, &pairs);
    (void)position;
    if (is_whole(source)) return read_whole(source, options, s, scratch, batch, row);
    batch->lengths[row] = (int32_t)least(pairs + 1, T);
    return read_stretch(source->file, options, &(stretch){0, T, first, pairs}, scratch, batch, row);
}

static size_t scratch_bytes(const ech_loader_options *options)
{
    return ((size_t)options->sequence_length + 1) * sizeof(int32_t);
}

/* ---- identity ---- */

enum { BLOCKS = 64, BLOCK = 256 };

/* Appends the tokens of BLOCKS stretches, from the first to the last of the stream. */
static ech_status sample_tokens(const ech_token_file *file, ech_text *out)
{
    int64_t tokens = file->runs.tokens, n = tokens < BLOCK ? tokens : BLOCK;
    int32_t ids[BLOCK];
    for (int b = 0; b < BLOCKS; b++) {
        int64_t first = (int64_t)((double)(tokens - n) * b / (BLOCKS - 1));
        ECH_TRY(ech_token_file_read(file, first, n, INT32_MAX, ids));
        ech_text_append_bytes(out, (const char *)ids, (size_t)n * sizeof *ids);
    }
    return ECH_OK;
}

/* The hash of the runs, and the tokens of BLOCKS stretches. */
ech_status ech_source_identify_tokens(const ech_source *source, int64_t *units, ech_text *out)
{
    const ech_token_runs *runs = &source->file->runs;
    const ech_text all = {.at = (char *)runs->run.at, .n = runs->run.n * sizeof *runs->run.at};
    char hash[ECH_TOKENIZER_HASH];
    ech_data_hash(&all, hash);
    ech_text_append(out, "%s", hash);
    *units = runs->tokens;
    return sample_tokens(source->file, out);
}

const ech_data_kind ech_data_kind_tokens = {.open = open_texts,
                                            .measure = measure,
                                            .count = count_pairs,
                                            .scratch = scratch_bytes,
                                            .read = read_texts,
                                            .identify = ech_source_identify_tokens};
