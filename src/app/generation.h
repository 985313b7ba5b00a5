/* SPDX-License-Identifier: Apache-2.0
 *
 * Text that a trained model writes after a prompt.
 */
#ifndef ECH_APP_GENERATION_H
#define ECH_APP_GENERATION_H

#include "app/sampler.h"
#include "exec/exec.h"
#include "model/model.h"

typedef struct ech_generation_options {
    const char *ids;       /* token ids instead of the prompt, as "1 2 3"; NULL: not given */
    const char *tokenizer; /* as data.tokenizer; NULL: the model's own */
    const char *device;    /* as parallel.device; NULL: the run's */
    int64_t tokens;        /* to write, at most */
    int64_t seed;
    int begins;   /* begin of text before the prompt: 0 or 1; ECH_AUTO: as the model's data */
    bool special; /* names of special tokens in the prompt become their ids */
    ech_sampler sampler;
    const char *plugins; /* as training.plugins; NULL: none */
} ech_generation_options;

typedef struct ech_generated {
    int32_t id;
    const char *bytes; /* [n] of the text, which need not be whole characters; n = 0: none */
    size_t n;
    bool is_prompt;
} ech_generated;
/* Takes a token, which is valid during the call. False: no more are wanted. */
typedef bool ech_generation_take(const ech_generated *token, void *context);

/* A model that is in memory. All is borrowed. */
typedef struct ech_generation_model {
    const char *path; /* for errors */
    ech_exec *exec;   /* of a forward-only plan of one rank */
    const ech_config *config;
    const ech_tokenizer *tokenizer; /* NULL: none */
    int32_t begin;                  /* the token that an empty prompt begins with */
    ech_stops stops;                /* tokens that end a text */
} ech_generation_model;
/* As ech_generate, with such a model. */
ech_status ech_generate_from(const ech_generation_model *generator, const char *prompt,
                             const ech_generation_options *options, ech_generation_take *take,
                             void *context);

/* Passes the tokens of the prompt to `take`, and then those that the model writes, until there are
 * enough or the model ends the text. A longer text than the model's sequence length goes on from
 * its second half. `path` is as in ech_trained_options. Errors: as for ech_trained_run and
 * ech_sampler_check; no tokenizer is known and there are no ids. Not collective. */
ech_status ech_generate(const char *path, const char *prompt, const ech_generation_options *options,
                        ech_generation_take *take, void *context);

#endif
