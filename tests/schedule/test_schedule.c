/* SPDX-License-Identifier: Apache-2.0
 *
 * Which schedule a run gets, how long its spans are, and what is refused, with which words.
 */

#include "schedule/fixture.h"
#include "schedule/print.h"
#include "unit.h"

/* `words`: of the message, divided by "|". */
static void refuse_as(ech_status wanted, fixture_shape shape, const char *words)
{
    fixture f;
    ech_clear_error();
    ech_status status = fixture_try(fixture_shape_config(&shape), fixture_world(&shape), &f);
    assert_int_equal(status, wanted);
    assert_true(sample_error_has(words));
    fixture_free(&f);
}

static void refuse(fixture_shape shape, const char *words)
{
    refuse_as(ECH_EUSAGE, shape, words);
}

TEST(test_names)
{
    refuse((fixture_shape){.schedule = "1b1f", .stages = 2, .micro_batches = 4},
           "parallel.schedule = 1b1f|no such schedule|naive gpipe interleaved zero-bubble "
           "zero-bubble-v pipedream pipedream-2bw|or a schedule file");
    refuse((fixture_shape){.schedule = "GPipe", .stages = 1, .micro_batches = 1},
           "no such schedule");
}

TEST(test_shapes)
{
    refuse((fixture_shape){.schedule = "interleaved", .stages = 4, .chunks = 2, .micro_batches = 6},
           "training.global_batch_size = 6|6 micro-batches|multiple of the 4 stages|use 4 or 8");
    refuse(
        (fixture_shape){
            .schedule = "interleaved", .stages = 4, .chunks = 2, .data = 2, .micro_batches = 3},
        "training.global_batch_size = 6|3 micro-batches a replica|use 4 x");
    refuse((fixture_shape){.schedule = "pipedream-2bw", .stages = 4, .micro_batches = 3},
           "training.global_batch_size = 3|as many as there are stages|at least 4 x");
    refuse((fixture_shape){.schedule = "1f1b", .stages = 2, .chunks = 2, .micro_batches = 4},
           "parallel.virtual_stages = 2|one virtual stage|parallel.schedule = interleaved");
    for (int chunks = 1; chunks <= 3; chunks += 2)
        refuse(
            (fixture_shape){
                .schedule = "zero-bubble-v", .stages = 2, .chunks = chunks, .micro_batches = 4},
            "parallel.virtual_stages = |two virtual stages per rank|use 2, or remove this key");
    refuse(
        (fixture_shape){
            .schedule = "zero-bubble", .stages = 2, .replicas = "[3,1]", .micro_batches = 4},
        "parallel.stage_replicas = [3,1]|the same number of replicas for every stage|1f1b");
    refuse(
        (fixture_shape){
            .schedule = "gpipe", .stages = 2, .chunks = 2, .replicas = "[3,1]", .micro_batches = 4},
        "parallel.stage_replicas = [3,1]|parallel.virtual_stages = 2|parallel.virtual_stages = 1");
}

/* ---- asynchronous ---- */

TEST(test_asynchronous)
{
    fixture_shape shape = {.schedule = "pipedream", .stages = 2, .micro_batches = 2, .turns = 2};
    shape.more = "model.tie_word_embeddings=true";
    refuse(shape, "parallel.schedule = pipedream|share the embedding|"
                  "model.tie_word_embeddings = false|synchronous");
    shape.schedule = "pipedream-2bw";
    refuse(shape, "parallel.schedule = pipedream-2bw|tie_word_embeddings = false");
    shape.schedule = "pipedream";
    shape.more = NULL;
    shape.replicas = "[2,1]";
    shape.micro_batches = 3;
    refuse(shape, "training.global_batch_size = 3|3 micro-batches|2 replicas of stage 0|2 would");
    shape.stages = 5;
    shape.replicas = "[97,101,103,107,109]"; /* no batch is that large */
    shape.micro_batches = 1000;
    refuse(shape, "training.global_batch_size = 1000|97 replicas of stage 0|a smaller common mul");
}

TEST(test_options)
{
    fixture_shape shape = {.schedule = "1f1b", .stages = 2, .micro_batches = 2};
    shape.more = "parallel.vertical_sync=true";
    refuse(shape, "parallel.vertical_sync = true|only parallel.schedule = pipedream");
    shape.more = "parallel.weight_stashing=false";
    refuse(shape, "parallel.weight_stashing = false|only parallel.schedule = pipedream");
    shape.schedule = "pipedream-2bw";
    refuse(shape, "parallel.weight_stashing = false");
    shape.more = "parallel.vertical_sync=true";
    refuse(shape, "parallel.vertical_sync = true");
    shape.schedule = "pipedream";
    shape.more = "parallel.vertical_sync=true parallel.weight_stashing=false";
    refuse(shape, "parallel.vertical_sync = true|weight_stashing = false");
}

TEST(test_cadence)
{
    fixture_shape shape = {.schedule = "pipedream", .stages = 2, .micro_batches = 2, .turns = 4};
    shape.more = "training.steps=10";
    refuse(shape, "training.steps = 10|not a multiple of parallel.flush_every = 4|use 12");
    shape.more = "training.validate_every=6";
    refuse(shape, "training.validate_every = 6|flush_every = 4|use 8");
    shape.more = "training.check_every=2";
    refuse(shape, "training.check_every = 2|flush_every = 4|use 4");
    shape.more = "checkpoint.every=5";
    refuse(shape, "checkpoint.every = 5|flush_every = 4|use 8");
}

static void expect_turns(const char *schedule, const char *more, int turns);

/* Before the first span lists have one step; where it begins is a cadence like the others. */
TEST(test_delayed_cadence)
{
    fixture_shape shape = {.schedule = "1f1b", .stages = 2, .micro_batches = 2};
#define DELAYED "memory.offload_optimizer=host training.steps=12 memory.offload_delayed_from="
    shape.more = DELAYED "6 parallel.flush_every=4";
    refuse(shape, "memory.offload_delayed_from = 6|not a multiple of parallel.flush_every = 4|"
                  "a span of delayed updates|use 8");
    shape.more = DELAYED "8 checkpoint.every=6 parallel.flush_every=4";
    refuse(shape, "checkpoint.every = 6|parallel.flush_every = 4|use 8");
    shape.more = DELAYED "8 parallel.flush_every=1";
    refuse(shape, "parallel.flush_every = 1|spans of two steps or more|use 4");
    shape.more = DELAYED "7";
    refuse(shape, "memory.offload_delayed_from = 7|no common divisor|even numbers");
    shape.micro_batches = 20000; /* three steps fit into a plan */
    shape.more = DELAYED "8 parallel.flush_every=1";
    refuse(shape, "parallel.flush_every = 1|spans of two steps or more|use 2");
    shape.more = "memory.offload_optimizer=host training.steps=25 memory.offload_delayed_from=25";
    refuse(shape, "memory.offload_delayed_from = 25|no common divisor of at most 3|even numbers");
    shape.micro_batches = 60000;
    shape.more = DELAYED "8";
    refuse(shape, "training.global_batch_size = 60000|one step fills|training.micro_batch_size");
    shape.micro_batches = 2;
    expect_turns("gpipe", DELAYED "8", 4);
    expect_turns("1f1b", DELAYED "24 checkpoint.every=6", 6);
    expect_turns("zero-bubble", DELAYED "4 training.check_every=2", 2);

    shape.more = DELAYED "8";
    fixture f;
    int turns;
    assert_int_equal(fixture_try(fixture_shape_config(&shape), 2, &f), ECH_OK);
    for (int step = 0; step < 12; step += turns) {
        assert_int_equal(ech_schedule_list(f.schedule, step, &turns),
                         step < 8 ? ECH_LIST_UNDELAYED : ECH_LIST_TRAIN);
        assert_int_equal(turns, step < 8 ? 1 : 4);
    }
    fixture_free(&f);
}

static void expect_turns(const char *schedule, const char *more, int turns)
{
    fixture_shape shape = {.schedule = schedule, .stages = 2, .micro_batches = 2, .more = more};
    ech_config *config = fixture_shape_config(&shape);
    fixture f;
    assert_int_equal(config->parallel.flush_every, ECH_AUTO);
    assert_int_equal(fixture_try(config, 2, &f), ECH_OK);
    assert_int_equal(f.schedule->turns, turns);
    bool synchronous = f.schedule->weights == ECH_WEIGHTS_FLUSHED;
    assert_int_equal(config->parallel.flush_every, synchronous ? ECH_AUTO : turns);
    fixture_free(&f);
}

/* flush_every = auto: the most up to 64 that divides all that happens between spans. */
TEST(test_flush)
{
    expect_turns("1f1b", "training.steps=10", 1);
    expect_turns("pipedream", "training.steps=10", 10);
    expect_turns("pipedream", "training.steps=64", 64);
    expect_turns("pipedream", "training.steps=100", 50);
    expect_turns("pipedream", "training.steps=134", 2); /* 2 x 67 */
    expect_turns("pipedream-2bw", "training.steps=1000 checkpoint.every=150", 50);
    expect_turns("pipedream", "training.steps=60 training.validate_every=24", 12);
    expect_turns("pipedream", "training.steps=60 training.validate_every=24 training.check_every=9",
                 3);
    expect_turns("pipedream", "training.steps=60 parallel.weight_stashing=false", 60);
}

static void expect_checks(const char *schedule, const char *more, int64_t check_every)
{
    fixture_shape shape = {.schedule = schedule, .stages = 2, .micro_batches = 2, .more = more};
    ech_config *config = fixture_shape_config(&shape);
    fixture f;
    assert_int_equal(fixture_try(config, 2, &f), ECH_OK);
    assert_int_equal(config->training.check_every, check_every);
    fixture_free(&f);
}

/* check_every = auto follows flush_every, given or found. */
TEST(test_checks)
{
    expect_checks("1f1b", "training.steps=48 training.check_every=auto", 100);
    expect_checks("pipedream",
                  "training.steps=48 training.check_every=auto parallel.flush_every=16", 112);
    expect_checks("pipedream", "training.steps=48 training.check_every=auto", 144);
    expect_checks("pipedream", "training.steps=48 training.check_every=0", 0);
    expect_checks("pipedream-2bw", "training.steps=50 training.check_every=auto", 100);
}

TEST(test_flags)
{
    static const struct {
        const char *schedule, *more;
        ech_weights weights;
        bool stashing, vertical_sync;
    } rows[] = {{"1f1b", NULL, ECH_WEIGHTS_FLUSHED, true, false},
                {"pipedream", NULL, ECH_WEIGHTS_STASHED, true, false},
                {"pipedream", "parallel.vertical_sync=true", ECH_WEIGHTS_STASHED, true, true},
                {"pipedream", "parallel.weight_stashing=false", ECH_WEIGHTS_STASHED, false, false},
                {"pipedream-2bw", NULL, ECH_WEIGHTS_BUFFERED, true, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fixture f;
        fixture_shape shape = {
            .schedule = rows[i].schedule, .stages = 2, .micro_batches = 2, .more = rows[i].more};
        assert_int_equal(fixture_try(fixture_shape_config(&shape), 2, &f), ECH_OK);
        assert_int_equal(f.schedule->weights, rows[i].weights);
        assert_int_equal(f.schedule->stashing, rows[i].stashing);
        assert_int_equal(f.schedule->vertical_sync, rows[i].vertical_sync);
        assert_string_equal(f.schedule->generator->name, rows[i].schedule);
        fixture_free(&f);
    }
}

/* ---- by hand ---- */

/* Two stages, two micro-batches each. */
static void refuse_order(const char *text, const char *replicas, const char *words)
{
    char *path = fixture_write(text);
    fixture_shape shape = {
        .schedule = path, .stages = 2, .replicas = replicas, .micro_batches = replicas ? 4 : 2};
    refuse_as(replicas ? ECH_EUSAGE : ECH_EINPUT, shape, words);
    assert_int_equal(unlink(path), 0);
    free(path);
}

TEST(test_order_files)
{
    const char *good = "F0.0 F0.1 B0.0 B0.1\nF0.0 B0.0 F0.1 B0.1\n";
    refuse_order("F0.0 F0.1 B0.0 B0.1\n", NULL, "after 1 line|2 stages, a line each");
    refuse_order("F0.0 F0.1 B0.0 B0.1\nF0.0 B0.0 F0.1\n", NULL, ":2:|stage 1");
    refuse_order("F0.0 F0.1 B0.0 B0.1\nF0.0 B0.0 F0.1 B0.1\nF0.0\n", NULL, ":3:1: F0.0|too many");
    refuse_order("F0.0 F0.1 B0.0 B0.1\nF0.0 F0.2 B0.0 B0.2\n", NULL, ":2:6: F0.2");
    refuse_order("F0.0 F0.1 B0.0 B0.1\nF0.0 X0.1 B0.0 B0.1\n", NULL, ":2:6: X0.1|not an item");
    refuse_order(good, "[3,1]", "parallel.stage_replicas = [3,1]|a schedule file|parallel.data");
    refuse_as(ECH_EUSAGE,
              (fixture_shape){.schedule = "./no-such-order.txt", .stages = 2, .micro_batches = 2},
              "no-such-order.txt: no such file");

    char *path = fixture_write(good);
    fixture f = fixture_pipeline(
        (fixture_shape){.schedule = path, .stages = 2, .data = 2, .micro_batches = 2});
    ech_text row = {0};
    ech_list_print_row(fixture_list(&f, 3), &row);
    assert_string_equal(row.at, "F0.0 B0.0 F0.1 B0.1");
    assert_null(f.schedule->generator);
    ech_text_free(&row);
    fixture_free(&f);
    assert_int_equal(unlink(path), 0);
    free(path);
}
