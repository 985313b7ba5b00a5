/* SPDX-License-Identifier: Apache-2.0
 *
 * Codes of kept values, as kernel/codes.h defines them.
 */
#include "kernel/codes.h"

#include <string.h>

#include "kernel/ref/real.h"

void ECH_REF(encode_bits)(ech_kernel_context *context, const ech_tensor *x, const ech_tensor *code)
{
    ECH_SHAPES(encode_bits, ECH_REAL, x, code);
    int64_t R = x->shape[0], C = x->shape[1], W = code->shape[1];
    ECH_ASSERT(W == ech_code_bytes(1, C));
    memset(code->data, 0, (size_t)(R * W));
    for (int64_t i = 0; i < R * C; i++)
        if (ech_value(x, i) > 0)
            ((uint8_t *)code->data)[i / C * W + i % C / 8] |= (uint8_t)(1u << i % C % 8);
}

void ECH_REF(decode_bits)(ech_kernel_context *context, const ech_tensor *code, const ech_tensor *x)
{
    ECH_SHAPES(decode_bits, ECH_REAL, code, x);
    int64_t R = x->shape[0], C = x->shape[1], W = code->shape[1];
    ECH_ASSERT(W == ech_code_bytes(1, C));
    for (int64_t i = 0; i < R * C; i++)
        ech_store(x, i, ((const uint8_t *)code->data)[i / C * W + i % C / 8] >> i % C % 8 & 1);
}

static void *at(const ech_tensor *x, int64_t i)
{
    return (char *)x->data + (size_t)i * ech_dtype_bytes(x->dtype);
}

void ECH_REF(encode_sparse)(ech_kernel_context *context, const ech_tensor *x,
                            const ech_tensor *values, const ech_tensor *columns,
                            const ech_tensor *ends, const ech_tensor *spill,
                            const ech_tensor *counted)
{
    ECH_SHAPES(encode_sparse, ECH_REAL, x, values, columns, ends, spill, counted);
    static const char zero[sizeof(double)];
    int64_t R = x->shape[0], C = x->shape[1], S = ends->shape[1], n = 0;
    size_t item = ech_dtype_bytes(x->dtype);
    ECH_ASSERT(S == ech_code_runs(C) && R * C <= INT32_MAX && values->dtype == x->dtype);
    for (int64_t r = 0; r < R; r++)
        for (int64_t c = 0; c < C; c++) {
            bool stored = memcmp(at(x, r * C + c), zero, item) != 0;
            if (stored && n < ech_tensor_count(values)) {
                memcpy(at(values, n), at(x, r * C + c), item);
                ((uint8_t *)columns->data)[n] = (uint8_t)(c % ECH_CODE_RUN);
            }
            n += stored;
            ((int32_t *)ends->data)[r * S + c / ECH_CODE_RUN] = (int32_t)n;
        }
    bool spilled = n > ech_tensor_count(values);
    if (spilled) memcpy(spill->data, x->data, (size_t)(R * C) * item);
    if (!counted) return;
    ((double *)counted->data)[ECH_SPARSE_SPILLED] += spilled;
    ((double *)counted->data)[ECH_SPARSE_NONZEROS] += (double)n;
    ((double *)counted->data)[ECH_SPARSE_ELEMENTS] += (double)(R * C);
}

void ECH_REF(decode_sparse)(ech_kernel_context *context, const ech_tensor *values,
                            const ech_tensor *columns, const ech_tensor *ends,
                            const ech_tensor *spill, const ech_tensor *x)
{
    ECH_SHAPES(decode_sparse, ECH_REAL, values, columns, ends, spill, x);
    int64_t R = x->shape[0], C = x->shape[1], S = ends->shape[1], i = 0;
    const int32_t *end = ends->data;
    size_t item = ech_dtype_bytes(x->dtype);
    ECH_ASSERT(S == ech_code_runs(C) && values->dtype == x->dtype);
    if (R * C > 0 && end[R * S - 1] > ech_tensor_count(values)) {
        memcpy(x->data, spill->data, (size_t)(R * C) * item);
        return;
    }
    memset(x->data, 0, (size_t)(R * C) * item);
    for (int64_t run = 0; run < R * S; run++)
        for (; i < end[run]; i++) {
            int64_t c = run % S * ECH_CODE_RUN + ((const uint8_t *)columns->data)[i];
            memcpy(at(x, run / S * C + c), at(values, i), item);
        }
}

void ECH_REF(encode_places)(ech_kernel_context *context, const ech_tensor *x,
                            const ech_tensor *code)
{
    ECH_SHAPES(encode_places, ECH_REAL, x, code);
    int64_t R = x->shape[0], C = x->shape[1], W = code->shape[1];
    ECH_ASSERT(W == ech_code_bytes(4, C));
    memset(code->data, 0, (size_t)(R * W));
    for (int64_t i = 0; i < R * C; i++) {
        unsigned place = ((const uint8_t *)x->data)[i];
        ECH_ASSERT(place < ECH_CODE_PLACES);
        ((uint8_t *)code->data)[i / C * W + i % C / 2] |= (uint8_t)(place << i % C % 2 * 4);
    }
}

void ECH_REF(decode_places)(ech_kernel_context *context, const ech_tensor *code,
                            const ech_tensor *x)
{
    ECH_SHAPES(decode_places, ECH_REAL, code, x);
    int64_t R = x->shape[0], C = x->shape[1], W = code->shape[1];
    ECH_ASSERT(W == ech_code_bytes(4, C));
    for (int64_t i = 0; i < R * C; i++)
        ((uint8_t *)x->data)[i] =
            ((const uint8_t *)code->data)[i / C * W + i % C / 2] >> i % C % 2 * 4 & 15;
}

void ECH_REF(encode_narrow)(ech_kernel_context *context, const ech_tensor *x, int64_t bits,
                            const ech_tensor *code)
{
    ECH_SHAPES(encode_narrow, ECH_REAL, x, code);
    int64_t R = x->shape[0], C = x->shape[1], W = code->shape[1];
    ECH_ASSERT(W == ech_code_bytes((int)bits, C));
    memset(code->data, 0, (size_t)(R * W));
    for (int64_t i = 0; i < R * C; i++) {
        char *row = (char *)code->data + i / C * W;
        int64_t c = i % C, words = W / (int64_t)sizeof(uint32_t);
        uint32_t of = ech_code_of(ech_value(x, i), (int)bits);
        if (bits == 16) ((uint16_t *)(void *)row)[c] = (uint16_t)of;
        if (bits == ECH_CODE_TEN)
            ((uint32_t *)(void *)row)[c % words] |= of << ECH_CODE_TEN * (c / words);
        if (bits == 8) ((uint8_t *)row)[c] = (uint8_t)of;
    }
}

void ECH_REF(decode_narrow)(ech_kernel_context *context, const ech_tensor *code, int64_t bits,
                            const ech_tensor *x)
{
    ECH_SHAPES(decode_narrow, ECH_REAL, code, x);
    int64_t R = x->shape[0], C = x->shape[1], W = code->shape[1];
    ECH_ASSERT(W == ech_code_bytes((int)bits, C));
    for (int64_t i = 0; i < R * C; i++) {
        const char *row = (const char *)code->data + i / C * W;
        int64_t c = i % C, words = W / (int64_t)sizeof(uint32_t);
        uint32_t of = bits == 16             ? ((const uint16_t *)(const void *)row)[c]
                      : bits == ECH_CODE_TEN ? ((const uint32_t *)(const void *)row)[c % words] >>
                                                       ECH_CODE_TEN * (c / words) &
                                                   1023
                                             : ((const uint8_t *)row)[c];
        ech_store(x, i, ech_code_number(of, (int)bits));
    }
}
