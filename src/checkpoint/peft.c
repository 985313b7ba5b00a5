/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders of adapters: finding them, opening their files, checking them against a model, and
 * reading tensors.
 */
#include "checkpoint/peft.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/hash.h"
#include "checkpoint/manifest.h"

struct ech_peft {
    char *folder;
    ech_peft_settings config;
    ech_safetensors *file;
};

static const char *const endings[] = {".lora_A.weight", ".lora_B.weight"};

/* ---- opening ---- */

bool ech_peft_is_there(const char *folder)
{
    return ech_file_has(folder, ECH_PEFT_CONFIG);
}

ech_status ech_peft_find(const char *path, char **folder)
{
    if (!ech_peft_is_there(path)) {
        ECH_FREED char *found = NULL;
        ECH_TRY(ech_shards_find(path, &found));
        if (!ech_peft_is_there(found))
            ECH_FAIL(ECH_EUSAGE,
                     "%s: has no " ECH_PEFT_CONFIG
                     "; name a folder of PEFT, or a run with lora.rank",
                     found);
        *folder = found;
        found = NULL;
        return ECH_OK;
    }
    ECH_TRY(ech_manifest_verify_model(path, false));
    *folder = ech_strdup(path);
    return ECH_OK;
}

static ech_status read_config(ech_peft *adapters)
{
    ECH_FREED char *path = ech_file_join(adapters->folder, ECH_PEFT_CONFIG), *text = NULL;
    size_t n;
    ECH_TRY(ech_file_read(path, ECH_PEFT_CONFIG_LIMIT, &text, &n));
    return ech_peft_settings_parse(path, text, n, &adapters->config);
}

static ech_status open_file(ech_peft *adapters)
{
    const char *name = ech_checkpoint_text_name(ECH_FILE_ADAPTER);
    ECH_FREED char *path = ech_file_join(adapters->folder, name);
    if (ech_file_exists(path)) return ech_safetensors_open(path, &adapters->file);
    ECH_FAIL(ECH_EINPUT,
             "%s: has no %s; copy all files of the adapters, or save them with PEFT's "
             "save_pretrained(), which writes safetensors",
             adapters->folder, name);
}

ech_status ech_peft_open(const char *folder, bool verify, ech_peft **out)
{
    if (verify) ECH_TRY(ech_manifest_verify_model(folder, true));
    ECH_CLEANUP(ech_peft_close_at) ech_peft *adapters = ech_calloc(1, sizeof *adapters);
    adapters->folder = ech_strdup(folder);
    ECH_TRY(read_config(adapters));
    ECH_TRY(open_file(adapters));
    *out = adapters;
    adapters = NULL;
    return ECH_OK;
}

void ech_peft_close(ech_peft *adapters)
{
    if (!adapters) return;
    ech_peft_settings_free(&adapters->config);
    ech_safetensors_close(adapters->file);
    free(adapters->folder);
    free(adapters);
}

const ech_peft_settings *ech_peft_settings_of(const ech_peft *adapters)
{
    return &adapters->config;
}

const char *ech_peft_base(const ech_peft *adapters)
{
    return ech_safetensors_base(adapters->file);
}

/* ---- targets ---- */

/* The module's last part in the name of a tensor, n characters; NULL: it is no adapter's. */
static const char *part_of(const char *name, size_t *n)
{
    for (size_t e = 0; e < sizeof endings / sizeof *endings; e++) {
        size_t length = strlen(name), end = strlen(endings[e]);
        if (length <= end || strcmp(name + length - end, endings[e]) != 0) continue;
        const char *part = name + length - end;
        while (part > name && part[-1] != '.') part--;
        *n = (size_t)(name + length - end - part);
        return part;
    }
    return NULL;
}

void ech_peft_append_targets(const ech_peft *adapters, ech_text *out)
{
    for (int i = 0; i < ech_safetensors_count(adapters->file); i++) {
        size_t n;
        const char *part = part_of(ech_safetensors_get(adapters->file, i).name, &n);
        ECH_FREED_TEXT word = {0};
        if (part) ech_text_append(&word, "%.*s", (int)n, part);
        if (!word.n || (out->n && ech_text_has_word(out->at, word.at))) continue;
        ech_text_append(out, "%s%s", out->n ? " " : "", word.at);
    }
}

/* ---- tensors ---- */

bool ech_peft_has(const ech_peft *adapters, const char *name)
{
    ECH_FREED_TEXT whole = {0};
    ech_text_append(&whole, ECH_ADAPTER_PREFIX "%s", name);
    return ech_safetensors_find(adapters->file, whole.at) >= 0;
}

static ech_status demand(const ech_peft *adapters, const ech_saved_tensor *want, int *at)
{
    *at = ech_safetensors_find(adapters->file, want->name);
    if (*at < 0)
        ECH_FAIL(ECH_EINPUT,
                 "%s: has no adapter '%s', which lora.targets asks for; leave lora.targets out if "
                 "all layers have the same adapters, or let it match those that are there",
                 adapters->folder, want->name);
    ech_saved_tensor have = ech_safetensors_get(adapters->file, *at);
    if (!ech_dtype_is_real(have.dtype))
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: tensor '%s' is of type %s; adapters are F32, F64, BF16 or F16; save them "
                 "again in PEFT",
                 adapters->folder, have.name, ech_dtype_on_disk(have.dtype));
    return ech_shape_check(adapters->folder, &have, want, "; the model and lora.rank need ",
                           "; are they adapters of another model?");
}

ech_status ech_peft_check(const ech_peft *adapters, const ech_saved_tensor *tensors, int n)
{
    int count = ech_safetensors_count(adapters->file);
    ECH_FREED bool *used = ech_calloc((size_t)count + 1, sizeof *used);
    for (int i = 0; i < n; i++) {
        int at;
        ECH_TRY(demand(adapters, &tensors[i], &at));
        used[at] = true;
    }
    for (int i = 0; i < count; i++)
        if (!used[i])
            ECH_FAIL(ECH_EINPUT,
                     "%s: tensor '%s' belongs to no adapter of this model; are they adapters of "
                     "another model, or does lora.targets leave some out?",
                     adapters->folder, ech_safetensors_get(adapters->file, i).name);
    return ECH_OK;
}

ech_status ech_peft_load(const ech_peft *adapters, const ech_saved_tensor *tensors, int n)
{
    for (int i = 0; i < n; i++) {
        int at;
        ECH_TRY(demand(adapters, &tensors[i], &at));
        ECH_TRY(ech_safetensors_read(adapters->file, at, &tensors[i]));
    }
    return ECH_OK;
}
