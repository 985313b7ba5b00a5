/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of kernel arguments, with messages that show both shapes.
 */
#include "kernel/shape.h"

#include <stdio.h>

enum { TEXT_BYTES = 128 };

static void print_shape(char text[TEXT_BYTES], ech_dtype dtype, int dims, const int64_t *shape)
{
    int at = snprintf(text, TEXT_BYTES, "%s (", ech_dtype_name(dtype));
    for (int d = 0; d < dims && d < ECH_MAX_DIMS; d++)
        at += snprintf(text + at, (size_t)(TEXT_BYTES - at), d ? ", %lld" : "%lld",
                       (long long)shape[d]);
    snprintf(text + at, (size_t)(TEXT_BYTES - at), ")");
}

static bool same_shape(const ech_tensor *x, ech_dtype dtype, int dims, const int64_t *shape)
{
    if (x->dtype != dtype || x->dims != dims) return false;
    for (int d = 0; d < dims; d++)
        if (x->shape[d] != shape[d]) return false;
    return true;
}

static _Noreturn void refuse(const char *file, int line, const char *name, const ech_tensor *x,
                             const char *wanted)
{
    char got[TEXT_BYTES], message[3 * TEXT_BYTES];
    print_shape(got, x->dtype, x->dims, x->shape);
    snprintf(message, sizeof message, "tensor %.32s is %s, expected %s", name, got, wanted);
    ech_assert_failed(file, line, message);
}

void ech_shape_check(const ech_tensor *x, ech_shape_rule rule)
{
    char wanted[TEXT_BYTES];
    if (!same_shape(x, rule.dtype, rule.dims, rule.shape)) {
        print_shape(wanted, rule.dtype, rule.dims, rule.shape);
        refuse(rule.file, rule.line, rule.name, x, wanted);
    }
    if (rule.contiguous && !ech_tensor_is_contiguous(x))
        refuse(rule.file, rule.line, rule.name, x, "contiguous memory");
    int last = x->dims - 1;
    if (last >= 0 && x->shape[last] > 1 && x->stride[last] != 1)
        refuse(rule.file, rule.line, rule.name, x, "a last stride of 1");
    if (!x->data && ech_tensor_count(x) > 0)
        refuse(rule.file, rule.line, rule.name, x, "memory behind it");
}

void ech_shape_check_like(const char *file, int line, const ech_tensor *a, const ech_tensor *b)
{
    ech_shape_rule rule = {file, line, "of the same shape", true, a->dtype, a->dims, {0}};
    for (int d = 0; d < a->dims; d++) rule.shape[d] = a->shape[d];
    ech_shape_check(a, rule);
    ech_shape_check(b, rule);
}

static bool ascending(const ech_rows *rows)
{
    return rows->tokens >= 1 && rows->first >= 0 && rows->first_sample >= 0 && rows->split >= 0 &&
           (rows->split == 0 || rows->start[0] >= 0) &&
           (rows->split >= rows->tokens ||
            rows->start[1] >= (rows->split > 0 ? rows->start[0] + rows->split : 0));
}

void ech_rows_check(const char *file, int line, const ech_rows *rows, int64_t count)
{
    char message[3 * TEXT_BYTES];
    if (count == 0) return;
    if (ascending(rows) && ech_rows_token_position(rows, rows->tokens - 1) < rows->whole) return;
    snprintf(message, sizeof message,
             "%lld of %lld tokens from row %lld on, %lld from position %lld, the others from %lld: "
             "expected ascending positions",
             (long long)rows->tokens, (long long)rows->whole, (long long)rows->first,
             (long long)rows->split, (long long)rows->start[0], (long long)rows->start[1]);
    ech_assert_failed(file, line, message);
}

void ech_starts_check(const char *file, int line, const ech_tensor *starts, const ech_rows *rows,
                      int64_t count)
{
    char message[3 * TEXT_BYTES];
    if (!starts || count == 0) return;
    int64_t samples = (rows->first + count - 1) / rows->tokens + 1, T = rows->whole;
    ech_shape_rule rule = {file, line, "starts", true, ECH_I32, 2, {starts->shape[0], T}};
    ech_shape_check(starts, rule);
    ECH_ASSERT(starts->shape[0] >= samples);
    for (int64_t i = 0; i < samples * T; i++) {
        int64_t start = ech_document_start(starts, i / T, i % T);
        int64_t before = i % T ? ech_document_start(starts, i / T, i % T - 1) : 0;
        if (start >= before && start <= i % T) continue;
        snprintf(message, sizeof message,
                 "the document of position %lld begins at %lld, and that of the one before at "
                 "%lld: expected ascending positions up to its own",
                 (long long)(i % T), (long long)start, (long long)before);
        ech_assert_failed(file, line, message);
    }
}

void *ech_scratch(const ech_kernel_context *context, size_t bytes)
{
    if (bytes == 0) return context->scratch;
    ECH_ASSERT(context->scratch && context->scratch_bytes >= bytes);
    return context->scratch;
}
