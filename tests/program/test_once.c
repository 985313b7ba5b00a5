/* SPDX-License-Identifier: Apache-2.0
 *
 * A process makes model, layout and schedule once, and reads each file that they come from once,
 * however many ranks it has: calls are counted where they cross from one file of the program to
 * another (ld --wrap).
 */
#include <stdatomic.h>

#include "program/command.h"
#include "app/fixture.h"
#include "base/log.h"
#include "unit.h"

/* RANKS ranks: two stages of two replicas. */
#define ORDER "F0.0 F0.1 B0.0 W0.0 B0.1 W0.1"
enum { RANKS = 4 };

static atomic_int models, uncut_models, layouts, schedules, profiles, tokenizers, orders;

/* Stands in front of a function, and counts. */
#define COUNTED(counter, times, function, parameters, ...)                                         \
    ech_status __real_##function parameters;                                                       \
    ech_status __wrap_##function parameters;                                                       \
    ech_status __wrap_##function parameters                                                        \
    {                                                                                              \
        counter += times;                                                                          \
        return __real_##function(__VA_ARGS__);                                                     \
    }
COUNTED(models, 1, ech_model_create,
        (const ech_config *config, const double *density, ech_model **out), config, density, out)
COUNTED(uncut_models, 1, ech_model_create_whole, (const ech_config *config, ech_model **out),
        config, out)
COUNTED(layouts, 1, ech_layout_create,
        (const ech_config *config, const ech_model *model, ech_placement placement, int world,
         ech_layout **out),
        config, model, placement, world, out)
COUNTED(schedules, 1, ech_schedule_create,
        (ech_config * config, ech_schedule_choice *choice, const ech_layout *layout,
         ech_schedule **out),
        config, choice, layout, out)
COUNTED(profiles, 1, ech_profile_read, (const char *path, ech_profile **out), path, out)
COUNTED(tokenizers, 1, ech_tokenizer_open, (const char *name, ech_tokenizer **out), name, out)
COUNTED(orders, strstr(path, "order.txt") != NULL, ech_file_read,
        (const char *path, size_t limit, char **out, size_t *n), path, limit, out, n)

/* ---- commands ---- */

static char run_file[300];

static void write_files(void)
{
    char path[300];
    const char *order = ORDER "\n" ORDER "\n";
    snprintf(path, sizeof path, "%s/order.txt", fixture_folder);
    assert_int_equal(ech_file_write(path, order, strlen(order)), ECH_OK);
    snprintf(run_file, sizeof run_file, "%s/run.yaml", fixture_folder);
    char words[900];
    snprintf(words, sizeof words,
             "parallel.pipeline=2 parallel.data=2 training.micro_batch_size=3 data.tokenizer=bytes "
             "parallel.schedule=%s/order.txt log.directory=%s/once log.tensorboard=false",
             fixture_folder, fixture_folder);
    ech_config *config = fixture_config("gpt2", words);
    ech_design design;
    ech_text yaml = {0};
    assert_int_equal(ech_design_create(config, fixture_tokenizer, RANKS, RANKS, &design), ECH_OK);
    ech_design_destroy(&design);
    ech_config_print(config, &yaml);
    assert_int_equal(ech_file_write(run_file, yaml.at, yaml.n), ECH_OK);
    ech_text_free(&yaml);
    ech_config_destroy(config);
}

typedef ech_status (*command_main)(int argc, char **argv, int *code);

/* Runs it and forgets what was counted before. */
static void run(command_main command, const char *name, const char *word, const char *more)
{
    char *words[] = {ech_strdup(name), ech_strdup(word), ech_strdup(more ? more : "")};
    char *argv[] = {words[0], run_file, words[1], words[2], NULL}; /* argp changes their order */
    int code = 0;
    models = uncut_models = layouts = schedules = profiles = tokenizers = orders = 0;
    if (command(more ? 4 : 3, argv, &code) != ECH_OK) fail_msg("%s: %s", name, ech_last_error());
    assert_int_equal(code, 0);
    for (int i = 0; i < 3; i++) free(words[i]);
}

static void assert_once(void)
{
    assert_int_equal(models, 1);
    assert_int_equal(uncut_models, 1); /* asked what a grid must divide, before there is a grid */
    assert_int_equal(layouts, 1);
    assert_int_equal(schedules, 1);
    assert_int_equal(profiles, 1);
    assert_int_equal(tokenizers, 1);
    assert_int_equal(orders, 1);
}

TEST(commands_make_each_once)
{
    char profile[300], word[400];
    write_files();
    snprintf(profile, sizeof profile, "%s/profile.json", fixture_folder);
    snprintf(word, sizeof word, "--out=%s", profile);
    run(ech_command_profile, "profile", word, NULL);
    assert_int_equal(tokenizers, 1);
    /* Each rank measures a model of its own, with each choice of recomputation. */
    assert_int_equal(schedules, 1 + 3 * RANKS);
    snprintf(word, sizeof word, "parallel.profile=%s", profile);
    run(ech_command_plan, "plan", word, NULL);
    assert_once();
    run(ech_command_train, "train", word, NULL);
    assert_once();
    run(ech_command_plan, "plan", word, "parallel.partition=auto");
    assert_true(schedules > 1); /* of what is tried */
    assert_int_equal(profiles, 1);
    assert_int_equal(orders, 1);
}

TEST(verify_makes_one_beside_it)
{
    run(ech_command_verify, "verify", "training.seed=2", NULL);
    assert_int_equal(orders, 1);
    assert_int_equal(tokenizers, 1);
    assert_true(schedules >= 2 &&
                schedules <= 3); /* one rank alone, in fp64 and in the run's own precision */
}

ALL_TESTS(fixture_setup, fixture_teardown)
