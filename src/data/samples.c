/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of samples (the rules are in data.h), and rows of batches.
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

size_t ech_sample_bytes(const ech_loader_options *options, ech_slot slot)
{
    const ech_extent one = {
        .batch = 1, .tokens = options->sequence_length, .sequence = options->sequence_length};
    if (!ech_slot_is_of(options->samples, slot)) return 0;
    if (slot == ECH_STARTS && !options->document_mask) return 0;
    ech_shape shape = ech_slot_shape(options->samples, slot, options->image);
    return (size_t)ech_shape_count(&shape, one) * ech_dtype_bytes(ech_slot_dtype(slot));
}

int64_t ech_sample_count(const ech_source *source, const ech_loader_options *options, int64_t s)
{
    const ech_data_kind *kind = ech_data_kind_of(options->samples);
    return kind->count ? kind->count(source, options, s) : 1;
}

ech_status ech_sample_read(const ech_source *source, const ech_loader_options *options,
                           int64_t position, int64_t s, void *scratch, const ech_batch *batch,
                           int64_t row)
{
    const ech_data_kind *kind = ech_data_kind_of(options->samples);
    if (!kind->fills) ech_sample_clear(options, batch, row);
    return kind->read(source, options, position, s, scratch, batch, row);
}

void ech_sample_clear(const ech_loader_options *options, const ech_batch *batch, int64_t row)
{
    for (ech_slot slot = 0; slot < ECH_BATCH_SLOTS; slot++) {
        size_t bytes = ech_sample_bytes(options, slot);
        if (bytes) memset((char *)batch->slot[slot] + (size_t)row * bytes, 0, bytes);
    }
}

/* ---- kinds ---- */

#define KIND(name, ...) extern const ech_data_kind ech_data_kind_##name;
#define SLOT(...)
#include "layer/samples.def"

const ech_data_kind *ech_data_kind_of(ech_sample_kind kind)
{
    static const ech_data_kind *const kinds[ECH_SAMPLE_KINDS] = {
#define KIND(name, ...) [ECH_SAMPLES_OF_##name] = &ech_data_kind_##name,
#define SLOT(...)
#include "layer/samples.def"
    };
    return kinds[kind];
}
