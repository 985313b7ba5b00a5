/* SPDX-License-Identifier: Apache-2.0
 *
 * The log-likelihood that a trained model gives to texts, after contexts.
 */
#ifndef ECH_APP_LIKELIHOOD_H
#define ECH_APP_LIKELIHOOD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct ech_scored_text {
    const char *context; /* NULL: all tokens of the text count, as many as there are */
    const char *text;
    const char *name; /* for errors */
} ech_scored_text;

typedef struct ech_likelihood {
    double sum;     /* natural logarithm of the text's probability */
    int64_t tokens; /* of the text */
    int greedy;     /* 1: each token is the most likely one; 0: one is not; -1: not requested */
} ech_likelihood;

typedef struct ech_likelihood_options {
    const char *tokenizer; /* as data.tokenizer; NULL: the model's own */
    const char *device;    /* as parallel.device; NULL: the run's */
    const char *parallel;  /* as in ech_trained_options */
    const char *plugins;   /* as training.plugins; NULL: none */
    int begins;     /* begin of text before the context: 0 or 1; ECH_AUTO: as the model's data */
    bool truncates; /* a context that is too long loses its first tokens */
    bool greedy;    /* fills ech_likelihood.greedy, token by token, which takes longer */
    void (*progress)(int64_t done, int64_t all, void *context); /* or NULL */
    void *context;
} ech_likelihood_options;

/* Scores texts[n] into out[n], in windows of at most the model's sequence length (the
 * max_position_embeddings of a Hugging Face folder).
 *
 * Context and text are tokenized together. The tokens of the text are all ids but the first m, m
 * being the number of ids of the context alone, without blanks at its end. An empty context is the
 * begin of text. Without a context, windows of the longest length follow each other; the last one
 * ends with the text and begins with tokens that were scored before.
 *
 * `path` is as in ech_trained_options. Errors: as for ech_trained_run; no tokenizer is known; a
 * text has no tokens, or is longer than the window; `greedy` on several ranks. Not collective. */
ech_status ech_likelihoods(const char *path, const ech_scored_text *texts, int64_t n,
                           const ech_likelihood_options *options, ech_likelihood *out);

#endif
