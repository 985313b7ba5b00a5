/* SPDX-License-Identifier: Apache-2.0
 *
 * Describes what was measured, writes profiles, and reads them from untrusted JSON: every number
 * has bounds, and so has the memory of reading.
 */
#include "layout/profile.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"

void ech_profile_destroy(ech_profile *profile)
{
    if (!profile) return;
    free(profile->block);
    free(profile->model);
    free(profile);
}

/* ---- names ---- */

static const char *const names[ECH_PROFILE_PHASES] = {"forward",         "backward_input",
                                                      "backward_weight", "recompute_selective",
                                                      "recompute_full",  "invert"};

int ech_profile_phase(ech_phase phase, const ech_block_options *options)
{
    if (phase != ECH_RECOMPUTE) return (int)phase;
    if (options->invert) return ECH_PROFILE_INVERT;
    return options->recompute == ECH_RECOMPUTE_FULL ? ECH_PROFILE_FULL : ECH_PROFILE_SELECTIVE;
}

static void append_dropout(const char *key, double p, ech_text *out)
{
    if (p > 0) ech_text_append(out, " %s", key); /* its value does not change costs */
}

static void append_experts(const ech_config *config, ech_text *out)
{
    if (config->model.num_local_experts <= 0) return;
    ech_text_append(out, " E=%" PRId64 " k=%" PRId64 " %s", config->model.num_local_experts,
                    config->model.num_experts_per_tok, ech_config_name(config, "model.moe_gate"));
    if (config->model.n_group > 1)
        ech_text_append(out, " groups=%" PRId64 "/%" PRId64, config->model.topk_group,
                        config->model.n_group);
    if (config->model.moe_intermediate_size != config->model.intermediate_size)
        ech_text_append(out, " M=%" PRId64, config->model.moe_intermediate_size);
    if (config->model.moe_shared_experts > 0)
        ech_text_append(out, " shared=%" PRId64, config->model.moe_shared_experts);
    if (config->model.moe_every > 1 || config->model.moe_first_dense > 0)
        ech_text_append(out, " dense=%" PRId64 " every=%" PRId64, config->model.moe_first_dense,
                        config->model.moe_every);
    append_dropout("moe_dropout", config->model.moe_dropout, out);
    append_dropout("router_jitter_noise", config->model.router_jitter_noise, out);
}

static void describe_decoder(const ech_config *config, ech_text *out)
{
    const char *tables = config->model.tie_word_embeddings ? "tied" : "untied";
    ech_text_append(out, " C=%" PRId64 " L=%" PRId64 " H=%" PRId64 " G=%" PRId64,
                    config->model.hidden_size, config->model.num_hidden_layers,
                    config->model.num_attention_heads, config->model.num_key_value_heads);
    if (config->model.hidden_size != config->model.num_attention_heads * config->model.head_dim)
        ech_text_append(out, " D=%" PRId64, config->model.head_dim);
    ech_text_append(out, " F=%" PRId64 " P=%" PRId64 " V=%" PRId64 " %s",
                    config->model.intermediate_size, config->model.max_position_embeddings,
                    config->model.vocab_size, tables);
    append_experts(config, out);
    ech_model_describe(config, out);
    append_dropout("embd_pdrop", config->model.embd_pdrop, out);
    append_dropout("resid_pdrop", config->model.resid_pdrop, out);
    append_dropout("attn_pdrop", config->model.attn_pdrop, out);
}

/* The keys of the model section that the family reads. */
static void describe_keys(const ech_config *config, const ech_family *family, ech_text *out)
{
    const char section[] = "model.";
    ECH_FREED_TEXT keys = {0};
    ech_family_append_reads(family, &keys);
    char *rest = NULL;
    for (char *key = strtok_r(keys.at, " ", &rest); key; key = strtok_r(NULL, " ", &rest)) {
        if (strncmp(key, section, strlen(section)) != 0) continue;
        ech_text_append(out, " %s=", key + strlen(section));
        ech_config_format(config, key, out);
    }
}

void ech_profile_describe(const ech_config *config, ech_text *out)
{
    const ech_family *family = ech_family_of(config);
    const char *streams = config->model.reversible == 1 ? "reversible " : "";
    ech_text_append(out, "%s%s", streams, family->name);
    if (family->build)
        describe_keys(config, family, out);
    else
        describe_decoder(config, out);
    ech_text_append(out, " b=%" PRId64 " T=%" PRId64 " %s threads=%" PRId64,
                    config->training.micro_batch_size, config->data.sequence_length,
                    ech_config_name(config, "precision.compute"), config->parallel.threads);
}

ech_status ech_profile_check(const ech_profile *profile, const ech_config *config,
                             const ech_model *model, const char *path)
{
    ECH_FREED_TEXT now = {0};
    ech_profile_describe(config, &now);
    if (strcmp(profile->model, now.at) != 0)
        ECH_FAIL(ECH_EUSAGE,
                 "%s: measured with \"%.400s\", but this run is \"%.400s\"; run `echelon profile` "
                 "with this run's file, keys and --ranks, or leave parallel.profile out",
                 path, profile->model, now.at);
    if (profile->blocks != (int)model->block.n)
        ECH_FAIL(ECH_EUSAGE,
                 "%s: costs of %d blocks, but the model has %zu; run `echelon profile` again", path,
                 profile->blocks, model->block.n);
    return ECH_OK;
}

double *ech_profile_densities(const ech_profile *profile)
{
    if (!profile) return NULL;
    double *density = ech_calloc((size_t)profile->blocks, sizeof *density);
    for (int b = 0; b < profile->blocks; b++) density[b] = profile->block[b].density;
    return density;
}

ech_status ech_profile_check_density(const ech_profile *profile, const ech_config *config)
{
    double room = config->memory.encode_density;
    if (room <= 0 || config->memory.encode != ECH_ENCODE_LOSSLESS) return ECH_OK;
    for (int b = 0; b < profile->blocks; b++)
        if (profile->block[b].density > room)
            return ech_config_complain(config, "memory.encode_density",
                                       "is below the %.3g that parallel.profile measured in block "
                                       "%d, which would spill in every step; remove this key, and "
                                       "each block has the room that was measured",
                                       profile->block[b].density, b);
    return ECH_OK;
}

int64_t ech_profile_micro_batch(const ech_profile *profile)
{
    const char *at = profile->model ? strstr(profile->model, " b=") : NULL;
    long long b = at ? strtoll(at + 3, NULL, 10) : 0;
    return b > 0 ? (int64_t)b : ECH_AUTO;
}

/* ---- writing ---- */

/* Numbers without a JSON representation become null, which the reader refuses. */
static void append_real(const char *before, double value, ech_text *out)
{
    char digits[40] = "null";
    if (isfinite(value)) ech_text_from_real(value, 1, digits, sizeof digits);
    ech_text_append(out, "%s%s", before, digits);
}

static void append_times(const ech_profile_block *cost, int phase, ech_text *out)
{
    ech_text_append(out, ", \"%s\": [", names[phase]);
    append_real("", cost->low[phase], out);
    append_real(", ", cost->seconds[phase], out);
    append_real(", ", cost->high[phase], out);
    ech_text_append(out, "]");
}

static void append_block(const ech_profile_block *cost, int block, ech_text *out)
{
    ech_text_append(out, "%s\n{\"name\": \"block %d\"", block ? "," : "", block);
    for (int phase = 0; phase < ECH_PROFILE_PHASES; phase++) append_times(cost, phase, out);
    ech_text_append(out,
                    ", \"activation_bytes\": %" PRId64 ", \"boundary_bytes\": %" PRId64
                    ", \"parameter_bytes\": %" PRId64,
                    cost->activation_bytes, cost->boundary_bytes, cost->param_bytes);
    append_real(", \"density\": ", cost->density, out);
    ech_text_append(out, "}");
}

static bool print_profile(const ech_profile *profile, ech_text *out)
{
    ech_text_append(out, "{\"version\": %d, \"echelon\": \"%s\",\n\"model\": ", ECH_PROFILE_VERSION,
                    ECH_VERSION);
    if (!ech_json_append_string(out, profile->model)) return false;
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
    ECH_FREED_TEXT text = {0};
    if (!print_profile(profile, &text))
        ECH_FAIL(
            ECH_EINPUT,
            "%s: the model's description is not UTF-8; rename the files that it names in UTF-8",
            path);
    /* A profile that cannot be read back, for example with a time out of bounds, is not written. */
    ECH_CLEANUP(ech_profile_destroy_at) ech_profile *back = NULL;
    ECH_TRY(ech_profile_parse(text.at, text.n, path, &back));
    return ech_file_write(path, text.at, text.n);
}

/* ---- reading ---- */

/* A block with short numbers and an empty name takes 224 bytes. */
enum { LARGEST_FILE = 64 << 20, MOST_BLOCKS = 1000000, SHORTEST_BLOCK = 200 };
enum {
    KEYS = 11,
    BLOCK_KEYS = 5 + ECH_PROFILE_PHASES,
    BLOCK_COMMAS = BLOCK_KEYS + 2 * ECH_PROFILE_PHASES
};

static const double LONGEST = 1e9;  /* seconds */
static const double FASTEST = 1e18; /* bytes per second */
/* Keeps sums over all blocks far from overflowing. */
static const int64_t LARGEST = INT64_C(1000000000000);

#define DAMAGED ": damaged or edited; make it again with `echelon profile`"

/* The current position, for errors: "p.json: blocks[3]: 'forward' ..." */
typedef struct place {
    const char *file;
    char in[40];
} place;

static ech_status take_number(const place *p, const json_t *number, const char *key, double most,
                              double *out)
{
    double value = json_number_value(number);
    if (!json_is_number(number) || !(value >= 0 && value <= most))
        ECH_FAIL(ECH_EINPUT, "%s: %s'%s' is no number from 0 to %g" DAMAGED, p->file, p->in, key,
                 most);
    *out = value;
    return ECH_OK;
}

static ech_status take_real(const place *p, const json_t *object, const char *key, double most,
                            double *out)
{
    return take_number(p, json_object_get(object, key), key, most, out);
}

/* [quartile, median, quartile], in ascending order. */
static ech_status take_times(const place *p, const json_t *object, int phase,
                             ech_profile_block *out)
{
    const char *key = names[phase];
    const json_t *times = json_object_get(object, key);
    double *into[] = {&out->low[phase], &out->seconds[phase], &out->high[phase]};
    double before = 0;
    if (json_array_size(times) != 3)
        ECH_FAIL(ECH_EINPUT, "%s: %s'%s' is no array of three numbers" DAMAGED, p->file, p->in,
                 key);
    for (size_t i = 0; i < 3; before = *into[i++]) {
        ECH_TRY(take_number(p, json_array_get(times, i), key, LONGEST, into[i]));
        if (*into[i] < before)
            ECH_FAIL(ECH_EINPUT, "%s: %s'%s' does not ascend" DAMAGED, p->file, p->in, key);
    }
    return ECH_OK;
}

static ech_status take_bytes(const place *p, const json_t *object, const char *key, int64_t *out)
{
    if (!ech_json_to_int(json_object_get(object, key), 0, LARGEST, out))
        ECH_FAIL(ECH_EINPUT, "%s: %s'%s' is no whole number from 0 to %" PRId64 DAMAGED, p->file,
                 p->in, key, LARGEST);
    return ECH_OK;
}

static ech_status check_keys(const place *p, const json_t *object, size_t keys, const char *text)
{
    if (json_object_size(object) != keys)
        ECH_FAIL(ECH_EINPUT, "%s: %s%zu keys where version %d has %zu" DAMAGED, p->file, p->in,
                 json_object_size(object), ECH_PROFILE_VERSION, keys);
    if (!json_is_string(json_object_get(object, text)))
        ECH_FAIL(ECH_EINPUT, "%s: %s'%s' is no text" DAMAGED, p->file, p->in, text);
    return ECH_OK;
}

static ech_status take_block(const place *p, const json_t *object, ech_profile_block *out)
{
    if (!json_is_object(object)) ECH_FAIL(ECH_EINPUT, "%s: %sis no object" DAMAGED, p->file, p->in);
    for (int phase = 0; phase < ECH_PROFILE_PHASES; phase++)
        ECH_TRY(take_times(p, object, phase, out));
    ECH_TRY(take_bytes(p, object, "activation_bytes", &out->activation_bytes));
    ECH_TRY(take_bytes(p, object, "boundary_bytes", &out->boundary_bytes));
    ECH_TRY(take_bytes(p, object, "parameter_bytes", &out->param_bytes));
    ECH_TRY(take_real(p, object, "density", 1, &out->density));
    return check_keys(p, object, BLOCK_KEYS, "name");
}

static ech_status take_blocks(place *p, const json_t *array, ech_profile *out)
{
    size_t n = json_array_size(array);
    if (n == 0 || n > MOST_BLOCKS)
        ECH_FAIL(ECH_EINPUT, "%s: 'blocks' is no array of 1 to %d objects" DAMAGED, p->file,
                 MOST_BLOCKS);
    out->blocks = (int)n;
    out->block = ech_calloc(n, sizeof *out->block);
    for (size_t i = 0; i < n; i++) {
        snprintf(p->in, sizeof p->in, "blocks[%zu]: ", i);
        ECH_TRY(take_block(p, json_array_get(array, i), &out->block[i]));
    }
    return ECH_OK;
}

static ech_status check_version(const place *p, const json_t *root)
{
    const json_t *version = json_object_get(root, "version");
    if (!json_is_integer(version))
        ECH_FAIL(ECH_EINPUT,
                 "%s: 'version' is no whole number: not a profile; make one with `echelon profile`",
                 p->file);
    if (json_integer_value(version) != ECH_PROFILE_VERSION)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: version %lld, this program reads version %d; measure again with `echelon "
                 "profile`",
                 p->file, (long long)json_integer_value(version), ECH_PROFILE_VERSION);
    return ECH_OK;
}

static ech_status take_all(const json_t *root, const char *name, ech_profile *out)
{
    place p = {.file = name};
    ECH_TRY(check_version(&p, root));
    ECH_TRY(take_real(&p, root, "bandwidth", FASTEST, &out->bandwidth));
    ECH_TRY(take_real(&p, root, "latency", LONGEST, &out->latency));
    ECH_TRY(take_real(&p, root, "update_seconds_per_byte", LONGEST, &out->update_seconds));
    ECH_TRY(take_real(&p, root, "other_seconds", LONGEST, &out->other_seconds));
    ECH_TRY(take_real(&p, root, "spread", LONGEST, &out->spread));
    ECH_TRY(take_real(&p, root, "processor_share", 1, &out->processor_share));
    const json_t *busy = json_object_get(root, "busy");
    if (!json_is_boolean(busy))
        ECH_FAIL(ECH_EINPUT, "%s: 'busy' is not true or false" DAMAGED, name);
    out->busy = json_is_true(busy);
    const char *model = json_string_value(json_object_get(root, "model"));
    if (!model) ECH_FAIL(ECH_EINPUT, "%s: 'model' is no text" DAMAGED, name);
    out->model = ech_strdup(model);
    ECH_TRY(check_keys(&p, root, KEYS, "echelon"));
    return take_blocks(&p, json_object_get(root, "blocks"), out);
}

ech_status ech_profile_parse(const char *text, size_t n, const char *name, ech_profile **out)
{
    if (n > LARGEST_FILE)
        ECH_FAIL(ECH_EINPUT, "%s: %zu bytes; a profile has at most %d" DAMAGED, name, n,
                 LARGEST_FILE);
    size_t blocks = n / SHORTEST_BLOCK + 1;
    ech_json_limits limits = {.depth = 8,
                              .containers = (1 + ECH_PROFILE_PHASES) * blocks + 2,
                              .values = KEYS + BLOCK_COMMAS * blocks};
    json_auto_t *root = NULL;
    ECH_TRY(ech_json_parse(name, text, n, limits, &root));
    ECH_CLEANUP(ech_profile_destroy_at) ech_profile *profile = ech_calloc(1, sizeof *profile);
    ECH_TRY(take_all(root, name, profile));
    *out = profile;
    profile = NULL;
    return ECH_OK;
}

ech_status ech_profile_read(const char *path, ech_profile **out)
{
    ECH_FREED char *text = NULL;
    size_t n;
    ECH_TRY(ech_file_read(path, LARGEST_FILE, &text, &n));
    return ech_profile_parse(text, n, path, out);
}
