/* SPDX-License-Identifier: Apache-2.0
 *
 * Walks a system's table for a design, and prints what it has found.
 */
#include "app/advice/emit.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/about.h"

static const ech_emit_system *const systems[] = {
#define X(name) &ech_emit_##name,
#include "app/advice/systems.def"
#undef X
};
enum { SYSTEMS = sizeof systems / sizeof *systems };

/* Keys of our machines and kernels, which say nothing about the layout. */
static const char own_keys[] =
    " parallel.comm parallel.device parallel.share_device parallel.node_ranks "
    "parallel.node_bandwidth parallel.network_bandwidth parallel.profile parallel.threads "
    "parallel.pin parallel.delay parallel.deadline parallel.reduction parallel.bucket_bytes "
    "parallel.partition parallel.virtual_stages parallel.flush_every memory.device_limit "
    "memory.host_limit memory.offload_directory memory.offload_bandwidth memory.offload_threads "
    "memory.prefetch memory.recompute_blocks model.architecture model.init_from "
    "model.initialization ";

static const ech_emit_system *find(const char *name)
{
    for (int i = 0; i < SYSTEMS; i++)
        if (strcmp(systems[i]->name, name) == 0) return systems[i];
    return NULL;
}

ech_status ech_emit_check(const char *system)
{
    ECH_FREED_TEXT names = {0};
    for (int i = 0; i < SYSTEMS; i++)
        ech_text_append(&names, "%s%s", i ? ", " : "", systems[i]->name);
    if (!find(system))
        ECH_FAIL(ECH_EUSAGE, "--emit-for=%s: no such system; layouts are emitted for %s", system,
                 names.at);
    return ECH_OK;
}

/* ---- for tables ---- */

void ech_emit_add(ech_emitted *out, const char *name, const char *value)
{
    ech_emitted_argument argument = {.name = name, .value = value ? ech_strdup(value) : NULL};
    ECH_PUSH(out->argument, argument);
}

void ech_emit_add_number(ech_emitted *out, const char *name, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    ech_emit_add(out, name, text);
}

void ech_emit_miss(ech_emitted *out, const char *key, const char *format, ...)
{
    ECH_FREED_TEXT text = {0};
    va_list arguments;
    char why[400];
    va_start(arguments, format);
    vsnprintf(why, sizeof why, format, arguments);
    va_end(arguments);
    ech_text_append(&text, "%s = ", key);
    ech_config_format(out->design->config, key, &text);
    for (size_t i = 0; i < out->missing.n; i++) /* a key may have several rows */
        if (strncmp(out->missing.at[i], text.at, text.n) == 0 && out->missing.at[i][text.n] == ':')
            return;
    ech_text_append(&text, ": %s", why);
    ECH_PUSH(out->missing, ech_strdup(text.at));
}

void ech_emit_refuse(ech_emitted *out, const char *key, const char *why)
{
    if (out->status == ECH_OK)
        out->status = ech_config_complain(out->design->config, key, "not with --emit-for=%s: %s",
                                          out->system->name, why);
}

int ech_emit_layers(const ech_design *design, bool merged, int layers[ECH_EMIT_STAGES])
{
    const ech_layout *layout = design->layout;
    int n = ech_layout_virtual_stages(layout), blocks = (int)design->model->block.n;
    if (n > ECH_EMIT_STAGES || blocks != (int)design->config->model.num_hidden_layers + 2) return 0;
    memset(layers, 0, ECH_EMIT_STAGES * sizeof *layers);
    for (int s = 0; s < n; s++) {
        int first = layout->first_block[s], end = layout->first_block[s + 1];
        int count = end - first - (first == 0) - (end == blocks);
        layers[merged ? layout->virtual_stage[s].stage : s] += count;
    }
    return merged ? layout->stages : n;
}

bool ech_emit_has_stages(const ech_design *design)
{
    return design->layout->stages > 1;
}

bool ech_emit_has_context(const ech_design *design)
{
    return design->layout->context > 1;
}

bool ech_emit_has_experts(const ech_design *design)
{
    return design->config->model.num_local_experts > 0;
}

bool ech_emit_has_tensor(const ech_design *design)
{
    return design->layout->tensor > 1;
}

bool ech_emit_is_tied(const ech_design *design)
{
    return design->config->model.tie_word_embeddings == 1 && design->layout->stages > 1;
}

/* ---- the table ---- */

/* "1f1b, interleaved" of "1f1b= interleaved=". */
static void append_ours(const char *words, ech_text *out)
{
    for (const char *at = words; *at; at += strspn(at, " ")) {
        ech_text_append(out, "%s%.*s", out->n ? ", " : "", (int)strcspn(at, "="), at);
        at += strcspn(at, " ");
    }
}

bool ech_emit_has_value(const char *system, const char *key, const char *value)
{
    size_t n;
    for (const ech_emit_row *row = find(system)->row; row->key; row++)
        if (strcmp(row->key, key) == 0 && row->words &&
            !ech_text_find_value(row->words, value, strlen(value), &n))
            return false;
    return true;
}

bool ech_emitted_lacks(const ech_emitted *emitted, const char *key)
{
    size_t n = strlen(key);
    for (size_t i = 0; i < emitted->missing.n; i++)
        if (strncmp(emitted->missing.at[i], key, n) == 0 && emitted->missing.at[i][n] == ' ')
            return true;
    return false;
}

static void emit_row(ech_emitted *out, const ech_emit_row *row)
{
    ECH_FREED_TEXT value = {0}, ours = {0};
    size_t n = 0;
    if (row->when && !row->when(out->design)) return;
    if (row->emit) {
        row->emit(out, row);
        return;
    }
    ech_config_format(out->design->config, row->key, &value);
    if (!row->words) {
        ech_emit_add(out, row->name, value.at);
        return;
    }
    const char *words = ech_text_find_value(row->words, value.at, value.n, &n);
    append_ours(row->words, &ours);
    if (!words) {
        ech_emit_miss(out, row->key, "%s has %s", out->system->name, ours.at);
    } else if (n == 1 && *words == '+') {
        ech_emit_add(out, row->name, NULL);
    } else if (n > 0) {
        ech_text_free(&value);
        ech_text_append(&value, "%.*s", (int)n, words);
        ech_emit_add(out, row->name, value.at);
    }
}

static bool has_row(const ech_emit_system *system, const char *key)
{
    for (const ech_emit_row *row = system->row; row->key; row++)
        if (strcmp(row->key, key) == 0) return true;
    return false;
}

/* Names keys that the run sets, or its family chooses, to other values than the default, and no row
 * has. */
static void find_missing(ech_emitted *out, const ech_config *defaults)
{
    ech_config_about about;
    for (int i = 0; ech_config_about_key(i, &about); i++) {
        ECH_FREED_TEXT key = {0}, value = {0}, usual = {0};
        ech_text_append(&key, "%s.%s", about.section, about.name);
        if (!ech_text_has_word(out->system->sections, about.section) ||
            ech_text_has_word(own_keys, key.at) || has_row(out->system, key.at))
            continue;
        ech_config_format(out->design->config, key.at, &value);
        ech_config_format(defaults, key.at, &usual);
        bool chosen = !ech_config_is_set(out->design->config, key.at);
        if (chosen && ech_config_is_auto(usual.at)) continue;
        if (strcmp(value.at, usual.at) != 0)
            ech_emit_miss(out, key.at, "%s has no such argument", out->system->name);
    }
}

/* ---- files ---- */

/* Sets root's value at a path with dots. */
static void set_at(json_t *root, const char *path, json_t *value)
{
    const char *dot = strchr(path, '.');
    ECH_FREED_TEXT head = {0};
    if (!dot) {
        json_object_set_new(root, path, value);
        return;
    }
    ech_text_append(&head, "%.*s", (int)(dot - path), path);
    if (!json_object_get(root, head.at)) json_object_set_new(root, head.at, json_object());
    set_at(json_object_get(root, head.at), dot + 1, value);
}

static ech_status print_json(ech_emitted *out)
{
    json_auto_t *root = json_object();
    for (size_t i = 0; i < out->argument.n; i++) {
        const ech_emitted_argument *a = &out->argument.at[i];
        json_t *value = a->value ? json_loads(a->value, JSON_DECODE_ANY, NULL) : json_true();
        set_at(root, a->name, value ? value : json_string(a->value));
    }
    ECH_FREED char *text = json_dumps(root, JSON_INDENT(2));
    if (!text) ECH_FAIL(ECH_EINPUT, "a value for %s is not UTF-8", out->system->name);
    ech_text_append(&out->file, "%s\n", text);
    return ECH_OK;
}

static void print_arguments(ech_emitted *out)
{
    ech_text_append(&out->file, "# Written by echelon %s for %d ranks. %s\n", ECH_VERSION,
                    out->design->world, out->system->usage);
    for (size_t i = 0; i < out->missing.n; i++)
        ech_text_append(&out->file, "# not supported: %s\n", out->missing.at[i]);
    for (size_t i = 0; i < out->argument.n; i++) {
        const ech_emitted_argument *a = &out->argument.at[i];
        ech_text_append(&out->file, "%s%s%s\n", a->name, a->value ? " " : "",
                        a->value ? a->value : "");
    }
}

static ech_status check_layout(const ech_design *design, const char *system)
{
    const ech_layout *layout = design->layout;
    for (int s = 1; s < layout->stages; s++)
        if (layout->replicas[s] != layout->replicas[0])
            return ech_config_complain(
                design->config, "parallel.stage_replicas",
                "%s has as many replicas of each stage; plan with parallel.data instead", system);
    if (design->config->parallel.strategy != ECH_STRATEGY_SYNCHRONOUS)
        return ech_config_complain(
            design->config, "parallel.strategy",
            "layouts for %s are synchronous ones; remove the key for --emit-for", system);
    return ECH_OK;
}

ech_status ech_emit(const ech_design *design, const char *system, ech_emitted *out)
{
    *out = (ech_emitted){.design = design};
    ECH_TRY(ech_emit_check(system));
    ECH_TRY(check_layout(design, system));
    ECH_CLEANUP(ech_config_destroy_at) ech_config *defaults = NULL;
    ECH_TRY(ech_setup_defaults(&defaults));
    out->system = find(system);
    for (const ech_emit_row *row = out->system->row; row->key; row++) emit_row(out, row);
    ECH_TRY(out->status);
    find_missing(out, defaults);
    for (const struct ech_emit_memory *m = out->system->memory; m->text; m++)
        if (!m->when || m->when(design)) ECH_PUSH(out->memory, m->text);
    if (out->system->json) return print_json(out);
    print_arguments(out);
    return ECH_OK;
}

void ech_emitted_free(ech_emitted *emitted)
{
    for (size_t i = 0; i < emitted->argument.n; i++) free(emitted->argument.at[i].value);
    for (size_t i = 0; i < emitted->missing.n; i++) free(emitted->missing.at[i]);
    free(emitted->argument.at);
    free(emitted->missing.at);
    free(emitted->memory.at);
    ech_text_free(&emitted->file);
    *emitted = (ech_emitted){0};
}

/* ---- what is said about it ---- */

void ech_emitted_text(const ech_emitted *emitted, ech_text *out)
{
    const ech_emit_system *system = emitted->system;
    ech_text_append(out, "emitted     %s for %s; format ",
                    ECH_COUNT((int64_t)emitted->argument.n, "argument"), system->name);
    if (system->parser)
        ech_text_append(out, "read back by the parser of %s\n", system->parser);
    else
        ech_text_append(out, "not proved: its parser could not be installed\n");
    for (size_t i = 0; i < emitted->missing.n; i++)
        ech_text_append(out, "            not supported: %s\n", emitted->missing.at[i]);
    for (size_t i = 0; i < emitted->memory.n; i++)
        ech_text_append(out, "            other memory: %s\n", emitted->memory.at[i]);
}

json_t *ech_emitted_json(const ech_emitted *emitted)
{
    const ech_emit_system *system = emitted->system;
    json_t *arguments = json_object(), *missing = json_array(), *memory = json_array();
    for (size_t i = 0; i < emitted->argument.n; i++) {
        const ech_emitted_argument *a = &emitted->argument.at[i];
        json_object_set_new(arguments, a->name, a->value ? json_string(a->value) : json_true());
    }
    for (size_t i = 0; i < emitted->missing.n; i++)
        json_array_append_new(missing, json_string(emitted->missing.at[i]));
    for (size_t i = 0; i < emitted->memory.n; i++)
        json_array_append_new(memory, json_string(emitted->memory.at[i]));
    return json_pack("{s:s, s:o, s:o, s:o, s:o}", "system", system->name, "parser",
                     system->parser ? json_string(system->parser) : json_null(), "arguments",
                     arguments, "not_supported", missing, "other_memory", memory);
}
