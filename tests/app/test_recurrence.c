/* SPDX-License-Identifier: Apache-2.0
 *
 * The recurrences that the papers give for asynchronous pipelines, computed by hand for plain SGD
 * from gradients of one rank, against what a pipeline trained. (replay.c serves every optimizer.)
 */

#include <math.h>

#include "app/layout_run.h"
#include "unit.h"

/* Which version of the weights, in updates since the run began, stage s of p sees in step t of a
 * run that drains every `flush` steps. */
typedef int64_t (*delay)(int64_t t, int s, int p, int64_t flush);

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* One micro-batch a step: w(t+1) = w(t) - v grad f(w1(t-n+1), w2(t-n+2), ..., wn(t)) once the
 * pipeline is full (Narayanan et al. 2019, section 3.3). */
static int64_t late_by_stage(int64_t t, int s, int p, int64_t flush)
{
    return later(t - (p - 1 - s), t / flush * flush);
}

/* With vertical sync: all of version t-n+1. */
static int64_t late_by_depth(int64_t t, int s, int p, int64_t flush)
{
    (void)s;
    return later(t - (p - 1), t / flush * flush);
}

/* W(t+1) = W(t) - v grad f(W(t-1)) (arXiv:2006.09503, section 3.1), through drains. */
static int64_t late_by_one(int64_t t, int s, int p, int64_t flush)
{
    (void)s;
    (void)p;
    (void)flush;
    return later(t - 1, 0);
}

static int64_t never_late(int64_t t, int s, int p, int64_t flush)
{
    (void)s;
    (void)p;
    (void)flush;
    return t;
}

/* ---- by hand ---- */

enum { MOST_STEPS = 16, MOST_PARAMS = 128 };

typedef struct by_hand {
    const ech_config *config; /* the layout's, as written */
    int64_t steps, flush;
    int stages, ranks;
    delay version;
    int64_t first[MOST_PARAMS + 1];
    int stage_of[MOST_PARAMS];
    double *weights[MOST_STEPS + 1]; /* W(0) .. W(steps) */
    double *gradient;
} by_hand;

static void take_gradient(void *context, ech_exec *exec, const ech_step *step)
{
    by_hand *h = context;
    if (step->kind != ECH_STEP_CLIP) return;
    for (int p = 0; h->first[p + 1] > 0; p++) {
        ech_tensor g = ech_exec_gradient(exec, p);
        memcpy(h->gradient + h->first[p], g.data, ech_tensor_bytes(&g));
    }
}

/* By the layout's cuts. */
static ech_status find_stages(by_hand *h, const ech_model *model)
{
    ech_config *config = ech_config_copy(h->config);
    ech_design design;
    ECH_TRY(ech_design_create(config, fixture_tokenizer, h->ranks, h->ranks, &design));
    ECH_ASSERT(model->param.n < MOST_PARAMS);
    for (int p = 0; p < (int)model->param.n; p++) {
        int s = 0;
        while (model->param.at[p].block >= design.layout->first_block[s + 1]) s++;
        h->stage_of[p] = s;
        h->first[p + 1] = h->first[p] + layout_run_elements(model, p);
    }
    ech_design_destroy(&design);
    ech_config_destroy(config);
    return ECH_OK;
}

static ech_status step_by_hand(by_hand *h, ech_exec *exec, int64_t t, int params)
{
    for (int p = 0; p < params; p++) {
        int64_t version = h->version(t, h->stage_of[p], h->stages, h->flush);
        ech_tensor x = ech_exec_param(exec, p);
        memcpy(x.data, h->weights[version] + h->first[p], ech_tensor_bytes(&x));
    }
    ECH_TRY(ech_exec_run(exec, ECH_LIST_TRAIN, t));
    double rate = ech_exec_readings(exec)->learning_rate;
    h->weights[t + 1] = ech_calloc((size_t)h->first[params], sizeof(double));
    for (int64_t i = 0; i < h->first[params]; i++)
        h->weights[t + 1][i] = h->weights[t][i] - rate * h->gradient[i];
    return ECH_OK;
}

static ech_status run_by_hand(ech_comm *comm, const ech_design *design, void *context)
{
    by_hand *h = context;
    ech_compared_run c = {.design = design};
    ECH_TRY(ech_compared_run_open(&c, comm));
    const ech_model *model = design->model;
    int params = (int)model->param.n;
    ECH_TRY(find_stages(h, model));
    h->gradient = ech_calloc((size_t)h->first[params], sizeof(double));
    h->weights[0] = ech_calloc((size_t)h->first[params], sizeof(double));
    for (int p = 0; p < params; p++) {
        ech_tensor x = ech_exec_param(c.session.exec, p);
        memcpy(h->weights[0] + h->first[p], x.data, ech_tensor_bytes(&x));
    }
    ech_exec_observe(c.session.exec, take_gradient, h);
    for (int64_t t = 0; t < h->steps; t++) ECH_TRY(step_by_hand(h, c.session.exec, t, params));
    ech_compared_run_close(&c);
    return ECH_OK;
}

/* ---- both ---- */

/* The largest |layout - by hand| over max |by hand| of a parameter, after two spans of `flush`. */
static double apart(const char *architecture, int stages, int data, int flush, delay version,
                    const char *more)
{
    char words[400];
    snprintf(words, sizeof words, "parallel.pipeline=%d parallel.flush_every=%d %s", stages, flush,
             more);
    layout_run run = {.spans = 2};
    layout_run_start(&run, architecture, stages * data, words);
    by_hand h = {.config = run.config,
                 .steps = 2 * flush,
                 .flush = flush,
                 .stages = stages,
                 .ranks = stages * data,
                 .version = version};
    assert_true(h.steps <= MOST_STEPS);
    ech_config *alone = ech_config_copy(run.config);
    ech_config_set_alone(alone);
    assert_int_equal(fixture_run(alone, 1, run_by_hand, &h), ECH_OK);
    ech_config_destroy(alone);
    double worst = 0;
    for (int p = 0; h.first[p + 1] > 0; p++) {
        double most = 0, size = 0;
        for (int64_t i = h.first[p]; i < h.first[p + 1]; i++) {
            double b = h.weights[h.steps][i], d = fabs(run.weights[i] - b);
            if (!(d <= most)) most = d;
            if (fabs(b) > size) size = fabs(b);
        }
        if (most > 0 && !(most / size <= worst)) worst = most / size;
    }
    for (int64_t t = 0; t <= h.steps; t++) free(h.weights[t]);
    free(h.gradient);
    layout_run_free(&run);
    return worst;
}

/* Equal to its own recurrence, and to none of the others. */
static void check(const char *architecture, int stages, int data, int flush, delay version,
                  const char *more)
{
    static const delay all[] = {late_by_stage, late_by_depth, late_by_one, never_late};
    double own = apart(architecture, stages, data, flush, version, more);
    if (!(own < 1e-12)) fail_msg("%s, %d stages, %s: %g", architecture, stages, more, own);
    for (int i = 0; i < 4; i++) {
        if (all[i] == version) continue;
        double other = apart(architecture, stages, data, flush, all[i], more);
        if (!(other > 1e-6))
            fail_msg("%s, %d stages, %s: recurrence %d fits too (%g)", architecture, stages, more,
                     i, other);
    }
}

TEST(test_pipedream)
{
    const char *more = "parallel.schedule=pipedream training.global_batch_size=1";
    check("llama", 3, 1, 8, late_by_stage, more);
    check("gpt2", 4, 1, 6, late_by_stage, more);
    check("gpt2", 2, 1, 8, late_by_stage, more);
}

TEST(test_vertical_sync)
{
    const char *more =
        "parallel.schedule=pipedream parallel.vertical_sync=true training.global_batch_size=1";
    check("gpt2", 3, 1, 8, late_by_depth, more);
    check("llama", 4, 1, 6, late_by_depth, more);
}

TEST(test_2bw)
{
    check("llama", 2, 1, 4, late_by_one,
          "parallel.schedule=pipedream-2bw training.global_batch_size=2");
    check("gpt2", 2, 1, 8, late_by_one,
          "parallel.schedule=pipedream-2bw training.global_batch_size=3");
    check("llama", 3, 2, 4, late_by_one,
          "parallel.schedule=pipedream-2bw parallel.data=2 training.global_batch_size=8");
}

ALL_TESTS(fixture_setup, fixture_teardown)
