/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that have the same parameters keep the same bits of them, for as long as they train: compared
 * element by element in the memory of all ranks, whoever has them and why (norms and biases of tensor
 * ranks, key/value heads that several have, replicas, context ranks, tied tables). And every rank reads
 * the loss and the gradient's norm of one rank alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <math.h>

#include <cmocka.h>

#include "app/grid_run.h"
#include "share.h"

enum { STEPS = 50, EACH = 10, RANKS = 8, LOOKS = STEPS / EACH, TENSORS = 3, ALL = 1 << 16 };

/* What tensor ranks do not share out: norms, the biases of sums, positions; and of llama norms. */
enum {
    EVERY = -1,
    C = 32,
    L = 2,
    GPT2 = L * 6 * C + 2 * C + 24 * C,
    LLAMA = L * 2 * C + C,
    TABLE = 257 * C,
    KEY_VALUE = L * 2 * C * 4 /* of each head */
};

/* ---- memory ---- */

/* A parameter and its two optimizer states, as the ranks had them after EACH steps, 2 EACH steps, ... */
typedef struct looked {
    float at[LOOKS][RANKS][TENSORS][ALL]; /* all parameters, whole, one behind the other */
    bool has[RANKS][ALL];
    int64_t elements;
    double loss[RANKS][STEPS];
} looked;

typedef struct copier {
    const ech_tensor *from;
    float *to;
    bool *has;
} copier;

static void copy_element(void *context, int64_t local, int64_t whole)
{
    const copier *c = context;
    c->to[whole] = ((const float *)c->from->data)[local];
    c->has[whole] = true;
}

static void look(looked *l, int look_at, int rank, const ech_compared_run *c)
{
    int64_t first = 0;
    for (int p = 0; p < (int)c->design->model->param.n; p++) {
        if (ech_layout_holds(c->design->layout, rank, p))
            for (int t = 0; t < TENSORS; t++) {
                ech_tensor x = t == 0 ? ech_exec_param(c->session.exec, p)
                                      : ech_exec_state(c->session.exec, p, t - 1);
                copier copy = {&x, &l->at[look_at][rank][t][first], &l->has[rank][first]};
                ECH_ASSERT(x.dtype == ECH_F32);
                grid_each_element(c->design, rank, p, copy_element, &copy);
            }
        first += ech_shape_whole(&c->design->model->param.at[p].shape);
    }
    ECH_ASSERT(first <= ALL);
    if (rank == 0) l->elements = first;
}

static ech_status train_and_look(void *context, int rank, ech_compared_run *c)
{
    looked *l = context;
    for (int step = 0; step < STEPS; step++) {
        ECH_TRY(ech_exec_run(c->session.exec, ECH_LIST_TRAIN, step));
        l->loss[rank][step] = ech_exec_readings(c->session.exec)->loss;
        if (step % EACH == EACH - 1) look(l, step / EACH, rank, c);
    }
    return ECH_OK;
}

/* All ranks that have the element against the first that has it. Returns how many have it. */
static int compare_element(const looked *l, int64_t e, const char *words)
{
    int first = -1, n = 0;
    for (int r = 0; r < RANKS; r++) {
        if (!l->has[r][e]) continue;
        if (first < 0) first = r;
        n++;
        for (int k = 0; k < LOOKS; k++)
            for (int t = 0; t < TENSORS; t++)
                if (memcmp(&l->at[k][r][t][e], &l->at[k][first][t][e], sizeof(float)) != 0)
                    fail_msg("%s: after step %d ranks %d and %d differ in %s %lld", words,
                             EACH * (k + 1), first, r, t ? "a state of element" : "element",
                             (long long)e);
    }
    return n;
}

/* `alike`: how many elements more than one rank has. */
static void check_alike(const char *family, const char *more, int64_t alike)
{
    if (!share_takes()) return;
    char words[500];
    snprintf(words, sizeof words,
             "precision.compute=fp32 training.steps=%d training.global_batch_size=4 "
             "training.micro_batch_size=2 model.resid_pdrop=0.1 model.attn_pdrop=0.1 %s",
             STEPS, more);
    looked *l = ech_calloc(1, sizeof *l);
    grid_run(family, words, train_and_look, l);
    int64_t shared = 0;
    for (int64_t e = 0; e < l->elements; e++) {
        int n = compare_element(l, e, words);
        assert_true(n > 0);
        shared += n > 1;
    }
    if (alike == EVERY) alike = l->elements;
    if (shared != alike)
        fail_msg("%s: %lld elements are on several ranks", words, (long long)shared);
    for (int step = 0; step < STEPS; step++) assert_true(isfinite(l->loss[0][step]));
    assert_true(l->loss[0][STEPS - 1] < 0.95 * l->loss[0][0]);
    free(l);
}

static void test_tensor_ranks_stay_alike(void **state)
{
    (void)state;
    check_alike("gpt2", "parallel.tensor=2", GPT2);
    check_alike("llama", "parallel.tensor=2 parallel.sequence=true", LLAMA);
    check_alike("gpt2", "parallel.tensor=2 parallel.sequence=keep parallel.data=2", EVERY);
    check_alike("gpt2", "parallel.tensor=4 parallel.pipeline=2 parallel.sequence=true",
                GPT2 + TABLE);
}

static void test_key_value_ranks_stay_alike(void **state)
{
    (void)state;
    check_alike("llama", "parallel.tensor=4 model.num_key_value_heads=1", LLAMA + KEY_VALUE);
    check_alike("llama", "parallel.tensor=8 model.num_key_value_heads=2 parallel.sequence=true",
                LLAMA + 2 * KEY_VALUE);
    check_alike("llama",
                "parallel.tensor=4 model.num_key_value_heads=2 parallel.sequence=true "
                "parallel.context=2 parallel.reduction=ring",
                EVERY);
}

static void test_context_ranks_stay_alike(void **state)
{
    (void)state;
    check_alike("llama", "parallel.context=2", EVERY);
    check_alike("gpt2", "parallel.context=4 parallel.context_method=ulysses", EVERY);
    check_alike("gpt2", "parallel.context=2 parallel.tensor=2 parallel.pipeline=2", EVERY);
}

/* ---- loss and norm ---- */

enum { FEW = 3 };

typedef struct readings {
    double loss[RANKS][FEW], norm[RANKS][FEW], clip[RANKS][FEW], tokens[RANKS][FEW];
} readings;

static ech_status train_and_read(void *context, int rank, ech_compared_run *c)
{
    readings *out = context;
    for (int step = 0; step < FEW; step++) {
        ECH_TRY(ech_exec_run(c->session.exec, ECH_LIST_TRAIN, step));
        const ech_readings *r = ech_exec_readings(c->session.exec);
        out->loss[rank][step] = r->loss;
        out->norm[rank][step] = r->grad_norm;
        out->clip[rank][step] = r->clip;
        out->tokens[rank][step] = r->tokens;
    }
    return ECH_OK;
}

static readings read_run(const char *family, const char *more)
{
    readings out = {0};
    char words[500];
    snprintf(words, sizeof words,
             "training.steps=%d training.global_batch_size=8 training.micro_batch_size=2 "
             "model.resid_pdrop=0.1 model.embd_pdrop=0.1 optimizer.clip_norm=0.2 %s",
             FEW, more);
    grid_run(family, words, train_and_read, &out);
    return out;
}

static void check_near(double a, double b, const char *what, int rank, const char *more)
{
    if (!(fabs(a - b) <= 1e-10 * fabs(b)) || !(b > 0))
        fail_msg("%s of rank %d with %s: %.17g, one rank's is %.17g", what, rank, more, a, b);
}

static void compare_readings(const char *family, const char *model, const char *grid,
                             const readings *one)
{
    char more[300];
    snprintf(more, sizeof more, "%s %s", model, grid);
    readings all = read_run(family, more);
    int ranks = 0;
    while (ranks < RANKS && all.loss[ranks][0] != 0) ranks++;
    assert_true(ranks > 1);
    for (int r = 0; r < ranks; r++)
        for (int step = 0; step < FEW; step++) {
            check_near(all.loss[r][step], one->loss[0][step], "loss", r, more);
            check_near(all.norm[r][step], one->norm[0][step], "norm", r, more);
            check_near(all.clip[r][step], one->clip[0][step], "clip", r, more);
            check_near(all.tokens[r][step], one->tokens[0][step], "tokens", r, more);
        }
}

static void test_loss_and_norm_are_one_ranks(void **state)
{
    (void)state;
    static const char *const grids[] = {
        "parallel.tensor=2",
        "parallel.tensor=8 parallel.sequence=true",
        "parallel.tensor=4 parallel.sequence=keep parallel.data=2",
        "parallel.context=2",
        "parallel.context=4 parallel.tensor=2",
        "parallel.context=2 parallel.context_method=ulysses parallel.data=2",
        "parallel.pipeline=2 parallel.tensor=2 parallel.context=2 parallel.sequence=true",
        "parallel.pipeline=4 parallel.tensor=2 parallel.schedule=zero-bubble",
        "parallel.pipeline=2 parallel.data=2 parallel.tensor=2",
        ("parallel.pipeline=2 parallel.tensor=2 parallel.schedule=interleaved "
         "parallel.virtual_stages=2"),
        "parallel.tensor=2 memory.sequence_chunks=3 parallel.schedule=gpipe",
        "parallel.stage_replicas=[1,2] parallel.tensor=2",
    };
    static const char *const models[][2] = {{"gpt2", "model.tie_word_embeddings=true"},
                                            {"llama", "model.num_key_value_heads=2"}};
    for (int m = 0; m < 2; m++) {
        readings one = read_run(models[m][0], models[m][1]);
        assert_true(one.clip[0][0] < 1);
        for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
            bool few_heads = m == 1 && strstr(grids[i], "ulysses");
            if (!few_heads && share_takes())
                compare_readings(models[m][0], models[m][1], grids[i], &one);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensor_ranks_stay_alike),
        cmocka_unit_test(test_key_value_ranks_stay_alike),
        cmocka_unit_test(test_context_ranks_stay_alike),
        cmocka_unit_test(test_loss_and_norm_are_one_ranks),
    };
    return cmocka_run_group_tests(tests, grid_setup, fixture_teardown);
}
