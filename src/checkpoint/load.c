/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading boxes of tensors, whatever layout wrote them.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "checkpoint/open.h"

static void print_shape(int dims, const int64_t *shape, ech_text *out)
{
    ech_text_append(out, "[");
    for (int d = 0; d < dims; d++) ech_text_append(out, "%s%" PRId64, d ? ", " : "", shape[d]);
    ech_text_append(out, "]");
}

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
    ech_text is = {0}, must = {0};
    print_shape(have->dims, have->shape, &is);
    print_shape(want->dims, want->shape, &must);
    ech_status st = ech_fail_at(__FILE__, __LINE__, ECH_EINPUT,
                                "%s: tensor '%s' has shape %s, the run needs %s: saved by a run "
                                "with another model section",
                                where, want->name, is.at, must.at);
    ech_text_free(&is);
    ech_text_free(&must);
    return st;
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
