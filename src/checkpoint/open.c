/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening one checkpoint folder: the manifest first, then the files it lists, against it.
 */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/manifest.h"

struct ech_checkpoint {
    char *path;
    ech_manifest manifest;
    int64_t manifest_bytes;
    ech_safetensors *tensors[ECH_FIRST_TEXT]; /* NULL: no such file */
};

static ech_status read_manifest(ech_checkpoint *checkpoint)
{
    ECH_FREED char *path = ech_file_join(checkpoint->path, ECH_MANIFEST_NAME), *text = NULL;
    size_t n;
    if (!ech_file_exists(path))
        ECH_FAIL(ECH_EINPUT, "%s: has no %s: its save did not finish; use an older checkpoint",
                 checkpoint->path, ECH_MANIFEST_NAME);
    ECH_TRY(ech_file_read(path, ECH_MANIFEST_LIMIT, &text, &n));
    checkpoint->manifest_bytes = (int64_t)n;
    return ech_manifest_parse(path, text, n, &checkpoint->manifest);
}

/* A base's hash that is none is not copied. */
static ech_status open_tensors(const char *path, ech_safetensors **out, ech_checkpoint_info *info)
{
    ech_hash hash;
    ECH_TRY(ech_safetensors_open(path, out));
    const char *base = ech_safetensors_base(*out);
    if (base && ech_hash_parse(base, &hash)) ech_hash_print(hash, info->base);
    return ECH_OK;
}

static ech_status open_file(ech_checkpoint *checkpoint, ech_checkpoint_file f)
{
    ech_checkpoint_info *info = &checkpoint->manifest.info;
    if (checkpoint->manifest.files[f].bytes < 0) return ECH_OK;
    ECH_FREED char *path = ech_file_join(checkpoint->path, ech_checkpoint_file_name(f));
    if (f < ECH_FIRST_TEXT) return open_tensors(path, &checkpoint->tensors[f], info);
    return ech_file_read(path, ECH_TEXT_LIMIT, &info->text[f].at, &info->text[f].n);
}

ech_status ech_checkpoint_open(const char *path, bool verify, ech_checkpoint **out)
{
    ECH_CLEANUP(ech_checkpoint_close_at)
    ech_checkpoint *checkpoint = ech_calloc(1, sizeof *checkpoint);
    checkpoint->path = ech_strdup(path);
    ECH_TRY(read_manifest(checkpoint));
    for (ech_checkpoint_file f = 0; f < ECH_FILES; f++)
        ECH_TRY(ech_manifest_verify_file(&checkpoint->manifest, path, f,
                                         verify || f >= ECH_FIRST_TEXT));
    for (ech_checkpoint_file f = 0; f < ECH_FILES; f++) ECH_TRY(open_file(checkpoint, f));
    *out = checkpoint;
    checkpoint = NULL;
    return ECH_OK;
}

void ech_checkpoint_close(ech_checkpoint *checkpoint)
{
    if (!checkpoint) return;
    for (int f = 0; f < ECH_FIRST_TEXT; f++) ech_safetensors_close(checkpoint->tensors[f]);
    ech_manifest_free(&checkpoint->manifest);
    free(checkpoint->path);
    free(checkpoint);
}

const char *ech_checkpoint_path(const ech_checkpoint *checkpoint)
{
    return checkpoint->path;
}

const ech_checkpoint_info *ech_checkpoint_get_info(const ech_checkpoint *checkpoint)
{
    return &checkpoint->manifest.info;
}

int64_t ech_checkpoint_bytes(const ech_checkpoint *checkpoint)
{
    int64_t sum = checkpoint->manifest_bytes;
    for (int f = 0; f < ECH_FILES; f++)
        if (checkpoint->manifest.files[f].bytes > 0) sum += checkpoint->manifest.files[f].bytes;
    return sum;
}

ech_dtype ech_checkpoint_dtype(const ech_checkpoint *checkpoint)
{
    int64_t bytes[ECH_DTYPES] = {0};
    const ech_safetensors *file = checkpoint->tensors[ECH_FILE_MODEL];
    int most = ECH_F32;
    for (int i = 0; i < ech_safetensors_count(file); i++) {
        ech_saved_tensor t = ech_safetensors_get(file, i);
        int64_t elements;
        if (ech_box_elements(t.dims, t.shape, &elements))
            bytes[t.dtype] += elements * (int64_t)ech_dtype_bytes(t.dtype);
    }
    for (int d = 0; d < ECH_DTYPES; d++)
        if (bytes[d] > bytes[most]) most = d;
    return (ech_dtype)most;
}

/* ---- boxes of tensors, whatever layout wrote them ---- */

static ech_status load_one(const ech_checkpoint *checkpoint, const ech_saved_tensor *want)
{
    ech_safetensors *file = checkpoint->tensors[want->file];
    int i = file ? ech_safetensors_find(file, want->name) : -1;
    if (i < 0) {
        ECH_FREED char *path =
            ech_file_join(checkpoint->path, ech_checkpoint_file_name(want->file));
        return ech_safetensors_fail_missing(path, &file, file != NULL, want->name);
    }
    ech_saved_tensor have = ech_safetensors_get(file, i);
    ECH_TRY(ech_shape_check(checkpoint->path, &have, want, ", the run needs ",
                            ": saved by a run with another model section; use that run file's"));
    return ech_safetensors_read(file, i, want);
}

ech_status ech_checkpoint_load(const ech_checkpoint *checkpoint, const ech_saved_tensor *tensors,
                               int n)
{
    for (int i = 0; i < n; i++) ECH_TRY(load_one(checkpoint, &tensors[i]));
    return ECH_OK;
}

int64_t ech_checkpoint_state_size(const ech_checkpoint *checkpoint, const char *name)
{
    ech_safetensors *file = checkpoint->tensors[ECH_FILE_STATE];
    int i = file ? ech_safetensors_find(file, name) : -1;
    return i < 0 ? 0 : ech_safetensors_get(file, i).shape[0];
}

bool ech_checkpoint_has_state(const ech_checkpoint *checkpoint, const char *name)
{
    const ech_safetensors *file = checkpoint->tensors[ECH_FILE_STATE];
    return file && ech_safetensors_find(file, name) >= 0;
}

bool ech_checkpoint_fits(const ech_checkpoint *checkpoint, const ech_saved_tensor *want)
{
    const ech_safetensors *file = checkpoint->tensors[want->file];
    int i = file ? ech_safetensors_find(file, want->name) : -1;
    if (i < 0) return false;
    ech_saved_tensor have = ech_safetensors_get(file, i);
    int64_t shape[ECH_MAX_DIMS];
    ech_saved_shape(want, shape);
    return have.dims == want->dims &&
           memcmp(have.shape, shape, (size_t)want->dims * sizeof *shape) == 0;
}
