/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch by batch over the validation data.
 */
#include "app/train/validation.h"

#include <math.h>

#include "base/clock.h"

int64_t ech_validation_samples(const ech_config *config, const ech_corpus *corpus)
{
    int64_t all = ech_corpus_samples(corpus), wanted = config->training.validate_samples;
    int64_t batch = config->training.global_batch_size, T = config->data.sequence_length;
    if (wanted == ECH_AUTO) {
        int64_t fewest = (ECH_VALIDATION_TOKENS + T - 1) / T, least = ECH_VALIDATION_BATCHES;
        if (__builtin_mul_overflow(least, batch, &wanted)) wanted = all;
        if (wanted < fewest) wanted = fewest;
    }
    return wanted > 0 && wanted < all ? wanted : all;
}

ech_status ech_validation_open(const ech_session *session, const ech_design *design,
                               const ech_corpus *corpus, ech_loader **out)
{
    int64_t all = ech_corpus_samples(corpus),
            samples = ech_validation_samples(design->config, corpus);
    ech_loader_options options = ech_design_reads(design, session->plan->rank, false, samples);
    options.drawn_from = samples < all ? all : 0;
    ECH_TRY(ech_loader_create(corpus, &options, 0, out));
    ech_exec_set_loader(session->exec, ECH_EVALUATE, *out);
    return ECH_OK;
}

/* ids: the tokenizer's table. False: the batch has a target that is none of its ids. */
static bool add_bytes(const ech_batch *batch, int64_t n, const int64_t *of_id, int64_t ids,
                      double *bytes)
{
    for (int64_t i = 0; i < n; i++) {
        if (!(batch->weights[i] > 0)) continue;
        if (batch->targets[i] >= ids) return false;
        *bytes += (double)of_id[batch->targets[i]];
    }
    return true;
}

ech_status ech_validation_count_bytes(const ech_design *design, const ech_tokenizer *tokenizer,
                                      const ech_corpus *corpus, int64_t samples, bool drawn,
                                      double *bytes)
{
    int64_t whole = ech_corpus_samples(corpus);
    *bytes = 0;
    if (!tokenizer || !ech_model_reads_texts(design->config)) return ECH_OK;
    ech_loader_options all = ech_design_reads(design, 0, false, samples);
    ECH_CLEANUP(ech_loader_destroy_at) ech_loader *loader = NULL;
    ECH_FREED int64_t *of_id = ech_calloc((size_t)tokenizer->vocabulary, sizeof *of_id);
    ECH_FREED_TEXT text = {0};
    double sum = 0;
    for (int32_t id = 0; id < tokenizer->vocabulary; id++) {
        text.n = 0;
        ech_tokenizer_decode(tokenizer, id, false, &text);
        of_id[id] = (int64_t)text.n;
    }
    all.global_batch_size = all.micro_batch_size = all.data_degree = 1; /* every rank's samples */
    all.data_rank = 0;
    all.drawn_from = drawn && samples < whole ? whole : 0;
    all.counts_only = false;
    ECH_TRY(ech_loader_create(corpus, &all, 0, &loader));
    for (int64_t s = 0; s < samples; s++) {
        const ech_batch *batch;
        ECH_TRY(ech_loader_next(loader, s, &batch));
        if (!add_bytes(batch, all.sequence_length, of_id, tokenizer->vocabulary, &sum))
            return ECH_OK;
    }
    *bytes = sum;
    return ECH_OK;
}

double ech_validation_bits(double loss, double tokens, double bytes)
{
    return bytes > 0 ? loss * tokens / log(2) / bytes : (double)NAN;
}

double ech_validation_share(ech_sample_kind kind, double hits, double tokens)
{
    return ech_sample_row_of(kind)->accuracy && tokens > 0 ? hits / tokens : (double)NAN;
}

ech_status ech_validation_run(ech_exec *exec, ech_sample_kind kind, int64_t batch, int64_t samples,
                              ech_loader *loader, ech_validation_pause *pause, void *context,
                              ech_validation *out)
{
    double start = ech_clock_now(), loss = 0, tokens = 0, hits = 0, hits_of_5 = 0;
    int64_t batches = samples / batch + (samples % batch > 0);
    bool ends = false;
    for (int64_t step = 0; step < batches && !ends; step++) {
        ECH_TRY(ech_exec_run(exec, ECH_LIST_VALIDATE, step));
        loss += ech_exec_readings(exec)->loss_sum;
        tokens += ech_exec_readings(exec)->tokens;
        hits += ech_exec_readings(exec)->hits;
        hits_of_5 += ech_exec_readings(exec)->hits_of_5;
        if (pause) ECH_TRY(pause(context, step + 1, batches, &ends));
    }
    ech_loader_rewind(loader, 0); /* the next one's first batches will be there */
    *out = (ech_validation){.loss = tokens > 0 ? loss / tokens : (double)NAN,
                            .tokens = (int64_t)tokens,
                            .accuracy = ech_validation_share(kind, hits, tokens),
                            .accuracy_of_5 = ech_validation_share(kind, hits_of_5, tokens),
                            .bits_per_byte = (double)NAN,
                            .seconds = ech_clock_now() - start};
    return ECH_OK;
}
