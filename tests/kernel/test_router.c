/* SPDX-License-Identifier: Apache-2.0
 *
 * Selective precision (Fedus et al. 2021, arXiv:2101.03961, section 2.4): under 16 bits a router
 * decides as it does in fp32 on the same rows, and as one of 16 bits would not.
 */

#include <math.h>

#include "kernel/places.h"
#include "unit.h"

#include "kernel/gated.h"

enum { S = 2000, C = 64, K = 2 };

/* x (S,C) and weight (E,C) as a table has them. */
typedef struct operands {
    float x[S * C], weight[E * C];
    uint16_t narrow[S * C];
} operands;

/* As near to each other as rows of a trained model are: a router of 16 bits is undecided about
 * some. */
static operands *make_operands(ech_dtype narrow)
{
    operands *o = ech_calloc(1, sizeof *o);
    for (int64_t i = 0; i < S * C; i++) o->x[i] = (float)value_at(1, i, -1, 1);
    for (int64_t i = 0; i < E * C; i++) o->weight[i] = (float)value_at(2, i, -0.01, 0.01);
    ech_convert(o->x, ECH_F32, o->narrow, narrow, S * C);
    ech_convert(o->narrow, narrow, o->x, ECH_F32, S * C);
    return o;
}

/* The choices of a table's router and gate, which is freed by the caller. */
static gating *decide(const ech_kernels *kernels, ech_dtype dtype, operands *o, float *logits)
{
    gating *g = gating_make(
        (ech_gate){.kind = ECH_GATE_topk, .experts = E, .chosen = K, .normalized = true}, 1, S);
    const ech_rows rows = rows_uncut(0, S);
    const int64_t dims[] = {S, E, C};
    const ech_dropout nothing = {0};
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
    context->scratch_bytes = ech_kernel_scratch(kernels, ECH_OP_router_forward, 1, dims);
    context->scratch = aligned_alloc(64, (context->scratch_bytes + 127) / 64 * 64);
    const ech_tensor x = ech_tensor_2d(dtype == ECH_F32 ? (void *)o->x : o->narrow, dtype, S, C),
                     weight = ech_tensor_2d(o->weight, ECH_F32, E, C),
                     result = ech_tensor_2d(logits, ECH_F32, S, E);
    kernels->router_forward(context, &x, &weight, &nothing, &rows, &result);
    free(context->scratch);
    ech_kernel_context_destroy(context);
    for (int64_t i = 0; i < S * E; i++) g->logits[i] = (double)logits[i];
    g->dtype = dtype;
    g->alone = true;
    gating_run(g, kernels, false);
    return g;
}

static int64_t different(const gating *a, const gating *b)
{
    int64_t n = 0;
    for (int64_t i = 0; i < S * K; i++) n += a->choice[i] != b->choice[i];
    return n;
}

TEST(decides_as_in_fp32)
{
    static const ech_dtype types[] = {ECH_BF16, ECH_F16};
    for (int i = 0; i < 4; i++) {
        ech_dtype narrow = types[i / 2];
        bool fast = i % 2;
        operands *o = make_operands(narrow);
        float wide[S * E], logits[S * E];
        gating *in_fp32 =
            decide(fast ? table(ECH_F32) : ech_kernels_ref(ECH_F32), ECH_F32, o, wide);
        gating *g = decide(fast ? table(narrow) : ech_kernels_ref(narrow), narrow, o, logits);
        for (int64_t k = 0; k < S * E; k++) assert_true(fabsf(logits[k] - wide[k]) < 1e-7f);
        assert_int_equal(different(g, in_fp32), 0);
        for (int64_t k = 0; k < S * K; k++)
            assert_true(fabs(g->gates[k] - in_fp32->gates[k]) < 1e-6);
        /* Logits of 16 bits. */
        uint16_t rounded[S * E];
        ech_convert(wide, ECH_F32, rounded, narrow, S * E);
        ech_convert(rounded, narrow, g->logits, ECH_F64, S * E);
        gating_run(g, ech_kernels_ref(narrow), false);
        assert_true(different(g, in_fp32) > 0);
        free(g);
        free(in_fp32);
        free(o);
    }
}
