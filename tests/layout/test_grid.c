/* SPDX-License-Identifier: Apache-2.0
 *
 * Grids of stages, replicas, context and tensor ranks: their numbers, groups, and who adds up
 * which boxes of which parameter. What is expected is found from coordinates, rank by rank.
 */

#include "layout/drawn.h"
#include "unit.h"

enum { MOST = 64 };

static const struct {
    const char *architecture, *keys;
    int stages, replicas[3], context, tensor, key_value;
} grids[] = {
    {"gpt2", "", 1, {1}, 1, 1, 1},
    {"gpt2", "parallel.tensor=2", 1, {1}, 1, 2, 2},
    {"gpt2", "parallel.context=2", 1, {3}, 2, 1, 1},
    {"gpt2", "parallel.tensor=4 parallel.pipeline=2", 2, {2, 2}, 1, 4, 4},
    {"gpt2",
     "parallel.tensor=2 parallel.context=2 parallel.pipeline=2 parallel.sequence=true",
     2,
     {2, 2},
     2,
     2,
     2},
    {"gpt2",
     "parallel.stage_replicas=[2,1,3] parallel.tensor=2 parallel.context=2",
     3,
     {2, 1, 3},
     2,
     2,
     2},
    {"llama", "parallel.tensor=4 model.num_key_value_heads=1", 1, {2}, 1, 4, 1},
    {"llama", "parallel.tensor=4 model.num_key_value_heads=2", 1, {2}, 1, 4, 2},
    {"llama",
     "parallel.tensor=4 model.num_key_value_heads=2 parallel.context=2 parallel.pipeline=2 "
     "parallel.sequence=keep",
     2,
     {2, 2},
     2,
     4,
     2},
    {"llama",
     "parallel.stage_replicas=[3,1] parallel.tensor=4 model.num_key_value_heads=1",
     2,
     {3, 1},
     1,
     4,
     1},
    {"llama",
     "parallel.context=2 parallel.tensor=2 parallel.context_method=ulysses",
     1,
     {3},
     2,
     2,
     2},
};
enum { GRIDS = sizeof grids / sizeof *grids };

static int world_of(int g)
{
    int replicas = 0;
    for (int s = 0; s < grids[g].stages; s++) replicas += grids[g].replicas[s];
    return replicas * grids[g].context * grids[g].tensor;
}

static sample make(int g, bool tied)
{
    ech_config *config = sample_config(grids[g].architecture);
    config->model.tie_word_embeddings = tied;
    sample_set(config, grids[g].keys);
    return sample_create(config, world_of(g));
}

/* ---- numbers ---- */

TEST(test_places)
{
    for (int g = 0; g < GRIDS; g++) {
        sample s = make(g, false);
        const ech_layout *layout = s.layout;
        int rank = 0;
        assert_int_equal(layout->stages, grids[g].stages);
        assert_int_equal(layout->context, grids[g].context);
        assert_int_equal(layout->tensor, grids[g].tensor);
        for (int stage = 0; stage < grids[g].stages; stage++) {
            assert_int_equal(layout->first_rank[stage], rank);
            assert_int_equal(layout->replicas[stage], grids[g].replicas[stage]);
            for (int d = 0; d < grids[g].replicas[stage]; d++)
                for (int c = 0; c < grids[g].context; c++)
                    for (int t = 0; t < grids[g].tensor; t++, rank++) {
                        const ech_coordinates *here = &layout->coordinates[rank];
                        assert_int_equal(here->stage, stage);
                        assert_int_equal(here->data, d);
                        assert_int_equal(here->context, c);
                        assert_int_equal(here->tensor, t);
                        assert_int_equal(ech_layout_rank_at(layout, stage, d, c, t), rank);
                    }
        }
        assert_int_equal(layout->world, rank);
        assert_int_equal(layout->first_rank[grids[g].stages], rank);
        sample_free(&s);
    }
}

TEST(test_cuts)
{
    for (int g = 0; g < GRIDS; g++) {
        sample s = make(g, false);
        assert_int_equal(s.layout->sharding.tensor, grids[g].tensor);
        assert_int_equal(s.layout->sharding.context, grids[g].context);
        assert_int_equal(s.layout->sharding.key_value, grids[g].key_value);
        assert_int_equal(s.layout->sharding.sequence, strstr(grids[g].keys, "sequence=") != NULL);
        sample_free(&s);
    }
    sample s = sample_create(sample_config("gpt2"), 2);
    sample_set(s.config, "parallel.sequence=true"); /* one tensor rank has all rows anyway */
    assert_false(ech_model_sharding(s.config).sequence);
    sample_free(&s);
}

/* Micro-batch q is replica q mod r's, by as many ranks of it as there are, each with its
 * counterpart. */
TEST(test_micro_batches)
{
    for (int g = 0; g < GRIDS; g++) {
        sample s = make(g, false);
        const ech_layout *layout = s.layout;
        for (int rank = 0; rank < layout->world; rank++)
            for (int stage = 0; stage < layout->stages; stage++)
                for (int q = 0; q < layout->micro_batches; q++) {
                    int r = layout->replicas[stage];
                    int there = ech_layout_rank_of(layout, stage, q, rank);
                    const ech_coordinates *from = &layout->coordinates[rank],
                                          *to = &layout->coordinates[there];
                    assert_int_equal(to->stage, stage);
                    assert_int_equal(to->data, q % r);
                    assert_int_equal(to->context, from->context);
                    assert_int_equal(to->tensor, from->tensor);
                    assert_int_equal(ech_layout_global_micro(layout, there, q / r), q);
                    assert_true(q / r < ech_layout_micro_batches(layout, there));
                }
        sample_free(&s);
    }
}

/* ---- groups ---- */

static bool is_member(const sample *s, int of, ech_layout_group kind, int rank)
{
    int members[MOST], n = ech_layout_members(s->layout, s->model, of, kind, members);
    assert_int_equal(n, ech_layout_group_size(s->layout, s->model, of, kind));
    ech_membership own = ech_layout_membership(s->layout, s->model, of, kind);
    assert_int_equal(n, own.size);
    if (n) assert_int_equal(members[own.index], of);
    for (int i = 1; i < n; i++) assert_true(members[i] > members[i - 1]);
    for (int i = 0; i < n; i++)
        if (members[i] == rank) return true;
    return false;
}

typedef struct agreement {
    bool stage, data, context, tensor, heads;
    bool group, place; /* in one expert group; at the same place of theirs */
    bool ends;         /* both are at the first or the last stage */
} agreement;

static agreement compare(const ech_layout *layout, int x, int y)
{
    const ech_coordinates *a = &layout->coordinates[x], *b = &layout->coordinates[y];
    int last = layout->stages - 1, t = layout->tensor, shares = layout->sharding.key_value;
    int e = layout->sharding.expert > 1 ? layout->sharding.expert : 1;
    int i = a->data * layout->context + a->context, j = b->data * layout->context + b->context;
    return (agreement){.stage = a->stage == b->stage,
                       .data = a->data == b->data,
                       .context = a->context == b->context,
                       .tensor = a->tensor == b->tensor,
                       .group = i / e == j / e,
                       .place = i % e == j % e,
                       .heads = a->tensor * shares / t == b->tensor * shares / t,
                       .ends = (a->stage == 0 || a->stage == last) &&
                               (b->stage == 0 || b->stage == last)};
}

static void compare_groups_of(const sample *s, bool tied)
{
    bool shared = tied && s->layout->stages > 1;
    for (int x = 0; x < s->layout->world; x++)
        for (int y = 0; y < s->layout->world; y++) {
            agreement a = compare(s->layout, x, y);
            bool replica = a.stage && a.data;
            const bool expected[ECH_GROUPS] = {
                [ECH_GROUP_WORLD] = true,
                [ECH_GROUP_DATA] = a.stage && a.tensor,
                [ECH_GROUP_TIED] = shared && a.ends && a.tensor,
                [ECH_GROUP_PARTIAL] = a.stage,
                [ECH_GROUP_KEY_VALUE] = a.stage && a.heads,
                [ECH_GROUP_TENSOR] = replica && a.context,
                [ECH_GROUP_CONTEXT] = replica && a.tensor,
                [ECH_GROUP_EXPERT] = a.stage && a.tensor && a.group,
                [ECH_GROUP_EXPERT_DATA] = a.stage && a.tensor && a.place,
                [ECH_GROUP_EXPERT_PARTIAL] = a.stage && a.place,
            };
            for (int kind = 0; kind < ECH_GROUPS; kind++)
                assert_int_equal(is_member(s, x, (ech_layout_group)kind, y), expected[kind]);
        }
}

/* With experts over each number of ranks that there can be; unequal stages have the same number
 * everywhere. */
static void compare_groups(const sample *s, bool tied)
{
    ech_layout *layout = s->layout;
    int c = layout->context, r = layout->replicas[0];
    for (int k = 0; k < layout->stages; k++)
        if (layout->replicas[k] != r) r = 1;
    for (int e = 1; e <= c * r; e++) {
        if (e > c ? e % c || r % (e / c) : c % e) continue;
        layout->sharding.expert = e;
        compare_groups_of(s, tied);
    }
    layout->sharding.expert = 0;
}

TEST(test_groups)
{
    for (int g = 0; g < GRIDS; g++)
        for (int tied = 0; tied < 2; tied++) {
            sample s = make(g, tied);
            compare_groups(&s, tied);
            sample_free(&s);
        }
}

/* Grids as they come, of which some are refused; stages have as many replicas each as they like. */
TEST(test_random_groups)
{
    drawing d = {.key = {.seed = 14}};
    int compared = 0;
    for (int i = 0; i < 200; i++) {
        ech_config *config = sample_config("llama");
        int ranks = draw_grid(&d, config);
        sample s = {.config = config};
        if (ranks <= MOST && sample_try(config, ECH_PLACEMENT_LOOP, ranks, &s) == ECH_OK) {
            compare_groups(&s, config->model.tie_word_embeddings == 1);
            compared++;
        }
        sample_free(&s);
    }
    assert_in_range(compared, 100, 200);
}

/* ---- parameters ---- */

/* Of what sequence parallelism has shares of the rows: norms, and the positions' table. */
static bool sees_rows(const ech_param *param)
{
    return strstr(param->name, "ln_") || strstr(param->name, "norm") ||
           param->shape.axis[0] == ECH_AXIS_POSITION;
}

static bool has_heads(const ech_param *param)
{
    return strstr(param->name, "k_proj") || strstr(param->name, "v_proj");
}

/* The ranks of a stage with the same slice, all of them, add up what each has a share of; ranks
 * that computed the same are not added up. */
TEST(test_addends)
{
    int seen[ECH_GROUPS] = {0};
    for (int g = 0; g < GRIDS; g++)
        for (int tied = 0; tied < 2; tied++) {
            sample s = make(g, tied);
            for (int p = 0; p < (int)s.model->param.n; p++) {
                const ech_param *param = &s.model->param.at[p];
                ech_layout_group expected = ECH_GROUP_DATA;
                if (tied && p == 0 && grids[g].stages > 1) expected = ECH_GROUP_TIED;
                if (sees_rows(param) && s.layout->sharding.sequence) expected = ECH_GROUP_PARTIAL;
                if (has_heads(param) && grids[g].key_value < grids[g].tensor)
                    expected = ECH_GROUP_KEY_VALUE;
                assert_int_equal(ech_layout_addends(s.layout, s.model, p), expected);
                seen[expected]++;
            }
            sample_free(&s);
        }
    assert_true(seen[ECH_GROUP_DATA] && seen[ECH_GROUP_TIED] && seen[ECH_GROUP_PARTIAL] &&
                seen[ECH_GROUP_KEY_VALUE]);
}

/* Members of an addend group hold the same boxes. */
TEST(test_addends_hold_the_same)
{
    for (int g = 0; g < GRIDS; g++) {
        sample s = make(g, true);
        for (int p = 0; p < (int)s.model->param.n; p++) {
            ech_layout_group kind = ech_layout_addends(s.layout, s.model, p);
            for (int rank = 0; rank < s.layout->world; rank++) {
                int members[MOST];
                ech_held mine =
                    ech_layout_held(s.layout, s.model, rank, p, ECH_HELD_GRADIENT, NULL);
                if (!ech_layout_holds(s.layout, rank, p)) continue;
                assert_true(mine.boxes > 0);
                assert_true(
                    ech_layout_is_alike(s.layout, s.model, rank, kind, p, ECH_HELD_GRADIENT, NULL));
                int n = ech_layout_members(s.layout, s.model, rank, kind, members);
                for (int i = 0; i < n; i++) {
                    ech_held theirs =
                        ech_layout_held(s.layout, s.model, members[i], p, ECH_HELD_GRADIENT, NULL);
                    assert_int_equal(mine.boxes, theirs.boxes);
                    assert_memory_equal(mine.box, theirs.box, sizeof mine.box);
                }
            }
        }
        sample_free(&s);
    }
}
