/* SPDX-License-Identifier: Apache-2.0
 *
 * Versions of weights: which one each minibatch meets at each stage, as PipeDream and PipeDream-2BW
 * count, how many are kept, and what they take.
 */

#include "check/check.h"
#include "schedule/fixture.h"
#include "schedule/operands.h"
#include "schedule/peaks.h"
#include "unit.h"

static int most(int a, int b)
{
    return a > b ? a : b;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* What the parameters of a rank's blocks take, once: in buckets, each begins at a multiple of 64
 * bytes in any type. */
static int64_t param_bytes(const fixture *f, int rank)
{
    enum { UNIT = 64 / 2 };
    int64_t bytes = 0;
    const ech_model *model = f->of.model;
    for (int p = 0; p < (int)model->param.n; p++)
        if (ech_layout_has_block(f->of.layout, rank, model->param.at[p].block))
            bytes += 4 * ech_align(ech_shape_whole(&model->param.at[p].shape), UNIT);
    return bytes;
}

static void check_kept(const fixture *f, int rank, int versions)
{
    int64_t peak[ECH_MEMORY_KINDS];
    ech_plan_peaks(f->plan[rank], peak);
    assert_int_equal(f->plan[rank]->versions, versions);
    assert_int_equal(peak[ECH_MEMORY_PARAMETERS], versions * param_bytes(f, rank));
    assert_int_equal(peak[ECH_MEMORY_OPTIMIZER], 2 * param_bytes(f, rank)); /* AdamW */
    /* A row of scalars for each training step. */
    assert_int_equal(
        ech_plan_value(f->plan[rank], fixture_list(f, rank), f->plan[rank]->scalars)->bytes,
        8 * f->schedule->turns * ech_plan_row(f->plan[rank]));
    /* One version is stashed before each update, or none is. */
    int stashes = 0, updates = 0;
    for (size_t s = 0; s < fixture_list(f, rank)->step.n; s++) {
        const ech_step *step = &fixture_list(f, rank)->step.at[s];
        stashes += step->kind == ECH_STEP_STASH;
        updates += step->kind == ECH_STEP_UPDATE;
        if (step->kind == ECH_STEP_STASH) assert_int_equal(step->version, step->turn);
        if (step->kind == ECH_STEP_UPDATE) assert_int_equal(step->version, step->turn + 1);
    }
    assert_int_equal(updates, f->schedule->turns * (int)f->plan[rank]->bucket.n);
    assert_int_equal(stashes, versions > 1 ? updates : 0);
    assert_int_equal(fixture_list(f, rank)->updates, f->schedule->turns);
}

/* A step of one micro-batch, so that the k-th is minibatch k; d stages, i from 0 (SOSP'19,
 * §3.3). */
static fixture make(const char *schedule, int d, int m, int turns, const char *more)
{
    return fixture_pipeline((fixture_shape){.schedule = schedule,
                                            .stages = d,
                                            .micro_batches = m,
                                            .turns = turns,
                                            .layers = d + 1,
                                            .more = more});
}

/* The version that F (or else B and W) of micro-batch q of a list should read, at a depth of
 * `ahead` stages to the end. */
typedef int promise(const ech_list *list, bool forward, int q, int ahead);

static void expect_versions(const fixture *f, int rank, promise *wanted, int ahead)
{
    const ech_list *list = fixture_list(f, rank);
    int forwards = 0, backwards = 0;
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        bool forward = step->kind == ECH_STEP_FORWARD;
        if (!forward && !fixture_is_backward(step)) continue;
        assert_int_equal(step->version, wanted(list, forward, step->micro, ahead));
        forwards += forward;
        backwards += !forward;
    }
    assert_true(forwards >= list->micro_batches && backwards >= list->micro_batches);
}

static int stashed(const ech_list *list, bool forward, int q, int ahead)
{
    (void)list;
    (void)forward;
    return most(0, q + 1 - ahead);
}

static int unstashed(const ech_list *list, bool forward, int q, int ahead)
{
    return forward ? stashed(list, forward, q, ahead) : q; /* q minibatches are done */
}

static int accumulated(const ech_list *list, bool forward, int q, int ahead)
{
    return stashed(list, forward, q, ahead) / (list->numbering.micro_batches);
}

static int buffered(const ech_list *list, bool forward, int q, int ahead)
{
    (void)forward;
    (void)ahead;
    return q / (list->numbering.micro_batches) - 1;
}

static int flushed(const ech_list *list, bool forward, int q, int ahead)
{
    (void)list;
    (void)forward;
    (void)q;
    (void)ahead;
    return 0;
}

/* w(t+1) = w(t) - v grad f(w1(t-n+1), w2(t-n+2), ..., wn(t)): stage i uses what minibatch k - (d -
 * i) has left, forward and backward. */
TEST(test_stashing)
{
    for (int d = 1; d <= 4; d++)
        for (int turns = 1; turns <= 9; turns++) {
            fixture f = make("pipedream", d, 1, turns, NULL);
            for (int i = 0; i < d; i++) {
                expect_versions(&f, i, stashed, d - i);
                check_kept(&f, i, least(d - i, turns));
            }
            fixture_free(&f);
        }
}

/* w(t+1) = w(t) - v grad f(w1(t-n+1), w2(t-n+1), ..., wn(t-n+1)): all stages what the first one
 * uses. */
TEST(test_vertical_sync)
{
    for (int d = 1; d <= 4; d++)
        for (int turns = 1; turns <= 9; turns++) {
            fixture f = make("pipedream", d, 1, turns, "parallel.vertical_sync=true");
            for (int i = 0; i < d; i++) {
                expect_versions(&f, i, stashed, d);
                /* The last update makes version `turns`, which nobody reads. */
                check_kept(&f, i, least(d, turns));
            }
            fixture_free(&f);
        }
}

/* Without stashing: forwards as with it, backwards the newest of their own time. */
TEST(test_no_stashing)
{
    for (int d = 1; d <= 4; d++) {
        fixture f = make("pipedream", d, 1, 6, "parallel.weight_stashing=false");
        for (int i = 0; i < d; i++) {
            expect_versions(&f, i, unstashed, d - i);
            check_kept(&f, i, 1);
        }
        fixture_free(&f);
    }
}

/* How many calls of backwards make again what a forward has made of weights. (Of the loss, whose
 * forward is done in the backward, nothing is made twice.) */
static int count_recomputed(const fixture *f)
{
    int found = 0;
    for (size_t b = 0; b < f->of.model->block.n; b++) {
        const ech_block *block = f->of.model->block.at[b];
        for (int phase = ECH_BACKWARD_INPUT; phase < ECH_PHASES; phase++)
            for (size_t c = 0; c < block->program[phase].n; c++) {
                const ech_block_call *call = &block->program[phase].at[c];
                if (call->node < 0 || block->node.at[call->node].layer->joined) continue;
                found += call->recompute && block->node.at[call->node].params > 0;
            }
    }
    return found;
}

/* A backward with other weights than its forward had reads what the forward has made. (Numbers:
 * check_unstashed.py.) */
TEST(test_forwards_are_kept)
{
    fixture f = make("pipedream", 3, 1, 6, NULL);
    assert_true(count_recomputed(&f) > 0);
    fixture_free(&f);
    f = make("pipedream", 3, 1, 6, "parallel.weight_stashing=false");
    assert_int_equal(count_recomputed(&f), 0);
    fixture_free(&f);
}

/* Several micro-batches a step: micro-batch q (from 0) comes when q - (d - i) + 1 backwards are
 * done, and m of them make a version. */
TEST(test_accumulation)
{
    for (int d = 1; d <= 4; d++)
        for (int m = 2; m <= 5; m++) {
            fixture f = make("pipedream", d, m, 4, NULL);
            for (int i = 0; i < d; i++) expect_versions(&f, i, accumulated, d - i);
            fixture_free(&f);
            f = make("pipedream", d, m, 4, "parallel.vertical_sync=true");
            for (int i = 0; i < d; i++) expect_versions(&f, i, accumulated, d);
            fixture_free(&f);
        }
}

/* W(t+1) = W(t) - v grad f(W(t-1)) (arXiv:2006.09503, §3.1); a span's first step has the weights
 * from before the last update of the span before, -1. */
TEST(test_double_buffering)
{
    for (int d = 1; d <= 4; d++)
        for (int m = d; m <= d + 3; m++) {
            fixture f = make("pipedream-2bw", d, m, 5, NULL);
            for (int i = 0; i < d; i++) {
                expect_versions(&f, i, buffered, d - i);
                check_kept(&f, i, 2);
            }
            fixture_free(&f);
        }
}

TEST(test_synchronous)
{
    static const char *const names[] = {"naive", "gpipe", "1f1b", "zero-bubble", "interleaved"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        fixture f = make(names[n], 3, 6, 0, NULL);
        for (int i = 0; i < 3; i++) {
            expect_versions(&f, i, flushed, 3 - i);
            check_kept(&f, i, 1);
        }
        fixture_free(&f);
    }
}

/* Forward and backward of a micro-batch meet the same version on every stage whatever the
 * replicas. */
TEST(test_replicas)
{
    static const char *const replicas[] = {"[2,1]", "[1,2]", "[2,2]", "[4,2]"};
    for (int sync = 0; sync < 2; sync++)
        for (size_t n = 0; n < sizeof replicas / sizeof *replicas; n++) {
            fixture f = fixture_pipeline(
                (fixture_shape){.schedule = "pipedream",
                                .stages = 2,
                                .replicas = replicas[n],
                                .micro_batches = 4,
                                .turns = 4,
                                .more = sync ? "parallel.vertical_sync=true" : NULL});
            int first[16], forward[16]; /* versions by micro-batch of all replicas and turns */
            for (int rank = 0; rank < f.ranks; rank++) {
                const ech_list *list = fixture_list(&f, rank);
                for (size_t s = 0; s < list->step.n; s++) {
                    const ech_step *step = &list->step.at[s];
                    int own = list->numbering.micro_batches,
                        stage = rank >= f.of.layout->replicas[0];
                    if (step->kind != ECH_STEP_FORWARD && !fixture_is_backward(step)) continue;
                    int q = step->turn * 4 + (step->micro % own) * f.of.layout->replicas[stage] +
                            f.of.layout->coordinates[rank].data;
                    if (step->kind == ECH_STEP_FORWARD) forward[q] = step->version;
                    if (step->kind == ECH_STEP_FORWARD && stage == 0) first[q] = step->version;
                    assert_int_equal(step->version, forward[q]);
                    if (sync) assert_int_equal(step->version, first[q]);
                    assert_true(step->version <= step->turn);
                }
            }
            fixture_free(&f);
        }
}

/* ---- what the checker says of accesses ---- */

static void expect_rejected(const ech_plan *plan, const char *why)
{
    ech_clear_error();
    assert_int_equal(ech_check_list(plan, &plan->list[ECH_LIST_TRAIN]), ECH_EINTERNAL);
    if (!strstr(ech_last_error(), why)) fail_msg("expected '%s' in: %s", why, ech_last_error());
}

/* The first access of a step of that kind to weights; *step: that step. */
static ech_access *find_weights(ech_plan *plan, ech_step_kind kind, bool write, ech_step **step)
{
    ech_list *list = &plan->list[ECH_LIST_TRAIN];
    for (size_t s = 0; s < list->step.n; s++) {
        *step = &list->step.at[s];
        for (int i = 0; (*step)->kind == kind && i < (*step)->accesses; i++) {
            ech_access *access = &list->access.at[(*step)->first_access + i];
            if (access->value < (int)plan->persistent.n && access->write == write &&
                plan->persistent.at[access->value].kind == ECH_MEMORY_PARAMETERS)
                return access;
        }
    }
    fail_msg("no %s accesses weights", ech_step_name(kind));
    return NULL;
}

/* Instead of those weights the step accesses another value. */
static void expect_instead(ech_plan *plan, ech_access *access, int value, const char *why)
{
    int was = access->value;
    access->value = value;
    expect_rejected(plan, why);
    access->value = was;
}

/* Each step that works on weights accesses them once a bucket, of its version. */
TEST(test_accesses)
{
    fixture f = make("pipedream", 2, 1, 4, "parallel.bucket_bytes=4KiB");
    ech_plan *plan = f.plan[0];
    ech_step *step;
    static const ech_step_kind readers[] = {ECH_STEP_FORWARD, ECH_STEP_BACKWARD_INPUT};
    assert_int_equal(plan->versions, 2);
    assert_int_equal(ech_check_list(plan, fixture_list(&f, 0)), ECH_OK);
    for (int k = 0; k < 2; k++) {
        ech_access *read = find_weights(plan, readers[k], false, &step);
        int bucket = plan->persistent.at[read->value].index;
        expect_instead(plan, read, plan->scalars, "does not access the weights of bucket");
        expect_instead(plan, read, ech_plan_weights(plan, bucket, step->version + 1),
                       "that are not of version");
        read->write = true;
        expect_rejected(plan, "writes weights of bucket");
        read->write = false;
    }
    ech_access *made = find_weights(plan, ECH_STEP_UPDATE, true, &step);
    int other = step->index ? 0 : 1;
    expect_instead(plan, made, plan->scalars, "does not access the weights of bucket");
    expect_instead(plan, made, ech_plan_weights(plan, other, step->version),
                   "accesses weights of bucket");
    made->write = false;
    expect_rejected(plan, "does not access the weights of bucket");
    made->write = true;
    ech_access *copy = find_weights(plan, ECH_STEP_STASH, true, &step);
    expect_instead(plan, copy, ech_plan_weights(plan, step->index, step->version),
                   "that are not of version");
    expect_instead(plan, copy, plan->scalars, "does not access the weights of bucket");
    assert_int_equal(ech_check_list(plan, fixture_list(&f, 0)), ECH_OK);
    fixture_free(&f);
}
