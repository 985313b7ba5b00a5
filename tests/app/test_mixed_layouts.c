/* SPDX-License-Identifier: Apache-2.0
 *
 * Layouts in bf16 and fp16 against one rank, over a lattice of the grid's axes and of types.
 * Partial sums are rounded once each, so the first steps' losses are within 1e-3 and gradient norms
 * within 0.5%. Every two levels that go together meet in some case; ECHELON_MIXED=all runs all
 * cases (CONTRIBUTING.md). The largest differences are printed by axis. A pipeline changes no bit
 * (test_pipeline_bits.c).
 */

#include <math.h>

#include "app/cover.h"
#include "app/grid_run.h"
#include "share.h"
#include "unit.h"

enum { STEPS = 3, RANKS = 8, CASES = 40, LEVELS = 4 };
static const double most_loss = 1e-3, most_norm = 5e-3;

/* What one rank beside has as well, and then what decides who does what. */
enum { COMPUTE, FAMILY, GRADIENTS, RESIDUAL, TWIN_AXES, AXES = 12 };

static const char *const words_of[AXES][LEVELS] = {
    [COMPUTE] = {"precision.compute=bf16", "precision.compute=fp16"},
    [FAMILY] = {"model.architecture=llama", "model.architecture=gpt2"},
    [GRADIENTS] = {"precision.gradients=fp32", "precision.gradients=compute"},
    [RESIDUAL] = {"precision.residual=compute", "precision.residual=fp32"},
    {"parallel.tensor=1", "parallel.tensor=2", "parallel.tensor=4"},
    {"parallel.sequence=false", "parallel.sequence=true", "parallel.sequence=keep"},
    {"parallel.context=1", "parallel.context=2", "parallel.context=4"},
    {"parallel.context_method=ring", "parallel.context_method=ulysses"},
    {"memory.sequence_chunks=1", "memory.sequence_chunks=4"},
    {"parallel.data=1", "parallel.data=2", "parallel.data=4"},
    {"precision.reduce=auto", "precision.reduce=bf16"},
    {"parallel.pipeline=1", "parallel.pipeline=2", "parallel.pipeline=4"},
};

static int levels_of(int axis)
{
    int n = 0;
    while (n < LEVELS && words_of[axis][n]) n++;
    return n;
}

/* ---- a case ---- */

typedef struct steps {
    bool made;
    double loss[STEPS], norm[STEPS];
} steps;

static ech_status train(ech_comm *comm, const ech_design *design, void *context)
{
    steps *s = context;
    ech_compared_run run = {.design = design};
    ECH_TRY(ech_compared_run_open(&run, comm));
    for (int step = 0; step < STEPS; step++) {
        ECH_TRY(ech_exec_run(run.session.exec, ECH_LIST_TRAIN, step));
        const ech_readings *r = ech_exec_readings(run.session.exec);
        if (ech_comm_rank(comm) == 0) s->loss[step] = r->loss;
        if (ech_comm_rank(comm) == 0) s->norm[step] = r->grad_norm;
    }
    ech_compared_run_close(&run);
    return ECH_OK;
}

static void print_words(const cover_case *c, ech_text *out)
{
    for (int axis = 0; axis < AXES; axis++)
        ech_text_append(out, "%s ", words_of[axis][c->level[axis]]);
}

/* NULL: it is refused. */
static ech_config *config_of(const cover_case *c)
{
    ECH_FREED_TEXT words = {0};
    print_words(c, &words);
    ech_text_append(&words, "training.micro_batch_size=1 optimizer.learning_rate=1e-3 "
                            "model.tie_word_embeddings=false training.steps=3");
    return grid_config_of("llama", "run", words.at);
}

static bool is_feasible(const cover_case *c)
{
    ech_design design = {0};
    ech_config *config = config_of(c);
    int ranks = config ? grid_ranks(config) : 0;
    bool feasible = config && ranks <= RANKS &&
                    ech_design_create(config, fixture_tokenizer, ranks, ranks, &design) == ECH_OK;
    if (feasible) ech_design_destroy(&design);
    ech_config_destroy(config);
    return feasible;
}

static steps run(const cover_case *c)
{
    steps s = {.made = true};
    ech_config *config = config_of(c);
    assert_non_null(config);
    if (fixture_run(config, grid_ranks(config), train, &s) != ECH_OK)
        fail_msg("%s", ech_last_error());
    ech_config_destroy(config);
    return s;
}

/* The same types and model on one rank. */
static const steps *twin_of(const cover_case *c)
{
    static steps twins[1 << TWIN_AXES];
    int which = 0;
    cover_case one = {{0}};
    for (int axis = 0; axis < TWIN_AXES; axis++) {
        one.level[axis] = c->level[axis];
        which = 2 * which + c->level[axis];
    }
    if (!twins[which].made) twins[which] = run(&one);
    return &twins[which];
}

/* ---- all of them ---- */

/* The largest differences of the cases that have a level of an axis, in each type. */
typedef struct differences {
    int cases;
    double loss, norm;
} differences;

static differences seen[AXES][LEVELS][2];

static void check(const cover_case *c)
{
    const steps *one = twin_of(c);
    steps many = run(c);
    double loss = 0, norm = 0;
    for (int i = 0; i < STEPS; i++) {
        loss = fmax(loss, fabs(many.loss[i] - one->loss[i]));
        norm = fmax(norm, fabs(many.norm[i] / one->norm[i] - 1));
    }
    for (int axis = 0; axis < AXES; axis++) {
        differences *d = &seen[axis][c->level[axis]][c->level[COMPUTE]];
        d->cases++;
        d->loss = fmax(d->loss, loss);
        d->norm = fmax(d->norm, norm);
    }
    if (loss <= most_loss && norm <= most_norm) return;
    ECH_FREED_TEXT words = {0};
    print_words(c, &words);
    fail_msg("losses %g apart, norms %g: %s", loss, norm, words.at);
}

static void check_all_points(const int levels[AXES])
{
    cover_case c = {{0}};
    for (int axis = 0; axis < AXES;) {
        if (is_feasible(&c)) check(&c);
        for (axis = 0; axis < AXES && ++c.level[axis] == levels[axis]; axis++) c.level[axis] = 0;
    }
}

TEST(test_within)
{
    int levels[AXES];
    const char *which = getenv("ECHELON_MIXED");
    for (int axis = 0; axis < AXES; axis++) levels[axis] = levels_of(axis);
    if (which && strcmp(which, "all") == 0) {
        check_all_points(levels);
    } else {
        cover *pairs = cover_make_of_levels(AXES, levels, is_feasible, CASES);
        for (size_t i = 0; i < pairs->cases.n; i++)
            if (share_takes()) check(&pairs->cases.at[i]);
        cover_free(pairs);
    }
    for (int axis = COMPUTE + 1; axis < AXES; axis++)
        for (int i = 0; i < levels[axis]; i++) {
            print_message("%-32s", words_of[axis][i]);
            for (int k = 0; k < 2; k++)
                print_message("%s%s: %d cases, losses %.1e, norms %.3f%%", k ? "; " : "",
                              k ? "fp16" : "bf16", seen[axis][i][k].cases, seen[axis][i][k].loss,
                              100 * seen[axis][i][k].norm);
            print_message("\n");
        }
}

ALL_TESTS(grid_setup, fixture_teardown)
