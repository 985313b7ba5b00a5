/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiny runs on grids of ranks, pipeline x data x context x tensor: what the proofs of the grid
 * share. The fixture's run file, with 8 heads of width 4, 24 tokens a sample, and tokens of the
 * whole vocabulary of 257, so that every tensor rank's share of it is looked up, in documents
 * shorter and longer than a sample. After fixture.h and cmocka.h.
 */
#ifndef ECH_TESTS_APP_GRID_RUN_H
#define ECH_TESTS_APP_GRID_RUN_H

#include "app/fixture.h"
#include "app/verify/verify.h"
#include "base/log.h"
#include "check/check.h"
#include "unit.h"

enum { GRID_VOCABULARY = 257, GRID_TOKENS = 1200 };

/* A token file of that folder. changed: bit p: documents of that parity have other tokens. */
static inline void grid_write_file(const char *name, uint64_t seed, unsigned changed)
{
    static const uint64_t lengths[] = {5, 40, 1, 9, 16, 2};
    enum { LENGTHS = sizeof lengths / sizeof *lengths };
    char prefix[300];
    ech_token_writer *writer;
    ech_random_key key = {.seed = seed};
    snprintf(prefix, sizeof prefix, "%s/%s", fixture_folder, name);
    ECH_ASSERT(ech_token_writer_create(prefix, GRID_VOCABULARY, &writer) == ECH_OK);
    for (uint64_t i = 0, end = 0, document = 0; i < GRID_TOKENS; i++) {
        int32_t id = (int32_t)(ech_random_word(key, i) % (GRID_VOCABULARY - 1));
        if (i % 3 == 2) id = (int32_t)(i / 3 % (GRID_VOCABULARY - 1)); /* something to learn */
        if (i == end) end += lengths[document++ % LENGTHS];
        if (changed >> document % 2 & 1) id = (id + 101) % (GRID_VOCABULARY - 1);
        ECH_ASSERT(ech_token_writer_add(writer, &id, 1) == ECH_OK);
        if (i + 1 == end || i + 1 == GRID_TOKENS)
            ECH_ASSERT(ech_token_writer_end_document(writer) == ECH_OK);
    }
    ECH_ASSERT(ech_token_writer_finish(writer) == ECH_OK);
}

/* Token files NAME-train and NAME-valid of that folder. */
static inline void grid_write_tokens(void)
{
    grid_write_file("all-train", 23, 0);
    grid_write_file("all-valid", 24, 0);
}

/* For ALL_TESTS. */
static inline int grid_setup(void **state)
{
    fixture_setup(state);
    grid_write_tokens();
    return 0;
}

/* The run file, `family`'s, whose log is in the folder NAME. */
static inline void grid_print_yaml(const char *family, const char *name, ech_text *out)
{
    ech_text_append(out,
                    "model:\n  architecture: %s\n  hidden_size: 32\n  num_hidden_layers: 2\n"
                    "  num_attention_heads: 8\n  intermediate_size: 48\n"
                    "data:\n  train: %s/all-train\n  valid: %s/all-valid\n  sequence_length: 24\n"
                    "training:\n  steps: 2\n  global_batch_size: 4\n  check_every: 0\n"
                    "optimizer:\n  learning_rate: 1e-2\n  weight_decay: 0.1\n"
                    "precision:\n  compute: fp64\n"
                    "parallel:\n  comm: local\n  threads: 1\n  bucket_bytes: 8KiB\n"
                    "log:\n  directory: %s/%s\n",
                    family, fixture_folder, fixture_folder, fixture_folder, name);
}

/* A checked configuration; `more`: further assignments, divided by blanks. NULL: it is refused. */
static inline ech_config *grid_config_of(const char *family, const char *name, const char *more)
{
    ech_text yaml = {0};
    grid_print_yaml(family, name, &yaml);
    ech_config *config = fixture_config_of(yaml.at, more);
    ech_text_free(&yaml);
    return config;
}

static inline ech_config *grid_config(const char *family, const char *more)
{
    ech_text words = {0};
    if (!strstr(more, "optimizer.name=")) ech_text_append(&words, "optimizer.eps=1e-6 ");
    ech_text_append(&words, "%s", more);
    ech_config *config = grid_config_of(family, "run", words.at);
    if (!config) fail_msg("%s with %s: %s", family, more, ech_last_error());
    ech_text_free(&words);
    return config;
}

/* The ranks that the assignments ask for. */
static inline int grid_ranks(const ech_config *config)
{
    int64_t ranks = ech_setup_ranks(config);
    return ranks ? (int)ranks : 1;
}

/* Verifies a run of so many training steps, which must pass. */
static inline ech_verification grid_verify(const char *family, const char *more, int64_t steps)
{
    ech_config *config = grid_config(family, more);
    ech_verification v = {.steps = steps, .tolerance = ECH_TOLERANCE};
    ech_status status = fixture_run(config, grid_ranks(config), ech_verify_rank, &v);
    if (status != ECH_OK) fail_msg("%s with %s: %s", family, more, ech_last_error());
    if (!v.passed) fail_msg("%s with %s: %g at %s", family, more, v.worst, v.worst_at);
    assert_true(v.compared > 10000 && v.validated);
    ech_config_destroy(config);
    return v;
}

/* Steps of that kind in the list. */
static inline int grid_steps(const ech_list *list, ech_step_kind kind)
{
    int n = 0;
    for (size_t s = 0; s < list->step.n; s++) n += list->step.at[s].kind == kind;
    return n;
}

/* The first step of that kind after so many others. */
static inline ech_step *grid_step(const ech_list *list, ech_step_kind kind, int skip)
{
    size_t s = 0;
    while (list->step.at[s].kind != kind || skip-- > 0) s++;
    return &list->step.at[s];
}

/* The checker refuses the list that trains. */
static inline void grid_refuse(const ech_plan *plan, const char *why)
{
    assert_int_equal(ech_check_list(plan, &plan->list[ECH_LIST_TRAIN]), ECH_EINTERNAL);
    if (!strstr(ech_last_error(), why)) fail_msg("%s: %s", why, ech_last_error());
}

/* ---- plans alone ---- */

/* All ranks' plans of a run, without running it. */
typedef struct grid_plans {
    ech_config *config;
    ech_design design;
    int ranks;
    ech_plan **plan; /* [ranks] */
} grid_plans;

static inline grid_plans grid_plan(const char *family, const char *more)
{
    grid_plans g = {.config = grid_config(family, more)};
    g.ranks = grid_ranks(g.config);
    g.plan = ech_calloc((size_t)g.ranks, sizeof(ech_plan *));
    ech_status status = ech_design_create(g.config, fixture_tokenizer, g.ranks, g.ranks, &g.design);
    for (int r = 0; r < g.ranks && status == ECH_OK; r++)
        status = ech_design_plan(&g.design, r, false, &g.plan[r]);
    if (status != ECH_OK) fail_msg("%s with %s: %s", family, more, ech_last_error());
    return g;
}

static inline void grid_plans_free(grid_plans *g)
{
    for (int r = 0; r < g->ranks; r++) ech_plan_destroy(g->plan[r]);
    free(g->plan);
    ech_design_destroy(&g->design);
    ech_config_destroy(g->config);
}

/* ---- boxes ---- */

/* Called for every element of a parameter that a rank has: its index here and in the whole. */
typedef void (*grid_element)(void *context, int64_t local, int64_t whole);

static inline void grid_each_element(const ech_design *design, int rank, int param,
                                     grid_element use, void *context)
{
    const ech_shape *shape = &design->model->param.at[param].shape;
    ech_held held =
        ech_layout_held(design->layout, design->model, rank, param, ECH_HELD_WEIGHTS, NULL);
    for (int b = 0; b < held.boxes; b++) {
        ech_box_runs runs = ech_box_split(shape->dims, shape->size, &held.box[b]);
        for (int64_t i = 0; i < runs.count; i++) {
            ech_box_offset at = ech_box_run_at(&runs, i);
            for (int64_t k = 0; k < runs.length; k++)
                use(context, at.in_memory + k, at.in_whole + k);
        }
    }
}

/* ---- runs ---- */

/* What every rank of a run does between its begin (initial parameters) and its end, on its own
 * thread. */
typedef ech_status (*grid_main)(void *context, int rank, ech_compared_run *run);

typedef struct grid_job {
    grid_main main;
    void *context;
} grid_job;

static inline ech_status grid_rank(ech_comm *comm, const ech_design *design, void *context)
{
    const grid_job *job = context;
    ech_compared_run c = {.design = design};
    ech_status status = ech_compared_run_open(&c, comm);
    if (status == ECH_OK) status = job->main(job->context, ech_comm_rank(comm), &c);
    ech_compared_run_close(&c);
    return status;
}

static inline void grid_run(const char *family, const char *more, grid_main run, void *context)
{
    ech_config *config = grid_config(family, more);
    grid_job job = {run, context};
    ech_status status = fixture_run(config, grid_ranks(config), grid_rank, &job);
    if (status != ECH_OK) fail_msg("%s with %s: %s", family, more, ech_last_error());
    ech_config_destroy(config);
}

#endif
