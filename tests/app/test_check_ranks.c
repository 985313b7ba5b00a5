/* SPDX-License-Identifier: Apache-2.0
 *
 * Faults of a schedule that no rank can see in its own list: `train` and `verify` find them before
 * the first step, and report them once.
 */
#include <string.h>

#include "app/fixture.h"
#include "app/setup/parts.h"
#include "app/train/train.h"
#include "app/verify/verify.h"
#include "base/log.h"
#include "config/capture.h"
#include "schedule/schedule.h"
#include "unit.h"

enum { RANKS = 2, MICRO_BATCHES = 2 };
#define RUN "parallel.pipeline=2 training.micro_batch_size=6 parallel.deadline=20"

static void put(ech_order *order, ech_action action, int micro)
{
    ECH_PUSH(*order, (ech_order_item){.action = action, .micro = micro});
    if (action == ECH_B) ECH_PUSH(*order, (ech_order_item){.action = ECH_W, .micro = micro});
}

/* Each micro-batch to its end: F0 B0 F1 B1. */
static void one_by_one(ech_order *order)
{
    for (int micro = 0; micro < MICRO_BATCHES; micro++) {
        put(order, ECH_F, micro);
        put(order, ECH_B, micro);
    }
}

/* All forwards first: F0 F1 B0 B1. */
static void forwards_first(ech_order *order)
{
    for (int micro = 0; micro < MICRO_BATCHES; micro++) put(order, ECH_F, micro);
    for (int micro = 0; micro < MICRO_BATCHES; micro++) put(order, ECH_B, micro);
}

/* A sound schedule. */
static void generate_sound(const ech_pipe *pipe, ech_order *order)
{
    if (pipe->stage == 0)
        forwards_first(order);
    else
        one_by_one(order);
}

/* Stage 0 waits for the gradient of micro-batch 0, stage 1 for the activations of 1. */
static void generate_deadlock(const ech_pipe *pipe, ech_order *order)
{
    if (pipe->stage == 0)
        one_by_one(order);
    else
        forwards_first(order);
}

/* Stage 1 runs micro-batch 1 before 0, stage 0 does not. */
static void generate_crossing(const ech_pipe *pipe, ech_order *order)
{
    if (pipe->stage == 0) {
        forwards_first(order);
        return;
    }
    for (int micro = MICRO_BATCHES - 1; micro >= 0; micro--) {
        put(order, ECH_F, micro);
        put(order, ECH_B, micro);
    }
}

typedef struct fault {
    void (*generate)(const ech_pipe *pipe, ech_order *order);
    const char *why; /* NULL: sound */
} fault;

static const fault faults[] = {{generate_sound, NULL},
                               {generate_deadlock, "again: a circle"},
                               {generate_crossing, "meets micro-batch"}};

static ech_status train(ech_comm *comm, const ech_design *design, void *context)
{
    (void)context;
    ech_training training = {0};
    return ech_train_rank(comm, design, &training);
}

static ech_status verify(ech_comm *comm, const ech_design *design, void *context)
{
    (void)context;
    ech_verification v = {.steps = 1, .tolerance = ECH_TOLERANCE};
    return ech_verify_rank(comm, design, &v);
}

/* Runs `main` with the fault in the generator of all lists. Returns what was logged. */
static char *run(const fault *of, ech_design_main main, ech_status *status)
{
    ech_config *config = fixture_config("llama", RUN " model.tie_word_embeddings=false");
    ech_design design;
    assert_int_equal(ech_design_create(config, fixture_tokenizer, RANKS, RANKS, &design), ECH_OK);
    ech_generator generator = *design.schedule->generator;
    generator.generate = of->generate;
    design.schedule->generator = &generator;
    capture c = begin_capture();
    *status = ech_design_run(&design, main, NULL);
    char *said = end_capture(&c);
    ech_design_destroy(&design);
    ech_config_destroy(config);
    return said;
}

static int count(const char *text, const char *part)
{
    int n = 0;
    while ((text = strstr(text, part))) n++, text++;
    return n;
}

/* True if the run's folder has metrics, and so at least one step. Removes the folder. */
static bool took_steps(void)
{
    char folder[300], metrics[400];
    snprintf(folder, sizeof folder, "%s/run", fixture_folder);
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", folder);
    bool has = ech_file_exists(metrics);
    if (ech_file_exists(folder)) assert_int_equal(ech_file_remove_all(folder), ECH_OK);
    return has;
}

TEST(faults_between_ranks_are_found_before_the_first_step)
{
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        for (int verifies = 0; verifies < 2; verifies++) {
            ech_status status, expected = faults[i].why ? ECH_EINTERNAL : ECH_OK;
            char *said = run(&faults[i], verifies ? verify : train, &status);
            bool told =
                !faults[i].why || (strstr(said, "check of list train") &&
                                   strstr(said, faults[i].why) && count(said, "error:") == 1);
            if (status != expected || !told) fail_msg("fault %zu: %s", i, said);
            assert_int_equal(took_steps(), !verifies && !faults[i].why);
            free(said);
        }
}

/* An order written by hand is the user's to mend. */
TEST(an_order_that_deadlocks_is_refused)
{
    static const char order[] = "F0.0 B0.0 F0.1 B0.1\nF0.0 F0.1 B0.0 B0.1\n";
    char path[300], words[500];
    snprintf(path, sizeof path, "%s/deadlock.order", fixture_folder);
    assert_int_equal(ech_file_write(path, order, sizeof order - 1), ECH_OK);
    snprintf(words, sizeof words, RUN " parallel.schedule=%s", path);
    ech_config *config = fixture_config("llama", words);
    assert_int_equal(fixture_run(config, RANKS, train, NULL), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "the schedule file cannot run"));
    ech_config_destroy(config);
    assert_false(took_steps());
}

/* Lists that are too long for a start are named, not passed over in silence. */
TEST(long_lists_are_said_not_to_be_checked)
{
    ech_config *config = fixture_config("llama", RUN " parallel.schedule=1f1b");
    ech_design design;
    assert_int_equal(ech_design_create(config, fixture_tokenizer, RANKS, RANKS, &design), ECH_OK);
    capture c = begin_capture();
    assert_int_equal(ech_design_check_ranks(&design, 10), ECH_OK);
    char *said = end_capture(&c);
    if (!strstr(said, "more than 10 steps and are not checked")) fail_msg("%s", said);
    free(said);
    c = begin_capture();
    assert_int_equal(ech_design_check_ranks(&design, ECH_CHECKED_STEPS), ECH_OK);
    said = end_capture(&c);
    assert_string_equal(said, "");
    free(said);
    ech_design_destroy(&design);
    ech_config_destroy(config);
}

ALL_TESTS(fixture_setup, fixture_teardown)
