/* SPDX-License-Identifier: Apache-2.0
 *
 * Layer states are tensors of a layer that no optimizer trains. The model is a GPT-2 with two more
 * layers after its GELU, which exist only here. One adds a number to each column, and another
 * counts where columns are positive. The commit changes each number so that its column becomes
 * positive half of the time, as for a router's bias. probes/withheld.c tests that a withheld step
 * commits nothing, and probes/alike.c that all ranks read the same reports.
 */
#include <math.h>
#include <stdatomic.h>

#include "app/grid_run.h"
#include "layer/layers.h"
#include "unit.h"

/* ---- the model: the builder of decoders, which takes the place of the library's ---- */

struct ech_builder;
static int balanced_gelu(const struct ech_builder *b, int x);
#define ech_layer_activation(block, activation, x, up) balanced_gelu(b, x)
#include "../../src/model/decoder.c"
#undef ech_layer_activation

enum { TOKENS = 4 * 24 }; /* of a step */
enum { POSITIVES, ELEMENTS, TALLIED };

static atomic_int tallies, commits;

static double number_at(const ech_tensor *x, int64_t i)
{
    if (x->dtype == ECH_F64) return ((const double *)x->data)[i];
    if (x->dtype == ECH_F32) return (double)((const float *)x->data)[i];
    uint32_t bits = (uint32_t)((const uint16_t *)x->data)[i] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    ECH_ASSERT(x->dtype == ECH_BF16);
    return (double)value;
}

static void set_number(const ech_tensor *x, int64_t i, double number)
{
    float value = (float)number;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (x->dtype == ECH_F64) ((double *)x->data)[i] = number;
    if (x->dtype == ECH_F32) ((float *)x->data)[i] = value;
    if (x->dtype == ECH_BF16) ((uint16_t *)x->data)[i] = (uint16_t)(bits >> 16);
}

static void tilt_forward(const ech_call *call)
{
    int64_t n = ech_tensor_count(&call->in[0]), F = ech_tensor_count(&call->param[0]);
    for (int64_t i = 0; i < n; i++)
        set_number(&call->out[0], i,
                   number_at(&call->in[0], i) + number_at(&call->param[0], i % F));
}

static const ech_layer tilt = {.name = "tilt", .forward = tilt_forward, .passes_gradient = true};

static void tally_forward(const ech_call *call)
{
    const ech_tensor *x = &call->in[0], *partial = &call->dparam[0];
    int64_t n = ech_tensor_count(x), F = ech_tensor_count(partial);
    double *counts = partial->data;
    ECH_ASSERT(partial->dtype == ECH_F64 && call->purpose == ECH_TRAIN);
    for (int64_t c = 0; c < F && !call->accumulate[0]; c++) counts[c] = 0;
    for (int64_t i = 0; i < n; i++) counts[i % F] += number_at(x, i) > 0;
    for (int64_t i = 0; i < n; i++) call->reported[POSITIVES] += number_at(x, i) > 0;
    call->reported[ELEMENTS] += (double)n;
    tallies++;
}

static const ech_layer tally = {.name = "tally", .forward = tally_forward, .writes_partials = true};

/* Counts rows that are equal on all tensor ranks, or a shard on each. A rank whose rows count
 * elsewhere has no place to report. */
static void census_forward(const ech_call *call)
{
    bool shards = call->tensor_size > 1 && call->options->sharding.sequence;
    int64_t all = call->extent.batch * call->extent.tokens;
    ECH_ASSERT((call->reported != NULL) == (shards || call->tensor_index == 0));
    if (call->reported) *call->reported += (double)(all / (shards ? call->tensor_size : 1));
}

static const ech_layer census = {
    .name = "census", .forward = census_forward, .writes_partials = true};

static void commit(const ech_commit *c)
{
    commits++;
    if (*c->update->withheld > 0) return;
    for (int64_t i = 0; i < ech_tensor_count(c->state); i++) {
        double off = number_at(c->sum, i) - TOKENS / 2;
        double step = off > 0 ? -1 : off < 0;
        set_number(c->state, i, number_at(c->state, i) + c->of->commit_rate * step);
    }
}

static int balanced_gelu(const ech_builder *b, int x)
{
    ech_model *model = b->model;
    ech_block *block = b->block;
    const char *name = b->at;
    const ech_shape shape = block->value.at[x].shape;
    int64_t F = shape.size[shape.dims - 1];
    char *of = ech_pool_format(model->pool, "%s.mlp.tilt", name);
    int state = ech_model_state(model, block, of, ech_shape_1d(ECH_AXIS_FFN, F), commit, 0x1p-7);
    x = ech_layer_activation(block, ECH_ACTIVATION_GELU, x, -1);
    ech_node *node = ech_block_node(block, &tilt, NULL, 0);
    ech_node_in(node, x);
    ech_node_param(node, state);
    int y = ech_node_out_like(block, node, x);
    node = ech_block_node(block, &tally, NULL, 0);
    ech_node_in(node, y);
    ech_node_param(node, state);
    node->purposes = 1u << ECH_TRAIN;
    ech_block_report(block, node, "tally", name, TALLIED);
    node = ech_block_node(block, &census, NULL, 0);
    node->purposes = 1u << ECH_TRAIN;
    node->rows_of = block->input.at[0];
    ech_block_report(block, node, "census", name, 1);
    return y;
}

/* ---- when states change, and what does not change them ---- */

enum { CHECKED = 4, LAYERS = 2, WIDTH = 48 };

typedef struct history {
    double state[CHECKED + 1][LAYERS][WIDTH]; /* before the first step, and after each */
    double sum[CHECKED][LAYERS][WIDTH];
    const ech_model *model;
    int step;
} history;

static int state_of(const ech_model *model, int layer)
{
    int found = -1;
    for (int p = 0, n = 0; p < (int)model->param.n; p++)
        if (model->param.at[p].commit && n++ == layer) found = p;
    ECH_ASSERT(found >= 0);
    return found;
}

static void observe(void *context, ech_exec *exec, const ech_step *step)
{
    history *h = context;
    if (step->kind != ECH_STEP_CLIP) return;
    for (int l = 0; l < LAYERS; l++) {
        ech_tensor sum = ech_exec_gradient(exec, state_of(h->model, l));
        ech_exec_read(exec, &sum, h->sum[h->step][l]);
    }
}

static void keep_states(const ech_compared_run *run, double to[LAYERS][WIDTH])
{
    for (int l = 0; l < LAYERS; l++) {
        ech_tensor state = ech_exec_param(run->session.exec, state_of(run->design->model, l));
        assert_int_equal(ech_tensor_count(&state), WIDTH);
        ech_exec_read(run->session.exec, &state, to[l]);
    }
}

static ech_status validate(ech_compared_run *run, int rank)
{
    ech_corpus *data;
    ech_loader *loader;
    ECH_TRY(ech_design_open_data(run->design, ECH_SPLIT_VALID, &data));
    ech_loader_options options = ech_design_reads(run->design, rank, false, 4);
    ECH_TRY(ech_loader_create(data, &options, 0, &loader));
    ech_exec_set_loader(run->session.exec, ECH_EVALUATE, loader);
    ech_status status = ech_exec_run(run->session.exec, ECH_LIST_VALIDATE, 0);
    ech_loader_destroy(loader);
    ech_corpus_close(data);
    return status;
}

static ech_status train(void *context, int rank, ech_compared_run *run)
{
    history *h = context;
    h->model = run->design->model;
    ech_exec_observe(run->session.exec, observe, h);
    keep_states(run, h->state[0]);
    for (h->step = 0; h->step < CHECKED; h->step++) {
        ECH_TRY(ech_exec_run(run->session.exec, ECH_LIST_TRAIN, h->step));
        ECH_TRY(validate(run, rank));
        keep_states(run, h->state[h->step + 1]);
    }
    return ECH_OK;
}

static history train_with(const char *words)
{
    static history h;
    h = (history){.step = 0};
    tallies = commits = 0;
    grid_run("gpt2", words, train, &h);
    return h;
}

/* By the rule, from the sums; and the sums are counts of a step's tokens. */
static void check_history(const history *h)
{
    bool moves = false;
    for (int step = 0; step < CHECKED; step++)
        for (int l = 0; l < LAYERS; l++)
            for (int c = 0; c < WIDTH; c++) {
                double sum = h->sum[step][l][c], before = h->state[step][l][c];
                double off = sum - TOKENS / 2;
                double wanted = before - 0x1p-7 * ((off > 0) - (off < 0));
                assert_true(sum >= 0 && sum <= TOKENS && sum == floor(sum));
                assert_true(h->state[step + 1][l][c] == wanted);
                moves |= wanted != before;
            }
    assert_true(moves);
}

/* Once a step, of each micro-batch's forward once, however often it is recomputed. */
TEST(commits_are_one_a_step)
{
    static const char *const ways[] = {"memory.recompute=none", "memory.recompute=selective",
                                       "memory.recompute=full", "memory.sequence_chunks=2"};
    history first = {.step = 0};
    for (int i = 0; i < 4; i++) {
        char words[200];
        bool chunks = i == 3;
        snprintf(words, sizeof words, "training.steps=4 training.micro_batch_size=2 %s", ways[i]);
        history h = train_with(words);
        check_history(&h);
        assert_int_equal(commits, CHECKED * LAYERS);
        assert_int_equal(tallies, CHECKED * LAYERS * 2 * (chunks ? 2 : 1));
        if (i == 0) first = h;
        if (!chunks) assert_memory_equal(h.state, first.state, sizeof h.state);
    }
}

/* ---- what they are not ---- */

/* No number that counts parameters or FLOPs has them, nor any norm. */
TEST(states_are_no_parameters)
{
    grid_plans with = grid_plan("gpt2", "training.micro_batch_size=2");
    const ech_model *model = with.design.model;
    int64_t all = 0, states = 0;
    for (size_t p = 0; p < model->param.n; p++) {
        const ech_param *param = &model->param.at[p];
        all += ech_shape_whole(&param->shape);
        if (!param->commit) continue;
        states += ech_shape_whole(&param->shape);
        assert_int_equal(with.plan[0]->param[p].states, 0);
        const ech_list *list = &with.plan[0]->list[ECH_LIST_TRAIN];
        for (size_t s = 0; s < list->step.n; s++)
            assert_false(list->step.at[s].kind == ECH_STEP_NORM &&
                         list->step.at[s].index == with.plan[0]->param[p].bucket);
    }
    assert_int_equal(states, LAYERS * WIDTH);
    assert_int_equal(ech_model_params(model), all - states);
    grid_plans_free(&with);
}

ALL_TESTS(grid_setup, fixture_teardown)
