/* SPDX-License-Identifier: Apache-2.0
 *
 * What a transformer layer keeps of a micro-batch for its backward, counted to the last element.
 *
 * Korthikanti et al. 2022 (arXiv:2205.05198), section 4, for GPT with s tokens, b samples, width h,
 * a heads and F = 4h, in bytes of s b h at 2 bytes an element and 1 byte a mask:
 *
 *     34 + 5 a s / h              one rank (equation 1)
 *     10 + 24/t + 5 a s / (h t)   t tensor ranks (equation 2)
 *     (34 + 5 a s / h) / t        with sequence parallelism (equation 4)
 *
 * The 34 are 11 of attention (input 2, queries and keys 4, values 2, input of the projection 2, a
 * mask 1), 19 of the MLP (input 2, before and after GELU 8 + 8, a mask 1) and 4 of the two norms
 * (inputs 2 + 2). Of them the 24 that lie between a column- and a row-parallel product are cut by
 * t; the 10 are the norms' inputs and outputs and the masks. The 5 a s / h are probabilities (2),
 * their dropout's mask (1) and output (2).
 *
 * What these kernels keep instead:
 *   - no masks: dropout is drawn again (-2);
 *   - no probabilities: flash attention keeps its output, which is the projection's input, and one
 *     number a
 *     row and head (-5 a s / h, + a numbers a token);
 *   - of a norm besides its input one number a token (RMSNorm) or two (LayerNorm), its output is
 *     made again
 *     (-2 - 2, of the 10);
 *   - the output of GELU is made again (-8, of the 24);
 * so at 2 bytes an element 20, 4 + 16/t and 20/t, in elements of s b h half of that: 10, 2 + 8/t,
 * 10/t. With sequence: keep, the two gathered inputs of products stay whole: 2 + 10/t. Everything
 * is kept in the type that the run computes in, in fp32 4 bytes an element.
 *
 * Llama: the norms' inputs (2), queries and the attention's output (2), keys and values (2 G / a,
 * of G heads; where there are fewer than tensor ranks, each has one whole head), and gate and up (2
 * F / h). What goes into the rotation is not kept.
 */

#include "app/grid_run.h"
#include "schedule/operands.h"
#include "unit.h"

enum { B = 2, T = 24, C = 32, H = 8, D = C / H, F = 48, L = 3, M = 2 };

/* ---- what a plan keeps ---- */

/* The last tick of a block's forward, and the first of its backward. */
static void find_turn(const ech_list *list, int block, int micro, int *last, int *first)
{
    *last = -1;
    *first = list->ticks;
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        bool works = ech_step_kind_phase(step->kind) >= 0 || step->kind == ECH_STEP_COLLECTIVE;
        if (!works || step->block != block || step->micro != micro) continue;
        int end = step->tick + ech_step_ticks(step) - 1;
        if (step->phase == ECH_FORWARD && end > *last) *last = end;
        if (step->phase != ECH_FORWARD && step->tick < *first) *first = step->tick;
    }
}

/* Elements of the activations that a layer reads or makes and that live from its forward to its
 * backward. */
static int64_t kept(const ech_plan *plan, int block, int micro)
{
    const ech_list *list = &plan->list[ECH_LIST_TRAIN];
    int64_t bytes = 0, item = (int64_t)ech_dtype_bytes(plan->types.compute);
    int last, first;
    find_turn(list, block, micro, &last, &first);
    assert_true(0 <= last && last < first && first < list->ticks);
    const ech_block *b = plan->model->block.at[block];
    for (int local = 0; local < (int)b->value.n; local++) {
        int v = ech_list_value_of(plan, list, b, local, micro, ECH_INSTANCE_BACKWARD);
        if (v < 0 || ech_block_base(b, local) != local) continue;
        const ech_value *value = ech_plan_value(plan, list, v);
        if (value->kind == ECH_MEMORY_ACTIVATIONS && value->born <= last && value->dies >= first)
            bytes += value->bytes;
    }
    assert_int_equal(bytes % item, 0);
    return bytes / item;
}

/* ---- what it should keep ---- */

typedef enum way { PLAIN, SEQUENCE, KEEP } way;
static const char *const ways[] = {"false", "true", "keep"};

/* In elements of one of `rows` tokens: what norms see, what products get whole where that is kept,
 * and what lies between products, which is always cut by t. */
static int64_t layer_elements(int64_t rows, int t, way w, int64_t statistics, int64_t between)
{
    int64_t norms = 2 * C + statistics, inputs = w == KEEP && t > 1 ? 2 * C : 0;
    int64_t by_rows = w == PLAIN ? 1 : t;
    assert_int_equal(rows * norms % by_rows, 0);
    return rows * norms / by_rows + rows * inputs + rows * between;
}

static int64_t gpt2_elements(int64_t rows, int t, way w)
{
    int64_t attention = 3 * C + C + H, mlp = 4 * C; /* queries, keys, values; output; lse */
    return layer_elements(rows, t, w, 4, (attention + mlp) / t);
}

static int64_t llama_elements(int64_t rows, int t, way w, int G)
{
    int64_t heads = G > t ? G / t : 1;
    int64_t attention = (C + C + H) / t + 2 * heads * D, mlp = 2 * F / t;
    return layer_elements(rows, t, w, 2, attention + mlp);
}

static void check(const char *family, const char *more, int64_t elements)
{
    char words[500];
    snprintf(words, sizeof words,
             "model.num_hidden_layers=%d parallel.schedule=gpipe training.micro_batch_size=%d "
             "training.global_batch_size=%d %s",
             L, B, B * M, more);
    grid_plans g = grid_plan(family, words);
    for (int r = 0; r < g.ranks; r++)
        for (int layer = 1; layer <= L; layer++)
            for (int micro = 0; micro < M; micro++) {
                int64_t n = kept(g.plan[r], layer, micro);
                if (n != elements)
                    fail_msg("%s with %s: rank %d keeps %lld elements of layer %d and micro-batch "
                             "%d, not %lld",
                             family, more, r, (long long)n, layer, micro, (long long)elements);
            }
    grid_plans_free(&g);
}

static const char *const dropouts[] = {"", "model.resid_pdrop=0.1 model.attn_pdrop=0.1"};
static const char *const types[] = {"fp32", "fp64"};

/* Of GPT's F = 4h, with dropout and without. */
TEST(test_gpt2)
{
    for (int t = 1; t <= 4; t *= 2)
        for (way w = PLAIN; w <= KEEP; w++)
            for (int d = 0; d < 2; d++) {
                char more[300];
                snprintf(more, sizeof more,
                         "model.intermediate_size=%d parallel.tensor=%d parallel.sequence=%s "
                         "precision.compute=%s %s",
                         4 * C, t, ways[w], types[d], dropouts[d]);
                check("gpt2", more, gpt2_elements(B * T, t, w));
            }
}

/* The corrected formulas of the paper, as they stand above. */
TEST(test_gpt2_is_the_papers)
{
    const int64_t sb = (int64_t)B * T, sbh = sb * C;
    for (int t = 1; t <= 4; t *= 2) {
        int64_t masks = 2 * sbh, norms = 4 * sbh, gelu = 8 * sbh, two = 2; /* bytes */
        int64_t plain = (10 * t + 24) * sbh / t - masks - norms - gelu / t;
        int64_t sequence = (34 * sbh - masks - norms - gelu) / t;
        assert_int_equal(two * gpt2_elements(sb, t, PLAIN), plain + two * sb * (H / t + 4));
        assert_int_equal(two * gpt2_elements(sb, t, SEQUENCE), sequence + two * sb * (H + 4) / t);
        assert_int_equal(gpt2_elements(sb, t, KEEP) - gpt2_elements(sb, t, SEQUENCE),
                         t > 1 ? 2 * sbh : 0);
    }
}

TEST(test_llama)
{
    for (int G = 1; G <= H; G *= 2)
        for (int t = 1; t <= 4; t *= 2)
            for (way w = PLAIN; w <= KEEP; w++) {
                char more[300];
                snprintf(more, sizeof more,
                         "model.num_key_value_heads=%d parallel.tensor=%d parallel.sequence=%s %s",
                         G, t, ways[w], dropouts[G % 2]);
                check("llama", more, llama_elements(B * T, t, w, G));
            }
}

/* A context rank has its tokens. A ring's parts of keys and values are fetched again; Ulysses keeps
 * the attention's output in both shapes, one for the attention and one for the projection. */
TEST(test_context)
{
    for (int c = 2; c <= 4; c *= 2)
        for (int t = 1; t <= 2; t++)
            for (way w = PLAIN; w <= KEEP; w++) {
                char more[300];
                int64_t rows = B * T / c;
                snprintf(more, sizeof more,
                         "model.num_key_value_heads=4 parallel.context=%d parallel.tensor=%d "
                         "parallel.sequence=%s",
                         c, t, ways[w]);
                check("llama", more, llama_elements(rows, t, w, 4));
                snprintf(more, sizeof more,
                         "model.intermediate_size=%d parallel.context=%d parallel.tensor=%d "
                         "parallel.sequence=%s parallel.context_method=ulysses",
                         4 * C, c, t, ways[w]);
                check("gpt2", more, gpt2_elements(rows, t, w) + rows * C / t);
            }
}

ALL_TESTS(grid_setup, fixture_teardown)
