/* SPDX-License-Identifier: Apache-2.0
 *
 * ZB-V against what its authors publish (Qi et al. 2024, arXiv:2401.10241), with F, B and W of one
 * length:
 *
 *                                1F1B       ZB-H1        ZB-V
 *     bubble / work              (p-1)/m    (p-1)/(3m)   0
 *     activations                1          1            1
 *     bytes between stages       1          1            2
 *
 * Their bubble is what a stage waits between its first F and its last W. Plans are those of a run,
 * two layers a virtual stage, simulated with a profile in which each phase of a layer takes a
 * second and nothing else any.
 */

#include <math.h>

#include "schedule/fixture.h"
#include "schedule/near.h"
#include "schedule/traffic.h"
#include "simulate/simulate.h"
#include "unit.h"

enum { LAYERS = 2, MOST_BLOCKS = 32 };

/* All schedules cut the model alike: into 2p virtual stages of two layers, or p stages of four. */
static fixture plan(const char *schedule, int p, int m)
{
    int chunks = fixture_chunks(schedule), n = p * chunks;
    ech_text more = {0};
    for (int s = 0; s < n; s++)
        ech_text_append(&more, "%s%d", s ? "," : "parallel.partition=[", 2 / chunks * LAYERS);
    ech_text_append(&more, "]");
    fixture f = fixture_pipeline((fixture_shape){.schedule = schedule,
                                                 .stages = p,
                                                 .chunks = chunks,
                                                 .micro_batches = m,
                                                 .layers = 2 * p * LAYERS,
                                                 .more = more.at});
    ech_text_free(&more);
    return f;
}

static ech_simulation simulate(const fixture *f)
{
    ech_profile_block cost[MOST_BLOCKS] = {0};
    ech_profile profile = {.blocks = (int)f->of.model->block.n, .block = cost};
    for (int b = 1; b < profile.blocks - 1; b++)
        for (int phase = 0; phase < ECH_PROFILE_PHASES; phase++) cost[b].seconds[phase] = 1;
    ech_costs costs = ech_costs_of(NULL, &profile, NULL);
    ech_simulation s;
    assert_int_equal(ech_simulate(fixture_plans(f), f->ranks, ECH_LIST_TRAIN, &costs, &s), ECH_OK);
    return s;
}

static double end_of(const char *schedule, int p, int m)
{
    fixture f = plan(schedule, p, m);
    ech_simulation s = simulate(&f);
    double end = s.end;
    ech_simulation_free(&s);
    fixture_free(&f);
    return end;
}

/* ---- time ---- */

/* What the rank waits between its first F and its last W. */
static double waits(const fixture *f, const ech_simulation *s, int rank)
{
    const ech_list *list = fixture_list(f, rank);
    double first = INFINITY, last = 0;
    for (size_t i = 0; i < list->step.n; i++) {
        if (ech_step_kind_phase(list->step.at[i].kind) < 0) continue;
        first = fmin(first, s->begin[rank][i]);
        last = fmax(last, s->finish[rank][i]);
    }
    return last - first - s->busy[rank];
}

/* From 2p - 1 micro-batches on. In seconds: a chunk's forward takes two, and the last stage begins
 * p - 1 of them later than the first. */
TEST(test_no_bubble)
{
    for (int p = 1; p <= 4; p++)
        for (int m = 2 * p - 1; m <= 2 * p + 2; m++) {
            fixture f = plan("zero-bubble-v", p, m);
            ech_simulation s = simulate(&f);
            for (int rank = 0; rank < p; rank++) {
                assert_near(s.busy[rank], 6.0 * m * LAYERS, 0);
                assert_near(waits(&f, &s, rank), 0, 1e-9);
            }
            assert_near(s.end, (6.0 * m + p - 1) * LAYERS, 1e-9);
            ech_simulation_free(&s);
            fixture_free(&f);
        }
}

/* Half of ZB-H1's step beyond work, a third of interleaved 1F1B's with as many chunks, a sixth of
 * 1F1B's. */
TEST(test_beside_others)
{
    static const struct {
        const char *schedule;
        int idle; /* in forwards of a chunk and p - 1 */
    } rows[] = {{"zero-bubble-v", 1}, {"zero-bubble", 2}, {"interleaved", 3}, {"1f1b", 6}};
    for (int p = 2; p <= 4; p++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            assert_near(end_of(rows[i].schedule, p, 2 * p),
                        (6.0 * 2 * p + rows[i].idle * (p - 1)) * LAYERS, 1e-9);
}

/* With fewer micro-batches stages do wait, but no longer than in ZB-H1. */
TEST(test_few_micro_batches)
{
    for (int p = 2; p <= 4; p++)
        for (int m = 1; m < 2 * p - 1; m++)
            assert_true(end_of("zero-bubble-v", p, m) <= end_of("zero-bubble", p, m) + 1e-9);
}

/* ---- memory ---- */

static int64_t activations_of(const fixture *f, int rank)
{
    return fixture_list(f, rank)->peak[ECH_MEMORY_ACTIVATIONS];
}

/* Every rank keeps what 1F1B's first does, which keeps p micro-batches, but for one tensor on a
 * boundary: an input may be received while the item before computes. */
TEST(test_activations)
{
    for (int p = 2; p <= 4; p++)
        for (int m = 2 * p; m <= 2 * p + 3; m += 3) {
            fixture of_1f1b = plan("1f1b", p, m), f = plan("zero-bubble-v", p, m);
            int64_t most = activations_of(&of_1f1b, 0), boundary = fixture_boundary_bytes(&f);
            for (int rank = 0; rank < p; rank++) {
                assert_true(activations_of(&f, rank) <= most + boundary);
                assert_true(activations_of(&f, rank) >= most - boundary);
            }
            fixture_free(&of_1f1b);
            fixture_free(&f);
        }
}

/* ---- messages ---- */

static int64_t sent_bytes(const fixture *f)
{
    int64_t bytes = 0;
    for (int rank = 0; rank < f->ranks; rank++)
        bytes += ech_plan_traffic_along(f->plan[rank], ECH_TRAFFIC_PIPELINE).bytes;
    return bytes;
}

TEST(test_messages)
{
    for (int p = 1; p <= 4; p++) {
        fixture of_1f1b = plan("1f1b", p, 4), f = plan("zero-bubble-v", p, 4);
        assert_int_equal(sent_bytes(&f), 2 * sent_bytes(&of_1f1b));
        for (int rank = 0; rank < p; rank++) /* to neighbours alone */
            for (size_t i = 0; i < fixture_list(&f, rank)->step.n; i++) {
                const ech_step *step = &fixture_list(&f, rank)->step.at[i];
                if (step->peer >= 0) assert_int_equal(abs(step->peer - rank), 1);
            }
        fixture_free(&of_1f1b);
        fixture_free(&f);
    }
}

/* Each B of a chunk has sent what it makes before its W begins, although that comes next. */
TEST(test_gradients_leave_before_weights)
{
    fixture f = plan("zero-bubble-v", 3, 6);
    int sends = 0;
    for (int rank = 0; rank < 3; rank++) {
        const ech_list *list = fixture_list(&f, rank);
        for (size_t i = 0; i < list->step.n; i++) {
            const ech_step *step = &list->step.at[i];
            if (step->kind != ECH_STEP_SEND_GRAD) continue;
            sends++;
            for (size_t j = 0; j < i; j++)
                assert_false(list->step.at[j].kind == ECH_STEP_BACKWARD_WEIGHT &&
                             list->step.at[j].chunk == step->chunk &&
                             list->step.at[j].micro == step->micro);
        }
    }
    assert_int_equal(sends, 4 * 6);
    fixture_free(&f);
}
