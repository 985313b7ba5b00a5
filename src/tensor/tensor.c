/* SPDX-License-Identifier: Apache-2.0
 *
 * Making views and asking about them.
 */
#include "tensor/tensor.h"

#include <string.h>

static const struct {
    const char *text, *on_disk;
    size_t bytes;
} dtypes[] = {
#define X(name, text, bytes, on_disk) [ECH_##name] = {text, on_disk, bytes},
#include "tensor/dtype.def"
#undef X
};

size_t ech_dtype_bytes(ech_dtype dtype)
{
    ECH_ASSERT(dtype < ECH_DTYPES);
    return dtypes[dtype].bytes;
}

const char *ech_dtype_name(ech_dtype dtype)
{
    ECH_ASSERT(dtype < ECH_DTYPES);
    return dtypes[dtype].text;
}

const char *ech_dtype_on_disk(ech_dtype dtype)
{
    ECH_ASSERT(dtype < ECH_DTYPES);
    return dtypes[dtype].on_disk;
}

bool ech_dtype_from_name(const char *name, ech_dtype *out)
{
    ech_dtype d = 0;
    while (d < ECH_DTYPES && strcmp(dtypes[d].text, name) != 0) d++;
    if (d < ECH_DTYPES) *out = d;
    return d < ECH_DTYPES;
}

bool ech_dtype_from_disk(const char *name, ech_dtype *out)
{
    ech_dtype d = 0;
    while (d < ECH_DTYPES && (!*name || strcmp(dtypes[d].on_disk, name) != 0)) d++;
    if (d < ECH_DTYPES) *out = d;
    return d < ECH_DTYPES;
}

ech_tensor ech_tensor_view(void *data, ech_dtype dtype, int dims, const int64_t *shape)
{
    ECH_ASSERT(dims >= 0 && dims <= ECH_MAX_DIMS);
    ech_tensor view = {.data = data, .dtype = dtype, .dims = dims};
    int64_t stride = 1;
    for (int d = dims - 1; d >= 0; d--) {
        ECH_ASSERT(shape[d] >= 0);
        view.shape[d] = shape[d];
        view.stride[d] = stride;
        stride *= shape[d];
    }
    return view;
}

ech_tensor ech_tensor_1d(void *data, ech_dtype dtype, int64_t n)
{
    return ech_tensor_view(data, dtype, 1, (const int64_t[]){n});
}

ech_tensor ech_tensor_2d(void *data, ech_dtype dtype, int64_t rows, int64_t columns)
{
    return ech_tensor_view(data, dtype, 2, (const int64_t[]){rows, columns});
}

ech_tensor ech_tensor_narrow(const ech_tensor *x, int d, int64_t first, int64_t count)
{
    ECH_ASSERT(first >= 0 && count >= 0 && first + count <= x->shape[d]);
    ech_tensor view = *x;
    int64_t skipped = first * x->stride[d] * (int64_t)ech_dtype_bytes(x->dtype);
    /* A view without memory (only its shape matters yet) stays without. */
    if (x->data) view.data = (char *)x->data + skipped;
    view.shape[d] = count;
    return view;
}

ech_tensor ech_tensor_rows(const ech_tensor *x, int64_t first, int64_t count)
{
    ECH_ASSERT(x->dims > 0);
    return ech_tensor_narrow(x, 0, first, count);
}

ech_tensor ech_tensor_flat(const ech_tensor *x)
{
    return ech_tensor_1d(x->data, x->dtype, ech_tensor_count(x));
}

ech_tensor ech_tensor_matrix(const ech_tensor *x)
{
    ECH_ASSERT(x->dims > 0);
    int last = x->dims - 1;
    ech_tensor view = {.data = x->data, .dtype = x->dtype, .dims = 2};
    view.shape[1] = x->shape[last];
    view.stride[1] = x->stride[last];
    view.shape[0] = 1;
    view.stride[0] = x->shape[last];
    for (int d = last - 1; d >= 0; d--) {
        if (d == last - 1)
            view.stride[0] = x->stride[d];
        else
            ECH_ASSERT(x->stride[d] == x->stride[d + 1] * x->shape[d + 1]);
        view.shape[0] *= x->shape[d];
    }
    return view;
}

int64_t ech_tensor_count(const ech_tensor *x)
{
    int64_t count = 1;
    for (int d = 0; d < x->dims; d++)
        ECH_ASSERT(!__builtin_mul_overflow(count, x->shape[d], &count));
    return count;
}

size_t ech_tensor_bytes(const ech_tensor *x)
{
    return (size_t)ech_tensor_count(x) * ech_dtype_bytes(x->dtype);
}

bool ech_tensor_is_contiguous(const ech_tensor *x)
{
    int64_t stride = 1;
    for (int d = x->dims - 1; d >= 0; d--) {
        /* The stride of a dimension of one is never walked. */
        if (x->shape[d] != 1 && x->stride[d] != stride) return false;
        stride *= x->shape[d];
    }
    return true;
}
