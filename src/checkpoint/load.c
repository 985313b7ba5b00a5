/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading boxes of tensors, whatever layout wrote them; fp32 and fp64 convert into each other.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "checkpoint/box.h"
#include "checkpoint/open.h"

enum { CHUNK = 1 << 16 }; /* elements converted at a time */

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

static bool is_convertible(ech_dtype a, ech_dtype b)
{
    return (a == ECH_F32 && b == ECH_F64) || (a == ECH_F64 && b == ECH_F32);
}

static void convert(ech_dtype to, void *out, const void *in, int64_t n)
{
    if (to == ECH_F64) {
        const float *x = in;
        for (int64_t i = 0; i < n; i++) ((double *)out)[i] = (double)x[i];
    } else {
        const double *x = in;
        for (int64_t i = 0; i < n; i++) ((float *)out)[i] = (float)x[i];
    }
}

/* Reads the box into `to` as the wanted type. A box that is larger than the buffer is halved along
 * its first dimension of more than one, so that both halves lie contiguously in `to`. */
static ech_status read_converted(const ech_safetensors *file, int i, ech_dtype wanted,
                                 const int64_t *begin, const int64_t *size, char *to, void *buffer)
{
    ech_saved_tensor half = ech_safetensors_get(file, i);
    int64_t count = ech_box_count(half.dims, size);
    if (count <= CHUNK) {
        ECH_TRY(ech_safetensors_read(file, i, begin, size, buffer));
        convert(wanted, to, buffer, count);
        return ECH_OK;
    }
    memcpy(half.begin, begin, sizeof half.begin);
    memcpy(half.size, size, sizeof half.size);
    int d = 0;
    while (size[d] == 1) d++;
    half.size[d] = size[d] / 2;
    ECH_TRY(read_converted(file, i, wanted, half.begin, half.size, to, buffer));
    to += (size_t)ech_box_count(half.dims, half.size) * ech_dtype_bytes(wanted);
    half.begin[d] += half.size[d];
    half.size[d] = size[d] - half.size[d];
    return read_converted(file, i, wanted, half.begin, half.size, to, buffer);
}

static ech_status load_one(const ech_checkpoint *checkpoint, const ech_saved_tensor *want)
{
    const ech_safetensors *file =
        checkpoint->tensors[want->is_state ? ECH_FILE_STATE : ECH_FILE_MODEL];
    int i = file ? ech_safetensors_find(file, want->name) : -1;
    if (i < 0) return fail_missing(checkpoint->path, file, want);
    ech_saved_tensor have = ech_safetensors_get(file, i);
    ECH_TRY(check_shape(checkpoint->path, &have, want));
    if (have.dtype != want->dtype && !is_convertible(have.dtype, want->dtype)) {
        ECH_FAIL(ECH_EINPUT,
                 "%s: tensor '%s' is stored in %s, which is not converted to the %s that the run "
                 "needs",
                 checkpoint->path, want->name, ech_dtype_name(have.dtype),
                 ech_dtype_name(want->dtype));
    }
    /* the reader refuses a box outside of the shape, which must not be halved */
    if (have.dtype == want->dtype ||
        !ech_box_is_inside(want->dims, want->shape, want->begin, want->size)) {
        return ech_safetensors_read(file, i, want->begin, want->size, want->data);
    }
    void *buffer = ech_calloc(CHUNK, ech_dtype_bytes(have.dtype));
    ech_status st =
        read_converted(file, i, want->dtype, want->begin, want->size, want->data, buffer);
    free(buffer);
    return st;
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
