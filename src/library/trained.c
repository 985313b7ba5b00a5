/* SPDX-License-Identifier: Apache-2.0
 *
 * Trained models: evaluation and sampling.
 */
#include "app/evaluation.h"
#include "app/generation.h"
#include "library/library.h"

echelon_status echelon_evaluate(const char *path, const char *data,
                                const echelon_evaluate_options *options, echelon_evaluation *out)
{
    enum { BATCH = 8 };
    echelon_evaluate_options o;
    ech_eval_result result;
    ech_library_enter();
    ECH_NEED(path);
    ECH_NEED(data);
    ech_library_take(&o, sizeof o, options);
    if (ech_library_check_size(out->size) != ECH_OK) return ECHELON_EUSAGE;
    if (o.samples < 0 || o.batch < 0)
        return (echelon_status)ech_fail_at(__FILE__, __LINE__, ECH_EUSAGE,
                                           "%lld samples, batch %lld: must be 0 or more",
                                           (long long)o.samples, (long long)o.batch);
    const ech_eval_options wanted = {.data = data,
                                     .split = o.split,
                                     .tokenizer = o.tokenizer,
                                     .device = o.device,
                                     .logits = o.logits,
                                     .samples = o.samples,
                                     .batch = o.batch ? o.batch : BATCH,
                                     .progress = o.progress,
                                     .context = o.context,
                                     .plugins = o.plugins};
    ech_status status = ech_evaluate(path, &wanted, &result);
    if (status != ECH_OK) return (echelon_status)status;
    echelon_evaluation given = {.loss = result.loss,
                                .bits_per_byte = result.bits_per_byte,
                                .targets = result.targets,
                                .samples = result.samples,
                                .features = result.valued};
    ech_library_give(out, out->size, &given, sizeof given);
    return ECHELON_OK;
}

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
        return (echelon_status)ech_fail_at(__FILE__, __LINE__, ECH_EUSAGE,
                                           "%lld tokens, begin_of_text %d: must be 0 or more, and "
                                           "0, 1 or ECHELON_AUTO",
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
