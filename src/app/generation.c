/* SPDX-License-Identifier: Apache-2.0
 *
 * Text after a prompt, token by token.
 */
#include "app/generation.h"

#include <stdlib.h>
#include <string.h>

#include "app/train/trained.h"

/* The text so far. The model sees ids [base, ids.n); it has already processed the first `fed`. */
typedef struct generation {
    const char *prompt;
    const ech_generation_options *in;
    ech_generation_take *take;
    void *context;
    const ech_generation_model *of;
    ech_ids ids;
    size_t base, fed;
    int64_t taken; /* tokens */
    bool ends;     /* the caller wants no more */
} generation;

/* A tokenizer may have fewer ids than the model. */
static void pass(generation *g, int32_t id, bool is_prompt)
{
    ECH_FREED_TEXT text = {0};
    const ech_tokenizer *tokenizer = g->of->tokenizer;
    if (tokenizer && id < tokenizer->vocabulary)
        ech_tokenizer_decode(tokenizer, id, g->taken == 0, &text);
    ech_generated token = {
        .id = id, .bytes = text.n ? text.at : "", .n = text.n, .is_prompt = is_prompt};
    g->taken++;
    if (!g->ends) g->ends = !g->take(&token, g->context);
}

/* Feeds token by token with a KV cache. When the text becomes longer than T, the first half of the
 * context is dropped and the rest is fed from the start. */
static ech_status feed(generation *g, size_t T)
{
    ech_exec *exec = g->of->exec;
    if (g->ids.n - g->base > T) {
        g->base = g->ids.n - (T + 1) / 2;
        g->fed = 0;
    }
    for (; g->fed < g->ids.n - g->base; g->fed++) {
        ech_exec_set_token(exec, g->ids.at[g->base + g->fed], (int64_t)g->fed);
        ECH_TRY(ech_exec_run(exec, ECH_LIST_GENERATE, 0));
    }
    return ECH_OK;
}

/* Ids with blanks or commas between. */
static ech_status read_ids(const char *text, int64_t vocabulary, ech_ids *out)
{
    ECH_FREED char *copy = ech_strdup(text);
    char *rest = NULL;
    for (char *word = strtok_r(copy, " ,\t\n", &rest); word;
         word = strtok_r(NULL, " ,\t\n", &rest)) {
        int64_t id;
        if (!ech_text_to_int(word, &id) || id < 0 || id >= vocabulary)
            ECH_FAIL(ECH_EUSAGE,
                     "--ids: %s is not a token id of this model; ids are 0 to "
                     "%lld",
                     word, (long long)vocabulary - 1);
        ECH_PUSH(*out, (int32_t)id);
    }
    return ECH_OK;
}

/* *front of the ids are not the prompt's own. */
static ech_status read_prompt(generation *g, size_t *front)
{
    const ech_tokenizer *tokenizer = g->of->tokenizer;
    *front = 0;
    if (g->in->ids) return read_ids(g->in->ids, g->of->config->model.vocab_size, &g->ids);
    bool given = g->in->begins != ECH_AUTO;
    int begins = given ? g->in->begins : g->of->config->data.begin_of_text;
    if (tokenizer)
        return ech_sampler_prompt(tokenizer, g->prompt, begins, g->in->special, &g->ids, front);
    ECH_FAIL(ECH_EUSAGE,
             "%s: has no tokenizer, so its text cannot be written; give --tokenizer SOURCE, or "
             "--ids \"1 2 3\" for ids in and out",
             g->of->path);
}

static bool stops_at(const ech_generation_model *of, int32_t id)
{
    for (size_t i = 0; i < of->stops.n; i++)
        if (of->stops.at[i] == id) return true;
    return false;
}

static ech_status generate(generation *g)
{
    const ech_generation_options *in = g->in;
    const ech_generation_model *of = g->of;
    const size_t T = (size_t)of->config->data.sequence_length;
    int64_t choices = of->tokenizer ? of->tokenizer->vocabulary : of->config->model.vocab_size;
    ech_random_key key = {.seed = (uint64_t)in->seed,
                          .stream = ech_random_stream(0, ECH_SITE_SAMPLE)};
    size_t front;
    ECH_TRY(read_prompt(g, &front));
    for (size_t i = front; i < g->ids.n; i++) pass(g, g->ids.at[i], true);
    if (g->ids.n > T) g->base = g->ids.n - T;
    if (g->ids.n == 0) ECH_PUSH(g->ids, of->begin);
    for (; key.step < in->tokens && !g->ends; key.step++) {
        int32_t id;
        ECH_TRY(feed(g, T));
        ECH_TRY(ech_sampler_choose(&in->sampler, ech_exec_logits(of->exec), choices,
                                   ech_random_unit(ech_random_word(key, 0)), &id));
        if (stops_at(of, id)) break;
        ECH_PUSH(g->ids, id);
        pass(g, id, false);
    }
    return ECH_OK;
}

ech_status ech_generate_from(const ech_generation_model *generator, const char *prompt,
                             const ech_generation_options *options, ech_generation_take *take,
                             void *context)
{
    generation g = {
        .of = generator, .prompt = prompt, .in = options, .take = take, .context = context};
    ech_status status = generate(&g);
    free(g.ids.at);
    return status;
}

/* ---- a trained model ---- */

typedef struct request {
    const char *path, *prompt;
    const ech_generation_options *options;
    ech_generation_take *take;
    void *context;
} request;

static ech_status use(ech_trained *trained, void *context)
{
    const request *r = context;
    const ech_generation_model generator = {.path = r->path,
                                            .exec = trained->session.exec,
                                            .config = trained->config,
                                            .tokenizer = trained->tokenizer,
                                            .begin = trained->ends.begin,
                                            .stops = trained->stops};
    if (trained->design.model->logits < 0)
        ECH_FAIL(ECH_EUSAGE,
                 "%s: a model of the family %s generates no text; `echelon eval` measures its loss",
                 r->path, trained->design.model->family->name);
    return ech_generate_from(&generator, r->prompt, r->options, r->take, r->context);
}

ech_status ech_generate(const char *path, const char *prompt, const ech_generation_options *options,
                        ech_generation_take *take, void *context)
{
    request r = {path, prompt, options, take, context};
    ECH_TRY(ech_sampler_check(&options->sampler));
    const ech_trained_options wanted = {.path = path,
                                        .samples = 1,
                                        .tokenizer = options->tokenizer,
                                        .device = options->device,
                                        .plugins = options->plugins,
                                        .ids_do = options->ids != NULL};
    return ech_trained_run(&wanted, use, &r);
}
