/* SPDX-License-Identifier: Apache-2.0
 *
 * echelon data IN OUT [--tokenizer SOURCE] [--valid SHARE] [--workers N] [--binary] [--as-text]
 *                     [--text-key KEY] [--skip-bad N]
 * echelon data IN OUT --train-bpe N [--pattern NAME]
 * echelon data IN.libsvm OUT [--libsvm] [--features N] [--valid SHARE]
 * echelon data IMAGES OUT --images [--like FILE] [--valid SHARE] [--workers N]
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "program/command.h"
#include "app/count.h"
#include "program/options.h"
#include "app/setup/setup.h"
#include "base/terminal.h"
#include "base/clock.h"
#include "base/path.h"
#include "data/data.h"
#include "device/device.h"

/* ---- a vocabulary from texts, with a line that says how far it is ---- */

/* The callbacks take no context. */
static ech_terminal_line progress;

static void show_read(int64_t done, int64_t all)
{
    char text[160];
    snprintf(text, sizeof text, "%s of %s read", ECH_BYTES(done), ECH_BYTES(all));
    ech_terminal_line_draw(&progress, text, done >= all);
}

static void show_learnt(int64_t done, int64_t all)
{
    char text[160];
    snprintf(text, sizeof text, "%s of %s tokens learnt", ECH_DIGITS(done), ECH_DIGITS(all));
    ech_terminal_line_draw(&progress, text, done >= all);
}

/* Learns a vocabulary from the texts, writes it into the folder `out`, and says what follows.
 * `pattern` NULL: gpt2. */
static ech_status learn_tokens(const ech_data_text_source *texts, const char *out,
                               int64_t vocabulary, const char *pattern)
{
    const ech_bpe_training training = {.texts = *texts,
                                       .out = out,
                                       .pattern = pattern ? pattern : "gpt2",
                                       .vocabulary = vocabulary,
                                       .progress = show_read,
                                       .learnt = show_learnt};
    ech_terminal_line_begin(&progress);
    ech_status status = ech_data_train_bpe(&training);
    ech_terminal_line_end(&progress);
    ECH_TRY(status);
    ECH_FREED_TEXT line = {0};
    ech_text_append(&line, "next: echelon data ");
    ech_path_append_typed(texts->in, &line);
    ech_text_append(&line, " TOKENS --tokenizer ");
    ech_path_append_typed(out, &line);
    printf("%s/tokenizer.json: %s tokens\n%s\n", out, ECH_DIGITS(vocabulary), line.at);
    return ECH_OK;
}

static const char about[] =
    "Turns the text file IN, or every file below the folder IN, into tokens to train on: OUT.bin "
    "and OUT.idx, in Megatron's format. A file is one document. Of lines of JSON, and of an array, "
    "every object is one: {\"text\": ...}, or {\"prompt\": ..., \"completion\": ...}, of which "
    "only the completion is trained on, or a conversation: {\"messages\": [{\"role\": ..., "
    "\"content\": ...}, ...]}, ShareGPT's and Alpaca's forms, of which only the assistant's "
    "messages are trained on. Files are recognized by their first bytes, whatever their name; "
    "gzip, zstd, xz and bzip2 are unpacked. Of a folder hidden files are left out, and, with a "
    "warning, README, LICENSE, tables, HTML, other JSON and what is no text."
    "\vWith --valid 0.1 the last tenth of each file goes to OUT-valid and the rest to OUT-train: "
    "tokens to measure the model with that it has not seen.\n\n"
    "With --train-bpe the texts become no tokens yet; OUT is then a folder with a tokenizer that "
    "suits them:\n\n"
    "  echelon data texts/ my-tokenizer --train-bpe 8192\n"
    "  echelon data texts/ my-tokens --tokenizer my-tokenizer\n\n"
    "A file that ends in .libsvm or .svm, or with --libsvm any file or folder, becomes no tokens, "
    "but samples of features to train a model of the family logistic on: a line is LABEL "
    "INDEX:VALUE INDEX:VALUE ..., labels are 1 and -1, or 1 and 0, and indices ascend from 1 on. "
    "OUT.values is then written, too.\n\n"
    "With --images, IN is an IDX file of images (NAME-images-idx3-ubyte, with "
    "NAME-labels-idx1-ubyte beside it), a binary file of CIFAR-10, a folder with CIFAR-10's "
    "data_batch_*.bin, or a folder with a folder of PNG or JPEG files for each class, all of one "
    "size. OUT.images has all of them in one file, with the mean and the deviation of "
    "each channel, by which pixels are normalized. "
    "--like TRAIN.images uses another file's, as "
    "images to validate on need:\n\n"
    "  echelon data cifar-10-batches-bin cifar --images\n"
    "  echelon data cifar-10-batches-bin/test_batch.bin cifar-test --images --like cifar.images\n\n"
    "An import of texts that was interrupted goes on where it was (OUT.tmp knows) when the same "
    "command is given again.";

enum { MOST_WORKERS = 1024 };

typedef struct data_arguments {
    const char *tokenizer, *pattern;
    int64_t train_bpe; /* tokens; 0: no vocabulary is learnt */
    bool libsvm, images;
    const char *like; /* NULL: not given */
    int64_t features; /* 0: not given */
    int64_t length;   /* of samples, in tokens, to be counted; 0: not given */
    ech_import_options import;
} data_arguments;

static const ech_option options[] = {
    ECH_HEADING("How texts are read:"),
    ECH_FLAG(data_arguments, import.texts.binary, "binary", 'b',
             "take bytes of text files as they are, UTF-8 or not"),
    ECH_FLAG(data_arguments, import.texts.as_text, "as-text", 'a',
             "read JSON, README, tables and HTML as plain text, a document each"),
    ECH_TEXT(data_arguments, import.texts.text_key, "text-key", 'k', "KEY",
             "key of a text in JSON (default: text)"),
    ECH_TEXT(data_arguments, import.texts.prompt_key, "prompt-key", 'p', "KEY",
             "key of a prompt in JSON (default: prompt)"),
    ECH_TEXT(data_arguments, import.texts.completion_key, "completion-key", 'c', "KEY",
             "key of a completion in JSON (default: completion)"),
    ECH_INT(data_arguments, import.texts.skip_bad, "skip-bad", 's', "N", 0, INT64_MAX,
            "leave out up to N bad lines of JSON, with a warning (default: 0)"),
    ECH_HEADING("How they become tokens:"),
    ECH_PATH(data_arguments, tokenizer, "tokenizer", 't', "SOURCE",
             "bytes, a tokenizer.json, or a folder with one or with GPT-2's files (default: "
             "bytes)"),
    ECH_TRUTH(data_arguments, import.begins, "begin-of-text", 0,
              "begin of text before each document, or not (default: as the tokenizer says)"),
    ECH_FLAG(data_arguments, import.special, "special-tokens", 0,
             "names of special tokens in texts become their ids (default: they stay text)"),
    ECH_TEXT(data_arguments, import.chat_template, "chat-template", 0, "NAME",
             "template of conversations, such as chatml, llama3.1, qwen3 or plain (default: the "
             "tokenizer's folder says, or plain)"),
    ECH_FLAG(data_arguments, import.trains_on_all, "train-on-all", 0,
             "train on all messages of conversations (default: on the assistant's)"),
    ECH_REAL(data_arguments, import.valid, "valid", 'v', "SHARE",
             "share of each file for validation, 0 to below 1 (default: 0)"),
    ECH_INT(data_arguments, import.workers, "workers", 'w', "N", 1, MOST_WORKERS,
            "threads; they change no result (default: one a core)"),
    ECH_INT(data_arguments, length, "sequence-length", 'n', "T", 1, 100000000,
            "also count the samples of T tokens, and their padding, for both of data.packing"),
    ECH_HEADING("Or to learn a tokenizer from them:"),
    ECH_INT(data_arguments, train_bpe, "train-bpe", 0, "N", 257, 10000000,
            "write OUT/tokenizer.json with N tokens"),
    ECH_TEXT(data_arguments, pattern, "pattern", 0, "NAME",
             "how it cuts texts into words: as gpt2, llama3 or qwen2 do (default: gpt2)"),
    ECH_HEADING("Or to read lines of features:"),
    ECH_FLAG(data_arguments, libsvm, "libsvm", 'l', "IN is in LIBSVM's format, whatever its name"),
    ECH_INT(data_arguments, features, "features", 'f', "N", 1, INT32_MAX,
            "how many there are; a larger index is an error (default: the largest index)"),
    ECH_HEADING("Or to pack images:"),
    ECH_FLAG(data_arguments, images, "images", 'i', "IN has images: IDX, CIFAR-10's, PNG or JPEG"),
    ECH_PATH(data_arguments, like, "like", 0, "FILE",
             "normalize pixels as this packed file does (default: by the images' own means)"),
    {0}};

static const ech_word words[] = {
    {offsetof(data_arguments, import.texts.in), "which text, and where to?", true},
    {offsetof(data_arguments, import.out), "where to? OUT is a path without .bin", true}};

/* Options of the one way that the other does not read. */
static void check(void *arguments, const struct argp_state *state)
{
    const data_arguments *in = arguments;
    if (in->import.valid < 0 || in->import.valid >= 1)
        argp_error(state, "--valid %g: must be 0 or more, and below 1", in->import.valid);
    bool libsvm = in->libsvm || ech_data_is_libsvm(in->import.texts.in);
    bool of_texts = in->import.texts.binary || in->import.texts.text_key ||
                    in->import.texts.prompt_key || in->import.texts.completion_key ||
                    in->import.texts.as_text || in->import.texts.skip_bad;
    if (in->features && !libsvm) argp_error(state, "--features needs --libsvm");
    bool of_tokens = in->tokenizer || in->import.begins >= 0 || in->import.special || in->length ||
                     in->import.chat_template || in->import.trains_on_all;
    if (libsvm && (of_tokens || in->train_bpe || of_texts))
        argp_error(state, "--libsvm reads features; options for texts cannot be used with it");
    if (in->like && !in->images) argp_error(state, "--like needs --images");
    if (in->images && (of_tokens || in->train_bpe || of_texts || libsvm))
        argp_error(state, "--images reads images; options for texts and features cannot be used "
                          "with it");
    if (in->pattern && !in->train_bpe) argp_error(state, "--pattern needs --train-bpe");
    if (in->train_bpe && (of_tokens || in->import.valid > 0))
        argp_error(state, "--train-bpe learns a tokenizer; remove --tokenizer and --valid, which "
                          "are for making tokens");
}

static double began_at; /* of an import */

/* Appends the rate and the time left by it; nothing in the first second. */
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
    char text[200], bar[CELLS + 1];
    for (int i = 0; i < CELLS; i++)
        bar[i] = (double)i < (double)CELLS * (double)done / (double)all ? '#' : '.';
    bar[CELLS] = '\0';
    snprintf(text, sizeof text, "[%s] %s of %s read", bar, ECH_BYTES(done), ECH_BYTES(all));
    append_rest(text, sizeof text, done - before, all - done);
    ech_terminal_line_draw(&progress, text, done >= all);
}

static void print_part(const char *prefix, const char *part, int64_t tokens)
{
    printf("%s%s.bin, %s%s.idx: %s tokens\n", prefix, part, prefix, part, ECH_DIGITS(tokens));
}

/* " KEY=VALUE" as a word of the shell. */
static void print_key(const char *key, const char *value)
{
    ECH_FREED_TEXT word = {0}, typed = {0};
    ech_text_append(&word, "%s=%s", key, value);
    ech_path_append_typed(word.at, &typed);
    printf(" %s", typed.at);
}

static void print_source(const char *key, const char *prefix, const char *part)
{
    int64_t weight; /* a number would be one */
    ECH_FREED_TEXT value = {0};
    if (ech_text_to_weight(prefix, strlen(prefix), &weight)) ech_text_append(&value, "./");
    ech_path_append_word(prefix, &value); /* in data.train blanks divide sources */
    ech_text_append(&value, "%s", part);
    print_key(key, value.at);
}

static void print_next(const char *out, bool split)
{
    printf("next: echelon train RUN.yaml");
    print_source("data.train", out, split ? "-train" : "");
    if (split) print_source("data.valid", out, "-valid");
}

/* An epoch of what a run trains on. */
static ech_status print_samples_of(const data_arguments *in)
{
    ECH_FREED_TEXT prefix = {0}, source = {0}, text = {0};
    if (!in->length) return ECH_OK;
    ech_text_append(&prefix, "%s%s", in->import.out, in->import.valid > 0 ? "-train" : "");
    ech_path_append_word(prefix.at, &source);
    ECH_TRY(ech_print_packings(source.at, in->length, &text));
    fputs(text.at, stdout);
    return ECH_OK;
}

/* ---- conversations ---- */

enum { MOST_CHAT_BYTES = 4000 };

/* What is printed of the first one. */
typedef struct chat_print {
    bool colours;     /* on a terminal; otherwise trained tokens stand between brackets */
    ech_speaker role; /* the last token's */
    bool trained;
    int64_t bytes; /* so far */
} chat_print;

static void print_token(const char *bytes, size_t n, ech_speaker role, bool trained, void *context)
{
    static const char *const colour[ECH_SPEAKERS] = {"33", "36", "32"};
    chat_print *p = context;
    bool changed = p->bytes == 0 || p->role != role || p->trained != trained;
    if (p->bytes > MOST_CHAT_BYTES) return;
    if (p->trained != trained && !p->colours) fputs(trained ? "[[" : "]]", stdout);
    /* Not between the bytes of a character. */
    if (p->colours && changed) printf("\033[0;%s;%sm", trained ? "1;4" : "2", colour[role]);
    p->bytes += (int64_t)n;
    p->role = role;
    p->trained = trained;
    for (size_t i = 0; i < n; i++) {
        bool control = (unsigned char)bytes[i] < 0x20 && bytes[i] != '\n' && bytes[i] != '\t';
        putchar(control ? '?' : bytes[i]);
    }
}

/* The first conversation as the model will read it. */
static ech_status print_first_chat(const data_arguments *in, const ech_import_count *count)
{
    chat_print p = {.colours = isatty(STDOUT_FILENO)};
    if (count->chats == 0) return ECH_OK;
    printf("the first conversation, trained tokens %s:\n",
           p.colours ? "underlined; \033[33msystem\033[0m, \033[36muser\033[0m, "
                       "\033[32massistant\033[0m"
                     : "in [[ ]]");
    ECH_TRY(ech_data_first_chat(&in->import, print_token, &p));
    printf("%s%s\n",
           p.colours   ? "\033[0m"
           : p.trained ? "]]"
                       : "",
           p.bytes > MOST_CHAT_BYTES ? " ..." : "");
    return ECH_OK;
}

static void print_chats(const ech_import_count *count)
{
    if (count->chats == 0) return;
    const char *chat_template = count->chat_template ? count->chat_template : "in the text";
    printf("%s by the chat template %s\n", ECH_DIGITS_OF(count->chats, "conversation"),
           chat_template);
    if (count->unanswered > 0)
        printf("left out: %s without an assistant's message\n",
               ECH_DIGITS_OF(count->unanswered, "conversation"));
    if (count->unwritten > 0)
        printf("left out: %s, which the chat template writes only before a user's message that "
               "ends a conversation\n",
               ECH_DIGITS_OF(count->unwritten, "system message"));
}

static void print_result(const data_arguments *in, const ech_import_count *count)
{
    const char *out = in->import.out;
    printf("%s, %s, %s, as %s\n", ECH_DIGITS_OF(count->files, "file"),
           ECH_DIGITS_OF(count->documents, "document"), ECH_BYTES(count->bytes), in->tokenizer);
    if (count->bad > 0) printf("left out: %s of JSON\n", ECH_DIGITS_OF(count->bad, "bad line"));
    print_chats(count);
    bool split = in->import.valid > 0, bytewise = strcmp(in->tokenizer, "bytes") == 0;
    print_part(out, split ? "-train" : "", count->tokens);
    if (split) print_part(out, "-valid", count->valid_tokens);
    print_next(out, split);
    if (!bytewise) print_key("data.tokenizer", in->tokenizer);
    printf("\n");
}

/* ---- features ---- */

static void print_samples(const char *prefix, const char *part, int64_t samples)
{
    printf("%s%s.bin, %s%s.idx, %s%s.values: %s\n", prefix, part, prefix, part, prefix, part,
           ECH_DIGITS_OF(samples, "sample"));
}

static ech_status import_libsvm(const data_arguments *in)
{
    const char *out = in->import.out;
    bool split = in->import.valid > 0;
    const ech_libsvm_options wanted = {.in = in->import.texts.in,
                                       .out = out,
                                       .valid = in->import.valid,
                                       .features = in->features,
                                       .progress = show_progress};
    ech_libsvm_count count;
    began_at = ech_clock_now();
    ech_terminal_line_begin(&progress);
    ech_status status = ech_data_import_libsvm(&wanted, &count);
    ech_terminal_line_end(&progress);
    ECH_TRY(status);
    int64_t all = in->features ? in->features : count.features;
    if (all < 2) all = 2; /* the fewest that a model has */
    printf("%s, %s, %s features, at most %s a sample\n", ECH_DIGITS_OF(count.files, "file"),
           ECH_BYTES(count.bytes), ECH_DIGITS(all), ECH_DIGITS(count.longest));
    print_samples(out, split ? "-train" : "", count.samples);
    if (split) print_samples(out, "-valid", count.valid_samples);
    print_next(out, split);
    printf(" model.vocab_size=%lld data.sequence_length=%lld\n", (long long)all,
           (long long)count.longest);
    return ECH_OK;
}

/* ---- images ---- */

static ech_status import_images(const data_arguments *in)
{
    const char *out = in->import.out;
    bool split = in->import.valid > 0;
    const ech_images_options wanted = {.in = in->import.texts.in,
                                       .out = out,
                                       .valid = in->import.valid,
                                       .like = in->like,
                                       .workers = in->import.workers};
    ech_images_count count;
    ECH_TRY(ech_data_import_images(&wanted, &count));
    printf("%s: images of %lld x %lld pixels, %s, %lld classes\n", count.format,
           (long long)count.image.height, (long long)count.image.width,
           ECH_COUNT(count.image.channels, "channel"), (long long)count.classes);
    printf("%s%s.images: %s\n", out, split ? "-train" : "", ECH_DIGITS_OF(count.images, "image"));
    if (split) printf("%s-valid.images: %s\n", out, ECH_DIGITS_OF(count.valid_images, "image"));
    if (in->like && !split) {
        printf("set");
        print_source("data.valid", out, ".images");
        printf(" where %s is data.train\n", in->like);
        return ECH_OK;
    }
    printf("set model.architecture (mlp, vgg, resnet or revnet), and");
    print_source("data.train", out, split ? "-train.images" : ".images");
    if (split) print_source("data.valid", out, "-valid.images");
    printf(" model.image_height=%lld model.image_width=%lld model.image_channels=%lld "
           "model.num_classes=%lld\n",
           (long long)count.image.height, (long long)count.image.width,
           (long long)count.image.channels, (long long)count.classes);
    return ECH_OK;
}

ech_status ech_command_data(int argc, char **argv, int *code)
{
    (void)code;
    const ech_command_line line = {.usage = "IN OUT",
                                   .about = about,
                                   .option = options,
                                   .word = words,
                                   .words = 2,
                                   .check = check};
    data_arguments in = {.import = {.workers = ech_device_find("cpu")->cores(),
                                    .begins = -1,
                                    .progress = show_progress}};
    ech_import_count count;
    ECH_CLEANUP(ech_tokenizer_close_at) ech_tokenizer *tokenizer = NULL;
    ech_command_line_parse(&line, argc, argv, &in);
    if (in.images) return import_images(&in);
    if (in.libsvm || ech_data_is_libsvm(in.import.texts.in)) return import_libsvm(&in);
    if (in.train_bpe)
        return learn_tokens(&in.import.texts, in.import.out, in.train_bpe, in.pattern);
    if (!in.tokenizer) in.tokenizer = "bytes";
    ECH_TRY(ech_tokenizer_open(in.tokenizer, &tokenizer));
    in.import.tokenizer = tokenizer;
    began_at = ech_clock_now();
    ech_terminal_line_begin(&progress);
    ech_status status = ech_data_import(&in.import, &count);
    ech_terminal_line_end(&progress);
    ECH_TRY(status);
    print_result(&in, &count);
    ECH_TRY(print_first_chat(&in, &count));
    return print_samples_of(&in);
}
