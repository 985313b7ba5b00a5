/* SPDX-License-Identifier: Apache-2.0
 *
 * Validation: the mean loss over the validation data, or over a sample of them. Training validates
 * between its steps, evaluators validate each checkpoint.
 *
 * The sample is random, without replacement, and depends only on training.seed, the number of
 * samples and the data. So every layout, every evaluation and every start of a run uses the same.
 */
#ifndef ECH_APP_TRAIN_VALIDATION_H
#define ECH_APP_TRAIN_VALIDATION_H

#include "app/setup/setup.h"

typedef struct ech_validation {
    double loss;    /* mean over the counted tokens; NaN: there are none */
    int64_t tokens; /* counted tokens; of images, samples */
    /* Shares of samples whose class has the largest logit, and one of the five largest;
     * NaN: samples have no classes */
    double accuracy, accuracy_of_5;
    double bits_per_byte; /* ech_validation_bits; NaN: unknown */
    double seconds;
} ech_validation;

/* training.validate_samples = auto: as many samples as this number of training steps, but at least
 * this number of tokens. A forward takes a third of a step's time. */
enum { ECH_VALIDATION_BATCHES = 8, ECH_VALIDATION_TOKENS = 16384 };

/* Number of samples: training.validate_samples, or all samples if there are fewer. */
int64_t ech_validation_samples(const ech_config *config, const ech_corpus *corpus);

/* Makes the loader of these samples and sets it for ECH_EVALUATE. */
ech_status ech_validation_open(const ech_session *session, const ech_design *design,
                               const ech_corpus *corpus, ech_loader **out);

/* Counts the bytes of the text of a corpus' first `samples` samples, or if `drawn` is true of as
 * many drawn ones, as validations use them. A target has as many bytes as the tokenizer's table
 * says, and the end-of-text token none. *bytes 0: unknown, since no tokenizer is known (NULL), or a
 * target is none of its ids. Reads the samples; not collective. */
ech_status ech_validation_count_bytes(const ech_design *design, const ech_tokenizer *tokenizer,
                                      const ech_corpus *corpus, int64_t samples, bool drawn,
                                      double *bytes);
/* Bits per byte of text: loss x tokens / ln 2 / bytes. NaN: bytes are 0, that is, unknown. */
double ech_validation_bits(double loss, double tokens, double bytes);

/* The share of counted samples that hits are. NaN: samples of the kind have no classes. */
double ech_validation_share(ech_sample_kind kind, double hits, double tokens);

/* Called after batch `done` of `all`. *ends: skip the rest. Errors end the validation. */
typedef ech_status ech_validation_pause(void *context, int64_t done, int64_t all, bool *ends);
/* Runs the validate list for each batch of `samples` samples of that kind, starting at the loader's
 * first, and rewinds the loader. pause (NULL: none) gets `context`. *out is invalid if a pause ends
 * it before the last batch; its bits per byte are for the caller to set. Collective like
 * ech_exec_run. */
ech_status ech_validation_run(ech_exec *exec, ech_sample_kind kind, int64_t batch, int64_t samples,
                              ech_loader *loader, ech_validation_pause *pause, void *context,
                              ech_validation *out);

#endif
