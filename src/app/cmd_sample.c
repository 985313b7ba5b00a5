/* SPDX-License-Identifier: Apache-2.0
 *
 * echelon sample DIR [PROMPT] [--tokens N] [--temperature X] [--top-k K] [--top-p P] [--seed S]
 * echelon sample DIR --ids "ID ..." ...
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/command.h"
#include "app/options.h"
#include "app/sampler.h"
#include "app/train/trained.h"
#include "base/visible.h"

static const char about[] =
    "Writes text with a trained model: PROMPT and what follows it, until --tokens tokens are "
    "written or the model ends the text. DIR is a run directory, a folder of checkpoints (the "
    "newest valid one is used), one checkpoint, or a Hugging Face model of a supported "
    "family.\vThe same checkpoint, prompt and options write the same text.\n\nA model whose "
    "tokenizer is not known takes --ids, and --tokenizer names one.";

typedef struct sample_arguments {
    const char *directory, *prompt;
    const char *ids, *tokenizer, *device, *plugins; /* NULL: not given */
    int64_t tokens, seed;
    int begins; /* ECH_AUTO: as the model's data */
    bool special;
    ech_sampler sampler;
} sample_arguments;

static const ech_option options[] = {
    ECH_INT(sample_arguments, tokens, "tokens", 'n', "N", 0, INT32_MAX, "tokens to write (200)"),
    ECH_REAL(sample_arguments, sampler.temperature, "temperature", 't', "X",
             "sampling temperature; 0 picks the most likely token (0.8)"),
    ECH_INT(sample_arguments, sampler.top_k, "top-k", 0, "K", 0, INT32_MAX,
            "sample from the K most likely tokens only (0: all)"),
    ECH_REAL(sample_arguments, sampler.top_p, "top-p", 0, "P",
             "sample from the most likely tokens with total probability P (1)"),
    ECH_INT(sample_arguments, seed, "seed", 's', "S", 0, INT64_MAX,
            "seed of the random numbers (1)"),
    ECH_TEXT(sample_arguments, ids, "ids", 0, "IDS",
             "token ids instead of PROMPT, as in \"1 2 3\"; ids are written"),
    ECH_PATH(sample_arguments, tokenizer, "tokenizer", 0, "SOURCE", "in place of the model's own"),
    ECH_TRUTH(sample_arguments, begins, "begin-of-text", 0,
              "begin of text before the prompt, or not (as the training data have it)"),
    ECH_FLAG(sample_arguments, special, "special-tokens", 0,
             "names of special tokens in PROMPT become their ids"),
    ECH_TEXT(sample_arguments, device, "device", 0, "NAME",
             "device instead of the run's (as parallel.device)"),
    ECH_PATHS(sample_arguments, plugins, "plugins", 0, "FILES",
              "the run's plugins (as training.plugins)"),
    {0}};

static const ech_word words[] = {
    {offsetof(sample_arguments, directory), "which run directory or checkpoint?", true},
    {offsetof(sample_arguments, prompt), NULL, false}};

static void check(void *arguments, const struct argp_state *state)
{
    const sample_arguments *in = arguments;
    if (in->ids && in->prompt[0])
        argp_error(state, "--ids replaces the prompt; give only one of "
                          "the two");
}

/* The text so far. The model sees ids [base, ids.n); it has already processed the first `fed`. */
typedef struct generation {
    const ech_trained *trained;
    const sample_arguments *in;
    ech_ids ids;
    size_t base, fed;
    int64_t written; /* tokens */
    bool is_shown;   /* on a terminal, which would obey some characters */
    ech_text part;   /* then: a character's first bytes, which the next token ends */
} generation;

static void free_generation(generation *g)
{
    ech_text_free(&g->part);
    free(g->ids.at);
}

/* To standard output; on a terminal as it can be seen there. */
static ech_status write_text(generation *g, const ech_text *text, bool last)
{
    ECH_FREED_TEXT shown = {0};
    const ech_text *put = text;
    if (g->is_shown && g->part.n + text->n > 0) {
        if (text->n) ech_text_append_bytes(&g->part, text->at, text->n);
        size_t used = ech_visible_append(&shown, g->part.at, g->part.n, true, last);
        g->part.n -= used;
        memmove(g->part.at, g->part.at + used, g->part.n);
        put = &shown;
    }
    size_t written = put->n ? fwrite(put->at, 1, put->n, stdout) : 0;
    bool ok = written == put->n && fflush(stdout) == 0;
    return ok ? ECH_OK : ECH_EIO; /* it is said at the exit */
}

static ech_status write_token(generation *g, int32_t id)
{
    ECH_FREED_TEXT text = {0};
    if (g->in->ids)
        ech_text_append(&text, "%s%d", g->written > 0 ? " " : "", (int)id);
    else
        ech_tokenizer_decode(g->trained->tokenizer, id, g->written == 0, &text);
    g->written++;
    return write_text(g, &text, false);
}

/* Feeds token by token with a KV cache. When the text becomes longer than T, the first half of the
 * context is dropped and the rest is fed from the start. */
static ech_status feed(generation *g, size_t T)
{
    ech_exec *exec = g->trained->session.exec;
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
    const ech_tokenizer *tokenizer = g->trained->tokenizer;
    *front = 0;
    if (g->in->ids) return read_ids(g->in->ids, g->trained->config->model.vocab_size, &g->ids);
    bool given = g->in->begins != ECH_AUTO;
    int begins = given ? g->in->begins : g->trained->config->data.begin_of_text;
    if (tokenizer)
        return ech_sampler_prompt(tokenizer, g->in->prompt, begins, g->in->special, &g->ids, front);
    ECH_FAIL(ECH_EUSAGE,
             "%s: has no tokenizer, so its text cannot be written; give --tokenizer SOURCE, or "
             "--ids \"1 2 3\" for ids in and out",
             g->in->directory);
}

static bool stops_at(const ech_trained *trained, int32_t id)
{
    for (size_t i = 0; i < trained->stops.n; i++)
        if (trained->stops.at[i] == id) return true;
    return false;
}

static ech_status sample(ech_trained *trained, void *arguments)
{
    const sample_arguments *in = arguments;
    if (trained->design.model->logits < 0)
        ECH_FAIL(ECH_EUSAGE,
                 "%s: a model of the family %s generates no text; `echelon eval` measures its loss",
                 in->directory, trained->design.model->family->name);
    ECH_CLEANUP(free_generation)
    generation g = {.trained = trained, .in = in, .is_shown = isatty(STDOUT_FILENO)};
    const size_t T = (size_t)trained->config->data.sequence_length;
    int64_t choices =
        trained->tokenizer ? trained->tokenizer->vocabulary : trained->config->model.vocab_size;
    ech_random_key key = {.seed = (uint64_t)in->seed,
                          .stream = ech_random_stream(0, ECH_SITE_SAMPLE)};
    size_t front;
    ECH_TRY(read_prompt(&g, &front));
    for (size_t i = front; i < g.ids.n; i++) ECH_TRY(write_token(&g, g.ids.at[i]));
    if (g.ids.n > T) g.base = g.ids.n - T;
    if (g.ids.n == 0) ECH_PUSH(g.ids, trained->ends.begin);
    for (; key.step < in->tokens; key.step++) {
        int32_t id;
        ECH_TRY(feed(&g, T));
        ECH_TRY(ech_sampler_choose(&in->sampler, ech_exec_logits(trained->session.exec), choices,
                                   ech_random_unit(ech_random_word(key, 0)), &id));
        if (stops_at(trained, id)) break;
        ECH_PUSH(g.ids, id);
        ECH_TRY(write_token(&g, id));
    }
    ECH_TRY(write_text(&g, &(ech_text){0}, true));
    if (in->ids || g.is_shown) putchar('\n');
    return ECH_OK;
}

ech_status ech_command_sample(int argc, char **argv, int *code)
{
    (void)code;
    const ech_command_line line = {.usage = "DIR [PROMPT]\nDIR --ids IDS",
                                   .about = about,
                                   .option = options,
                                   .word = words,
                                   .words = 2,
                                   .surplus = "; put the prompt in quotes",
                                   .check = check};
    sample_arguments in = {
        .prompt = "", .tokens = 200, .seed = 1, .begins = ECH_AUTO, .sampler = {0.8, 0, 1}};
    ech_command_line_parse(&line, argc, argv, &in);
    ECH_TRY(ech_sampler_check(&in.sampler));
    const ech_trained_options wanted = {.path = in.directory,
                                        .samples = 1,
                                        .tokenizer = in.tokenizer,
                                        .device = in.device,
                                        .plugins = in.plugins,
                                        .ids_do = in.ids != NULL};
    return ech_trained_run(&wanted, sample, &in);
}
