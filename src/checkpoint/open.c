/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening one checkpoint folder: the manifest first, then the files it lists, against it.
 */
#include "checkpoint/open.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/box.h"

static ech_status open_tensors(ech_checkpoint *checkpoint, ech_checkpoint_file file)
{
    if (checkpoint->manifest.files[file].bytes < 0) return ECH_OK;
    ECH_FREED char *path = ech_file_join(checkpoint->path, ech_checkpoint_file_name(file));
    return ech_safetensors_open(path, &checkpoint->tensors[file]);
}

static ech_status read_text(ech_checkpoint *checkpoint, ech_checkpoint_file file)
{
    if (checkpoint->manifest.files[file].bytes < 0) return ECH_OK;
    ech_checkpoint_info *info = &checkpoint->manifest.info;
    ECH_FREED char *path = ech_file_join(checkpoint->path, ech_checkpoint_file_name(file));
    return ech_file_read(path, ECH_TEXT_LIMIT, &info->text[file].at, &info->text[file].n);
}

static ech_status read_manifest(ech_checkpoint *checkpoint)
{
    ECH_FREED char *path = ech_file_join(checkpoint->path, ECH_MANIFEST_NAME);
    ECH_FREED char *text = NULL;
    size_t n;
    ech_status st;
    if (ech_file_exists(path)) {
        st = ech_file_read(path, ECH_MANIFEST_LIMIT, &text, &n);
    } else {
        st = ech_fail_at(__FILE__, __LINE__, ECH_EINPUT, "%s: has no %s: no whole checkpoint",
                         checkpoint->path, ECH_MANIFEST_NAME);
    }
    if (st == ECH_OK) st = ech_manifest_parse(path, text, n, &checkpoint->manifest);
    if (st == ECH_OK) checkpoint->manifest_bytes = (int64_t)n;
    return st;
}

static ech_status open_all(ech_checkpoint *checkpoint, bool verify)
{
    ECH_TRY(read_manifest(checkpoint));
    ECH_TRY(ech_manifest_verify(&checkpoint->manifest, checkpoint->path, verify));
    ECH_TRY(open_tensors(checkpoint, ECH_FILE_MODEL));
    ECH_TRY(open_tensors(checkpoint, ECH_FILE_STATE));
    for (int f = ECH_FIRST_TEXT; f < ECH_FILES; f++)
        ECH_TRY(read_text(checkpoint, (ech_checkpoint_file)f));
    return ECH_OK;
}

ech_status ech_checkpoint_open(const char *path, bool verify, ech_checkpoint **out)
{
    ech_checkpoint *checkpoint = ech_calloc(1, sizeof *checkpoint);
    checkpoint->path = ech_strdup(path);
    ech_status st = open_all(checkpoint, verify);
    if (st != ECH_OK) {
        ech_checkpoint_close(checkpoint);
        return st;
    }
    *out = checkpoint;
    return ECH_OK;
}

void ech_checkpoint_close(ech_checkpoint *checkpoint)
{
    if (!checkpoint) return;
    ech_safetensors_close(checkpoint->tensors[ECH_FILE_MODEL]);
    ech_safetensors_close(checkpoint->tensors[ECH_FILE_STATE]);
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

static ech_status fail_missing(const char *where, const ech_safetensors *file,
                               const ech_saved_tensor *want)
{
    int n = file ? ech_safetensors_count(file) : 0;
    const char **names = ech_calloc((size_t)n + 1, sizeof *names);
    for (int i = 0; i < n; i++) names[i] = ech_safetensors_get(file, i).name;
    const char *nearest = ech_text_nearest(want->name, names, (size_t)n);
    ech_status st = ech_fail_at(
        __FILE__, __LINE__, ECH_EINPUT, "%s/%s: no tensor '%s' among its %d%s%s%s", where,
        ech_checkpoint_file_name(want->is_state ? ECH_FILE_STATE : ECH_FILE_MODEL), want->name, n,
        nearest ? " (the nearest is '" : "", nearest ? nearest : "", nearest ? "')" : "");
    free(names);
    return st;
}

static ech_status check_shape(const char *where, const ech_saved_tensor *have,
                              const ech_saved_tensor *want)
{
    size_t bytes = (size_t)want->dims * sizeof *want->shape;
    if (have->dims == want->dims && memcmp(have->shape, want->shape, bytes) == 0) return ECH_OK;
    ECH_FREED_TEXT is = {0}, must = {0};
    ech_shape_print(have->dims, have->shape, &is);
    ech_shape_print(want->dims, want->shape, &must);
    return ech_fail_at(__FILE__, __LINE__, ECH_EINPUT,
                       "%s: tensor '%s' has shape %s, the run needs %s: saved by a run "
                       "with another model section",
                       where, want->name, is.at, must.at);
}

static ech_status load_one(const ech_checkpoint *checkpoint, const ech_saved_tensor *want)
{
    const ech_safetensors *file =
        checkpoint->tensors[want->is_state ? ECH_FILE_STATE : ECH_FILE_MODEL];
    int i = file ? ech_safetensors_find(file, want->name) : -1;
    if (i < 0) return fail_missing(checkpoint->path, file, want);
    ech_saved_tensor have = ech_safetensors_get(file, i);
    ECH_TRY(check_shape(checkpoint->path, &have, want));
    return ech_safetensors_read(file, i, want);
}

ech_status ech_checkpoint_load(const ech_checkpoint *checkpoint, const ech_saved_tensor *tensors,
                               int n)
{
    for (int i = 0; i < n; i++) ECH_TRY(load_one(checkpoint, &tensors[i]));
    return ECH_OK;
}

bool ech_checkpoint_has_state(const ech_checkpoint *checkpoint, const char *name)
{
    const ech_safetensors *file = checkpoint->tensors[ECH_FILE_STATE];
    return file && ech_safetensors_find(file, name) >= 0;
}
