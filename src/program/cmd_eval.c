/* SPDX-License-Identifier: Apache-2.0
 *
 * echelon eval DIR --data SOURCES [--split SHARES] [--samples N] [--batch B] [--tokenizer SOURCE]
 *              [--logits FILE]
 */
#include <echelon.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/terminal.h"
#include "program/command.h"
#include "program/options.h"

static const char about[] =
    "Loss of a trained model on token files: the prefix of a .bin and .idx (see `echelon data'), "
    "or whatever data.train may say. DIR is a run directory, a folder of checkpoints (the newest "
    "valid one is used), one checkpoint, or a Hugging Face model of a supported family.\vPrints "
    "one line: the mean loss per token in nats, the perplexity exp(loss), the bits per byte of "
    "the predicted text if the tokenizer is known, and the number of predicted tokens. "
    "--logits writes safetensors: logits F32 (samples, tokens, ids), tokens and targets I32 and "
    "weights F32 (samples, tokens), at most 16 GiB, token by token, which takes longer.";

enum { MOST_BATCH = 1 << 20 };

typedef struct eval_arguments {
    const char *directory, *data, *split, *tokenizer, *logits, *device, *plugins;
    int64_t samples, batch;
} eval_arguments;

static const ech_option options[] = {
    ECH_PATHS(eval_arguments, data, "data", 'd', "SOURCES",
              "tokens to evaluate on, as data.train names them"),
    ECH_TEXT(eval_arguments, split, "split", 's', "SHARES",
             "only the third share of the documents: what data.split left for tests"),
    ECH_INT(eval_arguments, samples, "samples", 'n', "N", 0, INT64_MAX,
            "only the first N samples (0: all)"),
    ECH_INT(eval_arguments, batch, "batch", 'b', "B", 1, MOST_BATCH,
            "samples at a time (8): costs memory, changes no result"),
    ECH_PATH(eval_arguments, logits, "logits", 'l', "FILE",
             "write the logits at each position to a new file"),
    ECH_PATH(eval_arguments, tokenizer, "tokenizer", 't', "SOURCE",
             "tokenizer that made the tokens, if it is not the model's own"),
    ECH_TEXT(eval_arguments, device, "device", 0, "NAME",
             "device instead of the run's (as parallel.device)"),
    ECH_PATHS(eval_arguments, plugins, "plugins", 0, "FILES",
              "the run's plugins (as training.plugins)"),
    {0}};

static const ech_word words[] = {
    {offsetof(eval_arguments, directory), "which run directory or checkpoint?", true}};

static void check(void *arguments, const struct argp_state *state)
{
    const eval_arguments *in = arguments;
    if (!in->data) argp_error(state, "on what? --data PREFIX, without .bin");
}

static void draw(int64_t sample, int64_t samples, void *context)
{
    char text[80];
    snprintf(text, sizeof text, "sample %" PRId64 "/%" PRId64, sample, samples);
    ech_terminal_line_draw(context, text, false);
}

/* Targets are tokens, or of samples of features labels, one a sample. */
static void print_result(const echelon_evaluation *result)
{
    if (result->features) {
        printf("loss %.6f  samples %" PRId64 "\n", result->loss, result->targets);
        return;
    }
    printf("loss %.6f  perplexity %.6f  ", result->loss, exp(result->loss));
    if (!isnan(result->bits_per_byte)) printf("bits per byte %.6f  ", result->bits_per_byte);
    printf("tokens %" PRId64 "\n", result->targets);
}

ech_status ech_command_eval(int argc, char **argv, int *code)
{
    (void)code;
    const ech_command_line line = {.usage = "DIR --data SOURCES",
                                   .about = about,
                                   .option = options,
                                   .word = words,
                                   .words = 1,
                                   .check = check};
    eval_arguments in = {.batch = 8};
    echelon_evaluation result = {.size = sizeof result};
    ech_terminal_line shown;
    ech_command_line_parse(&line, argc, argv, &in);
    const echelon_evaluate_options wanted = {.size = sizeof wanted,
                                             .split = in.split,
                                             .tokenizer = in.tokenizer,
                                             .device = in.device,
                                             .logits = in.logits,
                                             .samples = in.samples,
                                             .batch = in.batch,
                                             .progress = draw,
                                             .context = &shown,
                                             .plugins = in.plugins};
    ech_terminal_line_begin(&shown);
    echelon_status status = echelon_evaluate(in.directory, in.data, &wanted, &result);
    ech_terminal_line_end(&shown);
    if (status == ECHELON_OK) print_result(&result);
    return (ech_status)status;
}
