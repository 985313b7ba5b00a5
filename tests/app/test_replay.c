/* SPDX-License-Identifier: Apache-2.0
 *
 * The serial replay's own table of weight versions, against the numbers that the papers write down,
 * and against the schedules', which come from orders: two programs that know nothing of each other.
 */

#include "app/fixture.h"
#include "app/verify/replay.h"
#include "unit.h"

typedef struct table {
    ech_config *config;
    ech_design design;
    int ranks;
} table;

static table make(int ranks, const char *more)
{
    table t = {.config = fixture_config("llama", more), .ranks = ranks};
    ech_status status = ech_design_create(t.config, fixture_tokenizer, ranks, ranks, &t.design);
    if (status != ECH_OK) fail_msg("%s: %s", more, ech_last_error());
    return t;
}

static void table_free(table *t)
{
    ech_design_destroy(&t->design);
    ech_config_destroy(t->config);
}

static int replayed(const table *t, int turn, int q, int stage, bool backward)
{
    return ech_replay_version(t->design.layout, t->design.schedule, turn, q, stage, backward);
}

/* Narayanan et al. 2019, section 3.3, with n = 4 stages and a micro-batch a step: w_i(t - n + i), i
 * from 1; with vertical sync w(t - n + 1). */
TEST(test_papers)
{
    static const int expected[4][8] = {{0, 0, 0, 0, 1, 2, 3, 4},
                                       {0, 0, 0, 1, 2, 3, 4, 5},
                                       {0, 0, 1, 2, 3, 4, 5, 6},
                                       {0, 1, 2, 3, 4, 5, 6, 7}};
    const char *more = "model.num_hidden_layers=4 parallel.pipeline=4 parallel.schedule=pipedream "
                       "training.steps=8 training.global_batch_size=1 training.micro_batch_size=1";
    char sync[300], unstashed[300];
    snprintf(sync, sizeof sync, "%s parallel.vertical_sync=true", more);
    snprintf(unstashed, sizeof unstashed, "%s parallel.weight_stashing=false", more);
    table t = make(4, more), s = make(4, sync), u = make(4, unstashed);
    for (int stage = 0; stage < 4; stage++)
        for (int turn = 0; turn < 8; turn++) {
            assert_int_equal(replayed(&t, turn, 0, stage, false), expected[stage][turn]);
            assert_int_equal(replayed(&t, turn, 0, stage, true), expected[stage][turn]);
            assert_int_equal(replayed(&s, turn, 0, stage, false), expected[0][turn]);
            assert_int_equal(replayed(&s, turn, 0, stage, true), expected[0][turn]);
            assert_int_equal(replayed(&u, turn, 0, stage, false), expected[stage][turn]);
            assert_int_equal(replayed(&u, turn, 0, stage, true), turn);
        }
    table_free(&t);
    table_free(&s);
    table_free(&u);
}

/* W(t - 1): arXiv:2006.09503, section 3.1, and the delayed update of arXiv:2101.06840, section
 * 5.2. */
TEST(test_double_buffering)
{
    table t = make(2, "parallel.pipeline=2 parallel.schedule=pipedream-2bw training.steps=4 "
                      "training.global_batch_size=3 training.micro_batch_size=1");
    for (int turn = 0; turn < 4; turn++)
        for (int q = 0; q < 3; q++)
            for (int stage = 0; stage < 2; stage++)
                assert_int_equal(replayed(&t, turn, q, stage, q % 2), turn - 1);
    table_free(&t);
    t = make(2, "parallel.pipeline=2 parallel.schedule=1f1b training.steps=4 "
                "training.global_batch_size=3 training.micro_batch_size=1 "
                "memory.offload_optimizer=host memory.offload_delayed_from=4");
    for (int turn = 0; turn < 4; turn++)
        for (int stage = 0; stage < 2; stage++)
            assert_int_equal(replayed(&t, turn, 0, stage, stage), turn - 1);
    table_free(&t);
}

/* Each item of a rank's order, as the schedule has it. */
static void compare_rank(const table *t, const char *more, int rank)
{
    const ech_layout *layout = t->design.layout;
    const ech_schedule *schedule = t->design.schedule;
    int own = ech_layout_micro_batches(layout, rank), stage = layout->coordinates[rank].stage;
    ech_order order = {0};
    ech_schedule_order(schedule, layout, rank, schedule->turns, false, &order);
    int *version = ech_calloc(order.n + 1, sizeof *version);
    ech_schedule_versions(schedule, layout, rank, &order, version);
    for (size_t i = 0; i < order.n; i++) {
        int turn = order.at[i].micro / own;
        int q = (int)ech_layout_global_micro(layout, rank, order.at[i].micro % own);
        int wanted = replayed(t, turn, q, stage, order.at[i].action != ECH_F);
        if (version[i] != wanted)
            fail_msg("%s: rank %d, item %zu of step %d: version %d, by the papers %d", more, rank,
                     i, turn, version[i], wanted);
    }
    free(version);
    free(order.at);
}

TEST(test_schedules_agree)
{
    static const char *const kinds[] = {"pipedream", "pipedream parallel.vertical_sync=true",
                                        "pipedream parallel.weight_stashing=false"};
    static const struct {
        const char *replicas;
        int ranks, unit;
    } shapes[] = {{"[1,1]", 2, 1},   {"[1,1,1,1]", 4, 1}, {"[2,2,2]", 6, 2}, {"[2,1]", 3, 2},
                  {"[1,2]", 3, 2},   {"[3,1,1]", 5, 3},   {"[2,3]", 5, 6},   {"[1,4,1]", 6, 4},
                  {"[2,1,2]", 5, 2}, {"[1,3]", 4, 3}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int k = 0; k < 3; k++)
            for (int times = 1; times <= 3; times++) {
                char more[300];
                snprintf(more, sizeof more,
                         "parallel.schedule=%s parallel.stage_replicas=%s training.steps=6 "
                         "training.micro_batch_size=1 training.global_batch_size=%d",
                         kinds[k], shapes[s].replicas, times * shapes[s].unit);
                table t = make(shapes[s].ranks, more);
                for (int rank = 0; rank < t.ranks; rank++) compare_rank(&t, more, rank);
                table_free(&t);
            }
    static const char delayed[] = "parallel.stage_replicas=[2,1] training.steps=6 "
                                  "training.micro_batch_size=1 training.global_batch_size=4 "
                                  "memory.offload_optimizer=host memory.offload_delayed_from=6";
    table t = make(3, delayed);
    for (int rank = 0; rank < t.ranks; rank++) compare_rank(&t, delayed, rank);
    table_free(&t);
}

ALL_TESTS(fixture_setup, fixture_teardown)
