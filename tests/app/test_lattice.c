/* SPDX-License-Identifier: Apache-2.0
 *
 * The whole grid against one rank, in fp64, on the local backend: pipeline x data x context x
 * tensor up to 8 ranks, with everything else that decides who does what. Every two features that
 * can occur together do in some case, and two that cannot are refused by a row of config/rules.def.
 * To find such cases takes long, so they are kept in lattice_cases.def, and ECHELON_LATTICE=draw
 * prints that anew: what may still be asked for, and cases for what is not met.
 * ECHELON_LATTICE=grids runs every grid with every model and schedule, ECHELON_LATTICE=all almost
 * every case there is (CONTRIBUTING.md). A case that fails is made as simple as it can be and still
 * fails, and printed as a command. ECHELON_LATTICE=print runs none: it prints what
 * tools/same_bits.sh trains. Where there is a GPU the cases that are not on the processor's device
 * run there, too (ECHELON_LATTICE_DEVICE: another one, to try that). Each case is trained once; all
 * probes (probe.h) that apply to it watch that, and a table tells of how many cases each has
 * judged. ECHELON_LATTICE_JOBS=N: so many cases at a time, by default as many as there are
 * processors. ECHELON_LATTICE_FIRST=yes: the first failure ends the test, and is printed as it is.
 */

#include <sys/mman.h>
#include <sys/stat.h>

#include "app/grid_run.h"
#include "app/lattice.h"
#include "app/shrink.h"
#include "check/check.h"
#include "config/rules.h"
#include "share.h"
#include "simulate/classes.h"
#include "unit.h"

enum {
    CASES = 100,
    SAME_BITS_LOCAL = 40,
    SAME_BITS_MPI = 20,
    MOST_FAILURES = 5,
    MOST_DRAWS = 30,
    STRIDE = 1000003, /* a prime that divides no number of points */
};

/* ---- the shrinker ---- */

enum { TRIAL_FACTORS = 4 };

/* A mistake that needs a = 2 or more with b = 1 exactly, and is hidden where c = 1. */
static bool trial_fails(void *context, const cover_case *c)
{
    (void)context;
    return c->level[0] >= 2 && c->level[1] == 1 && c->level[2] != 1;
}

static bool trial_is_feasible(const cover_case *c)
{
    return c->level[0] != 3; /* the way down leads over what cannot be */
}

TEST(test_shrinks)
{
    shrinker s = {.factors = TRIAL_FACTORS, .feasible = trial_is_feasible, .fails = trial_fails};
    static const int starts[][TRIAL_FACTORS] = {
        {4, 1, 3, 5}, {5, 1, 0, 0}, {2, 1, 2, 7}, {7, 1, 7, 7}, {2, 1, 0, 0}};
    static const int smallest[TRIAL_FACTORS] = {2, 1, 0, 0};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        cover_case x = {{0}};
        memcpy(x.level, starts[i], sizeof starts[i]);
        x = shrink(&s, x);
        assert_memory_equal(x.level, smallest, sizeof smallest);
    }
    assert_true(s.tries > 0);
}

/* Lowering one factor makes room for another: more than one round is needed. */
static bool coupled_fails(void *context, const cover_case *c)
{
    ++*(int *)context;
    return c->level[0] >= 3 || (c->level[1] == 0 && c->level[0] >= 1);
}

TEST(test_shrinks_in_rounds)
{
    int asked = 0;
    shrinker s = {
        .factors = 2, .feasible = trial_is_feasible, .fails = coupled_fails, .context = &asked};
    cover_case x = shrink(&s, (cover_case){{5, 5}});
    assert_int_equal(x.level[0], 1);
    assert_int_equal(x.level[1], 0);
    assert_int_equal(asked, s.tries);
}

/* What is printed is what was run: the words make the configuration that they were printed from. */
TEST(test_prints_a_command)
{
    cover_case x = {{[PIPELINE] = 1, [TENSOR] = 1, [SEQUENCE] = 2, [SCHEDULE] = 3, [MODEL] = 2}};
    ech_text command = {0};
    lattice_print_command(&x, &command);
    assert_non_null(strstr(command.at, "echelon verify "));
    assert_non_null(strstr(command.at, "/run.yaml --ranks 4 model.architecture=llama "));
    ech_config *config = lattice_config(&x);
    assert_non_null(config);
    assert_int_equal(grid_ranks(config), 4);
    assert_int_equal(config->parallel.tensor, 2);
    assert_int_equal(config->parallel.virtual_stages, 2);
    assert_int_equal(config->parallel.sequence, ECH_SEQUENCE_KEEP);
    assert_string_equal(config->parallel.schedule, "interleaved");
    assert_int_equal(config->optimizer.eps * 1e6, 1);
    ech_config_destroy(config);
    ech_text_free(&command);
}

/* ---- cases ---- */

enum { MOST_JOBS = 64 };

/* Shared by all processes of the test. */
typedef struct board {
    int64_t next; /* the number of the next case that a job takes */
    int64_t cases, failures;
    probe_tally tally[PROBES];
    probe_result results[MOST_JOBS][PROBES]; /* of the case that each job is at */
} board;

static board *shared;
static int own_job;

static board *board_create(void)
{
    void *at = mmap(NULL, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ECH_ASSERT(at != MAP_FAILED);
    return at;
}

static bool verify_fails(void *context, const cover_case *c)
{
    (void)context;
    return !lattice_verify(c, shared->results[own_job]).passed;
}

/* The log of the child that ran last. */
static void print_log(void)
{
    char path[300], *text;
    size_t n;
    snprintf(path, sizeof path, "%s/log", fixture_folder);
    if (ech_file_read(path, 1 << 24, &text, &n) != ECH_OK) return;
    print_error("%s", n > 4000 ? text + n - 4000 : text);
    free(text);
}

/* The command that verifies the case, and the one with all probes. */
static void print_failed(const char *what, const cover_case *c, const char *why)
{
    ECH_FREED_TEXT text = {0};
    ech_text_append(&text, "%s: %s\n    ", what, why);
    lattice_print_command(c, &text);
    ech_text_append(&text, "\n    ECHELON_LATTICE=");
    for (int axis = 0; axis < LATTICE_AXES; axis++)
        ech_text_append(&text, "%c", lattice_digits[c->level[axis]]);
    ech_text_append(&text, " build/release/tests/test_app_lattice\n");
    print_error("%s", text.at);
    fflush(NULL);
}

/* How many failures end the test. */
static int most_failures(void)
{
    return getenv("ECHELON_LATTICE_FIRST") ? 1 : MOST_FAILURES;
}

static void explain(const cover_case *c, const verdict *found)
{
    char what[100];
    shrinker s = {.factors = LATTICE_AXES, .feasible = lattice_is_feasible, .fails = verify_fails};
    print_failed("FAILED", c, found->why);
    if (most_failures() == 1) return;
    cover_case smallest = shrink(&s, *c);
    verdict again = lattice_verify(&smallest, shared->results[own_job]);
    snprintf(what, sizeof what, "the simplest of its kind, after %d tries", s.tries);
    print_failed(what, &smallest, again.why);
    print_log();
    fflush(NULL);
}

/* Whether to go on. */
static bool run_case(const cover_case *c)
{
    verdict found = lattice_verify(c, shared->results[own_job]);
    __atomic_fetch_add(&shared->cases, 1, __ATOMIC_RELAXED);
    probe_count(shared->results[own_job], found.passed, shared->tally);
    if (found.passed && found.compared > 1000)
        return __atomic_load_n(&shared->failures, __ATOMIC_RELAXED) < most_failures();
    int64_t failures = __atomic_add_fetch(&shared->failures, 1, __ATOMIC_RELAXED);
    explain(c, &found);
    return failures < most_failures();
}

/* ---- several at a time ---- */

static int jobs(void)
{
    const char *asked = getenv("ECHELON_LATTICE_JOBS");
    if (lattice_device) return 1; /* which one after the other has for itself */
    long n = asked ? strtol(asked, NULL, 10) : sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > MOST_JOBS ? MOST_JOBS : (int)n;
}

/* With a folder of its own below the test's, and in it the run file, which reads the tokens there.
 */
static void work(const cover_case *cases, size_t n, int job)
{
    size_t end = strlen(fixture_folder);
    own_job = job;
    snprintf(fixture_folder + end, sizeof fixture_folder - end, "/job-%d", job);
    ECH_ASSERT(ech_file_remove_all(fixture_folder) == ECH_OK); /* of the test before */
    ECH_ASSERT(mkdir(fixture_folder, 0700) == 0);
    grid_write_tokens();
    lattice_forget_bases();
    lattice_write_run_files();
    for (int64_t i; (i = __atomic_fetch_add(&shared->next, 1, __ATOMIC_RELAXED)) < (int64_t)n;)
        if (!run_case(&cases[i])) break;
}

/* Each case is verified in a process of its own, which a process of its job has begun. */
static void run_cases(const cover_case *cases, size_t n)
{
    pid_t child[MOST_JOBS];
    int all = jobs();
    fflush(NULL);
    for (int job = 0; job < all; job++) {
        child[job] = fork();
        ECH_ASSERT(child[job] >= 0);
        if (child[job] > 0) continue;
        work(cases, n, job);
        fflush(NULL);
        _exit(0);
    }
    for (int job = 0; job < all; job++) {
        int status = 0;
        ECH_ASSERT(waitpid(child[job], &status, 0) == child[job]);
        if (status != 0) fail_msg("job %d has ended with status %d", job, status);
    }
}

/* The folder of a case that failed stays, so that its command can be run. */
static bool keeps_folder;

/* whole: all cases have run, so each probe must have judged some; else those that apply to some. */
static void conclude(bool whole)
{
    keeps_folder |= shared->failures > 0;
    probe_print(shared->tally);
    if (shared->failures)
        fail_msg("%lld of %lld cases failed; their run files are kept in %s",
                 (long long)shared->failures, (long long)shared->cases, fixture_folder);
    for (int p = 0; p < PROBES; p++) {
        bool must = shared->tally[p].applied || (whole && (WATCH_IS_PLAIN || !probes[p]->plain));
        if (must && !shared->tally[p].judged)
            fail_msg("the probe %s has judged no case", probes[p]->name);
    }
    print_message("%lld cases\n", (long long)shared->cases);
}

static cover *all_pairs; /* the cases that are kept */

#define DRAW                                                                                       \
    "ECHELON_LATTICE=draw build/release/tests/test_app_lattice > cases && "                        \
    "mv cases tests/app/lattice_cases.def"

static bool is_any(const cover_case *c)
{
    (void)c;
    return true;
}

typedef ECH_LIST(cover_case) case_list;

/* Those of this run's shares. */
static void run_cover(bool (*takes)(const cover_case *))
{
    case_list taken = {0};
    for (size_t i = 0; i < all_pairs->cases.n; i++)
        if (takes(&all_pairs->cases.at[i]) && share_takes())
            ECH_PUSH(taken, all_pairs->cases.at[i]);
    run_cases(taken.at, taken.n);
    free(taken.at);
}

/* A case by its levels, as lattice_cases.def has them. */
static void run_named(const char *levels)
{
    cover_case c = lattice_read_case(levels);
    run_case(&c);
}

/* ---- what goes with what ---- */

/* The rule that a case breaks; NULL: none. */
static const ech_rule *rule_of(const cover_case *c)
{
    ech_config *config = lattice_config(c);
    const ech_rule *rule = lattice_rule(config);
    ech_config_destroy(config);
    return rule;
}

/* Whether the case is refused with that rule's words. */
static bool is_refused_by(const cover_case *c, const ech_rule *rule)
{
    ech_text words = {0};
    ech_config *config = lattice_config(c);
    ech_rule_explain(rule, config, &words);
    ech_clear_error();
    lattice_made made;
    bool is_made = lattice_make(c, &made);
    bool refused = !is_made && strstr(ech_last_error(), words.at);
    if (is_made) lattice_free(&made);
    ech_config_destroy(config);
    ech_text_free(&words);
    return refused;
}

/* Whether the last error is that of a rule that the case breaks. */
static bool is_refused(const cover_case *c)
{
    ech_config *config = lattice_config(c);
    bool refused = false;
    for (int r = 0; r < ECH_RULES && !refused; r++)
        refused = ech_feature_is_on(config, ech_rules[r].feature) &&
                  ech_feature_is_on(config, ech_rules[r].other) && is_refused_by(c, &ech_rules[r]);
    ech_config_destroy(config);
    return refused;
}

/* Two features that no case has: neither alone breaks a rule, both do, and that is what the error
 * says. */
static void check_refused(const cover_feature *a, const cover_feature *b)
{
    cover_case alone[] = {lattice_simplest_with(a, NULL), lattice_simplest_with(b, NULL)};
    cover_case both = lattice_simplest_with(a, b);
    if (!rule_of(&alone[0]) && !rule_of(&alone[1]) && is_refused(&both)) return;
    ech_text command = {0};
    lattice_print_command(&both, &command);
    fail_msg(
        "neither verified nor refused by a rule: levels %d of axis %d and %d of axis %d, as in\n"
        "    %s\n    %s\nIf some case may have both, " DRAW " finds it",
        a->low, a->factor, b->low, b->factor, command.at, ech_last_error());
}

TEST(test_goes_together_or_is_refused)
{
    cover_feature feature[COVER_FEATURES];
    int n = lattice_list_features(feature), verified = 0, refused = 0;
    for (size_t i = 0; i < all_pairs->cases.n; i++)
        if (!lattice_goes_together(&all_pairs->cases.at[i]))
            fail_msg("case %zu breaks a rule; draw anew: " DRAW, i + 1);
    for (int a = 0; a < n; a++)
        for (int b = a + 1; b < n; b++) {
            if (feature[a].factor == feature[b].factor) continue; /* one or the other */
            if (all_pairs->met[a][b]) {
                verified++;
                continue;
            }
            check_refused(&feature[a], &feature[b]);
            refused++;
        }
    print_message("%d pairs are verified by %zu cases, %d refused\n", verified, all_pairs->cases.n,
                  refused);
    assert_true(verified > 1000 && refused > 20);
}

/* Point `at` of the lattice of the axes below `axes`; the others are at their first level. */
static cover_case point_of(int64_t at, int axes)
{
    cover_case c = {{0}};
    for (int axis = axes - 1; axis >= 0; at /= lattice_levels[axis--])
        c.level[axis] = (int)(at % lattice_levels[axis]);
    return c;
}

static int64_t points_of(int axes)
{
    int64_t points = 1;
    for (int axis = 0; axis < axes; axis++) points *= lattice_levels[axis];
    return points;
}

/* Levels for the axes from `axes` on, such that the case may be asked for. False: none are found.
 */
static bool draw_rest(cover_case *c, int axes, int64_t at)
{
    ech_random_key key = {.seed = (uint64_t)at};
    uint64_t drawn = 0;
    for (int tries = 0; tries < MOST_DRAWS; tries++) {
        for (int axis = axes; axis < LATTICE_AXES; axis++)
            c->level[axis] = (int)(ech_random_word(key, drawn++) % (uint32_t)lattice_levels[axis]);
        if (lattice_is_feasible(c)) return true;
    }
    return false;
}

/* Every point of the first axes, the others drawn. With a large stride, so that a run that is ended
 * early has seen some of everything. */
static void run_points(int axes)
{
    int64_t points = points_of(axes);
    for (int64_t i = 0, at = 0; i < points; i++, at = (at + STRIDE) % points) {
        cover_case c = point_of(at, axes);
        if (lattice_is_idle(&c) || !draw_rest(&c, axes, at) || !share_takes()) continue;
        if (!run_case(&c)) break;
        if (shared->cases % 500 == 0)
            print_message("%lld cases, %.1f%%\n", (long long)shared->cases,
                          100 * (double)i / (double)points);
    }
}

/* ---- what tools/same_bits.sh trains ---- */

/* Without a profile or images, which are files of this test's. */
static bool is_trained(const cover_case *c)
{
    if (lattice_has_images(c->level[MODEL])) return false;
    bool found = strcmp(lattice_partitions[c->level[PARTITION]], "auto") == 0;
    return !found && lattice_is_feasible(c);
}

static bool is_two_ranks(const cover_case *c)
{
    return lattice_ranks(c) == 2 && is_trained(c);
}

/* The first `n` cases of a cover, which meet most pairs: ranks, backend and words, a line each. */
static void print_cases(bool (*feasible)(const cover_case *), const char *backend, size_t n)
{
    cover *c = lattice_cover_begin(feasible);
    cover_complete(c, n);
    for (size_t i = 0; i < n; i++) {
        ech_text line = {0};
        lattice_print_words(&c->cases.at[i], &line);
        printf("%d parallel.comm=%s %s\n", lattice_ranks(&c->cases.at[i]), backend, line.at);
        ech_text_free(&line);
    }
    cover_free(c);
}

static void draw_cases(void)
{
    cover *c = lattice_kept_cover(lattice_is_feasible);
    cover_complete(c, CASES);
    printf("/* The cases of test_lattice.c, which draws them: a level of each axis of lattice.h, "
           "in base 36. A level or an axis "
           "that is added\n * comes last, or this is drawn anew from nothing. */\n");
    for (size_t i = 0; i < c->cases.n; i++) lattice_print_case(&c->cases.at[i]);
    cover_free(c);
}

TEST(test_lattice)
{
    const char *which = getenv("ECHELON_LATTICE");
    share_range share = share_read();
    shared = board_create();
    lattice_write_run_files();
    if (which && strcmp(which, "all") == 0)
        run_points(LATTICE_LONG_AXES);
    else if (which && strcmp(which, "grids") == 0)
        run_points(LATTICE_GRID_AXES);
    else if (which && strspn(which, lattice_digits) == LATTICE_AXES)
        run_named(which);
    else
        run_cover(is_any);
    conclude(!which && share.last - share.first + 1 == share.of);
}

/* GPUs do not encode, and have no convolutions. */
static bool is_on_a_device(const cover_case *c)
{
    bool images = lattice_has_images(c->level[MODEL]);
    return c->level[DEVICE] > 0 && !images && !lattice_is_encoded(c);
}

TEST(test_on_a_gpu)
{
    const char *named = getenv("ECHELON_LATTICE_DEVICE"), *device = named ? named : "cuda";
    if (!verdict_has_device(device)) skip();
    shared = board_create();
    lattice_write_run_files();
    lattice_device = device;
    run_cover(is_on_a_device);
    conclude(false);
    lattice_device = NULL;
}

/* Of the train list, or of all others, on all ranks. */
static bool lists_end(const ech_design *design, bool forward_only)
{
    ech_plan **plans = ech_calloc((size_t)design->world, sizeof *plans);
    bool end = true;
    for (int rank = 0; rank < design->world && end; rank++)
        end = ech_design_outline(design, rank, forward_only, &plans[rank]) == ECH_OK;
    for (int list = 0; list < ECH_LIST_KINDS && end; list++)
        if ((list == ECH_LIST_TRAIN) != forward_only) {
            const ech_plan *const *all = (const ech_plan *const *)plans;
            end = ech_check_plans(all, design->world, (ech_list_kind)list) == ECH_OK &&
                  ech_check_queues(all, design->world, (ech_list_kind)list) == ECH_OK;
            const char *differs = end ? classes_disagree(all, design->layout, design->model, NULL,
                                                         (ech_list_kind)list)
                                      : NULL;
            if (differs) printf("simulated by classes of ranks, %s differs\n", differs);
            end = end && !differs;
        }
    for (int rank = 0; rank < design->world; rank++) ech_plan_destroy(plans[rank]);
    free(plans);
    return end;
}

/* Plans of every two features end, under the rules of a library without tags, too. */
TEST(test_plans_do_not_deadlock)
{
    ECH_FREED_TEXT failed = {0};
    lattice_write_run_files();
    for (size_t i = 0; i < all_pairs->cases.n; i++) {
        lattice_made made;
        cover_case c = all_pairs->cases.at[i];
        if (!share_takes()) continue;
        c.level[PARTITION] = 0;
        assert_true(lattice_make(&c, &made));
        if (!lists_end(&made.design, false) || !lists_end(&made.design, true))
            lattice_print_command(&c, &failed);
        lattice_free(&made);
    }
    if (failed.n) fail_msg("%s", failed.at);
}

static int setup(void **state)
{
    if (grid_setup(state) != 0) return 1;
    all_pairs = lattice_kept_cover(is_any);
    return 0;
}

static int teardown(void **state)
{
    cover_free(all_pairs);
    return keeps_folder ? 0 : fixture_teardown(state);
}

ALL_TESTS(setup, teardown)

/* PATTERN: only the tests with such names. */
int main(int argc, char **argv)
{
    const char *which = getenv("ECHELON_LATTICE");
    if (which && strcmp(which, "draw") == 0) {
        grid_setup(NULL);
        draw_cases();
        return fixture_teardown(NULL);
    }
    if (which && strcmp(which, "print") == 0) {
        grid_setup(NULL);
        print_cases(is_trained, "local", SAME_BITS_LOCAL);
        print_cases(is_two_ranks, "mpi", SAME_BITS_MPI);
        return fixture_teardown(NULL);
    }
    if (argc > 1) unit_choose(argv[1]);
    return unit_run(NULL);
}
