/* SPDX-License-Identifier: Apache-2.0
 *
 * echelon eval DIR --data SOURCES [--split SHARES] [--samples N] [--batch B] [--tokenizer SOURCE]
 *              [--logits FILE] [--parallel KEYS]
 * echelon eval DIR --choices FILE [--scores FILE] [--begin-of-text true|false] ...
 */
#include <echelon.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/terminal.h"
#include "base/text.h"
#include "base/writing.h"
#include "program/choices.h"
#include "program/command.h"
#include "program/options.h"

static const char about[] =
    "Loss of a trained model on token files: the prefix of a .bin and .idx (see `echelon data'), "
    "or whatever data.train may say; or with --choices its accuracy on multiple choice. DIR is a "
    "run directory, a folder of checkpoints (the newest "
    "valid one is used), one checkpoint, or a Hugging Face model of a supported family.\vPrints "
    "one line: the mean loss per token in nats, the perplexity exp(loss), the bits per byte of "
    "the predicted text (\"unknown\" without a tokenizer), and the number of predicted tokens. "
    "--logits writes safetensors: logits F32 (samples, tokens, ids), tokens and targets I32 and "
    "weights F32 (samples, tokens), at most 16 GiB, token by token, which takes longer.\n\n"
    "--choices reads an item a line, a JSON object in a shape of ARC, HellaSwag, PIQA or MMLU. "
    "Each "
    "choice is scored by its log-likelihood after the prompt. acc is the share of items whose "
    "answer has the largest one; acc_norm and acc_bytes divide it by the choice's characters and "
    "bytes. Each has its standard error. The names are lm-evaluation-harness's.";

enum { MOST_BATCH = 1 << 20 };

typedef struct eval_arguments {
    const char *directory, *data, *split, *tokenizer, *logits, *device, *plugins, *parallel;
    const char *choices, *scores;
    int64_t samples, batch; /* batch 0: not given */
    int begins;             /* as in echelon_score_options */
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
    ECH_PATH(eval_arguments, choices, "choices", 'c', "FILE",
             "items of multiple choice, instead of --data"),
    ECH_PATH(
        eval_arguments, scores, "scores", 0, "FILE",
        "with --choices: write each item's log-likelihoods to a new file, a JSON object a line"),
    ECH_TRUTH(eval_arguments, begins, "begin-of-text", 0,
              "with --choices: begin of text before each prompt, or not (as the training data have "
              "it)"),
    ECH_TEXT(eval_arguments, parallel, "parallel", 0, "KEYS",
             "ranks of this process, as in \"tensor=2 pipeline=2\" (keys of parallel)"),
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
    if (!in->data && !in->choices)
        argp_error(state, "on what? --data PREFIX, without .bin, or --choices FILE");
    if (in->data && in->choices)
        argp_error(state, "--data and --choices: give only one of the two");
    if (in->choices && (in->split || in->samples || in->batch || in->logits))
        argp_error(state, "--split, --samples, --batch and --logits are for --data, not --choices");
    if (in->data && (in->scores || in->begins != ECHELON_AUTO))
        argp_error(state, "--scores and --begin-of-text are for --choices, not --data");
}

static void draw(int64_t sample, int64_t samples, void *context)
{
    char text[80];
    snprintf(text, sizeof text, "%" PRId64 "/%" PRId64, sample, samples);
    ech_terminal_line_draw(context, text, false);
}

/* Targets are tokens, or labels or classes, one a sample. */
static void print_result(const echelon_evaluation *result)
{
    if (result->features) {
        printf("loss %.6f  ", result->loss);
        if (isfinite(result->accuracy))
            printf("accuracy %.4f  of five %.4f  ", result->accuracy, result->accuracy_of_5);
        printf("samples %" PRId64 "\n", result->targets);
        return;
    }
    printf("loss %.6f  perplexity %.6f  ", result->loss, exp(result->loss));
    if (isnan(result->bits_per_byte))
        printf("bits per byte unknown  ");
    else
        printf("bits per byte %.6f  ", result->bits_per_byte);
    printf("tokens %" PRId64 "\n", result->targets);
}

static ech_status evaluate_data(const eval_arguments *in)
{
    echelon_evaluation result = {.size = sizeof result};
    ech_terminal_line shown;
    const echelon_evaluate_options wanted = {.size = sizeof wanted,
                                             .split = in->split,
                                             .tokenizer = in->tokenizer,
                                             .device = in->device,
                                             .logits = in->logits,
                                             .samples = in->samples,
                                             .batch = in->batch,
                                             .progress = draw,
                                             .context = &shown,
                                             .plugins = in->plugins,
                                             .parallel = in->parallel};
    ech_terminal_line_begin(&shown);
    echelon_status status = echelon_evaluate(in->directory, in->data, &wanted, &result);
    ech_terminal_line_end(&shown);
    if (status == ECHELON_OK) print_result(&result);
    return (ech_status)status;
}

/* ---- multiple choice ---- */

typedef struct likelihoods {
    double *value; /* by choice */
    int64_t *tokens;
} likelihoods;

static void take(const echelon_likelihood *one, void *context)
{
    const likelihoods *to = context;
    to->value[one->index] = one->log_likelihood;
    to->tokens[one->index] = one->tokens;
}

static void append_item(const ech_choices *choices, const ech_choice_item *item,
                        const likelihoods *of, ech_text *out)
{
    char number[40];
    ech_text_append(out, "{\"line\":%" PRId64 ",\"answer\":%d", item->line, item->answer);
    for (int i = 0; i < ECH_ACCURACIES; i++) {
        ech_accuracy which = (ech_accuracy)i;
        bool right = ech_choices_pick(choices, item, of->value, which) == item->answer;
        ech_text_append(out, ",\"%s\":%d", ech_accuracy_name(which), right);
    }
    for (int i = 0; i < item->n; i++)
        ech_text_append(out, "%s%s", i ? "," : ",\"log_likelihoods\":[",
                        ech_text_from_real(of->value[item->first + i], 6, number, sizeof number));
    for (int i = 0; i < item->n; i++)
        ech_text_append(out, "%s%" PRId64, i ? "," : "],\"tokens\":[", of->tokens[item->first + i]);
    for (int i = 0; i < item->n; i++)
        ech_text_append(out, "%s%zu", i ? "," : "],\"bytes\":[",
                        strlen(choices->choice.at[item->first + i].text));
    ech_text_append(out, "]}\n");
}

static ech_status write_scores(const char *path, const ech_choices *choices, const likelihoods *of)
{
    ECH_FREED_TEXT lines = {0};
    for (size_t i = 0; i < choices->item.n; i++)
        append_item(choices, &choices->item.at[i], of, &lines);
    return ech_file_write_inside(path, lines.at, lines.n);
}

static ech_status score(const eval_arguments *in, const ech_choices *choices, likelihoods *out)
{
    ech_terminal_line shown;
    echelon_score_options wanted = ECHELON_SCORE_OPTIONS;
    ECH_FREED echelon_scored_text *text = ech_calloc(choices->choice.n, sizeof *text);
    for (size_t i = 0; i < choices->item.n; i++) {
        const ech_choice_item *item = &choices->item.at[i];
        for (int64_t c = item->first; c < item->first + item->n; c++)
            text[c] = (echelon_scored_text){.size = sizeof *text,
                                            .context = item->prompt,
                                            .text = choices->choice.at[c].appended,
                                            .name = choices->choice.at[c].name};
    }
    wanted.tokenizer = in->tokenizer;
    wanted.device = in->device;
    wanted.parallel = in->parallel;
    wanted.plugins = in->plugins;
    wanted.begin_of_text = in->begins;
    wanted.progress = draw;
    wanted.context = &shown;
    ech_terminal_line_begin(&shown);
    echelon_status status =
        echelon_score(in->directory, text, (int64_t)choices->choice.n, &wanted, take, out);
    ech_terminal_line_end(&shown);
    return (ech_status)status;
}

static void print_accuracies(const ech_choices *choices, const double *value)
{
    for (int i = 0; i < ECH_ACCURACIES; i++) {
        double error, share = ech_choices_score(choices, value, (ech_accuracy)i, &error);
        printf("%s %.6f", ech_accuracy_name((ech_accuracy)i), share);
        if (!isnan(error)) printf(" (error %.6f)", error);
        printf("  ");
    }
    printf("items %zu\n", choices->item.n);
}

static ech_status evaluate_choices(const eval_arguments *in)
{
    ECH_CLEANUP(ech_choices_free) ech_choices choices = {0};
    if (in->scores && ech_file_exists(in->scores))
        ECH_FAIL(ECH_EUSAGE, "--scores %s: already exists; name a new file, or remove it",
                 in->scores);
    if (in->scores) ECH_TRY(ech_file_check_place(in->scores));
    ECH_TRY(ech_choices_read(in->choices, &choices));
    ECH_FREED double *value = ech_calloc(choices.choice.n, sizeof *value);
    ECH_FREED int64_t *tokens = ech_calloc(choices.choice.n, sizeof *tokens);
    likelihoods of = {value, tokens};
    ECH_TRY(score(in, &choices, &of));
    print_accuracies(&choices, value);
    return in->scores ? write_scores(in->scores, &choices, &of) : ECH_OK;
}

ech_status ech_command_eval(int argc, char **argv, int *code)
{
    (void)code;
    const ech_command_line line = {.usage = "DIR --data SOURCES\nDIR --choices FILE",
                                   .about = about,
                                   .option = options,
                                   .word = words,
                                   .words = 1,
                                   .check = check};
    eval_arguments in = {.begins = ECHELON_AUTO};
    ech_command_line_parse(&line, argc, argv, &in);
    return in.choices ? evaluate_choices(&in) : evaluate_data(&in);
}
