/* SPDX-License-Identifier: Apache-2.0
 *
 * What compute waits for: it works, or stands still for a lane, from the list's beginning to its
 * end; and waits that can be worked out by hand.
 */
#include <limits.h>
#include <math.h>

#include "schedule/fixture.h"
#include "schedule/near.h"
#include "simulate/simulate.h"
#include "unit.h"

enum { MOST_BLOCKS = 32 };

typedef struct made_up {
    ech_profile profile;
    ech_profile_block block[MOST_BLOCKS];
    ech_costs costs;
} made_up;

/* Each phase of a block takes a second, a message `latency` and no time for its bytes, updates
 * `update` for a byte. */
static void make_up(const fixture *f, double latency, double update, made_up *m)
{
    *m = (made_up){.profile = {.blocks = (int)f->of.model->block.n}};
    ECH_ASSERT(m->profile.blocks <= MOST_BLOCKS);
    for (int b = 0; b < m->profile.blocks; b++)
        for (int phase = 0; phase < ECH_PROFILE_PHASES; phase++) m->block[b].seconds[phase] = 1;
    m->profile.block = m->block;
    m->costs = (ech_costs){.seconds = true,
                           .profile = &m->profile,
                           .rates = {.node = INT_MAX,
                                     .inside = (double)INFINITY,
                                     .between = (double)INFINITY,
                                     .latency = latency,
                                     .update_seconds = update}};
}

static fixture plan(int ranks, const char *more)
{
    ech_config *config = sample_config("gpt2");
    ech_text text = {0};
    ech_text_append(&text, "training.check_every=0 training.micro_batch_size=1 %s", more);
    sample_set(config, text.at);
    ech_text_free(&text);
    return fixture_plan(config, ranks);
}

static ech_simulation simulate(const fixture *f, const made_up *m)
{
    ech_simulation simulation;
    assert_int_equal(ech_simulate((const ech_plan *const *)f->plan, f->ranks, ECH_LIST_TRAIN,
                                  &m->costs, &simulation),
                     ECH_OK);
    return simulation;
}

static double waits_of(const ech_simulation *s, int rank)
{
    double sum = 0;
    for (ech_lane lane = 0; lane < ECH_LANES; lane++) sum += s->waits[rank][lane];
    return sum;
}

/* Work of the compute lane, and when the rank is done. */
static double work_of(const fixture *f, const ech_simulation *s, int rank, double *end)
{
    const ech_list *list = &f->plan[rank]->list[ECH_LIST_TRAIN];
    double work = 0;
    *end = 0;
    for (size_t i = 0; i < list->step.n; i++) {
        *end = fmax(*end, s->finish[rank][i]);
        if (list->step.at[i].lane == ECH_LANE_COMPUTE)
            work += s->finish[rank][i] - s->begin[rank][i];
    }
    return work;
}

TEST(test_work_and_waits_are_all)
{
    static const struct {
        int ranks;
        const char *more;
    } cases[] = {
        {1, "training.global_batch_size=3"},
        {4, "parallel.pipeline=4 training.global_batch_size=5 model.num_hidden_layers=4"},
        {2, "parallel.tensor=2 parallel.sequence=true training.global_batch_size=2"},
        {2, "parallel.data=2 training.global_batch_size=4"},
        {2, "parallel.data=2 parallel.zero=1 training.global_batch_size=4"},
        {4, "parallel.data=2 parallel.pipeline=2 parallel.zero=2 training.global_batch_size=8"},
        {2, "parallel.data=2 parallel.zero=3 training.global_batch_size=4"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        made_up m;
        fixture f = plan(cases[c].ranks, cases[c].more);
        make_up(&f, 0.3, 1e-4, &m);
        ech_simulation s = simulate(&f, &m);
        for (int rank = 0; rank < f.ranks; rank++) {
            double end, work = work_of(&f, &s, rank, &end);
            assert_near(work + waits_of(&s, rank), end, 1e-9 * end);
            assert_near(s.waits[rank][ECH_LANE_COMPUTE], 0, 0);
            assert_true(f.ranks == 1 ? waits_of(&s, rank) <= 0 : waits_of(&s, rank) > 0);
        }
        ech_simulation_free(&s);
        fixture_free(&f);
    }
}

/* Updates take no time, so all gathers come after the last update, one after the other, and the
 * lane has no other step. */
TEST(test_gathers)
{
    static const double latency = 0.5;
    for (int zero = 0; zero <= 2; zero++) {
        made_up m;
        char more[100];
        snprintf(more, sizeof more, "parallel.data=2 parallel.zero=%d training.global_batch_size=4",
                 zero);
        fixture f = plan(2, more);
        make_up(&f, latency, 0, &m);
        ech_simulation s = simulate(&f, &m);
        double gathers = zero ? latency * (double)f.plan[0]->bucket.n : 0;
        for (int rank = 0; rank < 2; rank++) {
            assert_near(s.waits[rank][ECH_LANE_GATHER], gathers, 1e-12);
            assert_true(s.waits[rank][ECH_LANE_REDUCE] > 0);
            assert_near(s.waits[rank][ECH_LANE_RECEIVE], 0, 0);
        }
        ech_simulation_free(&s);
        fixture_free(&f);
    }
}

/* The last stage stands still until the first micro-batch comes: a stage's forward, and the
 * message. */
TEST(test_first_message)
{
    made_up m;
    fixture f =
        plan(2, "parallel.pipeline=2 training.global_batch_size=1 model.num_hidden_layers=2 "
                "model.tie_word_embeddings=false");
    make_up(&f, 0.25, 0, &m);
    ech_simulation s = simulate(&f, &m);
    const ech_layout *layout = f.of.layout;
    int first, end;
    ech_layout_blocks(layout, 0, 0, &first, &end);
    assert_near(s.waits[1][ECH_LANE_RECEIVE], end - first + 0.25, 1e-12);
    ech_simulation_free(&s);
    fixture_free(&f);
}

/* ---- copies ---- */

typedef struct copied {
    double forward, backward, in,
        out; /* time of compute, and of copies towards the device and away from it */
    double waits, end;
} copied;

/* One rank whose forwards' values go to the host and come back, at so many bytes a second each
 * way. */
static copied copy(int prefetch, double rate)
{
    char more[200];
    made_up m;
    snprintf(more, sizeof more,
             "training.global_batch_size=2 model.num_hidden_layers=24 "
             "memory.offload_activations=host memory.prefetch=%d",
             prefetch);
    fixture f = plan(1, more);
    make_up(&f, 0, 0, &m);
    m.costs.rates.copy = rate;
    ech_simulation s = simulate(&f, &m);
    const ech_list *list = &f.plan[0]->list[ECH_LIST_TRAIN];
    copied c = {.waits = s.waits[0][ECH_LANE_COPY_IN] + s.waits[0][ECH_LANE_COPY_OUT]};
    double compute = work_of(&f, &s, 0, &c.end);
    for (size_t i = 0; i < list->step.n; i++) {
        double time = s.finish[0][i] - s.begin[0][i];
        if (list->step.at[i].kind == ECH_STEP_FORWARD) c.forward += time;
        if (list->step.at[i].lane == ECH_LANE_COPY_IN) c.in += time;
        if (list->step.at[i].lane == ECH_LANE_COPY_OUT) c.out += time;
    }
    c.backward = compute - c.forward;
    ech_simulation_free(&s);
    fixture_free(&f);
    return c;
}

/* Copies out overlap forwards and copies back overlap backwards, as far as there is compute; the
 * rest is at most a tenth of the step. The value that leaves last comes back first, and with 24
 * layers this round trip is short beside a step. Without prefetch the step waits for all copies. */
TEST(test_copies)
{
    copied fast = copy(1, 1e12);
    double bytes = copy(1, 1).out, compute = fast.forward + fast.backward;
    static const double shares[] = {0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 4};
    assert_near(fast.end, compute, 1e-6);
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        double rate = bytes / (shares[i] * compute);
        copied c = copy(1, rate), none = copy(0, rate);
        assert_near(c.out, shares[i] * compute, 1e-6);
        assert_near(c.in, c.out, 1e-6);
        double seen = fmax(0, c.out - c.forward) + fmax(0, c.in - c.backward);
        assert_true(c.waits <= seen + 0.1 * c.end);
        assert_true(shares[i] > 0.25 || c.waits <= 0);
        assert_near(none.waits, none.out + none.in, 1e-6);
        assert_true(c.waits < none.waits);
    }
}
