/* SPDX-License-Identifier: Apache-2.0
 *
 * echelon sample DIR [PROMPT] [--tokens N] [--temperature X] [--top-k K] [--top-p P] [--seed S]
 * echelon sample DIR --ids "ID ..." ...
 */
#include <echelon.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "program/command.h"
#include "program/options.h"
#include "base/status.h"
#include "base/text.h"
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
    int64_t tokens, seed, top_k;
    double temperature, top_p;
    int begins; /* as in echelon_sample_options */
    bool special;
} sample_arguments;

static const ech_option options[] = {
    ECH_INT(sample_arguments, tokens, "tokens", 'n', "N", 0, INT32_MAX, "tokens to write (200)"),
    ECH_REAL(sample_arguments, temperature, "temperature", 't', "X",
             "sampling temperature; 0 picks the most likely token (0.8)"),
    ECH_INT(sample_arguments, top_k, "top-k", 0, "K", 0, INT32_MAX,
            "sample from the K most likely tokens only (0: all)"),
    ECH_REAL(sample_arguments, top_p, "top-p", 0, "P",
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

/* The text on standard output. */
typedef struct output {
    bool writes_ids, is_shown; /* on a terminal, which would obey some characters */
    bool has_begun, failed, ends_line;
    ech_text part; /* on a terminal: a character's first bytes, which the next token ends */
} output;

/* To standard output; on a terminal as it can be seen there. False: it cannot be written, which is
 * reported at the exit. */
static bool write_text(output *o, const char *bytes, size_t n, bool last)
{
    ECH_FREED_TEXT shown = {0};
    if (o->is_shown && o->part.n + n > 0) {
        if (n) ech_text_append_bytes(&o->part, bytes, n);
        size_t used = ech_visible_append(&shown, o->part.at, o->part.n, true, last);
        o->part.n -= used;
        memmove(o->part.at, o->part.at + used, o->part.n);
        bytes = shown.at;
        n = shown.n;
    }
    size_t written = n ? fwrite(bytes, 1, n, stdout) : 0;
    if (n > 0) o->ends_line = bytes[n - 1] == '\n';
    o->failed = written != n || fflush(stdout) != 0;
    return !o->failed;
}

static bool take_token(const echelon_token *token, void *context)
{
    output *o = context;
    ECH_FREED_TEXT id = {0};
    if (o->writes_ids) ech_text_append(&id, "%s%d", o->has_begun ? " " : "", (int)token->id);
    o->has_begun = true;
    return write_text(o, o->writes_ids ? id.at : token->bytes, o->writes_ids ? id.n : token->n,
                      false);
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
    sample_arguments in = {.prompt = "",
                           .tokens = 200,
                           .seed = 1,
                           .begins = ECHELON_AUTO,
                           .temperature = 0.8,
                           .top_p = 1};
    ech_command_line_parse(&line, argc, argv, &in);
    output o = {.writes_ids = in.ids != NULL, .is_shown = isatty(STDOUT_FILENO)};
    const echelon_sample_options wanted = {.size = sizeof wanted,
                                           .ids = in.ids,
                                           .tokenizer = in.tokenizer,
                                           .device = in.device,
                                           .tokens = in.tokens,
                                           .seed = in.seed,
                                           .temperature = in.temperature,
                                           .top_k = in.top_k,
                                           .top_p = in.top_p,
                                           .begin_of_text = in.begins,
                                           .special_tokens = in.special,
                                           .plugins = in.plugins};
    echelon_status status = echelon_sample(in.directory, in.prompt, &wanted, take_token, &o);
    if (status == ECHELON_OK && !o.failed) write_text(&o, "", 0, true);
    ech_text_free(&o.part);
    if (status == ECHELON_OK && o.failed) return ECH_EIO;
    if (status == ECHELON_OK && !o.ends_line) putchar('\n');
    return (ech_status)status;
}
