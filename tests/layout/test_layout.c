/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of ranks: cuts, replicas, micro-batches, groups, who holds, counts and writes what.
 */

#include <math.h>

#include "base/random.h"
#include "layout/partition.h"
#include "layout/sample.h"
#include "unit.h"

/* `keys`: assignments, as on a command line. */
static sample make(const char *architecture, int ranks, const char *keys)
{
    ech_config *config = sample_config(architecture);
    sample_set(config, keys);
    return sample_create(config, ranks);
}

/* ---- cuts ---- */

static void expect_cut(const char *keys, int ranks, int stages, const int *cut)
{
    sample s = make("llama", ranks, keys);
    assert_int_equal(s.layout->stages * s.layout->chunks, stages);
    for (int i = 0; i <= stages; i++) assert_int_equal(s.layout->first_block[i], cut[i]);
    sample_free(&s);
}

/* An embedding multiplies nothing, and a head with as few words as here less than a layer. */
TEST(test_even_cuts)
{
    expect_cut("model.num_hidden_layers=3", 1, 1, (int[]){0, 5});
    expect_cut("model.num_hidden_layers=4 parallel.pipeline=2", 2, 2, (int[]){0, 3, 6});
    expect_cut("model.num_hidden_layers=3 parallel.pipeline=3", 3, 3, (int[]){0, 2, 3, 5});
    expect_cut("model.num_hidden_layers=12 parallel.pipeline=4", 4, 4, (int[]){0, 4, 7, 10, 14});
    expect_cut("model.num_hidden_layers=2 parallel.pipeline=4", 4, 4, (int[]){0, 1, 2, 3, 4});
    expect_cut("model.num_hidden_layers=6 parallel.pipeline=2 parallel.virtual_stages=2", 2, 4,
               (int[]){0, 2, 4, 6, 8});
    /* A head of two layers' work stands where one of one layer would. */
    expect_cut("model.num_hidden_layers=6 parallel.pipeline=4 model.vocab_size=320", 4, 4,
               (int[]){0, 3, 5, 7, 8});
}

/* The layers of each virtual stage, as a list would say it. */
static void expect_layers(const char *keys, int ranks, int stages, int each, double imbalance)
{
    int stage;
    sample s = make("gpt2", ranks, keys);
    for (int i = 0; i < stages; i++) {
        int blocks = s.layout->first_block[i + 1] - s.layout->first_block[i];
        assert_int_equal(blocks - (i == 0) - (i == stages - 1), each);
    }
    ech_extent extent = ech_layout_extent(s.layout, s.config, s.model);
    double most = ech_layout_imbalance(s.layout, s.model, extent, &stage);
    if (fabs(most - imbalance) > 0.005) fail_msg("%g, not %g", most, imbalance);
    assert_int_equal(stage, s.layout->stages - 1);
    sample_free(&s);
}

/* Where the head weighs less than a layer, stages have as many layers, and chunks of stages, too.
 * */
TEST(test_even_layers)
{
#define BATCH "training.global_batch_size=64 training.micro_batch_size=1 data.sequence_length=2048 "
#define WIDE  BATCH "model.hidden_size=12288 model.num_attention_heads=96 model.vocab_size=50257 "
    expect_layers(WIDE "model.num_hidden_layers=96 parallel.pipeline=16", 16, 16, 6, 1.05);
    expect_layers(WIDE "model.num_hidden_layers=96 parallel.pipeline=16 parallel.virtual_stages=2",
                  16, 32, 3, 1.05);
    expect_layers(WIDE "model.num_hidden_layers=96 parallel.pipeline=16 parallel.virtual_stages=6",
                  16, 96, 1, 1.05);
    /* A trillion parameters (Narayanan et al. 2021, Table 1). */
    expect_layers(BATCH "model.hidden_size=25600 model.num_attention_heads=160 "
                        "model.vocab_size=51200 model.num_hidden_layers=128 parallel.pipeline=64",
                  64, 64, 2, 1.08);
}

/* Of all cuts: the lightest heaviest stage, then the smallest sum of squares, then the earliest. */
typedef struct cuts {
    const double *weight;
    int blocks, stages;
    int cut[9], best[9];
    double most, squares; /* of the best */
} cuts;

static void try_cuts(cuts *c, int stage)
{
    c->cut[c->stages] = c->blocks;
    if (stage < c->stages) {
        for (int at = c->cut[stage - 1] + 1; at <= c->blocks - (c->stages - stage); at++) {
            c->cut[stage] = at;
            try_cuts(c, stage + 1);
        }
        return;
    }
    double most = 0, squares = 0;
    for (int s = 0; s < c->stages; s++) {
        double own = 0;
        for (int b = c->cut[s]; b < c->cut[s + 1]; b++) own += c->weight[b];
        most = own > most ? own : most;
        squares += own * own;
    }
    if (most > c->most || (most >= c->most && squares >= c->squares)) return;
    c->most = most;
    c->squares = squares;
    memcpy(c->best, c->cut, sizeof c->best);
}

/* Weights of all kinds, zeros and ties among them. */
TEST(test_best_cuts)
{
    for (uint32_t set = 0; set < 200; set++)
        for (int blocks = 1; blocks <= 8; blocks++)
            for (int stages = 1; stages <= blocks; stages++) {
                double weight[8], all = 0;
                int cut[9];
                for (int b = 0; b < blocks; b++) {
                    ech_random_key key = {.seed = 3, .stream = set};
                    uint32_t word = ech_random_word(key, (uint64_t)b);
                    weight[b] = set % 4 ? word % (1 + set % 7) : 1 + word % 64;
                    all += weight[b];
                }
                /* Cuts are compared exactly if the sum is a power of two. */
                double whole = 1;
                while (whole < all) whole *= 2;
                weight[blocks - 1] += whole - all;
                cuts c = {.weight = weight, .blocks = blocks, .stages = stages, .most = INFINITY};
                try_cuts(&c, 1);
                ech_partition_evenly(weight, blocks, stages, cut);
                for (int s = 0; s <= stages; s++) assert_int_equal(cut[s], c.best[s]);
            }
}

TEST(test_lists_of_cuts)
{
    expect_cut("model.num_hidden_layers=4 parallel.pipeline=2 parallel.partition=[3,1]", 2, 2,
               (int[]){0, 4, 6});
    expect_cut("model.num_hidden_layers=4 parallel.pipeline=4 parallel.partition=[0,2,2,0]", 4, 4,
               (int[]){0, 1, 3, 5, 6});
    expect_cut("model.num_hidden_layers=4 parallel.pipeline=2 parallel.virtual_stages=2 "
               "parallel.partition=[0,1,1,2]",
               2, 4, (int[]){0, 1, 2, 3, 6});
    expect_cut("model.num_hidden_layers=3 parallel.partition=[3]", 1, 1, (int[]){0, 5});
}

/* Each block is on one stage, of every replica of it and of no other; chunk c of stage s is virtual
 * stage c p + s. */
TEST(test_blocks)
{
    sample s =
        make("gpt2", 6, "model.num_hidden_layers=9 parallel.pipeline=3 parallel.virtual_stages=2");
    const ech_layout *layout = s.layout;
    int found[11] = {0};
    for (int rank = 0; rank < 6; rank++)
        for (int chunk = 0; chunk < 2; chunk++) {
            int first, end, stage = ech_layout_virtual_stage(layout, rank, chunk);
            assert_int_equal(stage, chunk * 3 + rank / 2);
            ech_layout_blocks(layout, rank, chunk, &first, &end);
            assert_true(first == layout->first_block[stage] &&
                        end == layout->first_block[stage + 1]);
            for (int b = first; b < end; b++) found[b]++;
        }
    for (int b = 0; b < 11; b++) {
        int has = 0;
        assert_int_equal(found[b], 2);
        for (int rank = 0; rank < 6; rank++) has += ech_layout_has_block(layout, rank, b);
        assert_int_equal(has, 2);
    }
    sample_free(&s);
}

/* ---- ranks and micro-batches ---- */

static const struct {
    const char *keys;
    int stages, ranks, micro_batches, replicas[4];
} grids[] = {
    {"training.global_batch_size=12", 1, 3, 6, {3}},
    {"parallel.pipeline=2 training.global_batch_size=8", 2, 4, 4, {2, 2}},
    {"parallel.stage_replicas=[3,1] training.global_batch_size=14", 2, 4, 7, {3, 1}},
    {"parallel.stage_replicas=[1,2,1] training.global_batch_size=10", 3, 4, 5, {1, 2, 1}},
    {"parallel.stage_replicas=[2,1,3,2] training.global_batch_size=22", 4, 8, 11, {2, 1, 3, 2}},
    {"parallel.pipeline=2 parallel.stage_replicas=[2,2] training.global_batch_size=10",
     2,
     4,
     5,
     {2, 2}}};
enum { GRIDS = sizeof grids / sizeof *grids };

TEST(test_places)
{
    for (int g = 0; g < GRIDS; g++) {
        sample s = make("gpt2", grids[g].ranks, grids[g].keys);
        int rank = 0;
        assert_int_equal(s.layout->stages, grids[g].stages);
        assert_int_equal(s.layout->world, grids[g].ranks);
        assert_int_equal(s.layout->micro_batches, grids[g].micro_batches);
        for (int stage = 0; stage < grids[g].stages; stage++) {
            assert_int_equal(s.layout->replicas[stage], grids[g].replicas[stage]);
            assert_int_equal(s.layout->first_rank[stage], rank);
            for (int r = 0; r < grids[g].replicas[stage]; r++, rank++) {
                assert_int_equal(s.layout->coordinates[rank].stage, stage);
                assert_int_equal(s.layout->coordinates[rank].data, r);
            }
        }
        assert_int_equal(rank, grids[g].ranks);
        assert_int_equal(s.layout->uniform, g < 2); /* 5: as many replicas, unequal loads */
        sample_free(&s);
    }
}

/* ---- roles ---- */

static void expect_roles(const char *keys, int world, int servers, int evaluators)
{
    sample s = make("gpt2", world, keys);
    const ech_roles roles = ech_layout_roles(s.layout);
    int evaluating = 0, serving = 0, all = ech_layout_ranks(s.layout);
    assert_int_equal(all, world + evaluators);
    assert_int_equal(roles.train.first, 0);
    assert_int_equal(roles.train.n, world - servers);
    assert_int_equal(roles.serve.first, world - servers);
    assert_int_equal(roles.serve.n, servers);
    assert_int_equal(roles.evaluate.first, world);
    assert_int_equal(roles.evaluate.n, evaluators);
    for (int rank = 0; rank < world; rank++) serving += ech_layout_serves(s.layout, rank);
    for (int rank = 0; rank < all; rank++) evaluating += ech_layout_evaluates(s.layout, rank);
    assert_int_equal(serving, servers);
    assert_int_equal(evaluating, evaluators);
    sample_free(&s);
}

TEST(test_roles_follow_each_other)
{
#define SERVED "parallel.strategy=parameter_server parallel.data=3 "
    expect_roles("parallel.data=2", 2, 0, 0);
    expect_roles("parallel.data=2 parallel.evaluators=3", 2, 0, 3);
    expect_roles(SERVED "parallel.servers=2", 5, 2, 0);
    expect_roles(SERVED "parallel.servers=1 parallel.evaluators=2", 4, 1, 2);
}

/* Micro-batch q is replica q mod r's, its q / r-th; loads differ by one at most. */
TEST(test_micro_batches)
{
    for (int g = 0; g < GRIDS; g++) {
        sample s = make("gpt2", grids[g].ranks, grids[g].keys);
        for (int stage = 0; stage < grids[g].stages; stage++) {
            int r = grids[g].replicas[stage], first = s.layout->first_rank[stage], sum = 0;
            for (int q = 0; q < grids[g].micro_batches; q++) {
                int rank = ech_layout_rank_of(s.layout, stage, q, 0);
                assert_int_equal(rank, first + q % r);
                assert_int_equal(ech_layout_global_micro(s.layout, rank, q / r), q);
                assert_true(q / r < ech_layout_micro_batches(s.layout, rank));
            }
            for (int i = 0; i < r; i++) {
                int n = ech_layout_micro_batches(s.layout, first + i);
                assert_true(n == grids[g].micro_batches / r || n == grids[g].micro_batches / r + 1);
                sum += n;
            }
            assert_int_equal(sum, grids[g].micro_batches);
        }
        sample_free(&s);
    }
}

/* ---- groups and parameters ---- */

static bool is_member(const sample *s, int of, ech_layout_group kind, int rank)
{
    int members[16], n = ech_layout_members(s->layout, s->model, of, kind, members);
    assert_int_equal(n, ech_layout_group_size(s->layout, s->model, of, kind));
    for (int i = 1; i < n; i++) assert_true(members[i] > members[i - 1]);
    for (int i = 0; i < n; i++)
        if (members[i] == rank) return true;
    return false;
}

TEST(test_groups)
{
    for (int g = 0; g < GRIDS; g++)
        for (int tied = 0; tied < 2; tied++) {
            ech_config *config = sample_config("llama");
            config->model.tie_word_embeddings = tied;
            sample_set(config, grids[g].keys);
            sample s = sample_create(config, grids[g].ranks);
            int last = grids[g].stages - 1;
            bool shared = tied && last > 0;
            for (int a = 0; a < grids[g].ranks; a++)
                for (int b = 0; b < grids[g].ranks; b++) {
                    int x = s.layout->coordinates[a].stage, y = s.layout->coordinates[b].stage;
                    bool ends = (x == 0 || x == last) && (y == 0 || y == last);
                    assert_true(is_member(&s, a, ECH_GROUP_WORLD, b));
                    assert_int_equal(is_member(&s, a, ECH_GROUP_DATA, b), x == y);
                    assert_int_equal(is_member(&s, a, ECH_GROUP_TIED, b), shared && ends);
                }
            for (int p = 0; p < (int)s.model->param.n; p++)
                assert_int_equal(ech_layout_addends(s.layout, s.model, p),
                                 shared && p == 0 ? ECH_GROUP_TIED : ECH_GROUP_DATA);
            sample_free(&s);
        }
}

/* A parameter is held by the replicas of its block's stage, and a tied table by the last stage's,
 * too; all that hold it count shards of it, and one writes it. */
TEST(test_params)
{
    for (int g = 0; g < GRIDS; g++)
        for (int tied = 0; tied < 2; tied++) {
            ech_config *config = sample_config("gpt2");
            config->model.tie_word_embeddings = tied;
            sample_set(config, grids[g].keys);
            sample s = sample_create(config, grids[g].ranks);
            for (int p = 0; p < (int)s.model->param.n; p++) {
                int block = s.model->param.at[p].block, writes = 0;
                for (int rank = 0; rank < grids[g].ranks; rank++) {
                    bool holds = ech_layout_has_block(s.layout, rank, block);
                    bool head = s.layout->coordinates[rank].stage == grids[g].stages - 1;
                    holds |= tied && p == 0 && head;
                    assert_int_equal(ech_layout_holds(s.layout, rank, p), holds);
                    writes +=
                        holds &&
                        ech_layout_held(s.layout, s.model, rank, p, ECH_HELD_WEIGHTS, NULL).writes;
                    assert_int_equal(
                        ech_layout_held(s.layout, s.model, rank, p, ECH_HELD_GRADIENT, NULL).counts,
                        holds);
                }
                assert_int_equal(writes, 1);
            }
            sample_free(&s);
        }
}

/* Replicas share the writing. */
TEST(test_writers)
{
    sample s = make("llama", 4, "parallel.stage_replicas=[3,1] training.global_batch_size=6");
    int writes[4] = {0};
    for (int p = 0; p < (int)s.model->param.n; p++)
        for (int rank = 0; rank < 4; rank++)
            writes[rank] +=
                ech_layout_held(s.layout, s.model, rank, p, ECH_HELD_WEIGHTS, NULL).writes;
    int first = writes[0] + writes[1] + writes[2];
    for (int rank = 0; rank < 3; rank++)
        assert_true(writes[rank] >= first / 3 && writes[rank] <= first / 3 + 1);
    assert_int_equal(first + writes[3], s.model->param.n);
    sample_free(&s);
}

/* A trillion parameters on 3,072 ranks (Narayanan et al. 2021, table 1): what one rank computes
 * counts, not what all of them do. A batch that no rank could hold is refused. */
TEST(test_bytes)
{
    static const char trillion[] =
        "model.hidden_size=25600 model.num_hidden_layers=128 model.num_attention_heads=160 "
        "model.vocab_size=51200 data.sequence_length=2048 parallel.pipeline=64 parallel.tensor=8 "
        "training.micro_batch_size=1 training.global_batch_size=3072";
    sample s = make("gpt2", 3072, trillion);
    assert_int_equal(ech_layout_micro_batches(s.layout, 0), 512);
    sample_free(&s);
    ech_config *config = sample_config("gpt2");
    sample_set(config, trillion);
    sample_set(config, "training.micro_batch_size=1048575 training.global_batch_size=62914500");
    assert_int_equal(sample_try(config, ECH_PLACEMENT_LOOP, 3072, &s), ECH_EUSAGE);
    assert_true(sample_error_has("training.micro_batch_size|more bytes of activations"));
    sample_free(&s);
}
