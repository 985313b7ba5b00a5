/* SPDX-License-Identifier: Apache-2.0
 *
 * A step that touches what its plan does not let it touch ends the process, on every lane: plans
 * are damaged before they run, each in a process of its own.
 */

#include <sys/resource.h>
#include <sys/wait.h>

#include "app/grid_run.h"
#include "unit.h"

typedef enum damage {
    NOTHING,
    UNDECLARED, /* the step does not say any more that it touches the value */
    TOO_SHORT   /* the value dies in the tick before the step's */
} damage;

/* On the first step of that kind, of the first rank that has one. */
typedef struct broken {
    const char *layout;
    ech_list_kind list;
    ech_step_kind kind;
    damage damage;
    bool background; /* checkpoints are written from a snapshot */
    char folder[300];
} broken;

/* UNDECLARED: any of the step's, on the compute lane the first of those that always live: weights.
 * TOO_SHORT: of a value of the list; of scratch where there is any, since that is nobody else's,
 * who could be the first to miss it. */
static ech_access *find_access(const ech_plan *plan, const ech_list *list, const broken *b)
{
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        bool exchanges = b->kind == ECH_STEP_COLLECTIVE && b->damage == TOO_SHORT;
        if (step->kind != b->kind || (exchanges && step->scratch < 0)) continue;
        for (int i = 0; i < step->accesses; i++) {
            ech_access *access = &list->access.at[step->first_access + i];
            bool fits = step->scratch >= 0 ? access->value == step->scratch
                                           : access->value >= (int)plan->persistent.n;
            bool lives = access->value < (int)plan->persistent.n;
            bool any = step->lane != ECH_LANE_COMPUTE || lives;
            if (b->damage == UNDECLARED ? any : fits) return access;
        }
    }
    return NULL;
}

static void harm(ech_plan *plan, const broken *b)
{
    ech_list *list = &plan->list[b->list];
    ech_access *access = b->damage == NOTHING ? NULL : find_access(plan, list, b);
    if (!access) return;
    if (b->damage == UNDECLARED)
        access->value = plan->partials;
    else
        list->value.at[access->value - (int)plan->persistent.n].dies = access->tick - 1;
}

static ech_status run_lists(void *context, int rank, ech_compared_run *c)
{
    const broken *b = context;
    char yaml[] = "none", json[] = "{}";
    ech_checkpoint_info info = {.step = 1, .run_yaml = yaml, .text[ECH_FILE_CONFIG] = {json, 2}};
    (void)rank;
    harm(c->session.plan, b);
    ECH_TRY(ech_exec_run(c->session.exec, ECH_LIST_TRAIN, 0));
    ech_exec_set_save(c->session.exec, b->folder, &info, 0, 0, -1);
    ECH_TRY(ech_exec_run(c->session.exec, ECH_LIST_SAVE, 1));
    return ech_exec_finish_save(c->session.exec);
}

/* How it ended, and the last of what it said. */
static int run_broken(broken *b, char *said, size_t size)
{
    char path[300], words[400];
    snprintf(path, sizeof path, "%s/said", fixture_folder);
    snprintf(b->folder, sizeof b->folder, "%s/broken", fixture_folder);
    snprintf(words, sizeof words,
             "%s training.steps=8 training.micro_batch_size=1 checkpoint.every=4 "
             "checkpoint.background=%s",
             b->layout, b->background ? "true" : "false");
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        ECH_ASSERT(freopen(path, "w", stderr));
        ech_log_set_quiet(false);
        grid_run("gpt2", words, run_lists, b);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    said[fread(said, 1, size - 1, file)] = '\0';
    fclose(file);
    return status;
}

static void assert_ends(broken b)
{
    static const char *const why[] = {
        [UNDECLARED] = "that it does not declare", [TOO_SHORT] = "life"};
    char said[4000];
    int status = run_broken(&b, said, sizeof said);
    const char *promise = strstr(said, "broken promise: ");
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT || !promise)
        fail_msg("%s goes on: %s", ech_step_name(b.kind), said);
    const char *name = strchr(promise, ':') + 2;
    bool names = strncmp(name, ech_step_name(b.kind), strlen(ech_step_name(b.kind))) == 0;
    if (!names || !strstr(name, " touches a value ") || !strstr(name, why[b.damage]))
        fail_msg("%s: %s", ech_step_name(b.kind), said);
}

#define GRID "parallel.pipeline=2 parallel.data=2"
#define CUT  "parallel.pipeline=2 parallel.tensor=2"

TEST(test_sound_plans_run)
{
    char said[4000];
    for (int background = 0; background < 2; background++) {
        assert_int_equal(
            run_broken(&(broken){.layout = GRID, .background = background}, said, sizeof said), 0);
        assert_int_equal(
            run_broken(&(broken){.layout = CUT, .background = background}, said, sizeof said), 0);
    }
}

TEST(test_weights)
{
    static const char stashing[] = "parallel.pipeline=2 parallel.data=2 parallel.flush_every=2 "
                                   "parallel.schedule=pipedream model.tie_word_embeddings=false";
    static const ech_step_kind kinds[] = {ECH_STEP_FORWARD, ECH_STEP_BACKWARD_INPUT,
                                          ECH_STEP_UPDATE};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        assert_ends((broken){GRID, ECH_LIST_TRAIN, kinds[i], UNDECLARED, true, ""});
    assert_ends((broken){stashing, ECH_LIST_TRAIN, ECH_STEP_STASH, UNDECLARED, true, ""});
}

TEST(test_messages)
{
    static const ech_step_kind kinds[] = {ECH_STEP_SEND_ACT, ECH_STEP_RECV_ACT, ECH_STEP_SEND_GRAD,
                                          ECH_STEP_RECV_GRAD};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (damage d = UNDECLARED; d <= TOO_SHORT; d++)
            assert_ends((broken){GRID, ECH_LIST_TRAIN, kinds[i], d, true, ""});
}

TEST(test_reductions)
{
    for (damage d = UNDECLARED; d <= TOO_SHORT; d++)
        assert_ends((broken){GRID, ECH_LIST_TRAIN, ECH_STEP_REDUCE_GRADS, d, true, ""});
    assert_ends((broken){GRID, ECH_LIST_TRAIN, ECH_STEP_REDUCE, UNDECLARED, true, ""});
}

TEST(test_collectives)
{
    for (damage d = UNDECLARED; d <= TOO_SHORT; d++)
        assert_ends((broken){CUT, ECH_LIST_TRAIN, ECH_STEP_COLLECTIVE, d, true, ""});
}

/* What they touch lives as long as the plan. */
TEST(test_checkpoints)
{
    assert_ends((broken){GRID, ECH_LIST_SAVE, ECH_STEP_SNAPSHOT, UNDECLARED, true, ""});
    assert_ends((broken){GRID, ECH_LIST_SAVE, ECH_STEP_SAVE, UNDECLARED, true, ""});
    assert_ends((broken){GRID, ECH_LIST_SAVE, ECH_STEP_SAVE, UNDECLARED, false, ""});
}

ALL_TESTS(grid_setup, fixture_teardown)
