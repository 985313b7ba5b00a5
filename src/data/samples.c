/* SPDX-License-Identifier: Apache-2.0
 *
 * Dividing streams into samples, and the order of samples (the rules are in data.h).
 */
#include "data/samples.h"

#include <string.h>

#include "base/random.h"
#include "comm/collective.h"
#include "layout/layout.h"

int64_t ech_data_samples(int64_t tokens, int64_t sequence_length)
{
    if (tokens < 2) return 0;
    return (tokens - 2) / sequence_length + 1;
}

int64_t ech_sample_micro_batches(const ech_loader_options *options)
{
    return ech_replica_micro_batches(options->global_batch_size / options->micro_batch_size,
                                     options->data_degree, options->data_rank);
}

int64_t ech_sample_index(const ech_loader_options *options, int64_t row)
{
    int64_t b = options->micro_batch_size;
    int64_t q = ech_replica_global_micro(options->data_degree, options->data_rank, row / b);
    return q * b + row % b;
}

ech_status ech_sample_position(const ech_loader_options *options, int64_t step, int64_t i,
                               int64_t *out)
{
    int64_t first, position;
    if (__builtin_mul_overflow(step, options->global_batch_size, &first) ||
        __builtin_add_overflow(first, i, &position))
        ECH_FAIL(ECH_EUSAGE,
                 "step %lld x training.global_batch_size %lld: more than 2^63 samples; lower one "
                 "of them",
                 (long long)step, (long long)options->global_batch_size);
    *out = position;
    return ECH_OK;
}

/* The share that a position of the run is of, and its position among that share's. */
static int64_t share_at(const ech_loader_options *options, int64_t position, int64_t *own)
{
    int64_t N = options->shares, G = options->global_batch_size, b = options->micro_batch_size;
    int64_t i = position % G, q = i / b;
    *own = position / G * (G / N) + q / N * b + i % b;
    return q % N;
}

/* The position that is drawn in place of another one. The seed differs from the seed of epochs. */
static int64_t draw(const ech_loader_options *options, int64_t position)
{
    uint64_t seed = ~options->seed, n = (uint64_t)options->drawn_from;
    return (int64_t)ech_random_permute(seed, 0, n, (uint64_t)position);
}

const ech_source *ech_sample_at(const ech_corpus *corpus, const ech_loader_options *options,
                                int64_t position, int64_t *s)
{
    enum { SOURCE_BITS = 10 };
    _Static_assert(ECH_BLEND_MOST <= 1 << SOURCE_BITS, "a key of its own for every source");
    int64_t j, own, share;
    if (options->drawn_from > 0) position = draw(options, position);
    share = share_at(options, position, &own);
    int k = ech_blend_at(&corpus->blend, own, &j), N = (int)options->shares;
    const ech_source *source = &corpus->source.at[k];
    int64_t first = ech_collective_shard_first(source->samples, N, (int)share);
    int64_t samples = ech_collective_shard_count(source->samples, N, (int)share);
    uint64_t epoch = (uint64_t)(j / samples), i = (uint64_t)(j % samples);
    uint64_t key = (uint64_t)k << (64 - SOURCE_BITS) | epoch; /* epochs are below 2^54 */
    uint64_t seed = options->seed + (uint64_t)share * 0x9e3779b97f4a7c15; /* shares differ */
    *s = first +
         (int64_t)(options->shuffle ? ech_random_permute(seed, key, (uint64_t)samples, i) : i);
    return source;
}

ech_status ech_corpus_check_shares(const ech_corpus *corpus, int64_t shares)
{
    for (size_t k = 0; k < corpus->source.n; k++)
        if (corpus->source.at[k].samples < shares)
            ECH_FAIL(
                ECH_EUSAGE,
                "data.shares = %lld: source %zu of data.train has %lld samples, and each share "
                "needs one; use at most %lld, or more data",
                (long long)shares, k + 1, (long long)corpus->source.at[k].samples,
                (long long)corpus->source.at[k].samples);
    return ECH_OK;
}

int64_t ech_sample_pairs(int64_t tokens, int64_t sequence_length, int64_t s)
{
    int64_t pairs = tokens - s * sequence_length - 1;
    return pairs < sequence_length ? pairs : sequence_length;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The pieces of sample s of whole documents; *n: how many. */
static const ech_piece *pieces_of(const ech_source *source, int64_t s, int64_t *n)
{
    const int64_t *begin = &source->documents.begin.at[s];
    *n = begin[1] - begin[0];
    return &source->documents.piece.at[begin[0]];
}

static bool is_whole(const ech_source *source)
{
    return source->documents.begin.n > 0;
}

/* The index in the stream of the first token of sample s, and its pairs. */
static int64_t first_of(const ech_source *source, int64_t T, int64_t s, int64_t *pairs)
{
    int64_t shift = s * source->apart;
    *pairs = ech_sample_pairs(source->file->runs.tokens - shift, T, s);
    return s * T + shift;
}

int64_t ech_sample_count(const ech_source *source, const ech_loader_options *options, int64_t s)
{
    const ech_token_runs *runs = &source->file->runs;
    int64_t T = options->sequence_length, pieces, pairs, count = 0;
    if (options->valued) return 1;
    if (!is_whole(source)) {
        int64_t first = first_of(source, T, s, &pairs) + 1;
        return ech_token_runs_targets(runs, first, first + pairs, options->document_mask);
    }
    const ech_piece *piece = pieces_of(source, s, &pieces);
    for (int64_t i = 0; i < pieces; i++)
        count += ech_token_runs_targets(runs, piece[i].first + 1, piece[i].first + piece[i].n,
                                        options->document_mask);
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
    int64_t T = options->sequence_length, pieces, used = 0;
    const ech_piece *piece = pieces_of(source, s, &pieces);
    for (int64_t i = 0; i < pieces; i++) {
        stretch part = {used, piece[i].n, piece[i].first, piece[i].n - 1};
        ECH_TRY(read_stretch(source->file, options, &part, ids, batch, row));
        used += piece[i].n;
    }
    batch->lengths[row] = (int32_t)used;
    for (int64_t t = used; t < T; t++) batch->starts[row * T + t] = (int32_t)used;
    return ECH_OK;
}

/* A document of features and a label, which is the target of the last feature. */
static ech_status read_example(const ech_token_file *file, const ech_loader_options *options,
                               int64_t s, int32_t *ids, const ech_batch *batch, int64_t row)
{
    const ech_token_run *run = &file->runs.run.at[2 * s];
    int64_t at = row * options->sequence_length, n = run[1].first - run[0].first;
    ECH_TRY(ech_token_file_read_run(file, (size_t)(2 * s), n + 1, options->vocabulary, ids));
    ECH_TRY(ech_token_file_read_values(file, (size_t)(2 * s), n, batch->values + at));
    if (ids[n] > 1)
        ECH_FAIL(ECH_EINPUT,
                 "%s: the label of sample %lld is %d, neither 0 nor 1: damaged; make it again with "
                 "`echelon data`",
                 file->part.at[0].path, (long long)s, (int)ids[n]);
    memcpy(batch->tokens + at, ids, (size_t)n * sizeof *ids);
    batch->targets[at + n - 1] = ids[n];
    batch->weights[at + n - 1] = 1;
    batch->lengths[row] = (int32_t)n;
    return ECH_OK;
}

ech_status ech_sample_read(const ech_source *source, const ech_loader_options *options, int64_t s,
                           int32_t *ids, const ech_batch *batch, int64_t row)
{
    const ech_token_file *file = source->file;
    int64_t T = options->sequence_length;
    ech_sample_clear(options, batch, row);
    if (options->valued) return read_example(file, options, s, ids, batch, row);
    if (is_whole(source)) return read_whole(source, options, s, ids, batch, row);
    int64_t pairs, first = first_of(source, T, s, &pairs);
    batch->lengths[row] = (int32_t)least(pairs + 1, T);
    return read_stretch(file, options, &(stretch){0, T, first, pairs}, ids, batch, row);
}

void ech_sample_clear(const ech_loader_options *options, const ech_batch *batch, int64_t row)
{
    size_t T = (size_t)options->sequence_length, at = (size_t)row * T;
    memset(batch->tokens + at, 0, T * sizeof *batch->tokens);
    memset(batch->targets + at, 0, T * sizeof *batch->targets);
    memset(batch->weights + at, 0, T * sizeof *batch->weights);
    batch->lengths[row] = 0;
    if (batch->starts) memset(batch->starts + at, 0, T * sizeof *batch->starts);
    if (batch->values) memset(batch->values + at, 0, T * sizeof *batch->values);
}
