/* SPDX-License-Identifier: Apache-2.0
 *
 * Placements of virtual stages: those of the table, and any other, drawn at random.
 */

#include "base/random.h"
#include "layout/sample.h"
#include "unit.h"

enum { DATA = 2, LONGEST = 32 };

/* p stages of v chunks and two replicas. */
static sample make(int p, int v, const char *more)
{
    ech_text keys = {0};
    ech_config *config = sample_config("gpt2");
    ech_text_append(&keys,
                    "model.num_hidden_layers=%d parallel.pipeline=%d parallel.virtual_stages=%d "
                    "training.global_batch_size=12 %s",
                    p * v + 1, p, v, more);
    sample_set(config, keys.at);
    ech_text_free(&keys);
    return sample_create(config, p * DATA);
}

/* A layout made for one placement is moved to another. */
static void place(sample *s, ech_placement placement)
{
    int world = s->layout->world;
    ech_layout_destroy(s->layout);
    assert_int_equal(ech_layout_create(s->config, s->model, placement, world, &s->layout), ECH_OK);
}

/* v times each stage, shuffled. */
static void draw(uint64_t seed, int p, int v, int *stage)
{
    for (int s = 0; s < p * v; s++)
        stage[ech_random_permute(seed, 0, (uint64_t)(p * v), (uint64_t)s)] = s % p;
}

/* ---- what holds of any ---- */

/* Each is one chunk of one stage, and each chunk of each stage is one of them; chunks are in their
 * order. */
static void check_bijection(const ech_layout *layout)
{
    bool seen[LONGEST][LONGEST] = {{false}};
    int next[LONGEST] = {0};
    for (int s = 0; s < ech_layout_virtual_stages(layout); s++) {
        ech_virtual_stage at = layout->virtual_stage[s];
        assert_true(at.stage >= 0 && at.stage < layout->stages);
        assert_int_equal(at.chunk, next[at.stage]++);
        assert_false(seen[at.stage][at.chunk]);
        seen[at.stage][at.chunk] = true;
        for (int rank = layout->first_rank[at.stage]; rank < layout->first_rank[at.stage + 1];
             rank++)
            assert_int_equal(ech_layout_virtual_stage(layout, rank, at.chunk), s);
    }
    for (int stage = 0; stage < layout->stages; stage++)
        assert_int_equal(next[stage], layout->chunks);
}

/* The one after and the one before are each other's; the first has none before, the last none
 * after. */
static void check_neighbours(const ech_layout *layout)
{
    int last = ech_layout_virtual_stages(layout) - 1, firsts = 0, lasts = 0;
    for (int rank = 0; rank < layout->world; rank++)
        for (int chunk = 0; chunk < layout->chunks; chunk++) {
            int s = ech_layout_virtual_stage(layout, rank, chunk);
            int after = ech_layout_neighbour(layout, rank, chunk, true);
            int before = ech_layout_neighbour(layout, rank, chunk, false);
            firsts += before < 0;
            lasts += after < 0;
            assert_int_equal(after, s == last ? -1 : s + 1);
            assert_int_equal(before, s == 0 ? -1 : s - 1);
            if (after < 0) continue;
            ech_virtual_stage at = layout->virtual_stage[after];
            int there = layout->first_rank[at.stage];
            assert_int_equal(ech_layout_neighbour(layout, there, at.chunk, false), s);
        }
    assert_int_equal(firsts, DATA);
    assert_int_equal(lasts, DATA);
}

/* Each block is on the ranks of one stage, in the chunk that is its virtual stage. */
static void check_blocks(const ech_layout *layout, const ech_model *model)
{
    for (int b = 0; b < (int)model->block.n; b++) {
        int has = 0;
        for (int rank = 0; rank < layout->world; rank++) {
            bool found = false;
            for (int chunk = 0; chunk < layout->chunks; chunk++) {
                int first, end, s = ech_layout_virtual_stage(layout, rank, chunk);
                ech_layout_blocks(layout, rank, chunk, &first, &end);
                assert_int_equal(first, layout->first_block[s]);
                assert_int_equal(end, layout->first_block[s + 1]);
                found |= b >= first && b < end;
            }
            assert_int_equal(ech_layout_has_block(layout, rank, b), found);
            has += found;
        }
        assert_int_equal(has, DATA);
    }
}

/* One rank does a virtual stage of a micro-batch, and knows it by a number of its own. */
static void check_micro_batches(const ech_layout *layout)
{
    for (int s = 0; s < ech_layout_virtual_stages(layout); s++)
        for (int64_t q = 0; q < layout->micro_batches; q++) {
            int rank = ech_layout_rank_of(layout, s, q, 0);
            int64_t k = ech_layout_own_micro(layout, rank, q);
            assert_int_equal(layout->coordinates[rank].stage, layout->virtual_stage[s].stage);
            assert_true(k >= 0 && k < ech_layout_micro_batches(layout, rank));
            assert_int_equal(ech_layout_global_micro(layout, rank, k), q);
        }
}

/* A parameter is held, and its shards counted, where a block uses it; it is written once. */
static void check_parameters(const ech_layout *layout, const ech_model *model)
{
    for (int p = 0; p < (int)model->param.n; p++) {
        int written = 0;
        for (int rank = 0; rank < layout->world; rank++) {
            bool used = false;
            for (int b = 0; b < (int)model->block.n; b++)
                used |= ech_layout_has_block(layout, rank, b) &&
                        (model->param.at[p].block == b || ech_block_uses(model->block.at[b], p));
            assert_int_equal(ech_layout_holds(layout, rank, p), used);
            bool counts = ech_layout_held(layout, model, rank, p, ECH_HELD_GRADIENT, NULL).counts;
            bool writes = ech_layout_held(layout, model, rank, p, ECH_HELD_WEIGHTS, NULL).writes;
            assert_int_equal(counts, used);
            assert_true(used || !writes);
            written += writes;
        }
        assert_int_equal(written, 1);
    }
}

static void check(const sample *s)
{
    check_bijection(s->layout);
    check_neighbours(s->layout);
    check_blocks(s->layout, s->model);
    check_micro_batches(s->layout);
    check_parameters(s->layout, s->model);
}

/* ---- tests ---- */

static const char *const ties[] = {"model.tie_word_embeddings=false",
                                   "model.tie_word_embeddings=true"};

TEST(test_table)
{
    for (int p = 1; p <= 5; p++)
        for (int v = 1; v <= 4; v++) {
            sample s = make(p, v, ties[v % 2]);
            place(&s, ECH_PLACEMENT_LOOP);
            check(&s);
            for (int i = 0; i < p * v; i++) {
                assert_int_equal(s.layout->virtual_stage[i].stage, i % p);
                assert_int_equal(s.layout->virtual_stage[i].chunk, i / p);
            }
            place(&s, ECH_PLACEMENT_VEE);
            check(&s);
            for (int i = 0; i < p * v; i++)
                assert_int_equal(s.layout->virtual_stage[i].chunk, i / p);
            for (int i = 0; v == 2 && i < p; i++) {
                assert_int_equal(s.layout->virtual_stage[i].stage, i);
                assert_int_equal(s.layout->virtual_stage[2 * p - 1 - i].stage, i);
            }
            assert_int_equal(ech_placement_joins_ends(ECH_PLACEMENT_VEE, p, v),
                             p == 1 || v % 2 == 0);
            assert_int_equal(ech_placement_joins_ends(ECH_PLACEMENT_LOOP, p, v), p == 1);
            sample_free(&s);
        }
}

TEST(test_any)
{
    for (uint64_t seed = 0; seed < 60; seed++) {
        int p = 1 + (int)(seed % 5), v = 1 + (int)(seed / 5 % 4), stage[LONGEST];
        sample s = make(p, v, ties[seed % 2]);
        draw(seed, p, v, stage);
        ech_layout_assign(s.layout, stage);
        for (int i = 0; i < p * v; i++)
            assert_int_equal(s.layout->virtual_stage[i].stage, stage[i]);
        check(&s);
        sample_free(&s);
    }
}

/* In a V first and last block are on one stage: a shared table is there once, and nobody else adds
 * to it. */
TEST(test_vee_ties_on_one_stage)
{
    sample s = make(3, 2, ties[1]);
    int params = 0;
    for (int p = 0; p < (int)s.model->param.n; p++)
        params += ech_layout_addends(s.layout, s.model, p) == ECH_GROUP_TIED;
    assert_int_equal(params, 1);
    place(&s, ECH_PLACEMENT_VEE);
    for (int p = 0; p < (int)s.model->param.n; p++)
        assert_int_equal(ech_layout_addends(s.layout, s.model, p), ECH_GROUP_DATA);
    sample_free(&s);
}
