/* SPDX-License-Identifier: Apache-2.0
 *
 * Stage boundaries that carry several tensors: a model of our own, whose blocks hand on two values
 * of different widths (as a skip connection past a block does), cut between any two blocks.
 */
#include <math.h>

#include "app/fixture.h"
#include "layer/layers.h"
#include "schedule/traffic.h"
#include "unit.h"

enum { C = 16, F = 24, V = 257, STEPS = 4 };

static int product(ech_model *model, ech_block *block, const char *name, int x, int64_t in,
                   int64_t out, ech_axis axis)
{
    int w = ech_model_matrix(model, block, name, ech_shape_2d(axis, out, ECH_AXIS_MODEL, in), 0.2);
    return ech_layer_linear(block, x, w, -1, false, axis, out);
}

static void build_first(ech_model *model)
{
    ech_block *block = ech_model_block(model, "first");
    int table = ech_model_matrix(model, block, "table",
                                 ech_shape_2d(ECH_AXIS_VOCAB, V, ECH_AXIS_MODEL, C), 0.5);
    int x = ech_layer_embedding(block, ech_block_batch(block, ECH_TOKENS), table, C);
    ech_block_output(block, x);
    ech_block_output(block, product(model, block, "first.wide", x, C, F, ECH_AXIS_FFN));
    ech_block_finish(block, model->param.at);
}

/* (x, wide) -> (x + down(gelu(wide)), up(that)): both go on. */
static void build_middle(ech_model *model, const char *name)
{
    ech_block *block = ech_model_block(model, name);
    int x = ech_block_input(block, "x", ech_shape_rows(ECH_AXIS_MODEL, C));
    int wide = ech_block_input(block, "wide", ech_shape_rows(ECH_AXIS_FFN, F));
    char *down = ech_pool_format(model->pool, "%s.down", name);
    char *up = ech_pool_format(model->pool, "%s.up", name);
    int y = product(model, block, down, ech_layer_activation(block, ECH_ACTIVATION_GELU, wide, -1),
                    F, C, ECH_AXIS_MODEL);
    y = ech_layer_residual(block, x, y);
    ech_block_output(block, y);
    ech_block_output(block, product(model, block, up, y, C, F, ECH_AXIS_FFN));
    ech_block_finish(block, model->param.at);
}

static void build_last(ech_model *model)
{
    ech_block *block = ech_model_block(model, "last");
    int x = ech_block_input(block, "x", ech_shape_rows(ECH_AXIS_MODEL, C));
    int wide = ech_block_input(block, "wide", ech_shape_rows(ECH_AXIS_FFN, F));
    int y = product(model, block, "last.down", wide, F, C, ECH_AXIS_MODEL);
    y = ech_layer_residual(block, x, y);
    int head = ech_model_matrix(model, block, "head",
                                ech_shape_2d(ECH_AXIS_VOCAB, V, ECH_AXIS_MODEL, C), 0.2);
    model->logits = ech_layer_head_loss(block, y, ech_block_batch(block, ECH_TARGETS),
                                        ech_block_batch(block, ECH_WEIGHTS), head, V,
                                        (ech_logits){.factor = 1}, NULL);
    ech_block_finish(block, model->param.at);
}

/* What a family's file does. */
static ech_model *build(void)
{
    ech_model *model = ech_calloc(1, sizeof *model);
    model->family = ech_family_find("gpt2");
    model->pool = ech_pool_create();
    model->vocabulary = V;
    model->layers = 2;
    model->std = 0.2;
    build_first(model);
    build_middle(model, "middle.0");
    build_middle(model, "middle.1");
    build_last(model);
    return model;
}

typedef struct training {
    const char *more;
    double loss[STEPS], norm[STEPS]; /* rank 0's readings */
    int64_t messages, bytes;         /* that all ranks sent in one step, by plan */
    int64_t counted;                 /* bytes, by counters, of all steps */
} training;

static ech_status run(ech_comm *comm, void *context)
{
    training *t = context;
    int ranks = ech_comm_size(comm), rank = ech_comm_rank(comm);
    ech_config *config = fixture_config("gpt2", t->more);
    ech_design design = {0};
    ech_session session = {0};
    ech_corpus *data = NULL;
    ech_loader *loader = NULL;
    ECH_TRY(ech_design_create(config, fixture_tokenizer, ranks, ranks, &design));
    ech_layout_destroy(design.layout);
    ech_model_destroy(design.model);
    design.model = build();
    ECH_TRY(ech_layout_create(config, design.model, ECH_PLACEMENT_LOOP, ranks, &design.layout));
    ECH_TRY(ech_session_create(&design, comm, false, &session));
    ECH_TRY(ech_design_open_data(&design, ECH_SPLIT_TRAIN, &data));
    ech_loader_options options = ech_design_reads(&design, rank, true, INT64_MAX);
    ECH_TRY(ech_loader_create(data, &options, 0, &loader));
    ech_exec_set_loader(session.exec, ECH_TRAIN, loader);
    ECH_TRY(ech_exec_run(session.exec, ECH_LIST_INIT, 0));
    for (int step = 0; step < STEPS; step++) {
        ECH_TRY(ech_exec_run(session.exec, ECH_LIST_TRAIN, step));
        if (rank != 0) continue;
        t->loss[step] = ech_exec_readings(session.exec)->loss;
        t->norm[step] = ech_exec_readings(session.exec)->grad_norm;
    }
    ech_flow sent = ech_plan_traffic_along(session.plan, ECH_TRAFFIC_PIPELINE);
    const ech_comm_count *counted = ech_exec_counted(session.exec)->messages;
    double sums[] = {
        (double)sent.calls, (double)sent.bytes,
        (double)(counted[ECH_MESSAGE_ACTIVATIONS].bytes + counted[ECH_MESSAGE_GRADIENTS].bytes)};
    ECH_TRY(ech_group_fold(ech_exec_world(session.exec), ECH_FOLD_SUM, sums, 3));
    if (rank == 0) {
        t->messages = (int64_t)sums[0];
        t->bytes = (int64_t)sums[1];
        t->counted = (int64_t)sums[2];
    }
    ech_loader_destroy(loader);
    ech_corpus_close(data);
    ech_session_destroy(&session);
    ech_design_destroy(&design);
    ech_config_destroy(config);
    return ECH_OK;
}

static training train(int ranks, const char *more)
{
    training t = {.more = more};
    assert_int_equal(ech_run_ranks(ECH_COMM_local, ranks, 60, run, &t), ECH_OK);
    return t;
}

#define COMMON                                                                                     \
    "precision.compute=fp64 model.tie_word_embeddings=false training.micro_batch_size=2 "          \
    "training.global_batch_size=8 model.hidden_size=16 "

TEST(test_two_tensors)
{
    static const struct {
        int ranks, boundaries;
        const char *more;
    } cases[] = {
        {2, 1, COMMON "parallel.pipeline=2"},
        {3, 2, COMMON "parallel.pipeline=3 parallel.schedule=gpipe"},
        {4, 3, COMMON "parallel.pipeline=4 parallel.schedule=zero-bubble"},
        {2, 3,
         COMMON "parallel.pipeline=2 parallel.schedule=interleaved parallel.virtual_stages=2"},
    };
    training alone = train(1, COMMON);
    assert_true(alone.loss[STEPS - 1] < alone.loss[0]);
    assert_int_equal(alone.messages, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        training t = train(cases[i].ranks, cases[i].more);
        for (int step = 0; step < STEPS; step++) {
            assert_true(t.loss[step] == alone.loss[step]);
            assert_true(fabs(t.norm[step] - alone.norm[step]) <= 1e-12 * alone.norm[step]);
        }
        /* 4 micro-batches of 2 x 9 tokens, there and back, both tensors in fp64. */
        assert_int_equal(t.messages, 2 * 4 * cases[i].boundaries);
        assert_int_equal(t.bytes, t.messages * 2 * 9 * (C + F) * 8);
        assert_int_equal(t.counted, STEPS * t.bytes);
    }
}

ALL_TESTS(fixture_setup, fixture_teardown)
