/* SPDX-License-Identifier: Apache-2.0
 *
 * Run files for a model folder and for texts.
 */
#include "app/setup/template.h"

#include <math.h>
#include <string.h>

#include "app/machine.h"
#include "app/count.h"
#include "app/setup/setup.h"
#include "base/file.h"
#include "data/data.h"
#include "kernel/isa.h"
#include "layout/layout.h"
#include "model/model.h"

enum { MOST_TOKENS = 4096, STEP_TOKENS = 1 << 22 };

/* A path as a YAML value in double quotes, on one line. */
static void append_path(const char *path, ech_text *out)
{
    ech_text_append(out, "\"");
    for (; *path; path++)
        if ((unsigned char)*path < ' ')
            ech_text_append(out, "\\x%02x", (unsigned)*path);
        else
            ech_text_append(out, "%s%c", strchr("\\\"", *path) ? "\\" : "", *path);
    ech_text_append(out, "\"");
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* A line with a value and its origin. */
#define LINE(out, section_key, format, value, ...)                                                 \
    do {                                                                                           \
        ECH_FREED_TEXT line = {0};                                                                 \
        ech_text_append(&line, "  " section_key ": " format, value);                               \
        ech_text_append(out, "%-32s # ", line.at);                                                 \
        ech_text_append(out, __VA_ARGS__);                                                         \
        ech_text_append(out, "\n");                                                                \
    } while (0)

static void append_model(const ech_config *config, const char *folder, ech_text *out)
{
    ech_text_append(out, "# Trains the model of ");
    append_path(folder, out);
    ech_text_append(out,
                    " (%s).\n# `echelon help key NAME` explains a key; `echelon plan` shows what a "
                    "run needs.\nmodel:\n  init_from: ",
                    ech_config_name(config, "model.architecture"));
    append_path(folder, out);
    ech_text_append(out, " # its config.json sets the other keys of this section\n");
}

/* Samples of a micro-batch: 1, or more if a rank's plan could not hold as many runs of blocks
 * (embedding, layers, head) as a batch of this many samples makes on so many ranks. */
static int64_t micro_batch_of(const ech_config *config, int64_t batch, int ranks)
{
    int64_t blocks = config->model.num_hidden_layers + 2, micro = 1;
    while (batch / ranks / micro * blocks > ECH_MOST_BLOCK_RUNS) micro *= 2;
    return micro;
}

static void append_training(const ech_config *config, int ranks, ech_text *out)
{
    int64_t positions = config->model.max_position_embeddings;
    int64_t tokens = least(positions > 0 ? positions : MOST_TOKENS, MOST_TOKENS);
    int64_t batch = STEP_TOKENS / tokens;
    int64_t micro = micro_batch_of(config, batch, ranks), each = micro * ranks;
    batch = (batch + each - 1) / each * each;
    ech_text_append(out, "data:\n");
    LINE(out, "train", "%s", "tokens", "EDIT: what `echelon data TEXT tokens` makes");
    LINE(out, "sequence_length", "%lld", (long long)tokens,
         "max_position_embeddings (%lld), but not more than %d", (long long)positions, MOST_TOKENS);
    ech_text_append(out, "training:\n");
    LINE(out, "steps", "%d", 1000, "EDIT: how long to train");
    LINE(out, "global_batch_size", "%lld", (long long)batch,
         "%s a step, as in pretraining, for %s; take less to fine-tune",
         ECH_SCALED((double)batch * (double)tokens, "tokens"), ECH_COUNT(ranks, "rank"));
    LINE(out, "micro_batch_size", "%lld", (long long)micro, "the least memory; try %lld and %lld",
         (long long)(2 * micro), (long long)(4 * micro));
    ech_text_append(out, "optimizer:\n");
    LINE(out, "name", "%s", "adamw", "what most models are trained with");
    LINE(out, "learning_rate", "%s", "1e-4", "EDIT: 1e-5 to fine-tune, 1e-4 to 6e-4 to pretrain");
    LINE(out, "clip_norm", "%d", 1, "what most models are trained with");
    ech_text_append(out, "precision:\n");
    LINE(out, "compute", "%s", "bf16", "with fp32 masters; remove it for fp32");
    ech_text_append(out, "parallel:\n");
    LINE(out, "zero", "%d", 3, "weights, gradients and states in shards, for any number of ranks");
    ech_text_append(out, "memory:\n");
    LINE(out, "recompute", "%s", "auto", "the least recomputation that fits");
    ech_text_append(out, "log:\n");
    LINE(out, "directory", "%s", "runs/model", "checkpoints and metrics");
}

ech_status ech_template_of_model(const char *folder, int ranks, ech_text *out)
{
    ECH_CLEANUP(ech_config_destroy_at) ech_config *config = NULL;
    ECH_FREED char *path = ech_file_join(folder, "config.json");
    if (!ech_file_is_folder(folder))
        ECH_FAIL(ECH_EUSAGE,
                 "%s: no such folder; name a folder with the config.json of a Hugging Face model",
                 folder);
    if (!ech_file_exists(path))
        ECH_FAIL(ECH_EUSAGE, "%s: has no config.json; name a Hugging Face model's folder", folder);
    ECH_TRY(ech_family_map_folder(folder));
    ECH_TRY(ech_setup_defaults(&config));
    ECH_TRY(ech_model_import(config, path, NULL));
    append_model(config, folder, out);
    append_training(config, ranks, out);
    return ECH_OK;
}

/* ---- texts ---- */

/* Models from small to large, with the learning rate that suits their width. */
typedef struct model_size {
    int layers, width, heads;
    const char *learning_rate;
} model_size;

static const model_size model_sizes[] = {
    {2, 128, 4, "3e-3"}, {4, 192, 6, "3e-3"},   {6, 256, 8, "2e-3"},    {6, 384, 6, "1e-3"},
    {8, 512, 8, "1e-3"}, {12, 768, 12, "6e-4"}, {24, 1024, 16, "3e-4"},
};
enum {
    MODEL_SIZES = sizeof model_sizes / sizeof *model_sizes,
    IDS = 257, /* of the byte tokenizer */
    TEXT_TOKENS = 256,
    TEXT_BATCH = 32,
    TEXT_MICRO_BATCH = 8,
    FEWEST_STEPS = 100,
    WARMUP_SHARE = 20
};
static const double tokens_per_parameter = 20, most_repeats = 4, held_out = 0.05;
static const double reached = 0.5, longest = 3600; /* of the peak; seconds */

static double parameters_of(const model_size *size)
{
    double width = size->width;
    return 12 * size->layers * width * width + IDS * width;
}

/* Tokens to train with: as many as the model can use, or as the texts have when repeated. */
static double tokens_of(const model_size *size, double tokens)
{
    return fmin(tokens_per_parameter * parameters_of(size), most_repeats * tokens);
}

/* bf16 where the machine is much faster in it. */
static ech_dtype type_of(const ech_template_machine *machine)
{
    return machine->flops[ECH_BF16] > 1.5 * machine->flops[ECH_F32] ? ECH_BF16 : ECH_F32;
}

static double seconds_of(const model_size *size, double tokens, const ech_template_machine *machine)
{
    double flops = 6 * parameters_of(size) * tokens_of(size, tokens);
    return flops / (reached * machine->flops[type_of(machine)]);
}

static const model_size *choose_size(double tokens, const ech_template_machine *machine)
{
    const model_size *best = model_sizes;
    for (const model_size *size = model_sizes; size < model_sizes + MODEL_SIZES; size++)
        if (tokens_per_parameter * parameters_of(size) <= most_repeats * tokens &&
            seconds_of(size, tokens, machine) <= longest)
            best = size;
    return best;
}

static void append_texts(const char *texts, int64_t files, int64_t bytes, ech_text *out)
{
    ech_text_append(out, "# Trains a new model on the texts of ");
    append_path(texts, out);
    ech_text_append(
        out,
        ": %s, %s.\n# First `echelon data TEXTS tokens --valid %g`, then `echelon train` "
        "with this file.\n# `echelon help key NAME` explains a key; `echelon plan` shows "
        "what a run needs.\n# The model is the largest of %d with %g tokens per parameter "
        "(Hoffmann et al. 2022), of texts\n# repeated at most %g times (Muennighoff et al. "
        "2023), that this machine trains within an hour.\n",
        ECH_COUNT(files, "file"), ECH_BYTES(bytes), held_out, MODEL_SIZES, tokens_per_parameter,
        most_repeats);
}

static void append_size(const model_size *size, double tokens, double seconds, ech_text *out)
{
    ech_text_append(out, "model:\n");
    LINE(out, "architecture", "%s", "llama", "rotary positions, RMSNorm, SwiGLU");
    LINE(out, "num_hidden_layers", "%d", size->layers, "%s parameters, with the next two",
         ECH_SCALED(parameters_of(size), ""));
    LINE(out, "hidden_size", "%d", size->width, "trained in about %.0f min on this machine",
         ceil(seconds / 60));
    LINE(out, "num_attention_heads", "%d", size->heads, "of %d numbers", size->width / size->heads);
    LINE(out, "num_key_value_heads", "%d", size->heads, "as many as heads of queries");
    LINE(out, "tie_word_embeddings", "%s", "true", "saves %s parameters",
         ECH_SCALED((double)IDS * size->width, ""));
    ech_text_append(out, "data:\n");
    LINE(out, "train", "%s", "tokens-train", "of `echelon data`: %s, a byte each",
         ECH_SCALED(tokens, "tokens"));
    LINE(out, "valid", "%s", "tokens-valid", "what --valid %g leaves out of each text", held_out);
    LINE(out, "sequence_length", "%d", TEXT_TOKENS, "more needs more memory and time a token");
}

static void append_steps(const model_size *size, double tokens, ech_text *out)
{
    double used = tokens_of(size, tokens);
    int64_t steps = (int64_t)ceil(used / (TEXT_TOKENS * TEXT_BATCH));
    if (steps < FEWEST_STEPS) steps = FEWEST_STEPS;
    used = (double)steps * TEXT_TOKENS * TEXT_BATCH;
    ech_text_append(out, "training:\n");
    LINE(out, "steps", "%lld", (long long)steps, "%s: the texts %.1f times",
         ECH_SCALED(used, "tokens"), used / tokens);
    LINE(out, "global_batch_size", "%d", TEXT_BATCH, "%s a step, which suits small models",
         ECH_SCALED((double)TEXT_BATCH * TEXT_TOKENS, "tokens"));
    LINE(out, "micro_batch_size", "%d", TEXT_MICRO_BATCH, "less needs less memory");
    LINE(out, "validate_every", "%lld", (long long)(steps / 10), "ten times");
    LINE(out, "validate_samples", "%d", TEXT_BATCH, "as many as a step");
    ech_text_append(out, "optimizer:\n");
    LINE(out, "name", "%s", "adamw", "what most models are trained with");
    LINE(out, "learning_rate", "%s", size->learning_rate, "lower for wider models");
    LINE(out, "warmup_steps", "%lld", (long long)(steps / WARMUP_SHARE), "a twentieth");
    LINE(out, "clip_norm", "%d", 1, "what most models are trained with");
}

ech_status ech_template_measure(ech_template_machine *out)
{
    static const ech_dtype types[] = {ECH_F32, ECH_BF16};
    ech_isa isa;
    *out = (ech_template_machine){.cores = ech_device_find("cpu")->cores()};
    ECH_TRY(ech_isa_decide(&isa));
    for (int i = 0; i < 2; i++) out->flops[types[i]] = ech_peak_flops(types[i], out->cores);
    if (!(out->flops[ECH_F32] > 0))
        ECH_FAIL(ECH_EIO, "the rate of this machine's products cannot be measured: a time was 0 or "
                          "less; run it again on an idle machine");
    return ECH_OK;
}

ech_status ech_template_of_texts(const char *texts, const ech_template_machine *machine,
                                 ech_text *out)
{
    const ech_data_text_source source = {.in = texts};
    ech_dtype type = type_of(machine);
    int64_t files, bytes;
    ECH_TRY(ech_data_count_texts(&source, &files, &bytes));
    double tokens = (double)bytes * (1 - held_out);
    const model_size *size = choose_size(tokens, machine);
    append_texts(texts, files, bytes, out);
    append_size(size, tokens, seconds_of(size, tokens, machine), out);
    append_steps(size, tokens, out);
    ech_text_append(out, "precision:\n");
    LINE(out, "compute", "%s", ech_dtype_name(type), "measured: %s on %s, %s in bf16",
         ECH_SCALED(machine->flops[ECH_F32], "FLOP/s"), ECH_COUNT(machine->cores, "core"),
         ECH_SCALED(machine->flops[ECH_BF16], "FLOP/s"));
    ech_text_append(out, "log:\n");
    LINE(out, "directory", "%s", "runs/texts", "checkpoints and metrics");
    return ECH_OK;
}
