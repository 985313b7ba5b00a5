/* SPDX-License-Identifier: Apache-2.0
 *
 * Which weights asynchronous schedules read, without asking the plan's checker or the replay: the
 * bits that each forward and backward saw, how late they were, and how many versions are kept.
 */

#include "app/layout_run.h"
#include "share.h"
#include "unit.h"

enum { RANKS = 8 };

/* What a rank saw. */
typedef struct observed {
    const ech_plan *plan;
    int stage, versions;
    int updates;          /* of this span so far */
    int most_late;        /* newest version less the one read, over all backwards */
    int compared, differ; /* backwards, and those that read other bits than their forward */
    int newest_moved;     /* backwards before which an update came since their forward */
    uint64_t *seen;       /* [block * micro_batches + micro] */
    int *seen_at;         /* likewise: updates then */
} observed;

static uint64_t hash_block(ech_exec *exec, const ech_plan *plan, const ech_step *step)
{
    uint64_t hash = 14695981039346656037u;
    for (int p = 0; p < (int)plan->model->param.n; p++) {
        if (plan->model->param.at[p].block != step->block) continue;
        ech_tensor x = ech_exec_param_at(exec, p, step->version);
        const unsigned char *bytes = x.data;
        for (size_t i = 0; i < ech_tensor_bytes(&x); i++) hash = (hash ^ bytes[i]) * 1099511628211u;
    }
    return hash;
}

static void observe(void *context, ech_exec *exec, const ech_step *step)
{
    observed *w = context;
    if (step->kind == ECH_STEP_UPDATE && step->index == 0) w->updates++;
    bool forward = step->kind == ECH_STEP_FORWARD;
    if (!forward && step->kind != ECH_STEP_BACKWARD_INPUT && step->kind != ECH_STEP_BACKWARD_WEIGHT)
        return;
    int at = step->block * w->plan->list[ECH_LIST_TRAIN].micro_batches + step->micro;
    uint64_t hash = hash_block(exec, w->plan, step);
    if (forward) {
        w->seen[at] = hash;
        w->seen_at[at] = w->updates;
        return;
    }
    w->compared++;
    w->differ += w->seen[at] != hash;
    w->newest_moved += w->seen_at[at] != w->updates;
    int late = w->updates - step->version;
    if (late > w->most_late) w->most_late = late;
}

static void begin(void *context, int rank, const ech_compared_run *c)
{
    observed *w = (observed *)context + rank;
    w->plan = c->session.plan;
    w->stage = c->design->layout->coordinates[rank].stage;
    w->versions = w->plan->versions;
    size_t cells = w->plan->model->block.n * (size_t)w->plan->list[ECH_LIST_TRAIN].micro_batches;
    w->seen = ech_calloc(cells, sizeof *w->seen);
    w->seen_at = ech_calloc(cells, sizeof *w->seen_at);
    ech_exec_observe(c->session.exec, observe, w);
}

static void begin_span(void *context, int rank, int span)
{
    (void)span;
    ((observed *)context)[rank].updates = 0;
}

static void end(void *context, int rank, const ech_compared_run *c)
{
    (void)c;
    free(((observed *)context)[rank].seen);
    free(((observed *)context)[rank].seen_at);
}

/* Two spans. */
static void watch(const char *architecture, int ranks, const char *more, observed *w)
{
    memset(w, 0, RANKS * sizeof *w);
    layout_run run = {
        .spans = 2, .begin = begin, .begin_span = begin_span, .end = end, .context = w};
    assert_true(ranks <= RANKS);
    layout_run_start(&run, architecture, ranks, more);
    layout_run_free(&run);
}

/* Between F and B of a micro-batch a stage completes as many others as there are later stages. With
 * vertical sync the first stage's number holds for all. Every m-th of them ends in an update. */
TEST(test_stashed)
{
    observed w[RANKS];
    for (int p = 2; p <= 4; p++)
        for (int vertical = 0; vertical < 2; vertical++)
            for (int m = 1; m <= 3; m++) {
                char more[300];
                if (!share_takes()) continue;
                snprintf(more, sizeof more,
                         "parallel.schedule=pipedream parallel.vertical_sync=%s "
                         "parallel.pipeline=%d training.global_batch_size=%d "
                         "parallel.flush_every=8",
                         vertical ? "true" : "false", p, m);
                watch(m % 2 ? "gpt2" : "llama", p, more, w);
                for (int r = 0; r < p; r++) {
                    int between = vertical ? p - 1 : p - 1 - w[r].stage;
                    assert_true(w[r].compared >= 2 * 8 * m);
                    assert_int_equal(w[r].differ, 0);
                    assert_int_equal(w[r].most_late, (between + m - 1) / m);
                    assert_int_equal(w[r].versions, w[r].most_late + 1);
                    assert_true(w[r].stage == p - 1 || w[r].newest_moved > 0);
                }
            }
}

TEST(test_stashed_with_replicas)
{
    observed w[RANKS];
    watch("llama", 3,
          "parallel.schedule=pipedream parallel.stage_replicas=[2,1] "
          "training.global_batch_size=2 parallel.flush_every=8",
          w);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(w[r].differ, 0);
        assert_int_equal(w[r].most_late, w[r].stage == 0);
    }
}

/* The ablation: what a forward saw is overwritten, on every stage but the last. */
TEST(test_without_stashing)
{
    observed w[RANKS];
    for (int p = 2; p <= 4; p++) {
        char more[300];
        snprintf(more, sizeof more,
                 "parallel.schedule=pipedream parallel.weight_stashing=false parallel.pipeline=%d "
                 "training.global_batch_size=1 parallel.flush_every=8",
                 p);
        watch("llama", p, more, w);
        for (int r = 0; r < p; r++) {
            assert_true(w[r].compared > 0);
            assert_int_equal(w[r].most_late, 0);
            assert_int_equal(w[r].versions, 1);
            assert_int_equal(w[r].differ, w[r].newest_moved);
            assert_int_equal(w[r].differ > 0, w[r].stage < p - 1);
        }
    }
}

TEST(test_buffered)
{
    observed w[RANKS];
    for (int p = 1; p <= 4; p++)
        for (int m = p; m <= p + 2; m++)
            for (int data = 1; data <= 2; data++) {
                char more[300];
                if (!share_takes()) continue;
                snprintf(more, sizeof more,
                         "parallel.schedule=pipedream-2bw parallel.pipeline=%d parallel.data=%d "
                         "training.global_batch_size=%d parallel.flush_every=4",
                         p, data, data * m);
                watch(m % 2 ? "gpt2" : "llama", p * data, more, w);
                for (int r = 0; r < p * data; r++) {
                    assert_true(w[r].compared >= 2 * 4 * m);
                    assert_int_equal(w[r].differ, 0);
                    assert_int_equal(w[r].most_late, 1);
                    assert_int_equal(w[r].versions, 2);
                    assert_true(w[r].stage == p - 1 || w[r].newest_moved > 0);
                }
            }
}

ALL_TESTS(fixture_setup, fixture_teardown)
