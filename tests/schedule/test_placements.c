/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans for virtual stages in any place, drawn at random: neighbours may share a rank. Orders that
 * go through virtual stage by virtual stage (naive, gpipe) fit every placement.
 */

#include "check/check.h"
#include "base/random.h"
#include "schedule/fixture.h"
#include "simulate/simulate.h"
#include "unit.h"

enum { MICRO_BATCHES = 3, LONGEST = 32 };

/* v times each stage, shuffled. */
static void draw(uint64_t seed, int p, int v, int *stage)
{
    for (int s = 0; s < p * v; s++)
        stage[ech_random_permute(seed, 1, (uint64_t)(p * v), (uint64_t)s)] = s % p;
}

static int count_steps(const fixture *f, ech_list_kind kind, bool (*is)(const ech_step *step))
{
    int n = 0;
    for (int rank = 0; rank < f->ranks; rank++)
        for (size_t s = 0; s < f->plan[rank]->list[kind].step.n; s++)
            n += is(&f->plan[rank]->list[kind].step.at[s]);
    return n;
}

/* Messages are those between virtual stages on different stages, forward and backward, and no
 * others; every one meets its other end, and no rank waits for ever. */
static void check(uint64_t seed, const char *schedule, int p, int v, int data)
{
    fixture f;
    int stage[LONGEST], between = 0;
    ech_config *config = fixture_shape_config(
        &(fixture_shape){.schedule = schedule,
                         .stages = p,
                         .chunks = v,
                         .data = data,
                         .micro_batches = MICRO_BATCHES,
                         .more = seed % 2 ? "model.tie_word_embeddings=true "
                                            "training.validate_every=1"
                                          : "memory.sequence_chunks=2 training.validate_every=1"});
    assert_int_equal(fixture_try(config, p * data, &f), ECH_OK);
    draw(seed, p, v, stage);
    ech_layout_assign(f.of.layout, stage);
    for (int rank = 0; rank < f.ranks; rank++) f.plan[rank] = fixture_plan_rank(&f, rank);
    for (int s = 1; s < p * v; s++) between += stage[s] != stage[s - 1];
    between *= MICRO_BATCHES * data * (seed % 2 ? 1 : 2);
    assert_int_equal(count_steps(&f, ECH_LIST_TRAIN, ech_step_sends), 2 * between);
    assert_int_equal(count_steps(&f, ECH_LIST_TRAIN, ech_step_receives), 2 * between);
    fixture_check(&f, ECH_LIST_TRAIN);
    fixture_check(&f, ECH_LIST_VALIDATE);
    fixture_free(&f);
}

TEST(test_any)
{
    for (uint64_t seed = 0; seed < 48; seed++)
        check(seed, seed % 3 ? "gpipe" : "naive", 1 + (int)(seed % 4), 1 + (int)(seed / 4 % 4),
              1 + (int)(seed % 5 == 0));
}
