/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run reads of its training data.
 */
#include <math.h>

#include "app/count.h"
#include "app/setup/initial.h"
#include "app/setup/setup.h"
#include "base/log.h"

void ech_design_count_data(const ech_design *design, const ech_corpus *corpus,
                           ech_corpus_counts *out)
{
    const ech_config *c = design->config;
    ech_corpus_count(corpus, c->training.steps * c->training.global_batch_size, out);
}

/* The number of steps whose samples are training.epochs, of `samples` each. */
static ech_status count_steps(const ech_design *design, ech_config *config, int64_t *samples)
{
    ECH_CLEANUP(ech_corpus_close_at) ech_corpus *corpus = NULL;
    double batch = (double)config->training.global_batch_size;
    ECH_TRY(ech_design_open_data(design, ECH_SPLIT_TRAIN, &corpus));
    *samples = ech_corpus_samples(corpus);
    double steps = ceil(config->training.epochs * (double)*samples / batch);
    if (steps > 1e12) /* the most of training.steps */
        return ech_config_complain(config, "training.epochs", "%g steps; use fewer epochs", steps);
    config->training.steps = (int64_t)steps;
    config->training.epochs = 0; /* the resolved run file has the steps */
    return ECH_OK;
}

ech_status ech_design_resolve_epochs(ech_config *config, const ech_design *design)
{
    double epochs = config->training.epochs;
    int64_t samples;
    if (!(epochs > 0)) return ECH_OK;
    ECH_TRY(count_steps(design, config, &samples));
    ech_log_info("training.epochs = %g is %s: %lld samples an epoch, %lld a step", epochs,
                 ECH_COUNT(config->training.steps, "step"), (long long)samples,
                 (long long)config->training.global_batch_size);
    return ECH_OK;
}

ech_status ech_setup_count_steps(ech_config *config)
{
    ECH_CLEANUP(ech_tokenizer_close_at) ech_tokenizer *tokenizer = NULL;
    int64_t samples;
    int32_t end_of_text;
    if (!(config->training.epochs > 0)) return ECH_OK;
    ECH_TRY(ech_initial_open_tokenizer(config, &tokenizer, &end_of_text));
    const ech_design design = {
        .config = config, .tokenizer = tokenizer, .end_of_text = end_of_text};
    return count_steps(&design, config, &samples);
}

static void print_tokens(const ech_corpus_counts *counts, ech_text *out)
{
    ech_text_append(out, "%s tokens, %s trained on, %s of padding",
                    ECH_DIGITS(llround(counts->tokens)), ECH_DIGITS(llround(counts->targets)),
                    ECH_DIGITS(llround(counts->padding)));
}

static void print_longer(const ech_corpus_counts *counts, bool drops, ech_text *out)
{
    ech_text_append(out,
                    "%s of %s documents %s longer than a sample and %s: %s tokens are left out",
                    ECH_DIGITS(counts->longer), ECH_DIGITS(counts->documents),
                    counts->longer == 1 ? "is" : "are", drops ? "dropped" : "truncated",
                    ECH_DIGITS(counts->left_out));
}

void ech_print_data(const ech_design *design, const ech_corpus_counts *counts, const char *between,
                    ech_text *out)
{
    ech_text_append(out, "%s samples, %.3g", ECH_DIGITS(counts->samples), counts->least_epochs);
    if (counts->most_epochs > counts->least_epochs)
        ech_text_append(out, " to %.3g", counts->most_epochs);
    ech_text_append(out, " epochs of %s", ECH_DIGITS(counts->epoch_samples));
    /* An image is one target. */
    if (ech_sample_row_of(design->model->options.samples)->accuracy) return;
    ech_text_append(out, ": ");
    print_tokens(counts, out);
    if (design->config->data.packing != ECH_PACKING_DOCUMENTS) return;
    ech_text_append(out, "%s", between);
    print_longer(counts, design->config->data.long_documents == ECH_LONG_DROP, out);
}

ech_status ech_print_packings(const char *prefix, int64_t T, ech_text *out)
{
    static const char *const packings[] = {"stream", "documents"};
    for (int whole = 0; whole < 2; whole++) {
        ECH_CLEANUP(ech_corpus_close_at) ech_corpus *corpus = NULL;
        ech_corpus_counts counts;
        const ech_corpus_options options = {.key = "data.train",
                                            .sources = prefix,
                                            .split = "",
                                            .sequence_length = T,
                                            .document_mask = whole,
                                            .whole_documents = whole,
                                            .vocabulary = INT32_MAX};
        ECH_TRY(ech_corpus_open(&options, &corpus));
        ech_corpus_count(corpus, ech_corpus_samples(corpus), &counts);
        ech_text_append(out, "data.packing = %-9s  %s samples: ", packings[whole],
                        ECH_DIGITS(counts.samples));
        print_tokens(&counts, out);
        if (counts.longer) ech_text_append(out, "; ");
        if (counts.longer) print_longer(&counts, false, out);
        ech_text_append(out, "\n");
    }
    return ECH_OK;
}
