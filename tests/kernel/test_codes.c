/* SPDX-License-Identifier: Apache-2.0
 *
 * Codes of kept values: every 16-bit number becomes the nearest number of each narrow code, every
 * code comes back, sizes are those of the formulas, and the fast rows of every instruction set and
 * type have the reference's bits.
 */
#include "kernel/codes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "kernel/kernel.h"
#include "tensor/tensor.h"
#include "unit.h"

static const int widths[] = {16, 10, 8};
enum { WIDTHS = 3, HALVES = 65536 };

/* ---- narrow codes ---- */

/* The largest finite number of a code. */
static double largest_of(int bits)
{
    return bits == 8 ? 240 : bits == 10 ? 63488 : 65504;
}

/* Finite codes of numbers from 0 up; they ascend with the number. */
static uint32_t positive_codes(int bits)
{
    return ((1u << ech_code_exponent(bits)) - 1) << ech_code_mantissa(bits);
}

/* The nearest code by comparison with its neighbours; of two, the even one. */
static void check_nearest(double value, int bits)
{
    uint32_t code = ech_code_of(value, bits), sign = 1u << (bits - 1), size = code & (sign - 1);
    if (isnan(value)) {
        assert_true(isnan(ech_code_number(code, bits)));
        return;
    }
    assert_int_equal(!!(code & sign), !!signbit(value));
    double want = fabs(value), most = largest_of(bits);
    if (want > most) want = most;
    double off = fabs(ech_code_number(size, bits) - want);
    assert_true(size < positive_codes(bits));
    for (int step = -1; step <= 1; step += 2) {
        uint32_t other = size + (uint32_t)step;
        if (other >= positive_codes(bits)) continue; /* also below 0 */
        double its = fabs(ech_code_number(other, bits) - want);
        assert_true(off < its || (off == its && size % 2 == 0));
    }
}

TEST(halves_become_the_nearest_numbers)
{
    for (int w = 0; w < WIDTHS; w++)
        for (int type = 0; type < 2; type++)
            for (uint32_t h = 0; h < HALVES; h++) {
                uint16_t half = (uint16_t)h;
                double value;
                ech_convert(&half, type ? ECH_F16 : ECH_BF16, &value, ECH_F64, 1);
                check_nearest(value, widths[w]);
            }
}

TEST(every_code_comes_back)
{
    for (int w = 0; w < WIDTHS; w++) {
        int bits = widths[w];
        double before = -1;
        for (uint32_t code = 0; code < 1u << bits; code++) {
            double value = ech_code_number(code, bits);
            if (isnan(value)) continue;
            assert_int_equal(ech_code_of(value, bits), code);
            if (code < positive_codes(bits)) assert_true(value > before);
            if (code < positive_codes(bits)) before = value;
        }
        assert_true(before == largest_of(bits));
        assert_true(ech_code_number(ech_code_of((double)INFINITY, bits), bits) == before);
        assert_true(ech_code_number(ech_code_of(-1e300, bits), bits) == -before);
    }
}

/* ---- sizes ---- */

TEST(sizes_follow_the_formulas)
{
    assert_int_equal(ech_code_bytes(1, 4096), 4096 / 8);
    assert_int_equal(ech_code_bytes(1, 9), 2);
    assert_int_equal(ech_code_bytes(4, 4096), 4096 / 2);
    assert_int_equal(ech_code_bytes(4, 9), 5);
    assert_int_equal(ech_code_bytes(16, 4096), 2 * 4096);
    assert_int_equal(ech_code_bytes(10, 4095), 4 * 4095 / 3);
    assert_int_equal(ech_code_bytes(10, 4096), 4 * (4095 / 3 + 1));
    assert_int_equal(ech_code_bytes(8, 4096), 4096);
    assert_int_equal(ech_code_runs(4096), 16);
    assert_int_equal(ech_code_runs(257), 2);
}

/* ---- rows of the tables ---- */

typedef struct rows {
    int64_t R, C, V; /* V: room of a row of a sparse code */
    ech_dtype dtype;
    ech_tensor x, back, bits, values, columns, ends, spill, narrow[WIDTHS];
    double counted[ECH_SPARSE_COUNTS];
} rows;

static ech_tensor make(int64_t R, int64_t C, ech_dtype dtype)
{
    int64_t shape[] = {R, C};
    size_t bytes = (size_t)(R * C) * ech_dtype_bytes(dtype);
    char *data = ech_calloc(bytes + 1, 1);
    memset(data, 0xa5, bytes);
    return ech_tensor_view(data, dtype, 2, shape);
}

static void fill(const ech_tensor *x, double density, bool odd)
{
    static const double values[] = {-0.0, (double)NAN, (double)INFINITY, -3e38, 1e-40, 6e-8, -2e-3};
    for (int64_t i = 0, n = ech_tensor_count(x); i < n; i++) {
        uint32_t word = ech_random_word((ech_random_key){.seed = 3}, (uint64_t)i);
        double value = (double)(word >> 8) / (1 << 22) - 1;
        bool zero = (double)(word & 0xff) >= 256 * density;
        if (odd && word % 11 == 0) value = values[word / 11 % 7];
        if (zero) value = 0;
        ech_convert(&value, ECH_F64, (char *)x->data + (size_t)i * ech_dtype_bytes(x->dtype),
                    x->dtype, 1);
    }
}

static rows make_rows(int64_t R, int64_t C, double room, ech_dtype dtype)
{
    rows r = {.R = R, .C = C, .V = (int64_t)ceil(room * (double)C), .dtype = dtype};
    r.x = make(R, C, dtype);
    r.back = make(R, C, dtype);
    r.bits = make(R, ech_code_bytes(1, C), ECH_U8);
    r.values = make(R, r.V, dtype);
    r.columns = make(R, r.V, ECH_U8);
    r.ends = make(R, ech_code_runs(C), ECH_I32);
    r.spill = make(R, C, dtype);
    for (int w = 0; w < WIDTHS; w++) r.narrow[w] = make(R, ech_code_bytes(widths[w], C), ECH_U8);
    return r;
}

static void free_rows(rows *r)
{
    ech_tensor *const all[] = {&r->x,    &r->back,  &r->bits,      &r->values,    &r->columns,
                               &r->ends, &r->spill, &r->narrow[0], &r->narrow[1], &r->narrow[2]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]->data);
}

static void encode(const ech_kernels *kernels, ech_kernel_context *context, rows *r)
{
    ech_tensor counted = ech_tensor_1d(r->counted, ECH_F64, ECH_SPARSE_COUNTS);
    kernels->encode_bits(context, &r->x, &r->bits);
    kernels->encode_sparse(context, &r->x, &r->values, &r->columns, &r->ends, &r->spill, &counted);
    for (int w = 0; w < WIDTHS; w++)
        kernels->encode_narrow(context, &r->x, widths[w], &r->narrow[w]);
}

static void check_equal(const ech_tensor *a, const ech_tensor *b, int64_t n, const char *what)
{
    if (memcmp(a->data, b->data, (size_t)n * ech_dtype_bytes(a->dtype)) != 0)
        fail_msg("%s differ", what);
}

/* Decodes and compares: bits and narrow codes with the numbers of kernel/codes.h, sparse codes with
 * x, bit by bit. */
static void check_back(const ech_kernels *kernels, ech_kernel_context *context, const rows *r)
{
    double value, back;
    size_t item = ech_dtype_bytes(r->dtype);
    kernels->decode_sparse(context, &r->values, &r->columns, &r->ends, &r->spill, &r->back);
    check_equal(&r->back, &r->x, r->R * r->C, "decoded sparse values");
    for (int w = -1; w < WIDTHS; w++) {
        if (w < 0)
            kernels->decode_bits(context, &r->bits, &r->back);
        else
            kernels->decode_narrow(context, &r->narrow[w], widths[w], &r->back);
        for (int64_t i = 0; i < r->R * r->C; i++) {
            ech_convert((char *)r->x.data + (size_t)i * item, r->dtype, &value, ECH_F64, 1);
            ech_convert((char *)r->back.data + (size_t)i * item, r->dtype, &back, ECH_F64, 1);
            double want = value > 0;
            if (w >= 0) want = ech_code_number(ech_code_of(value, widths[w]), widths[w]);
            uint64_t half;
            if (item == 2) ech_convert(&want, ECH_F64, &half, r->dtype, 1);
            if (item == 2) ech_convert(&half, r->dtype, &want, ECH_F64, 1);
            if (isnan(want) ? !isnan(back) : want != back || signbit(want) != signbit(back))
                fail_msg("%g became %.17g, not %.17g (%d bits)", value, back, want,
                         w < 0 ? 1 : widths[w]);
        }
    }
}

/* The reference encodes r; `kernels` must make the same codes, and decode them. */
static void check_table(const ech_kernels *kernels, ech_dtype table, const rows *r, int threads)
{
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(threads, &context), ECH_OK);
    rows own = make_rows(r->R, r->C, (double)r->V / (double)r->C, r->dtype), ref = *r;
    memcpy(own.x.data, r->x.data, ech_tensor_bytes(&r->x));
    memset(ref.counted, 0, sizeof ref.counted);
    encode(ech_kernels_ref(table), context, &ref);
    encode(kernels, context, &own);
    check_equal(&own.bits, &ref.bits, ech_tensor_count(&ref.bits), "bits");
    check_equal(&own.ends, &ref.ends, ech_tensor_count(&ref.ends), "ends");
    for (int w = 0; w < WIDTHS; w++)
        check_equal(&own.narrow[w], &ref.narrow[w], ech_tensor_count(&ref.narrow[w]), "codes");
    assert_memory_equal(own.counted, ref.counted, sizeof ref.counted);
    int64_t nonzeros = (int64_t)ref.counted[ECH_SPARSE_NONZEROS];
    assert_true(ref.counted[ECH_SPARSE_ELEMENTS] == (double)(r->R * r->C));
    assert_true(ref.counted[ECH_SPARSE_SPILLED] == (nonzeros > r->R * r->V));
    if (nonzeros <= r->R * r->V) {
        check_equal(&own.values, &ref.values, nonzeros, "values");
        check_equal(&own.columns, &ref.columns, nonzeros, "columns");
    }
    check_back(kernels, context, &own);
    check_back(ech_kernels_ref(table), context, &own);
    free_rows(&own);
    ech_kernel_context_destroy(context);
}

static void check_shape(int64_t R, int64_t C, double density, double room, bool odd)
{
    static const ech_dtype tables[] = {ECH_F32, ECH_F64, ECH_BF16, ECH_F16};
    for (int t = 0; t < 4; t++)
        for (int wide = 0; wide < 2; wide++) {
            ech_dtype dtype = wide ? ech_dtype_wide(tables[t]) : tables[t];
            if (wide && dtype == tables[t]) continue;
            rows r = make_rows(R, C, room, dtype);
            fill(&r.x, density, odd);
            check_table(ech_kernels_ref(tables[t]), tables[t], &r, 1);
            for (int isa = 0; isa < ECH_ISAS; isa++) {
                if (!ech_isa_works((ech_isa)isa)) continue;
                const ech_kernels *fast = ech_kernels_of((ech_isa)isa, tables[t]);
                if (fast) check_table(fast, tables[t], &r, 1 + isa);
            }
            free_rows(&r);
        }
}

TEST(tables_have_the_bits_of_the_reference)
{
    check_shape(1, 1, 1, 1, false);
    check_shape(0, 8, 1, 1, false);
    check_shape(5, 7, 0.4, 0.6, true);
    check_shape(3, 770, 0.5, 0.7, true);
    check_shape(70, 1283, 0.3, 0.4, true);
    check_shape(2, 1024, 0, 0.1, false);
    check_shape(2, 40000, 0.4, 0.5, true); /* images: rows of several parts */
}

TEST(dense_tensors_spill)
{
    check_shape(4, 300, 0.9, 0.5, true);
    check_shape(1, 3, 1, 0.5, false);
    check_shape(40, 600, 1, 0.99, false);
}

/* ---- places ---- */

static void check_places(const ech_kernels *kernels, int64_t R, int64_t C)
{
    int64_t W = ech_code_bytes(4, C);
    ech_kernel_context *context;
    ech_tensor x = make(R, C, ECH_U8), back = make(R, C, ECH_U8), code = make(R, W, ECH_U8);
    const uint8_t *at = code.data;
    for (int64_t i = 0; i < R * C; i++) ((uint8_t *)x.data)[i] = (uint8_t)(i * 7 % 16);
    assert_int_equal(ech_kernel_context_create(2, &context), ECH_OK);
    kernels->encode_places(context, &x, &code);
    for (int64_t r = 0; r < R; r++)
        for (int64_t w = 0; w < W; w++) {
            int64_t i = r * C + 2 * w;
            int high = 2 * w + 1 < C ? (int)((i + 1) * 7 % 16) : 0;
            assert_int_equal(at[r * W + w], (int)(i * 7 % 16) | high << 4);
        }
    kernels->decode_places(context, &code, &back);
    assert_memory_equal(back.data, x.data, (size_t)(R * C));
    ech_kernel_context_destroy(context);
    free(x.data);
    free(back.data);
    free(code.data);
}

TEST(places_come_back)
{
    static const int64_t shapes[][2] = {{0, 8}, {1, 1}, {5, 7}, {3, 2050}, {2, 66000}};
    for (int t = 0; t < 2; t++)
        for (int isa = -1; isa < ECH_ISAS; isa++) {
            ech_dtype table = t ? ECH_BF16 : ECH_F32;
            if (isa >= 0 && !ech_isa_works((ech_isa)isa)) continue;
            const ech_kernels *kernels =
                isa < 0 ? ech_kernels_ref(table) : ech_kernels_of((ech_isa)isa, table);
            for (size_t i = 0; kernels && i < sizeof shapes / sizeof *shapes; i++)
                check_places(kernels, shapes[i][0], shapes[i][1]);
        }
}

/* As parts of rows of fp32, where the fast rows round by integers. */
TEST(fast_rows_round_all_halves)
{
    enum { ROW = 4096 };
    for (int type = 0; type < 2; type++) {
        rows r = make_rows(HALVES / ROW, ROW, 1, ECH_F32);
        for (uint32_t h = 0; h < HALVES; h++) {
            uint16_t half = (uint16_t)h;
            ech_convert(&half, type ? ECH_F16 : ECH_BF16, (float *)r.x.data + h, ECH_F32, 1);
        }
        for (int isa = 0; isa < ECH_ISAS; isa++) {
            if (!ech_isa_works((ech_isa)isa)) continue;
            const ech_kernels *fast = ech_kernels_of((ech_isa)isa, ECH_F32);
            if (fast) check_table(fast, ECH_F32, &r, 2);
        }
        free_rows(&r);
    }
}
