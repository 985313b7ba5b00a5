/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks have of parameters: boxes against a program that goes element by element, from
 * coordinates; who of all count and who writes each element.
 */

#include "layout/drawn.h"
#include "unit.h"

/* ---- element by element ---- */

/* Index i of the rank's along an axis, in the whole tensor; -1: it is padding. */
static int64_t whole_index(const sample *s, int rank, ech_axis axis, int64_t size, int64_t i)
{
    int heads = (int)s->config->model.num_key_value_heads, tensor = s->layout->tensor;
    ech_mesh mesh = ech_axis_mesh(axis);
    int data = s->layout->coordinates[rank].data, context = s->layout->coordinates[rank].context;
    int experts = s->layout->sharding.expert;
    if (mesh == ECH_MESH_EXPERT && experts > 1) /* the expert group's ranks are neighbours */
        return (data * s->layout->context + context) % experts * (size / experts) + i;
    if (mesh == ECH_MESH_EXPERT) mesh = ECH_MESH_NONE;
    int shards = mesh == ECH_MESH_NONE                          ? 1
                 : mesh == ECH_MESH_KEY_VALUE && heads < tensor ? heads
                                                                : tensor;
    int64_t part = axis == ECH_AXIS_QKV ? size / 3 : size, local = (part + shards - 1) / shards;
    int64_t shard = s->layout->coordinates[rank].tensor / (tensor / shards);
    int64_t at = shard * local + i % local;
    return at < part ? i / local * part + at : -1;
}

/* Of each of the rank's elements its place in the whole tensor, or -1; free() it. */
static int64_t *places(const sample *s, int rank, const ech_shape *shape, int64_t *n)
{
    int64_t local[ECH_MAX_DIMS];
    ech_extent extent = ech_extent_of_params(s->layout->sharding);
    ech_shape_resolve(shape, extent, local);
    *n = ech_shape_count(shape, extent);
    int64_t *place = ech_calloc((size_t)*n + 1, sizeof *place);
    for (int64_t i = 0; i < *n; i++) {
        int64_t stride = *n, at = 0;
        for (int d = 0; d < shape->dims && at >= 0; d++) {
            stride /= local[d];
            int64_t index = i / stride % local[d];
            int64_t whole = whole_index(s, rank, shape->axis[d], shape->size[d], index);
            at = whole < 0 ? -1 : at * shape->size[d] + whole;
        }
        place[i] = at;
    }
    return place;
}

/* Each element that is no padding is in one box, where the rank's memory has it. */
static void check_boxes(const ech_shape *shape, const ech_held *held, const int64_t *place,
                        int64_t n)
{
    int *times = ech_calloc((size_t)n + 1, sizeof *times);
    for (int b = 0; b < held->boxes; b++) {
        assert_true(ech_box_is_inside(shape->dims, shape->size, &held->box[b]));
        assert_true(ech_box_count(shape->dims, held->box[b].size) > 0);
        ech_box_runs runs = ech_box_split(shape->dims, shape->size, &held->box[b]);
        for (int64_t i = 0; i < runs.count * runs.length; i++) {
            ech_box_offset at = ech_box_run_at(&runs, i / runs.length);
            int64_t local = at.in_memory + i % runs.length;
            assert_in_range(local, 0, n - 1);
            assert_int_equal(place[local], at.in_whole + i % runs.length);
            times[local]++;
        }
    }
    for (int64_t i = 0; i < n; i++) assert_int_equal(times[i], place[i] >= 0);
    free(times);
}

/* ---- who counts and writes ---- */

typedef struct tally {
    int *counted, *written, *first; /* [elements] times; first: of the stage's ranks so far */
} tally;

static void add(int *times, const int64_t *place, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (place[i] >= 0) times[place[i]]++;
}

static void all_are(const int *times, int64_t n, int wanted)
{
    for (int64_t i = 0; i < n; i++)
        if (times[i] != wanted) fail_msg("element %d: %d times", (int)i, times[i]);
}

static void check_rank(const sample *s, int rank, int param, ech_held_kind kind,
                       const ech_shape *shape, tally *t)
{
    int64_t n, whole = ech_shape_whole(shape);
    const ech_shape *state = kind == ECH_HELD_STATE ? shape : NULL;
    ech_held held = ech_layout_held(s->layout, s->model, rank, param, kind, state);
    if (!ech_layout_holds(s->layout, rank, param)) {
        assert_false(held.boxes || held.counts || held.is_first || held.writes);
        return;
    }
    int64_t *place = places(s, rank, shape, &n);
    check_boxes(shape, &held, place, n);
    if (held.counts) add(t->counted, place, n);
    if (held.writes) add(t->written, place, n);
    if (held.is_first) add(t->first, place, n);
    if (rank + 1 == s->layout->first_rank[s->layout->coordinates[rank].stage + 1]) {
        all_are(t->first, whole, 1);
        memset(t->first, 0, (size_t)whole * sizeof *t->first);
    }
    free(place);
}

/* The members of one addend group count each element. */
static void check_tensor(const sample *s, int param, ech_held_kind kind, const ech_shape *shape)
{
    size_t n = (size_t)ech_shape_whole(shape);
    int *times = ech_calloc(3 * n, sizeof *times);
    tally t = {times, times + n, times + 2 * n};
    for (int rank = 0; rank < s->layout->world; rank++) check_rank(s, rank, param, kind, shape, &t);
    int holder = 0;
    while (!ech_layout_holds(s->layout, holder, param)) holder++;
    all_are(t.counted, (int64_t)n,
            ech_layout_group_size(s->layout, s->model, holder,
                                  ech_layout_addends(s->layout, s->model, param)));
    for (size_t i = 0; i < n; i++) assert_int_equal(t.written[i], kind != ECH_HELD_GRADIENT);
    free(times);
}

/* The parameter, and states without one of its dimensions. */
static void check_sample(const sample *s)
{
    for (int p = 0; p < (int)s->model->param.n; p++) {
        const ech_shape *shape = &s->model->param.at[p].shape;
        check_tensor(s, p, ECH_HELD_WEIGHTS, shape);
        check_tensor(s, p, ECH_HELD_GRADIENT, shape);
        check_tensor(s, p, ECH_HELD_STATE, shape);
        for (int d = 0; d < shape->dims; d++) {
            ech_shape less = ech_shape_without(shape, 1u << d);
            check_tensor(s, p, ECH_HELD_STATE, &less);
        }
    }
}

/* Matrices of the feed-forward become those of experts, over each degree that there can be. Returns
 * how many. */
static int check_experts(sample *s)
{
    enum { EXPERTS = 24 };
    int least = s->layout->replicas[0], c = s->layout->context, checked = 0;
    bool even = true;
    for (int k = 0; k < s->layout->stages; k++) even &= s->layout->replicas[k] == least;
    for (int p = 0; p < (int)s->model->param.n; p++) {
        ech_param *param = &s->model->param.at[p];
        if (param->shape.dims < 2 || !ech_shape_has(&param->shape, ECH_AXIS_FFN)) continue;
        param->shape =
            (ech_shape){.dims = 3,
                        .axis = {ECH_AXIS_EXPERTS, param->shape.axis[0], param->shape.axis[1]},
                        .size = {EXPERTS, param->shape.size[0] / 4, param->shape.size[1] / 4}};
        param->addends = ECH_MESH_EXPERT_DATA;
    }
    for (int e = 1; e <= c * least; e++) {
        if (EXPERTS % e || (e > c ? e % c || !even || least % (e / c) : c % e)) continue;
        s->layout->sharding.expert = e;
        check_sample(s);
        checked += e > 1;
    }
    return checked;
}

TEST(test_random_grids)
{
    drawing d = {.key = {.seed = 18}};
    int checked = 0, experts = 0;
    for (int i = 0; i < 60; i++) {
        ech_config *config = sample_config(i % 2 ? "llama" : "gpt2");
        int ranks = draw_grid(&d, config);
        if (i % 2 == 0) config->model.num_key_value_heads = config->model.num_attention_heads;
        sample s = {.config = config};
        if (ranks <= 32 && sample_try(config, ECH_PLACEMENT_LOOP, ranks, &s) == ECH_OK) {
            check_sample(&s);
            experts += check_experts(&s);
            checked++;
        }
        sample_free(&s);
    }
    assert_in_range(checked, 20, 60);
    assert_in_range(experts, 20, 200);
}

/* Ranks with the same boxes share the writing: of uncut parameters all ranks of a stage, tensor
 * ranks included, of others replicas and context ranks. */
TEST(test_writers)
{
    ech_config *config = sample_config("gpt2");
    sample_set(config, "parallel.tensor=2 parallel.context=2 parallel.pipeline=2 "
                       "parallel.sequence=true model.tie_word_embeddings=false");
    sample s = sample_create(config, 16);
    for (int p = 0; p < (int)s.model->param.n; p++) {
        int writer = -1, first = -1;
        bool cut = ech_shape_copies(&s.model->param.at[p].shape, s.layout->sharding) == 1;
        for (int rank = 0; rank < s.layout->world; rank++) {
            ech_held held = ech_layout_held(s.layout, s.model, rank, p, ECH_HELD_WEIGHTS, NULL);
            if (first < 0 && held.boxes) first = rank;
            if (held.writes && (!cut || s.layout->coordinates[rank].tensor == 1)) writer = rank;
        }
        assert_int_equal(writer - first, cut ? p % 4 * 2 + 1 : p % 8);
    }
    sample_free(&s);
}
