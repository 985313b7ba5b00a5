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
    "written "
    "or the model ends the text. DIR is a run directory, a folder of checkpoints (the newest that "
    "verifies is taken), one checkpoint, or a Hugging Face model of a supported family."
    "\vThe same checkpoint, prompt and options write the same text.\n\nA model whose tokenizer is "
    "not "
    "known takes --ids, and --tokenizer names one.";

typedef struct sample_arguments {
    const char *directory, *prompt;
    const char *ids, *tokenizer; /* NULL: not given */
    int64_t tokens, seed;
    ech_sampler sampler;
} sample_arguments;

static const ech_option options[] = {
    ECH_INT(sample_arguments, tokens, "tokens", 'n', "N", 0, INT32_MAX, "tokens to write (200)"),
    ECH_REAL(sample_arguments, sampler.temperature, "temperature", 't', "X",
             "below 1 likely tokens gain; 0 takes the likeliest (0.8)"),
    ECH_INT(sample_arguments, sampler.top_k, "top-k", 0, "K", 0, INT32_MAX,
            "only the K likeliest tokens (0: all)"),
    ECH_REAL(sample_arguments, sampler.top_p, "top-p", 0, "P",
             "only the likeliest tokens that make up a share P (1)"),
    ECH_INT(sample_arguments, seed, "seed", 's', "S", 0, INT64_MAX, "of the random numbers (1)"),
    ECH_TEXT(sample_arguments, ids, "ids", 0, "IDS",
             "in place of PROMPT: its token ids, as in \"1 2 3\"; ids are written"),
    ECH_TEXT(sample_arguments, tokenizer, "tokenizer", 0, "SOURCE", "in place of the model's own"),
    {0}};

static const ech_word words[] = {
    {offsetof(sample_arguments, directory), "which run directory or checkpoint?"},
    {offsetof(sample_arguments, prompt), NULL}};

static void check(void *arguments, const struct argp_state *state)
{
    const sample_arguments *in = arguments;
    if (in->ids && in->prompt[0]) argp_error(state, "--ids stands in place of a prompt");
}

/* The text so far. The model sees ids [base, ids.n), of which it has been given the first `fed`. */
typedef struct story {
    ech_ids ids;
    size_t base, fed;
    int64_t written;    /* tokens */
    int64_t T, choices; /* ids below `choices` may be chosen */
    bool is_shown;      /* on a terminal, which would obey some characters */
    ech_text part;      /* then: a character's first bytes, which the next token ends */
} story;

/* To standard output; on a terminal as it can be seen there. */
static ech_status write_text(story *s, const ech_text *text, bool last)
{
    ECH_FREED_TEXT shown = {0};
    const ech_text *put = text;
    if (s->is_shown && s->part.n + text->n > 0) {
        if (text->n) ech_text_append_bytes(&s->part, text->at, text->n);
        size_t used = ech_visible_append(&shown, s->part.at, s->part.n, true, last);
        s->part.n -= used;
        memmove(s->part.at, s->part.at + used, s->part.n);
        put = &shown;
    }
    size_t written = put->n ? fwrite(put->at, 1, put->n, stdout) : 0;
    bool ok = written == put->n && fflush(stdout) == 0;
    return ok ? ECH_OK : ECH_EIO; /* it is said at the exit */
}

static void append_token(const ech_trained *trained, const sample_arguments *in, const story *s,
                         int32_t id, ech_text *out)
{
    if (in->ids)
        ech_text_append(out, "%s%d", s->written > 0 ? " " : "", (int)id);
    else
        ech_tokenizer_decode(trained->tokenizer, id, s->written == 0, out);
}

static ech_status write_token(const ech_trained *trained, const sample_arguments *in, story *s,
                              int32_t id)
{
    ECH_FREED_TEXT text = {0};
    append_token(trained, in, s, id, &text);
    ech_status status = write_text(s, &text, false);
    s->written++;
    return status;
}

/* Feeds token by token with a KV cache. When the text becomes longer than T, the first half of the context is
 * dropped and the rest is fed from the start. */
static ech_status feed(ech_exec *exec, story *s)
{
    size_t T = (size_t)s->T;
    if (s->ids.n - s->base > T) {
        s->base = s->ids.n - (T + 1) / 2;
        s->fed = 0;
    }
    for (; s->fed < s->ids.n - s->base; s->fed++) {
        ech_exec_set_token(exec, s->ids.at[s->base + s->fed], (int64_t)s->fed);
        ECH_TRY(ech_exec_run(exec, ECH_LIST_GENERATE, 0));
    }
    return ECH_OK;
}

static ech_status choose_next(ech_exec *exec, const sample_arguments *in, story *s, int64_t number,
                              int32_t *id)
{
    ech_random_key key = {.seed = (uint64_t)in->seed,
                          .step = (uint32_t)number,
                          .stream = ech_random_stream(0, ECH_SITE_SAMPLE)};
    ECH_TRY(feed(exec, s));
    return ech_sampler_choose(&in->sampler, ech_exec_logits(exec), s->choices,
                              ech_random_unit(ech_random_word(key, 0)), id);
}

/* Ids with blanks or commas between. */
static ech_status read_ids(const char *text, int64_t vocabulary, ech_ids *out)
{
    char *copy = ech_strdup(text), *rest = NULL;
    ech_status status = ECH_OK;
    for (char *word = strtok_r(copy, " ,\t\n", &rest); word && status == ECH_OK;
         word = strtok_r(NULL, " ,\t\n", &rest)) {
        int64_t id;
        if (ech_text_to_int(word, &id) && id >= 0 && id < vocabulary)
            ECH_PUSH(*out, (int32_t)id);
        else
            status = ech_fail_at(__FILE__, __LINE__, ECH_EUSAGE,
                                 "--ids: %s is no id of this model, 0 to %lld", word,
                                 (long long)vocabulary - 1);
    }
    free(copy);
    return status;
}

/* *front of them are not the prompt's own. */
static ech_status read_prompt(const ech_trained *trained, const sample_arguments *in, ech_ids *out,
                              size_t *front)
{
    *front = 0;
    if (in->ids) return read_ids(in->ids, trained->config->model.vocab_size, out);
    if (trained->tokenizer) return ech_sampler_prompt(trained->tokenizer, in->prompt, out, front);
    ECH_FAIL(ECH_EUSAGE,
             "%s: has no tokenizer, so its text cannot be written; give --tokenizer SOURCE, or "
             "--ids \"1 2 3\" for ids in and out",
             in->directory);
}

static ech_status begin(const ech_trained *trained, const sample_arguments *in, story *s)
{
    const ech_tokenizer *tokenizer = trained->tokenizer;
    int64_t V = trained->config->model.vocab_size;
    s->T = trained->config->data.sequence_length;
    s->choices = tokenizer ? ech_tokenizer_vocabulary(tokenizer) : V;
    size_t front;
    ECH_TRY(read_prompt(trained, in, &s->ids, &front));
    for (size_t i = front; i < s->ids.n; i++) ECH_TRY(write_token(trained, in, s, s->ids.at[i]));
    if (s->ids.n > (size_t)s->T) s->base = s->ids.n - (size_t)s->T;
    if (s->ids.n == 0) ECH_PUSH(s->ids, trained->ends.begin);
    return ECH_OK;
}

static bool stops_at(const ech_trained *trained, int32_t id)
{
    bool stops = false;
    for (size_t i = 0; i < trained->stops.n; i++) stops = stops || trained->stops.at[i] == id;
    return stops;
}

static ech_status tell(const ech_trained *trained, const sample_arguments *in, story *s)
{
    ECH_TRY(begin(trained, in, s));
    for (int64_t number = 0; number < in->tokens; number++) {
        int32_t id;
        ECH_TRY(choose_next(trained->session.exec, in, s, number, &id));
        if (stops_at(trained, id)) break;
        ECH_PUSH(s->ids, id);
        ECH_TRY(write_token(trained, in, s, id));
    }
    ECH_TRY(write_text(s, &(ech_text){0}, true));
    if (in->ids || s->is_shown) putchar('\n');
    return ECH_OK;
}

static ech_status sample(ech_trained *trained, void *context)
{
    story s = {.is_shown = isatty(STDOUT_FILENO)};
    ech_status status = tell(trained, context, &s);
    ech_text_free(&s.part);
    free(s.ids.at);
    return status;
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
    sample_arguments in = {.prompt = "", .tokens = 200, .seed = 1, .sampler = {0.8, 0, 1}};
    ech_command_line_parse(&line, argc, argv, &in);
    ECH_TRY(ech_sampler_check(&in.sampler));
    const ech_trained_options wanted = {
        .path = in.directory, .samples = 1, .tokenizer = in.tokenizer, .ids_do = in.ids != NULL};
    return ech_trained_run(&wanted, sample, &in);
}
