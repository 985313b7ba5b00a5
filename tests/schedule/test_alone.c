/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank's plan, made without any other's: the same lists whatever else was planned, for training
 * or for evaluation, in outline or whole, from a generator or from a file; and for one rank of
 * thousands.
 */

#include <unistd.h>

#include "check/check.h"
#include "base/clock.h"
#include "schedule/fixture.h"
#include "schedule/orders.h"
#include "schedule/traffic.h"
#include "unit.h"

static void assert_same_step(const ech_step *a, const ech_step *b)
{
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->lane, b->lane);
    assert_int_equal(a->chunk, b->chunk);
    assert_int_equal(a->micro, b->micro);
    assert_int_equal(a->block, b->block);
    assert_int_equal(a->turn, b->turn);
    assert_int_equal(a->version, b->version);
    assert_int_equal(a->peer, b->peer);
    assert_int_equal(a->bytes, b->bytes);
    assert_int_equal(a->index, b->index);
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->group, b->group);
    assert_int_equal(a->phase, b->phase);
    assert_int_equal(a->first_call, b->first_call);
    assert_int_equal(a->calls, b->calls);
    assert_int_equal(a->collective, b->collective);
    assert_int_equal(a->maximum, b->maximum);
    assert_int_equal(a->first_after, b->first_after);
    assert_int_equal(a->afters, b->afters);
}

/* `outline`: b has no values. */
static void assert_same_list(const ech_list *a, const ech_list *b, bool outline)
{
    assert_int_equal(a->step.n, b->step.n);
    assert_int_equal(a->after.n, b->after.n);
    for (size_t s = 0; s < a->step.n; s++) assert_same_step(&a->step.at[s], &b->step.at[s]);
    for (size_t i = 0; i < a->after.n; i++) assert_int_equal(a->after.at[i], b->after.at[i]);
    assert_int_equal(b->value.n, outline ? 0 : a->value.n);
    for (size_t i = 0; i < b->value.n; i++) {
        assert_int_equal(a->value.at[i].offset, b->value.at[i].offset);
        assert_int_equal(a->value.at[i].born, b->value.at[i].born);
        assert_int_equal(a->value.at[i].dies, b->value.at[i].dies);
    }
    if (!outline) assert_memory_equal(a->bytes, b->bytes, sizeof a->bytes);
}

/* From a model, layout and schedule of its own, on which no other rank was planned. */
static void check_alone(const fixture_shape *shape, const fixture *together, int rank)
{
    fixture alone;
    assert_int_equal(fixture_try(fixture_shape_config(shape), together->ranks, &alone), ECH_OK);
    ech_plan_request request = fixture_request(&alone, rank);
    request.outline = true;
    ech_plan *outline = NULL, *plan = fixture_plan_rank(&alone, rank);
    assert_int_equal(ech_checked_plan_create(&request, &outline), ECH_OK);
    for (int kind = 0; kind < ECH_LIST_KINDS; kind++)
        assert_same_list(&together->plan[rank]->list[kind], &plan->list[kind], false);
    assert_same_list(fixture_list(together, rank), &outline->list[ECH_LIST_TRAIN], true);
    assert_int_equal(together->plan[rank]->arena_bytes[ECH_SPACE_DEVICE],
                     plan->arena_bytes[ECH_SPACE_DEVICE]);
    ech_plan_destroy(outline);
    ech_plan_destroy(plan);
    fixture_free(&alone);
}

TEST(test_a_rank_needs_no_other)
{
    for (int i = 0; i < FIXTURE_SCHEDULES; i++) {
        fixture_shape shape = {.schedule = fixture_schedules[i],
                               .stages = 3,
                               .chunks = fixture_chunks(fixture_schedules[i]),
                               .data = 2,
                               .micro_batches = 6,
                               .turns = fixture_is_asynchronous(fixture_schedules[i]) ? 3 : 0};
        fixture f = fixture_pipeline(shape);
        for (int rank = 0; rank < f.ranks; rank++) check_alone(&shape, &f, rank);
        fixture_free(&f);
    }
}

/* Nor where layers, tokens or samples are cut. */
TEST(test_a_cut_rank_needs_no_other)
{
    static const fixture_shape shapes[] = {
        {.schedule = "1f1b", .stages = 2, .tensor = 2, .data = 2, .micro_batches = 4},
        {.schedule = "zero-bubble",
         .architecture = "llama",
         .stages = 2,
         .tensor = 4,
         .micro_batches = 3,
         .more = "parallel.sequence=true model.num_key_value_heads=2"},
        {.schedule = "interleaved",
         .stages = 2,
         .chunks = 2,
         .context = 2,
         .tensor = 2,
         .micro_batches = 4},
        {.schedule = "pipedream",
         .stages = 2,
         .tensor = 2,
         .micro_batches = 2,
         .turns = 3,
         .more = "memory.sequence_chunks=2"}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        fixture f = fixture_pipeline(shapes[i]);
        for (int rank = 0; rank < f.ranks; rank++) check_alone(&shapes[i], &f, rank);
        fixture_free(&f);
    }
}

/* Sampling is one rank's: each block once, for one token of one sample. Keys and values of all
 * tokens of every layer lie among what lives always, and the list reads and writes all of them. */
static void check_generate(const fixture *f, const ech_plan *plan)
{
    const ech_config *config = f->of.config;
    const ech_list *list = &plan->list[ECH_LIST_GENERATE];
    int forwards = 0, caches = 0, layers = (int)f->of.model->layers;
    bool alone = f->of.layout->world == 1;
    int64_t width = config->model.hidden_size / config->model.num_attention_heads *
                    config->model.num_key_value_heads;
    for (size_t s = 0; s < list->step.n; s++) forwards += list->step.at[s].kind == ECH_STEP_FORWARD;
    assert_int_equal(forwards, alone ? (int)f->of.model->block.n : 0);
    for (size_t i = 0; i < plan->persistent.n; i++) {
        if (plan->persistent.at[i].kind != ECH_MEMORY_KV_CACHE) continue;
        int reads = 0;
        caches++;
        assert_int_equal(plan->persistent.at[i].bytes, config->data.sequence_length * width * 4);
        for (size_t a = 0; a < list->access.n; a++) reads += list->access.at[a].value == (int)i;
        assert_true(reads > 0);
    }
    assert_int_equal(caches, alone ? 2 * layers : 0);
    if (!alone) return;
    assert_int_equal(list->extent.batch, 1);
    assert_int_equal(list->extent.tokens, 1);
    assert_int_equal(list->extent.sequence, config->data.sequence_length);
    for (size_t i = 0; i < list->value.n; i++)
        assert_int_not_equal(list->value.at[i].kind, ECH_MEMORY_KV_CACHE);
}

/* Evaluation and sampling: the same forwards without what training needs. */
static void check_forward_only(const fixture *f, int rank)
{
    ech_plan_request request = fixture_request(f, rank);
    request.forward_only = true;
    ech_plan *plan = NULL;
    assert_int_equal(ech_checked_plan_create(&request, &plan), ECH_OK);
    const ech_list *trained = &f->plan[rank]->list[ECH_LIST_VALIDATE];
    const ech_list *alone = &plan->list[ECH_LIST_VALIDATE];
    assert_int_equal(alone->step.n, trained->step.n);
    for (size_t s = 0; s < alone->step.n; s++)
        assert_same_step(&alone->step.at[s], &trained->step.at[s]);
    assert_int_equal(plan->list[ECH_LIST_TRAIN].step.n, 0);
    assert_int_equal(plan->versions, 1);
    for (size_t i = 0; i < plan->persistent.n; i++)
        assert_int_not_equal(plan->persistent.at[i].kind, ECH_MEMORY_OPTIMIZER);
    check_generate(f, plan);
    ech_plan_destroy(plan);
}

TEST(test_forward_only)
{
    static const fixture_shape shapes[] = {
        {.schedule = "1f1b", .stages = 1, .data = 2, .micro_batches = 3},
        {.schedule = "1f1b",
         .architecture = "llama",
         .stages = 1,
         .micro_batches = 2,
         .layers = 2,
         .more = "model.num_key_value_heads=2"},
        {.schedule = "gpipe", .stages = 1, .chunks = 3, .micro_batches = 2},
        {.schedule = "interleaved", .stages = 2, .chunks = 2, .data = 2, .micro_batches = 4},
        {.schedule = "1f1b", .stages = 3, .replicas = "[1,2,1]", .micro_batches = 5},
        {.schedule = "pipedream", .stages = 3, .micro_batches = 1, .turns = 6}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        fixture f = fixture_pipeline(shapes[i]);
        for (int rank = 0; rank < f.ranks; rank++) check_forward_only(&f, rank);
        fixture_free(&f);
    }
}

/* A generator's orders, written into a file, make the same lists. */
TEST(test_order_file)
{
    fixture_shape shape = {
        .schedule = "interleaved", .stages = 3, .chunks = 2, .data = 2, .micro_batches = 6};
    fixture f = fixture_pipeline(shape);
    ech_text text = {0};
    for (int rank = 0; rank < f.ranks; rank += shape.data) {
        ech_order order = {0};
        ech_schedule_order(f.schedule, f.of.layout, rank, 1, false, &order);
        order_print(&order, &text);
        ech_text_append(&text, "\n");
        free(order.at);
    }
    char *path = fixture_write(text.at);
    shape.schedule = path;
    fixture written = fixture_pipeline(shape);
    assert_null(written.schedule->generator);
    for (int rank = 0; rank < f.ranks; rank++)
        assert_same_list(fixture_list(&f, rank), fixture_list(&written, rank), false);
    fixture_free(&written);
    fixture_free(&f);
    assert_int_equal(unlink(path), 0);
    ech_text_free(&text);
    free(path);
}

/* One of 4,096 ranks with 1,024 micro-batches, from the model on. The time is for whoever reads. */
TEST(test_one_of_4096)
{
    fixture_shape shape = {.schedule = "1f1b",
                           .stages = 4096,
                           .micro_batches = 1024,
                           .layers = 4096,
                           .more = "model.hidden_size=4 model.num_attention_heads=1"};
    fixture f;
    double begin = ech_clock_now(), middle;
    assert_int_equal(fixture_try(fixture_shape_config(&shape), 4096, &f), ECH_OK);
    middle = ech_clock_now();
    ech_plan_request request = fixture_request(&f, 1234);
    request.outline = true;
    ech_plan *plan = NULL;
    assert_int_equal(ech_checked_plan_create(&request, &plan), ECH_OK);
    printf("model and layout of 4096 ranks: %.3f s; the plan of rank 1234: %.3f s\n",
           middle - begin, ech_clock_now() - middle);
    const ech_list *list = &plan->list[ECH_LIST_TRAIN];
    ech_flow sent = ech_plan_traffic_along(plan, ECH_TRAFFIC_PIPELINE);
    assert_int_equal(sent.calls, 2 * 1024);
    assert_int_equal(sent.bytes, 2 * 1024 * fixture_boundary_bytes(&f));
    int blocks = 0, first, end;
    ech_layout_blocks(f.of.layout, 1234, 0, &first, &end);
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        blocks += step->block >= 0 && step->lane == ECH_LANE_COMPUTE && step->first_call == 0;
        if (ech_step_sends(step) || ech_step_receives(step))
            assert_true(step->peer == 1233 || step->peer == 1235);
    }
    assert_int_equal(blocks, 1024 * (end - first) * 3); /* F, B, W */
    ech_plan_destroy(plan);
    fixture_free(&f);
}
