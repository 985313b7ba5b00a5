/* SPDX-License-Identifier: Apache-2.0
 *
 * echelon data IN OUT [--tokenizer SOURCE] [--valid SHARE]
 * echelon data IN OUT --train-bpe N [--pattern NAME]
 */
#include <stdio.h>

#include "app/command.h"
#include "app/count.h"
#include "app/learn_tokens.h"
#include "app/status_line.h"
#include "data/data.h"

static const char about[] =
    "Turns a text file, or every file below a folder (one document each), into the tokens OUT.bin "
    "and "
    "OUT.idx (Megatron's format)."
    "\vWith --valid 0.1 the last tenth of each file goes to OUT-valid and the rest to OUT-train: "
    "tokens to measure the model with that it has not seen.";

enum { OPTION_TRAIN_BPE = 256, OPTION_PATTERN };

static const struct argp_option options[] = {
    {"tokenizer", 't', "SOURCE", 0,
     "how text becomes tokens: bytes, a tokenizer.json, or a folder with one (bytes)", 0},
    {"valid", 'v', "SHARE", 0, "share of each file for validation, 0 to below 1 (0: none)", 0},
    {"train-bpe", OPTION_TRAIN_BPE, "N", 0,
     "learn a vocabulary of N tokens from the texts instead, and write OUT/tokenizer.json", 0},
    {"pattern", OPTION_PATTERN, "NAME", 0,
     "with --train-bpe: how texts are cut into words: gpt2, llama3 or qwen2 (gpt2)", 0},
    {0}};

typedef struct data_arguments {
    const char *in, *out, *tokenizer, *pattern;
    int64_t train_bpe; /* tokens; 0: no vocabulary is learnt */
    double valid;
} data_arguments;

/* Options of the one way that the other does not read. */
static void check_training(const data_arguments *in, const struct argp_state *state)
{
    if (in->pattern && !in->train_bpe) argp_error(state, "--pattern goes with --train-bpe");
    if (in->train_bpe && (in->tokenizer || in->valid > 0))
        argp_error(state, "--train-bpe learns a tokenizer; --tokenizer and --valid make tokens");
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    data_arguments *in = state->input;
    switch (key) {
    case 't':
        in->tokenizer = text;
        return 0;
    case 'v':
        in->valid = ech_option_real(state, "--valid", text);
        if (in->valid < 0 || in->valid >= 1)
            argp_error(state, "--valid %s: must be 0 or more, and below 1", text);
        return 0;
    case OPTION_TRAIN_BPE:
        in->train_bpe = ech_option_int(state, "--train-bpe", text, 257, 10000000);
        return 0;
    case OPTION_PATTERN:
        in->pattern = text;
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num > 1) argp_error(state, "%s: one word too many", text);
        *(state->arg_num == 0 ? &in->in : &in->out) = text;
        return 0;
    case ARGP_KEY_END:
        if (!in->in) argp_error(state, "which text, and where to?");
        if (!in->out) argp_error(state, "where to? OUT is a path without .bin");
        check_training(in, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* The import's callback takes no context. */
static ech_status_line line;

static void show_progress(int64_t done, int64_t all)
{
    char text[160], so_far[32], whole[32];
    snprintf(text, sizeof text, "%s of %s read", ech_text_from_bytes(done, so_far, sizeof so_far),
             ech_text_from_bytes(all, whole, sizeof whole));
    ech_status_line_draw(&line, text, done >= all);
}

static void print_part(const char *prefix, const char *part, int64_t tokens)
{
    char count[ECH_COUNT_BYTES];
    printf("%s%s.bin, %s%s.idx: %s tokens\n", prefix, part, prefix, part,
           ech_count_text(tokens, count));
}

static void print_result(const data_arguments *in, const ech_import_count *count)
{
    char documents[ECH_COUNT_BYTES], files[ECH_COUNT_BYTES], bytes[32];
    printf("%s file%s, %s document%s, %s, as %s\n", ech_count_text(count->files, files),
           count->files == 1 ? "" : "s", ech_count_text(count->documents, documents),
           count->documents == 1 ? "" : "s", ech_text_from_bytes(count->bytes, bytes, sizeof bytes),
           in->tokenizer);
    if (in->valid > 0) {
        print_part(in->out, "-train", count->tokens);
        print_part(in->out, "-valid", count->valid_tokens);
        printf("next: echelon train RUN.yaml data.train=%s-train data.valid=%s-valid\n", in->out,
               in->out);
    } else {
        print_part(in->out, "", count->tokens);
        printf("next: echelon train RUN.yaml data.train=%s\n", in->out);
    }
}

static ech_status import(const data_arguments *in, ech_import_count *count)
{
    ech_tokenizer *tokenizer;
    ECH_TRY(ech_tokenizer_open(in->tokenizer, &tokenizer));
    ech_status_line_begin(&line);
    ech_status status =
        ech_data_import(in->in, in->out, tokenizer, in->valid, show_progress, count);
    ech_status_line_end(&line);
    ech_tokenizer_close(tokenizer);
    return status;
}

ech_status ech_command_data(int argc, char **argv, int *code)
{
    (void)code;
    const struct argp argp = {
        .options = options, .parser = parse, .args_doc = "IN OUT", .doc = about};
    data_arguments in = {0};
    ech_import_count count;
    argp_parse(&argp, argc, argv, 0, NULL, &in);
    if (in.train_bpe) return ech_learn_tokens(in.in, in.out, in.train_bpe, in.pattern);
    if (!in.tokenizer) in.tokenizer = "bytes";
    ECH_TRY(import(&in, &count));
    print_result(&in, &count);
    return ECH_OK;
}
