/* SPDX-License-Identifier: Apache-2.0
 *
 * precision.reduce over grids. Gradients travel in fewer bytes, as many as planned. Every rank has
 * the same sums, which are numbers of the type on the wire. Except for rounding, the first steps
 * are those of gradients that travel in the type of their storage.
 */
#include <math.h>

#include "app/grid_run.h"
#include "schedule/traffic.h"
#include "unit.h"

enum { RANKS = 8, STEPS = 3 };

typedef struct seen {
    ech_dtype wire;
    double loss[STEPS], norm[STEPS];
    int64_t sent[RANKS], planned[RANKS];
    int64_t summed[RANKS],
        others[RANKS];   /* elements of sums; those that are no numbers of `wire` */
    bool differs[RANKS]; /* the rank's weights from those of its replicas */
} seen;

typedef struct watch {
    seen *out;
    const ech_compared_run *run;
    int rank;
} watch;

static bool is_number_of(const char *x, ech_dtype dtype, ech_dtype wire)
{
    double value, narrow, back;
    ech_convert(x, dtype, &value, ECH_F64, 1);
    ech_convert(&value, ECH_F64, &narrow, wire, 1);
    ech_convert(&narrow, wire, &back, ECH_F64, 1);
    return back == value;
}

/* At the norm of each bucket that was summed over ranks. */
static void look(void *context, ech_exec *exec, const ech_step *step)
{
    const watch *w = context;
    const ech_plan *plan = w->run->session.plan;
    if (step->kind != ECH_STEP_NORM) return;
    const ech_bucket *bucket = &plan->bucket.at[step->index];
    if (ech_layout_group_size(plan->layout, plan->model, plan->rank, bucket->group) == 1) return;
    for (int i = 0; i < bucket->params; i++) {
        int param = plan->bucket_param.at[bucket->first_param + i];
        ech_tensor g = ech_exec_gradient(exec, param);
        for (int64_t k = 0; k < ech_tensor_count(&g); k++) {
            const char *x = (const char *)g.data + (size_t)k * ech_dtype_bytes(g.dtype);
            w->out->others[w->rank] += !is_number_of(x, g.dtype, w->out->wire);
        }
        w->out->summed[w->rank] += ech_tensor_count(&g);
    }
}

static ech_status train(void *context, int rank, ech_compared_run *run)
{
    seen *out = context;
    ech_exec *exec = run->session.exec;
    watch w = {out, run, rank};
    ech_exec_observe(exec, look, &w);
    for (int step = 0; step < STEPS; step++) {
        ECH_TRY(ech_exec_run(exec, ECH_LIST_TRAIN, step));
        if (rank > 0) continue;
        out->loss[step] = ech_exec_readings(exec)->loss;
        out->norm[step] = ech_exec_readings(exec)->grad_norm;
    }
    ech_exec_observe(exec, NULL, NULL);
    ECH_TRY(ech_exec_run(exec, ECH_LIST_CHECK, STEPS));
    out->differs[rank] = ech_exec_readings(exec)->hash_differs;
    out->sent[rank] = ech_exec_reduce_count(exec).bytes;
    out->planned[rank] = STEPS * ech_plan_traffic_along(run->session.plan, ECH_TRAFFIC_DATA).bytes;
    return ECH_OK;
}

static seen train_with(const char *grid, const char *compute, const char *reduce, ech_dtype wire)
{
    char words[600];
    seen out = {.wire = wire};
    snprintf(words, sizeof words,
             "training.global_batch_size=12 training.micro_batch_size=1 training.check_every=1 "
             "precision.compute=%s precision.reduce=%s %s",
             compute, reduce, grid);
    grid_run("llama", words, train, &out);
    return out;
}

static const char *const grids[] = {
    "parallel.data=2",
    "parallel.data=3 parallel.bucket_bytes=1",
    "parallel.data=2 parallel.pipeline=2 model.tie_word_embeddings=true",
    "parallel.context=2 parallel.data=2",
    "parallel.tensor=2 parallel.sequence=true parallel.data=2 parallel.pipeline=2",
    "parallel.pipeline=2 parallel.stage_replicas=[2,1]",
};

static const struct {
    const char *compute, *reduce;
    ech_dtype wire;
    int share;   /* of the bytes that gradients have as they are kept: 1 / share */
    double near; /* norms are within it */
} types[] = {{"fp32", "bf16", ECH_BF16, 2, 5e-3},
             {"fp32", "fp16", ECH_F16, 2, 1e-3},
             {"fp32", "e6m9", ECH_E6M9, 2, 2e-3},
             {"fp64", "fp32", ECH_F32, 2, 1e-6},
             {"fp64", "bf16", ECH_BF16, 4, 5e-3}};

static void check(const char *grid, int type)
{
    seen kept = train_with(grid, types[type].compute, "auto", types[type].wire);
    seen sent = train_with(grid, types[type].compute, types[type].reduce, types[type].wire);
    for (int r = 0; r < RANKS; r++) {
        assert_false(kept.differs[r] || sent.differs[r]);
        assert_int_equal(sent.sent[r], sent.planned[r]);
        assert_int_equal(kept.sent[r], kept.planned[r]);
        assert_int_equal(sent.sent[r] * types[type].share, kept.sent[r]);
        assert_int_equal(sent.others[r], 0);
        assert_int_equal(sent.summed[r], kept.summed[r]);
    }
    assert_true(sent.summed[0] > 0 && kept.others[0] > 0);
    for (int step = 0; step < STEPS; step++) {
        assert_true(fabs(sent.loss[step] - kept.loss[step]) <= 1e-3 * kept.loss[step]);
        assert_true(fabs(sent.norm[step] - kept.norm[step]) <= types[type].near * kept.norm[step]);
    }
    assert_true(sent.loss[0] == kept.loss[0]);
}

TEST(test_grids)
{
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++)
        for (int type = 0; type < (i == 0 ? 5 : 1); type++) check(grids[i], type);
}

/* Where nothing is narrower than what is kept, no bit changes. */
TEST(test_as_kept)
{
    seen kept = train_with(grids[0], "fp32", "auto", ECH_F32);
    seen same = train_with(grids[0], "fp32", "fp32", ECH_F32);
    assert_memory_equal(kept.loss, same.loss, sizeof kept.loss);
    assert_memory_equal(kept.norm, same.norm, sizeof kept.norm);
    assert_int_equal(kept.sent[0], same.sent[0]);
}

ALL_TESTS(grid_setup, fixture_teardown)
