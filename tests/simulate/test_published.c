/* SPDX-License-Identifier: Apache-2.0
 *
 * The bubbles of Narayanan et al. 2021 (arXiv:2104.04473, section 2.2) on the grid of its trillion
 * parameters: 64 stages, 6 replicas and 8 tensor ranks are 3,072 ranks, with 512 micro-batches for
 * each replica. Plans are those of a small model, one for each class of ranks.
 *
 * Every virtual stage consists of two blocks, the embedding and the head included. F, B and W of a
 * block cost one unit each. The ratio of bubble and ideal time in the paper is
 *
 *     (p - 1) / (v m)
 */
#include "schedule/fixture.h"
#include "schedule/near.h"
#include "simulate/simulate.h"
#include "unit.h"

enum { STAGES = 64, DATA = 6, TENSOR = 8, MICRO_BATCHES = 512, BLOCKS = 2 };

/* Embedding and head fill up the first and the last virtual stage. */
static void print_words(int chunks, ech_text *out)
{
    ech_text_append(out, "parallel.partition=[");
    for (int s = 0; s < STAGES * chunks; s++) {
        bool end = s == 0 || s == STAGES * chunks - 1;
        ech_text_append(out, "%s%d", s ? "," : "", end ? BLOCKS - 1 : BLOCKS);
    }
    ech_text_append(out, "] model.num_attention_heads=%d", TENSOR);
}

/* One plan for each class of ranks. */
typedef struct classes {
    fixture f;
    ech_plan **plan;
    int n;
} classes;

static classes make_classes(int chunks)
{
    classes c = {.n = 0};
    ECH_FREED_TEXT words = {0};
    print_words(chunks, &words);
    fixture_shape shape = {.schedule = chunks > 1 ? "interleaved" : "1f1b",
                           .stages = STAGES,
                           .chunks = chunks,
                           .data = DATA,
                           .tensor = TENSOR,
                           .micro_batches = MICRO_BATCHES,
                           .layers = STAGES * chunks * BLOCKS - 2,
                           .more = words.at};
    ech_config *config = fixture_shape_config(&shape);
    if (fixture_try(config, fixture_world(&shape), &c.f) != ECH_OK)
        fail_msg("%s", ech_last_error());
    ech_layout *layout = c.f.of.layout;
    assert_int_equal(layout->world, 3072);
    ech_layout_find_classes(layout, c.f.of.model, NULL, false);
    c.n = layout->classes.n;
    c.plan = ech_calloc((size_t)c.n, sizeof *c.plan);
    for (int i = 0; i < c.n; i++) {
        ech_plan_request request = fixture_request(&c.f, layout->classes.first[i]);
        request.outline = true;
        c.plan[i] = ech_plan_create(&request);
    }
    return c;
}

static void free_classes(classes *c)
{
    for (int i = 0; i < c->n; i++) ech_plan_destroy(c->plan[i]);
    free(c->plan);
    fixture_free(&c->f);
}

/* Compares the time above the ideal one, as a fraction of it, and the share of idle time. */
static void expect_bubble(const classes *c, double over_ideal)
{
    ech_simulation simulation;
    const ech_plan *const *plans = (const ech_plan *const *)c->plan;
    const ech_costs unit = {.seconds = false};
    assert_int_equal(ech_simulate(plans, c->n, ECH_LIST_TRAIN, &unit, &simulation), ECH_OK);
    double ideal = simulation.busy[0];
    for (int i = 0; i < c->n; i++) assert_near(simulation.busy[i], ideal, 1e-9 * ideal);
    assert_near(simulation.end / ideal - 1, over_ideal, 1e-9);
    assert_near(simulation.bubble, over_ideal / (1 + over_ideal), 1e-9);
    ech_simulation_free(&simulation);
}

static void check_bubbles(int chunks)
{
    classes c = make_classes(chunks);
    assert_int_equal(c.n, STAGES);
    expect_bubble(&c, (STAGES - 1.0) / (chunks * MICRO_BATCHES));
    free_classes(&c);
}

TEST(test_one_chunk)
{
    check_bubbles(1);
}

TEST(test_two_chunks)
{
    check_bubbles(2);
}

ALL_TESTS(NULL, NULL)
