/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run reads of its training data.
 */
#include <math.h>

#include "app/count.h"
#include "app/setup/setup.h"

void ech_design_count_data(const ech_design *design, const ech_corpus *corpus,
                           ech_corpus_counts *out)
{
    const ech_config *c = design->config;
    ech_corpus_count(corpus, c->training.steps * c->training.global_batch_size, out);
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
    ech_text_append(out, " epochs of %s: ", ECH_DIGITS(counts->epoch_samples));
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
