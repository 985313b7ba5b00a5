/* SPDX-License-Identifier: Apache-2.0
 *
 * A run file for a model folder.
 */
#include "app/setup/template.h"

#include <string.h>

#include "app/count.h"
#include "app/setup/setup.h"
#include "base/file.h"
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

static void append_training(const ech_config *config, int ranks, ech_text *out)
{
    int64_t positions = config->model.max_position_embeddings;
    int64_t tokens = least(positions > 0 ? positions : MOST_TOKENS, MOST_TOKENS);
    int64_t batch = STEP_TOKENS / tokens;
    batch = (batch + ranks - 1) / ranks * ranks;
    ech_text_append(out, "data:\n");
    LINE(out, "train", "%s", "tokens", "EDIT: what `echelon data TEXT tokens` makes");
    LINE(out, "sequence_length", "%lld", (long long)tokens,
         "max_position_embeddings (%lld), but not more than %d", (long long)positions, MOST_TOKENS);
    ech_text_append(out, "training:\n");
    LINE(out, "steps", "%d", 1000, "EDIT: how long to train");
    LINE(out, "global_batch_size", "%lld", (long long)batch,
         "%s a step, as in pretraining, for %s; take less to fine-tune",
         ECH_SCALED((double)batch * (double)tokens, "tokens"), ECH_COUNT(ranks, "rank"));
    LINE(out, "micro_batch_size", "%d", 1, "the least memory; try 2 and 4");
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
    if (!ech_file_is_folder(folder)) ECH_FAIL(ECH_EUSAGE, "%s: no such folder", folder);
    if (!ech_file_exists(path))
        ECH_FAIL(ECH_EUSAGE,
                 "%s: no config.json in it; a Hugging Face folder of a model has one", folder);
    ECH_TRY(ech_family_map_folder(folder));
    ECH_TRY(ech_setup_defaults(&config));
    ECH_TRY(ech_model_import(config, path, NULL));
    append_model(config, folder, out);
    append_training(config, ranks, out);
    return ECH_OK;
}
