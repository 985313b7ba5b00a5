/* SPDX-License-Identifier: Apache-2.0
 *
 * Low-rank adapters (LoRA). A model with adapters computes what one with the weights W + s B A, s =
 * alpha / r, computes; and with G the gradient of that weight, the adapters' gradients are
 * s G Aᵀ and s Bᵀ G. Tensor ranks exchange r numbers per row and product. The lattice tests that
 * every layout trains as one rank does.
 */
#include <math.h>
#include <string.h>

#include "app/grid_run.h"
#include "schedule/traffic.h"
#include "unit.h"

enum { RANK = 3, STEPS = 2 };
static const double scale = 2.0 / RANK;

/* ---- merged weights ---- */

/* A parameter before and after a training step. */
typedef struct watched {
    const char *name;
    bool is_state;            /* of a layer */
    int64_t n, rows, columns; /* elements; of matrices */
    double *before, *after;
} watched;

typedef struct kept {
    ECH_LIST(watched) with; /* the model with adapters */
    ech_pool *names;
    bool in_first; /* weights are (in,out) */
    double loss;
    int64_t compared;
} kept;

static double *read_param(const ech_compared_run *run, int param)
{
    ech_tensor x = ech_exec_param(run->session.exec, param);
    double *values = ech_calloc((size_t)ech_tensor_count(&x), sizeof *values);
    ech_exec_read(run->session.exec, &x, values);
    return values;
}

static ech_status train_adapters(void *context, int rank, ech_compared_run *run)
{
    kept *k = context;
    const ech_model *model = run->design->model;
    (void)rank;
    for (int i = 0; i < STEPS; i++) ECH_TRY(ech_exec_run(run->session.exec, ECH_LIST_TRAIN, i));
    for (size_t p = 0; p < model->param.n; p++) {
        const ech_shape *shape = &model->param.at[p].shape;
        watched w = {.name = ech_pool_format(k->names, "%s", model->param.at[p].name),
                     .is_state = model->param.at[p].commit != NULL,
                     .n = ech_shape_whole(shape),
                     .rows = shape->size[0],
                     .columns = shape->dims > 1 ? shape->size[1] : 1,
                     .before = read_param(run, (int)p)};
        ECH_PUSH(k->with, w);
    }
    ECH_TRY(ech_exec_run(run->session.exec, ECH_LIST_TRAIN, STEPS));
    k->loss = ech_exec_readings(run->session.exec)->loss;
    for (size_t p = 0; p < model->param.n; p++) k->with.at[p].after = read_param(run, (int)p);
    return ECH_OK;
}

/* The parameter of that name with the end replaced; NULL: none. */
static const watched *find(const kept *k, const char *name, const char *end)
{
    char wanted[200];
    snprintf(wanted, sizeof wanted, "%s", name);
    char *at = strstr(wanted, ".weight");
    if (*end && !at) return NULL;
    if (*end) snprintf(at, sizeof wanted - (size_t)(at - wanted), "%s", end);
    for (size_t i = 0; i < k->with.n; i++)
        if (strcmp(k->with.at[i].name, wanted) == 0) return &k->with.at[i];
    return NULL;
}

/* W of output o and input i, in the model's order. */
static int64_t place(const kept *k, const watched *w, int64_t o, int64_t i)
{
    return k->in_first ? i * w->columns + o : o * w->columns + i;
}

static void merge(const kept *k, const watched *w, double *values)
{
    const watched *A = find(k, w->name, ".lora_A.weight"), *B = find(k, w->name, ".lora_B.weight");
    memcpy(values, w->before, (size_t)w->n * sizeof *values);
    for (int64_t o = 0; A && o < B->rows; o++)
        for (int64_t i = 0; i < A->columns; i++)
            for (int r = 0; r < RANK; r++)
                values[place(k, w, o, i)] +=
                    scale * B->before[o * RANK + r] * A->before[r * A->columns + i];
}

static void same(const watched *w, int64_t at, double step)
{
    double moved = w->after[at] - w->before[at];
    if (fabs(moved - step) > 1e-10) fail_msg("%s: %g, not %g", w->name, moved, step);
}

/* The learning rate times G is merged - after. */
static void check_steps(kept *k, const watched *w, const double *merged, const double *after)
{
    const watched *A = find(k, w->name, ".lora_A.weight"), *B = find(k, w->name, ".lora_B.weight");
    int64_t out = B->rows, in = A->columns;
    for (int r = 0; r < RANK; r++) {
        for (int64_t o = 0; o < out; o++) {
            double sum = 0;
            for (int64_t i = 0; i < in; i++)
                sum +=
                    (after[place(k, w, o, i)] - merged[place(k, w, o, i)]) * A->before[r * in + i];
            same(B, o * RANK + r, scale * sum);
        }
        for (int64_t i = 0; i < in; i++) {
            double sum = 0;
            for (int64_t o = 0; o < out; o++)
                sum += (after[place(k, w, o, i)] - merged[place(k, w, o, i)]) *
                       B->before[o * RANK + r];
            same(A, r * in + i, scale * sum);
        }
    }
    k->compared++;
}

static ech_status train_merged(void *context, int rank, ech_compared_run *run)
{
    kept *k = context;
    const ech_model *model = run->design->model;
    double **merged = ech_calloc(model->param.n, sizeof *merged);
    (void)rank;
    for (int i = 0; i < STEPS; i++) ECH_TRY(ech_exec_run(run->session.exec, ECH_LIST_TRAIN, i));
    for (size_t p = 0; p < model->param.n; p++) {
        const watched *w = find(k, model->param.at[p].name, "");
        ech_tensor x = ech_exec_param(run->session.exec, (int)p);
        assert_int_equal(ech_tensor_count(&x), w->n);
        merged[p] = ech_calloc((size_t)ech_tensor_count(&x), sizeof **merged);
        merge(k, w, merged[p]);
        ech_exec_write(run->session.exec, &x, merged[p]);
    }
    ECH_TRY(ech_exec_run(run->session.exec, ECH_LIST_TRAIN, STEPS));
    double loss = ech_exec_readings(run->session.exec)->loss;
    if (fabs(loss - k->loss) > 1e-12 * k->loss) fail_msg("losses %.17g, %.17g", loss, k->loss);
    for (size_t p = 0; p < model->param.n; p++) {
        ECH_FREED double *after = read_param(run, (int)p);
        const watched *w = find(k, model->param.at[p].name, "");
        if (find(k, w->name, ".lora_A.weight")) check_steps(k, w, merged[p], after);
        free(merged[p]);
    }
    free(merged);
    return ECH_OK;
}

#define SGD                                                                                        \
    "optimizer.name=sgd optimizer.weight_decay=0 optimizer.learning_rate=0.5 "                     \
    "optimizer.schedule=constant optimizer.clip_norm=0 training.steps=4 "

static const struct {
    const char *family, *words, *targets;
    int64_t products; /* of both layers, with adapters */
} models[] = {
    {"gpt2", "", "all-linear", 8},
    {"gpt2", "", "auto", 2},
    {"llama", "model.num_key_value_heads=2", "all-linear", 14},
    {"llama", "", "auto", 4},
    {"llama", "", "1.self_attn.o_proj\tup_proj", 3},
    {"deepseek_v3",
     "model.kv_lora_rank=6 model.q_lora_rank=5 model.qk_nope_head_dim=3 model.qk_rope_head_dim=4 "
     "model.v_head_dim=5 model.num_local_experts=2 model.moe_first_dense=1",
     "all-linear", 22},
};

TEST(test_merged_weights)
{
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        kept k = {.names = ech_pool_create(), .in_first = strcmp(models[i].family, "gpt2") == 0};
        char words[500];
        snprintf(words, sizeof words, SGD "lora.rank=%d lora.alpha=2 lora.targets=%s %s", RANK,
                 models[i].targets, models[i].words);
        grid_run(models[i].family, words, train_adapters, &k);
        for (size_t p = 0; p < k.with.n; p++) { /* the base is frozen, and adapters move */
            const watched *w = &k.with.at[p];
            bool moves = memcmp(w->before, w->after, (size_t)w->n * sizeof *w->before) != 0;
            assert_true(w->is_state || moves == (strstr(w->name, ".lora_") != NULL));
        }
        snprintf(words, sizeof words, SGD "%s", models[i].words);
        grid_run(models[i].family, words, train_merged, &k);
        assert_int_equal(k.compared, models[i].products);
        for (size_t p = 0; p < k.with.n; p++) {
            free(k.with.at[p].before);
            free(k.with.at[p].after);
        }
        free(k.with.at);
        ech_pool_destroy(k.names);
    }
}

/* ---- what tensor ranks send ---- */

enum { ROWS = 2 * 24, MICRO_BATCHES = 2 };

/* Bytes that a rank sends along the tensor axis in one training step. */
static int64_t tensor_bytes(const char *words, int rank)
{
    char all[500];
    ech_traffic traffic[ECH_TRAFFIC_AXES];
    snprintf(all, sizeof all,
             "training.micro_batch_size=2 training.global_batch_size=4 %s lora.targets=all-linear "
             "lora.rank=%d",
             words, rank);
    grid_plans g = grid_plan("llama", all);
    ech_plan_traffic(g.plan[0], traffic);
    grid_plans_free(&g);
    return ech_traffic_all(&traffic[ECH_TRAFFIC_TENSOR]).bytes;
}

/* An adapter has r numbers per row. Each of t ranks sends (t - 1) / t of them in a gather or a
 * scatter, and twice that in a sum. There are 10 column-parallel and 4 row-parallel products. */
static const struct {
    const char *words;
    int64_t ranks, column, row; /* gathers and scatters per product and micro-batch */
} sent[] = {
    {"parallel.tensor=2", 2, 2, 2},
    {"parallel.tensor=4 model.num_key_value_heads=2", 4, 2, 2},
    {"parallel.tensor=4 parallel.sequence=true", 4, 3, 2}, /* gathered again for W */
    {"parallel.tensor=2 parallel.sequence=keep", 2, 2, 2},
};

TEST(test_traffic)
{
    for (size_t i = 0; i < sizeof sent / sizeof *sent; i++) {
        int64_t t = sent[i].ranks, exchanges = 10 * sent[i].column + 4 * sent[i].row;
        int64_t number = (int64_t)sizeof(double) * ROWS * MICRO_BATCHES * exchanges * (t - 1) / t;
        for (int rank = 2; rank <= 4; rank++)
            assert_int_equal(tensor_bytes(sent[i].words, rank) - tensor_bytes(sent[i].words, 1),
                             (rank - 1) * number);
    }
}

ALL_TESTS(grid_setup, fixture_teardown)
