/* SPDX-License-Identifier: Apache-2.0
 *
 * Trained models: evaluation, likelihoods and sampling.
 */
#include "app/evaluation.h"
#include "app/generation.h"
#include "app/likelihood.h"
#include "library/library.h"

#include <stdio.h>
#include <stdlib.h>

echelon_status echelon_evaluate(const char *path, const char *data,
                                const echelon_evaluate_options *options, echelon_evaluation *out)
{
    enum { BATCH = 8 };
    echelon_evaluate_options o;
    ech_eval_result result;
    ech_library_enter();
    ECH_NEED(path);
    ECH_NEED(data);
    ECH_TAKE(o, options);
    ECH_NEED_STRUCT(out);
    if (o.samples < 0 || o.batch < 0)
        ECH_REFUSE("%lld samples, batch %lld: must be 0 or more", (long long)o.samples,
                   (long long)o.batch);
    const ech_eval_options wanted = {.data = data,
                                     .split = o.split,
                                     .tokenizer = o.tokenizer,
                                     .device = o.device,
                                     .logits = o.logits,
                                     .samples = o.samples,
                                     .batch = o.batch ? o.batch : BATCH,
                                     .progress = o.progress,
                                     .context = o.context,
                                     .plugins = o.plugins,
                                     .parallel = o.parallel};
    ECH_PASS(ech_evaluate(path, &wanted, &result));
    echelon_evaluation given = {.loss = result.loss,
                                .bits_per_byte = result.bits_per_byte,
                                .targets = result.targets,
                                .samples = result.samples,
                                .features = !ech_sample_row_of(result.kind)->texts,
                                .accuracy = result.accuracy,
                                .accuracy_of_5 = result.accuracy_of_5};
    ech_library_give(out, out->size, &given, sizeof given);
    return ECHELON_OK;
}

/* ---- likelihoods ---- */

typedef struct scored {
    ech_scored_text *text;      /* [n]; what they name is the caller's */
    char (*name)[32];           /* [n] for those without a name */
    ech_likelihood *likelihood; /* [n] */
} scored;

static void free_scored(scored *s)
{
    free(s->text);
    free(s->name);
    free(s->likelihood);
}

/* Elements have the size that the caller knows. */
static ech_status take_texts(const echelon_scored_text *texts, int64_t n, scored *out)
{
    size_t size = n > 0 ? texts->size : 0;
    if (n < 1 || n > INT32_MAX)
        ECH_FAIL(ECH_EUSAGE, "%lld texts to score: must be 1 to 2147483647", (long long)n);
    ECH_TRY(ech_library_check_size(size));
    out->text = ech_calloc((size_t)n, sizeof *out->text);
    out->name = ech_calloc((size_t)n, sizeof *out->name);
    out->likelihood = ech_calloc((size_t)n, sizeof *out->likelihood);
    for (int64_t i = 0; i < n; i++) {
        echelon_scored_text one;
        ECH_TRY(ech_library_take(&one, sizeof one, (const char *)texts + (size_t)i * size));
        if (!one.text) ECH_FAIL(ECH_EUSAGE, "text %lld is NULL; give a text", (long long)i);
        if (!one.name) snprintf(out->name[i], sizeof out->name[i], "text %lld", (long long)i);
        out->text[i] = (ech_scored_text){one.context, one.text, one.name ? one.name : out->name[i]};
    }
    return ECH_OK;
}

static ech_status score(const char *path, const echelon_scored_text *texts, int64_t n,
                        const echelon_score_options *o, echelon_take_likelihood *take,
                        void *context)
{
    ECH_CLEANUP(free_scored) scored s = {0};
    if (o->begin_of_text < ECHELON_AUTO || o->begin_of_text > 1)
        ECH_FAIL(ECH_EUSAGE, "begin_of_text %d: must be 0, 1 or ECHELON_AUTO", o->begin_of_text);
    const ech_likelihood_options wanted = {.tokenizer = o->tokenizer,
                                           .device = o->device,
                                           .parallel = o->parallel,
                                           .plugins = o->plugins,
                                           .begins = o->begin_of_text,
                                           .truncates = o->truncate,
                                           .greedy = o->greedy,
                                           .progress = o->progress,
                                           .context = o->context};
    ECH_TRY(take_texts(texts, n, &s));
    ECH_TRY(ech_likelihoods(path, s.text, n, &wanted, s.likelihood));
    for (int64_t i = 0; i < n; i++) {
        const echelon_likelihood one = {.size = sizeof one,
                                        .index = i,
                                        .log_likelihood = s.likelihood[i].sum,
                                        .tokens = s.likelihood[i].tokens,
                                        .greedy = s.likelihood[i].greedy};
        take(&one, context);
    }
    return ECH_OK;
}

echelon_status echelon_score(const char *path, const echelon_scored_text *texts, int64_t n,
                             const echelon_score_options *options, echelon_take_likelihood *take,
                             void *context)
{
    echelon_score_options o = ECHELON_SCORE_OPTIONS;
    ech_library_enter();
    ECH_NEED(path);
    ECH_NEED(texts);
    ECH_NEED(take);
    if (options && ech_library_check_size(options->size) != ECH_OK) return ECHELON_EUSAGE;
    if (options) ech_library_give(&o, sizeof o, options, options->size);
    return (echelon_status)score(path, texts, n, &o, take, context);
}

/* ---- sampling ---- */

typedef struct taker {
    echelon_take_token *take;
    void *context;
} taker;

static bool take(const ech_generated *of, void *context)
{
    const taker *to = context;
    const echelon_token token = {.size = sizeof token,
                                 .id = of->id,
                                 .is_prompt = of->is_prompt,
                                 .bytes = of->bytes,
                                 .n = of->n};
    return to->take(&token, to->context);
}

echelon_status echelon_sample(const char *path, const char *prompt,
                              const echelon_sample_options *options, echelon_take_token *take_token,
                              void *context)
{
    echelon_sample_options o = ECHELON_SAMPLE_OPTIONS;
    taker to = {take_token, context};
    ech_library_enter();
    if (options && ech_library_check_size(options->size) != ECH_OK) return ECHELON_EUSAGE;
    ECH_NEED(path);
    ECH_NEED(take_token);
    if (options) ech_library_give(&o, sizeof o, options, options->size);
    if (o.tokens < 0 || o.begin_of_text < ECHELON_AUTO || o.begin_of_text > 1)
        ECH_REFUSE("%lld tokens, begin_of_text %d: must be 0 or more, and 0, 1 or ECHELON_AUTO",
                   (long long)o.tokens, o.begin_of_text);
    if (!o.ids) ECH_NEED(prompt);
    const ech_generation_options wanted = {.ids = o.ids,
                                           .tokenizer = o.tokenizer,
                                           .device = o.device,
                                           .tokens = o.tokens,
                                           .seed = o.seed,
                                           .begins = o.begin_of_text,
                                           .special = o.special_tokens,
                                           .sampler = {o.temperature, o.top_k, o.top_p},
                                           .plugins = o.plugins};
    return (echelon_status)ech_generate(path, prompt, &wanted, take, &to);
}
