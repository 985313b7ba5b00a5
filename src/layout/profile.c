/* SPDX-License-Identifier: Apache-2.0
 *
 * Describes what was measured, and writes profiles.
 */
#include "layout/profile.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"

void ech_profile_destroy(ech_profile *profile)
{
    if (!profile) return;
    free(profile->block);
    free(profile->model);
    free(profile);
}

/* ---- of what ---- */

static void append_dropout(const char *key, double p, ech_text *out)
{
    if (p > 0) ech_text_append(out, " %s", key); /* how much of it costs nothing more */
}

void ech_profile_describe(const ech_config *config, ech_text *out)
{
    const char *tables = config->model.tie_word_embeddings ? "tied" : "untied";
    ech_text_append(out, "%s C=%" PRId64 " L=%" PRId64 " H=%" PRId64 " G=%" PRId64,
                    ech_family_of(config)->name, config->model.hidden_size,
                    config->model.num_hidden_layers, config->model.num_attention_heads,
                    config->model.num_key_value_heads);
    if (config->model.hidden_size != config->model.num_attention_heads * config->model.head_dim)
        ech_text_append(out, " D=%" PRId64, config->model.head_dim);
    ech_text_append(out, " F=%" PRId64 " P=%" PRId64 " V=%" PRId64 " %s",
                    config->model.intermediate_size, config->model.max_position_embeddings,
                    config->model.vocab_size, tables);
    append_dropout("embd_pdrop", config->model.embd_pdrop, out);
    append_dropout("resid_pdrop", config->model.resid_pdrop, out);
    append_dropout("attn_pdrop", config->model.attn_pdrop, out);
    ech_text_append(out, " b=%" PRId64 " T=%" PRId64 " %s threads=%" PRId64,
                    config->training.micro_batch_size, config->data.sequence_length,
                    ech_config_name(config, "precision.compute"), config->parallel.threads);
}

ech_status ech_profile_check(const ech_profile *profile, const ech_config *config,
                             const ech_model *model, const char *path)
{
    ech_text now = {0};
    ech_status st = ECH_OK;
    ech_profile_describe(config, &now);
    if (strcmp(profile->model, now.at) != 0)
        st = ech_fail_at(__FILE__, __LINE__, ECH_EUSAGE,
                         "%s: measured with \"%.400s\", but this run is \"%.400s\"; run `echelon "
                         "profile` with this run's file and keys, or leave parallel.profile out",
                         path, profile->model, now.at);
    else if (profile->blocks != (int)model->block.n)
        st = ech_fail_at(__FILE__, __LINE__, ECH_EUSAGE,
                         "%s: costs of %d blocks, but the model has %zu; run `echelon profile` "
                         "again",
                         path, profile->blocks, model->block.n);
    ech_text_free(&now);
    return st;
}

int64_t ech_profile_micro_batch(const ech_profile *profile)
{
    const char *at = profile->model ? strstr(profile->model, " b=") : NULL;
    long long b = at ? strtoll(at + 3, NULL, 10) : 0;
    return b > 0 ? (int64_t)b : ECH_AUTO;
}

/* ---- writing ---- */

/* What JSON has no number for becomes null, which the reader refuses. */
static void append_real(const char *before, double value, ech_text *out)
{
    char digits[40] = "null";
    if (isfinite(value)) ech_text_from_real(value, 1, digits, sizeof digits);
    ech_text_append(out, "%s%s", before, digits);
}

static bool append_string(const char *text, ech_text *out)
{
    json_t *string = json_string(text);
    if (!string) return false;
    char *quoted = json_dumps(string, JSON_ENCODE_ANY | JSON_COMPACT);
    json_decref(string);
    ech_text_append(out, "%s", quoted ? quoted : "");
    free(quoted);
    return quoted != NULL;
}

static void append_times(const char *before, const ech_profile_block *cost, ech_phase phase,
                         ech_text *out)
{
    append_real(before, cost->low[phase], out);
    append_real(", ", cost->seconds[phase], out);
    append_real(", ", cost->high[phase], out);
}

static void append_block(const ech_profile_block *cost, int block, ech_text *out)
{
    ech_text_append(out, "%s\n{\"name\": \"block %d\"", block ? "," : "", block);
    append_times(", \"forward\": [", cost, ECH_FORWARD, out);
    append_times("], \"backward_input\": [", cost, ECH_BACKWARD_INPUT, out);
    append_times("], \"backward_weight\": [", cost, ECH_BACKWARD_WEIGHT, out);
    ech_text_append(out,
                    "], \"activation_bytes\": %" PRId64 ", \"boundary_bytes\": %" PRId64
                    ", \"parameter_bytes\": %" PRId64 "}",
                    cost->activation_bytes, cost->boundary_bytes, cost->param_bytes);
}

static bool print_profile(const ech_profile *profile, ech_text *out)
{
    ech_text_append(out, "{\"version\": %d, \"echelon\": \"%s\",\n\"model\": ", ECH_PROFILE_VERSION,
                    ECH_VERSION);
    if (!append_string(profile->model, out)) return false;
    ech_text_append(out, ",\n\"busy\": %s", profile->busy ? "true" : "false");
    append_real(", \"spread\": ", profile->spread, out);
    append_real(", \"processor_share\": ", profile->processor_share, out);
    append_real(",\n\"bandwidth\": ", profile->bandwidth, out);
    append_real(", \"latency\": ", profile->latency, out);
    append_real(", \"update_seconds_per_byte\": ", profile->update_seconds, out);
    append_real(", \"other_seconds\": ", profile->other_seconds, out);
    ech_text_append(out, ",\n\"blocks\": [");
    for (int i = 0; i < profile->blocks; i++) append_block(&profile->block[i], i, out);
    ech_text_append(out, "]}\n");
    return true;
}

ech_status ech_profile_write(const ech_profile *profile, const char *path)
{
    ech_text text = {0};
    if (!print_profile(profile, &text)) {
        ech_text_free(&text);
        ECH_FAIL(ECH_EINPUT, "%s: the model's description is not UTF-8", path);
    }
    /* What cannot be read back, such as a time without bounds, is not worth writing. */
    ech_profile *back = NULL;
    ech_status st = ech_profile_parse(text.at, text.n, path, &back);
    ech_profile_destroy(back);
    if (st == ECH_OK) st = ech_file_write(path, text.at, text.n);
    ech_text_free(&text);
    return st;
}
