/* SPDX-License-Identifier: Apache-2.0
 *
 * Cutting the stream into samples, and putting samples in order (the rules are in data.h).
 */
#include "data/samples.h"

#include <string.h>

#include "base/random.h"

int64_t ech_data_samples(int64_t tokens, int64_t sequence_length)
{
    if (tokens < 2) return 0;
    return (tokens - 2) / sequence_length + 1;
}

int64_t ech_sample_micro_batches(const ech_loader_options *options)
{
    int64_t all = options->global_batch_size / options->micro_batch_size;
    return all / options->data_degree + (options->data_rank < all % options->data_degree);
}

int64_t ech_sample_place(const ech_loader_options *options, int64_t row)
{
    int64_t b = options->micro_batch_size;
    int64_t q = row / b * options->data_degree + options->data_rank; /* global micro-batch */
    return q * b + row % b;
}

ech_status ech_sample_position(const ech_loader_options *options, int64_t step, int64_t i,
                               int64_t *out)
{
    int64_t first, position;
    if (__builtin_mul_overflow(step, options->global_batch_size, &first) ||
        __builtin_add_overflow(first, i, &position))
        ECH_FAIL(ECH_EUSAGE, "step %lld x training.global_batch_size %lld: more than 2^63 samples",
                 (long long)step, (long long)options->global_batch_size);
    *out = position;
    return ECH_OK;
}

int64_t ech_sample_at(const ech_loader_options *options, int64_t samples, int64_t position)
{
    int64_t epoch = position / samples, i = position % samples;
    if (!options->shuffle) return i;
    return (int64_t)ech_random_permute(options->seed, (uint64_t)epoch, (uint64_t)samples,
                                       (uint64_t)i);
}

int64_t ech_sample_count(int64_t tokens, int64_t sequence_length, int64_t s)
{
    int64_t pairs = tokens - s * sequence_length - 1;
    return pairs < sequence_length ? pairs : sequence_length;
}

ech_status ech_sample_read(const ech_token_file *file, const ech_loader_options *options, int64_t s,
                           int32_t *ids, int32_t *tokens, int32_t *targets, float *weights)
{
    int64_t T = options->sequence_length;
    int64_t count = ech_sample_count(ech_token_file_tokens(file), T, s), n = count + 1;
    ECH_TRY(ech_token_file_read(file, s * T, n, options->vocabulary, ids));
    memset(ids + n, 0, (size_t)(T + 1 - n) * sizeof *ids);
    memcpy(tokens, ids, (size_t)T * sizeof *ids);
    memcpy(targets, ids + 1, (size_t)T * sizeof *ids);
    for (int64_t t = 0; t < T; t++) weights[t] = t < count ? 1.0f : 0.0f;
    return ECH_OK;
}
