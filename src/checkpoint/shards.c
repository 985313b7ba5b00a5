/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder of weights, open: its files, and where each tensor is.
 */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/folder.h"
#include "checkpoint/open.h"
#include "checkpoint/shards_index.h"
#include "checkpoint/shards_parts.h"

/* ---- whether one that belongs to a checkpoint is as it was saved ---- */

static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* What is below state/ is of no use here, and may be gone. */
static ech_status verify_model(const char *path, const char *checkpoint, bool all)
{
    ECH_FREED char *text = NULL;
    size_t n;
    ech_manifest manifest;
    ECH_TRY(ech_file_read(path, ECH_MANIFEST_LIMIT, &text, &n));
    bool is_ours = ech_manifest_is_ours(text, n);
    ech_status st = is_ours ? ech_manifest_parse(path, text, n, &manifest) : ECH_OK;
    if (!is_ours || st != ECH_OK) return st;
    for (int f = 0; f < ECH_FILES && st == ECH_OK; f++)
        if (f != ECH_FILE_STATE)
            st = ech_manifest_verify_file(&manifest, checkpoint, (ech_checkpoint_file)f,
                                          all || f != ECH_FILE_MODEL);
    ech_manifest_free(&manifest);
    return st;
}

/* A folder with a checkpoint's name has a manifest, unless it was never finished. */
static ech_status verify_below(const char *checkpoint, bool all)
{
    int64_t step;
    ech_folder_kind kind;
    if (!ech_file_has(checkpoint, ECH_MANIFEST_NAME)) {
        if (!ech_folder_parse(last_name(checkpoint), &step, &kind)) return ECH_OK;
        ECH_FAIL(ECH_EINPUT, "%s: has no " ECH_MANIFEST_NAME ": no whole checkpoint", checkpoint);
    }
    ECH_FREED char *path = ech_file_join(checkpoint, ECH_MANIFEST_NAME);
    return verify_model(path, checkpoint, all);
}

ech_status ech_shards_verify(const char *folder, bool all)
{
    ECH_FREED char *real = realpath(folder, NULL); /* links and "." are other names of the same */
    ech_status st = ECH_OK;
    if (real && strcmp(last_name(real), "model") == 0) {
        char *checkpoint = ech_file_parent(real);
        st = verify_below(checkpoint, all);
        free(checkpoint);
    }
    return st;
}

#define CONFIG "config.json"

/* model/ of the newest checkpoint of a folder of checkpoints or of a run directory; NULL: none. */
static ech_status find_run(const char *path, char **folder)
{
    ech_checkpoint *checkpoint;
    ECH_TRY(ech_checkpoint_open_run(path, false, &checkpoint));
    *folder = checkpoint ? ech_file_join(ech_checkpoint_path(checkpoint), "model") : NULL;
    ech_checkpoint_close(checkpoint);
    return ECH_OK;
}

bool ech_shards_is_cache(const char *path)
{
    return ech_file_has(path, "snapshots") && ech_file_has(path, "blobs") &&
           !ech_file_has(path, CONFIG);
}

ech_status ech_shards_find(const char *path, char **folder)
{
    if (!ech_file_is_folder(path))
        ECH_FAIL(ECH_EUSAGE, "%s: no such folder; name a Hugging Face model's, or a run directory",
                 path);
    if (ech_shards_is_cache(path))
        ECH_FAIL(
            ECH_EUSAGE,
            "%s: Hugging Face's cache of a model, of all its versions; name one, a folder below "
            "%s/snapshots",
            path, path);
    char *model = ech_file_join(path, "model"), *found = NULL;
    if (ech_file_has(path, CONFIG))
        found = ech_strdup(path);
    else if (ech_file_has(model, CONFIG))
        found = ech_strdup(model);
    free(model);
    ech_status st = found ? ech_shards_verify(found, false) : find_run(path, &found);
    if (st != ECH_OK) {
        free(found);
        return st;
    }
    if (!found)
        ECH_FAIL(
            ECH_EUSAGE,
            "%s: has no " CONFIG
            ", and no checkpoint with one; name a Hugging Face model's folder, a checkpoint or "
            "a run directory",
            path);
    *folder = found;
    return ECH_OK;
}

/* ---- opening ---- */

static ech_status open_file(ech_shards *weights, const char *name)
{
    ech_safetensors *file;
    ECH_FREED char *path = ech_file_join(weights->folder, name);
    ech_status st = ech_safetensors_open(path, &file);
    ECH_TRY(st);
    ECH_PUSH(weights->file, file);
    return ECH_OK;
}

/* listed: tensors that the map says are in it. */
static ech_status check_shard(const char *path, const ech_shards_index *index, int shard,
                              int listed, const ech_safetensors *file)
{
    for (int t = 0; t < ech_safetensors_count(file); t++) {
        const char *name = ech_safetensors_get(file, t).name;
        int at = ech_shards_index_find(index, name);
        if (at < 0 || index->shard_of[at] != shard)
            ECH_FAIL(ECH_EINPUT, "%s: its shard %s has the tensor '%s', %s", path,
                     index->shard.at[shard], name,
                     at < 0 ? "which weight_map does not list"
                            : "which weight_map says to be in another one");
    }
    if (listed == ech_safetensors_count(file)) return ECH_OK;
    for (size_t i = 0; i < index->tensor.n; i++)
        if (index->shard_of[i] == shard && ech_safetensors_find(file, index->tensor.at[i]) < 0)
            ECH_FAIL(ECH_EINPUT, "%s: tensor '%s' is not in its shard %s", path,
                     index->tensor.at[i], index->shard.at[shard]);
    return ECH_OK;
}

static ech_status check_shards(const ech_shards *weights, const char *path,
                               const ech_shards_index *index)
{
    ECH_FREED int *listed = ech_calloc(index->shard.n, sizeof *listed);
    ech_status st = ECH_OK;
    for (size_t i = 0; i < index->tensor.n; i++) listed[index->shard_of[i]]++;
    for (size_t s = 0; s < index->shard.n && st == ECH_OK; s++)
        st = check_shard(path, index, (int)s, listed[s], weights->file.at[s]);
    return st;
}

static ech_status open_shards(ech_shards *weights, const char *path, const ech_shards_index *index)
{
    for (size_t s = 0; s < index->shard.n; s++) {
        if (!ech_file_has(weights->folder, index->shard.at[s]))
            ECH_FAIL(ECH_EINPUT, "%s: its shard %s is not there; copy all files of the model", path,
                     index->shard.at[s]);
        ECH_TRY(open_file(weights, index->shard.at[s]));
    }
    return check_shards(weights, path, index);
}

static ech_status open_index(ech_shards *weights, const char *path)
{
    ech_shards_index index = {0};
    ech_status st = ech_shards_index_read(path, &index);
    if (st == ECH_OK) st = open_shards(weights, path, &index);
    ech_shards_index_free(&index);
    return st;
}

bool ech_shards_are_there(const char *folder)
{
    return ech_file_has(folder, ECH_SHARDS_SINGLE) || ech_file_has(folder, ECH_SHARDS_INDEX);
}

/* As transformers looks: one file before shards. Pickles run code when they are read. */
static ech_status open_all(ech_shards *weights)
{
    if (ech_file_has(weights->folder, ECH_SHARDS_SINGLE))
        return open_file(weights, ECH_SHARDS_SINGLE);
    if (ech_file_has(weights->folder, ECH_SHARDS_INDEX)) {
        char *path = ech_file_join(weights->folder, ECH_SHARDS_INDEX);
        ech_status st = open_index(weights, path);
        free(path);
        return st;
    }
    if (ech_file_has(weights->folder, "pytorch_model.bin") ||
        ech_file_has(weights->folder, "pytorch_model.bin.index.json"))
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: has its weights as pytorch_model.bin, a pickle, which may run any code when "
                 "it is read; convert it where you trust it, in Python: AutoModelForCausalLM"
                 ".from_pretrained(DIR).save_pretrained(NEW, safe_serialization=True)",
                 weights->folder);
    ECH_FAIL(ECH_EINPUT, "%s: has neither " ECH_SHARDS_SINGLE " nor " ECH_SHARDS_INDEX,
             weights->folder);
}

ech_status ech_shards_open(const char *folder, const ech_shards_names *names, bool verify,
                           ech_shards **out)
{
    if (verify) ECH_TRY(ech_shards_verify(folder, true));
    ech_shards *weights = ech_calloc(1, sizeof *weights);
    weights->folder = ech_strdup(folder);
    weights->names = *names;
    ech_status st = open_all(weights);
    if (st != ECH_OK) {
        ech_shards_close(weights);
        return st;
    }
    *out = weights;
    return ECH_OK;
}

void ech_shards_close(ech_shards *weights)
{
    if (!weights) return;
    for (size_t f = 0; f < weights->file.n; f++) ech_safetensors_close(weights->file.at[f]);
    free(weights->file.at);
    free(weights->folder);
    free(weights);
}

int ech_shards_count(const ech_shards *weights)
{
    int n = 0;
    for (size_t f = 0; f < weights->file.n; f++) n += ech_safetensors_count(weights->file.at[f]);
    return n;
}

/* ---- names ---- */

ech_shards_location ech_shards_find_exactly(const ech_shards *weights, const char *name)
{
    for (size_t f = 0; f < weights->file.n; f++) {
        int t = ech_safetensors_find(weights->file.at[f], name);
        if (t >= 0) return (ech_shards_location){(int)f, t};
    }
    return (ech_shards_location){-1, -1};
}

ech_shards_location ech_shards_find_tensor(const ech_shards *weights, const char *name)
{
    size_t n = strlen(weights->names.prefix);
    ech_shards_location at = ech_shards_find_exactly(weights, name);
    if (at.file < 0 && strncmp(name, weights->names.prefix, n) == 0)
        at = ech_shards_find_exactly(weights, name + n);
    return at;
}

ech_dtype ech_shards_dtype(const ech_shards *weights, const char *name)
{
    ech_shards_location at = ech_shards_find_tensor(weights, name);
    ECH_ASSERT(at.file >= 0);
    return ech_safetensors_get(weights->file.at[at.file], at.tensor).dtype;
}

/* ---- reading ---- */

ech_status ech_shards_load(const ech_shards *weights, const ech_saved_tensor *tensors, int n)
{
    for (int i = 0; i < n; i++) {
        ech_shards_location at;
        ECH_TRY(ech_shards_demand(weights, &tensors[i], &at));
        ECH_TRY(ech_safetensors_read(weights->file.at[at.file], at.tensor, &tensors[i]));
    }
    return ECH_OK;
}
