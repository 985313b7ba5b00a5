/* SPDX-License-Identifier: Apache-2.0
 *
 * The loss of a trained model on token files, or on samples of features.
 */
#ifndef ECH_APP_EVALUATION_H
#define ECH_APP_EVALUATION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "layer/samples.h"

typedef struct ech_eval_options {
    const char *data;      /* as data.train */
    const char *split;     /* as data.split: only its third share is evaluated; NULL: all */
    const char *tokenizer; /* as data.tokenizer; NULL: the model's own */
    const char *device;    /* as parallel.device; NULL: the run's */
    const char *logits;    /* a new file for logits, tokens, targets and weights; NULL: none */
    int64_t samples;       /* only the first ones; 0: all */
    int64_t batch;         /* samples at a time */
    void (*progress)(int64_t sample, int64_t samples, void *context); /* or NULL; per batch */
    void *context;
    const char *plugins;  /* as training.plugins; NULL: none */
    const char *parallel; /* as in ech_trained_options; NULL: one rank */
} ech_eval_options;

typedef struct ech_eval_result {
    double loss;          /* mean over the targets, in nats */
    double bits_per_byte; /* of the predicted text; NaN: the tokenizer is not known */
    /* shares of samples whose class has the largest logit, and one of the five largest;
     * NaN: samples have no classes */
    double accuracy, accuracy_of_5;
    int64_t targets; /* that count */
    int64_t samples;
    ech_sample_kind kind; /* of the samples; `targets` counts its unit */
} ech_eval_result;

/* `path` is as in ech_trained_options. Errors: as for ech_trained_run; the data cannot be read; no
 * target counts; logits take more than 16 GiB, or their file exists. Not collective. */
ech_status ech_evaluate(const char *path, const ech_eval_options *options, ech_eval_result *out);

#endif
