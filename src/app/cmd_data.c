/* SPDX-License-Identifier: Apache-2.0
 *
 * echelon data IN OUT [--tokenizer SOURCE] [--valid SHARE] [--workers N] [--binary] [--text-key KEY]
 * echelon data IN OUT --train-bpe N [--pattern NAME]
 */
#include <stdio.h>
#include <string.h>

#include "app/command.h"
#include "app/count.h"
#include "app/learn_tokens.h"
#include "app/status_line.h"
#include "base/clock.h"
#include "data/data.h"
#include "device/device.h"

static const char about[] =
    "Turns a text file, or every file below a folder, into the tokens OUT.bin and OUT.idx "
    "(Megatron's "
    "format). A file is one document; of a .jsonl every line is: {\"text\": ...}, or {\"prompt\": "
    "..., \"completion\": ...}, of which only the completion is trained on."
    "\vWith --valid 0.1 the last tenth of each file goes to OUT-valid and the rest to OUT-train: "
    "tokens to measure the model with that it has not seen. An import that was interrupted goes on "
    "where it was (in OUT.tmp) when the same command is given again.";

enum { MOST_WORKERS = 1024, OPTION_TRAIN_BPE = 256, OPTION_PATTERN };

static const struct argp_option options[] = {
    {"tokenizer", 't', "SOURCE", 0,
     "how text becomes tokens: bytes, a tokenizer.json, or a folder with one (bytes)", 0},
    {"valid", 'v', "SHARE", 0, "share of each file for validation, 0 to below 1 (0: none)", 0},
    {"workers", 'w', "N", 0, "threads; changes no result (the machine's cores)", 0},
    {"binary", 'b', NULL, 0, "take bytes of text files as they are, UTF-8 or not", 0},
    {"text-key", 'k', "KEY", 0, "what .jsonl calls the text (text)", 0},
    {"prompt-key", 'p', "KEY", 0, "what it calls a prompt (prompt)", 0},
    {"completion-key", 'c', "KEY", 0, "what it calls a completion (completion)", 0},
    {"train-bpe", OPTION_TRAIN_BPE, "N", 0,
     "learn a vocabulary of N tokens from the texts instead, and write OUT/tokenizer.json", 0},
    {"pattern", OPTION_PATTERN, "NAME", 0,
     "with --train-bpe: how texts are cut into words: gpt2, llama3 or qwen2 (gpt2)", 0},
    {0}};

typedef struct data_arguments {
    const char *tokenizer, *pattern;
    int64_t train_bpe; /* tokens; 0: no vocabulary is learnt */
    ech_import_options import;
} data_arguments;

/* Options of the one way that the other does not read. */
static void check_training(const data_arguments *in, const struct argp_state *state)
{
    if (in->pattern && !in->train_bpe) argp_error(state, "--pattern goes with --train-bpe");
    if (in->train_bpe && (in->tokenizer || in->import.valid > 0))
        argp_error(state, "--train-bpe learns a tokenizer; --tokenizer and --valid make tokens");
}

static error_t parse_word(data_arguments *in, char *text, struct argp_state *state)
{
    if (state->arg_num > 1) argp_error(state, "%s: one word too many", text);
    *(state->arg_num == 0 ? &in->import.in : &in->import.out) = text;
    return 0;
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    data_arguments *in = state->input;
    switch (key) {
    case 't':
        in->tokenizer = text;
        return 0;
    case 'v':
        in->import.valid = ech_option_real(state, "--valid", text);
        if (in->import.valid < 0 || in->import.valid >= 1)
            argp_error(state, "--valid %s: must be 0 or more, and below 1", text);
        return 0;
    case 'w':
        in->import.workers = (int)ech_option_int(state, "--workers", text, 1, MOST_WORKERS);
        return 0;
    case 'b':
        in->import.binary = true;
        return 0;
    case 'k':
        in->import.text_key = text;
        return 0;
    case 'p':
        in->import.prompt_key = text;
        return 0;
    case 'c':
        in->import.completion_key = text;
        return 0;
    case OPTION_TRAIN_BPE:
        in->train_bpe = ech_option_int(state, "--train-bpe", text, 257, 10000000);
        return 0;
    case OPTION_PATTERN:
        in->pattern = text;
        return 0;
    case ARGP_KEY_ARG:
        return parse_word(in, text, state);
    case ARGP_KEY_END:
        if (!in->import.in) argp_error(state, "which text, and where to?");
        if (!in->import.out) argp_error(state, "where to? OUT is a path without .bin");
        check_training(in, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* The import's callback takes no context. */
static ech_status_line line;
static double began_at;

/* What is left, by the pace so far; nothing in the first second. */
static void append_rest(char *text, size_t size, int64_t read, int64_t left)
{
    double seconds = ech_clock_now() - began_at;
    size_t n = strlen(text);
    if (seconds < 1 || read <= 0 || left <= 0) return;
    long long rest = (long long)(seconds / (double)read * (double)left) + 1;
    snprintf(text + n, size - n, "  %.1f MB/s  %lld:%02lld:%02lld left",
             (double)read / seconds / 1e6, rest / 3600, rest / 60 % 60, rest % 60);
}

static void show_progress(int64_t before, int64_t done, int64_t all)
{
    enum { CELLS = 24 };
    char text[200], bar[CELLS + 1], so_far[32], whole[32];
    for (int i = 0; i < CELLS; i++)
        bar[i] = (double)i < (double)CELLS * (double)done / (double)all ? '#' : '.';
    bar[CELLS] = '\0';
    snprintf(text, sizeof text, "[%s] %s of %s read", bar,
             ech_text_from_bytes(done, so_far, sizeof so_far),
             ech_text_from_bytes(all, whole, sizeof whole));
    append_rest(text, sizeof text, done - before, all - done);
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
    const char *out = in->import.out;
    char documents[ECH_COUNT_BYTES], files[ECH_COUNT_BYTES], bytes[32];
    printf("%s file%s, %s document%s, %s, as %s\n", ech_count_text(count->files, files),
           count->files == 1 ? "" : "s", ech_count_text(count->documents, documents),
           count->documents == 1 ? "" : "s", ech_text_from_bytes(count->bytes, bytes, sizeof bytes),
           in->tokenizer);
    bool split = in->import.valid > 0, bytewise = strcmp(in->tokenizer, "bytes") == 0;
    print_part(out, split ? "-train" : "", count->tokens);
    if (split) print_part(out, "-valid", count->valid_tokens);
    printf("next: echelon train RUN.yaml data.train=%s%s", out, split ? "-train" : "");
    if (split) printf(" data.valid=%s-valid", out);
    printf("%s%s\n", bytewise ? "" : " data.tokenizer=", bytewise ? "" : in->tokenizer);
}

ech_status ech_command_data(int argc, char **argv, int *code)
{
    (void)code;
    const struct argp argp = {
        .options = options, .parser = parse, .args_doc = "IN OUT", .doc = about};
    data_arguments in = {
        .import = {.workers = ech_device_find("cpu")->cores(), .progress = show_progress}};
    ech_import_count count;
    ech_tokenizer *tokenizer;
    argp_parse(&argp, argc, argv, 0, NULL, &in);
    if (in.train_bpe)
        return ech_learn_tokens(in.import.in, in.import.out, in.train_bpe, in.pattern);
    if (!in.tokenizer) in.tokenizer = "bytes";
    ECH_TRY(ech_tokenizer_open(in.tokenizer, &tokenizer));
    in.import.tokenizer = tokenizer;
    began_at = ech_clock_now();
    ech_status_line_begin(&line);
    ech_status status = ech_data_import(&in.import, &count);
    ech_status_line_end(&line);
    ech_tokenizer_close(tokenizer);
    if (status == ECH_OK) print_result(&in, &count);
    return status;
}
