/* SPDX-License-Identifier: Apache-2.0
 *
 * Boxes: the runs of every box of small shapes, and the boxes of intervals of cut tensors, against
 * loops over elements.
 */

#include "base/random.h"
#include "tensor/box.h"
#include "unit.h"

/* The whole tensor's index of the box's element number k, the slow way. */
static int64_t element(int dims, const int64_t *shape, const int64_t *begin, const int64_t *size,
                       int64_t k)
{
    int64_t at = 0, stride = 1;
    for (int d = dims - 1; d >= 0; d--) {
        at += (begin[d] + k % size[d]) * stride;
        k /= size[d];
        stride *= shape[d];
    }
    return at;
}

/* The box in memory whose dimension d has `wider` more elements than the box. */
static ech_box make_box(int dims, const int64_t *begin, const int64_t *size, int wide_dim,
                        int64_t wider)
{
    ech_box box = {0};
    int64_t stride = 1;
    for (int d = dims - 1; d >= 0; d--) {
        box.begin[d] = begin[d];
        box.size[d] = size[d];
        box.stride[d] = stride;
        stride *= size[d] + (d == wide_dim ? wider : 0);
    }
    return box;
}

static int64_t in_memory(int dims, const ech_box *box, int64_t k)
{
    int64_t at = 0;
    for (int d = dims - 1; d >= 0; d--) {
        at += k % box->size[d] * box->stride[d];
        k /= box->size[d];
    }
    return at;
}

static void check_runs(int dims, const int64_t *shape, const ech_box *box)
{
    assert_true(ech_box_is_inside(dims, shape, box));
    ech_box_runs runs = ech_box_split(dims, shape, box);
    int64_t count = ech_box_count(dims, box->size);
    assert_true(count == 0 || ech_box_is_apart(dims, box));
    assert_int_equal(runs.count * runs.length, count);
    for (int64_t k = 0; k < count; k++) {
        ech_box_offset at = ech_box_run_at(&runs, k / runs.length);
        assert_int_equal(at.in_whole + k % runs.length,
                         element(dims, shape, box->begin, box->size, k));
        assert_int_equal(at.in_memory + k % runs.length, box->at + in_memory(dims, box, k));
    }
}

static void check_box(int dims, const int64_t *shape, const int64_t *begin, const int64_t *size)
{
    for (int d = 0; d < dims; d++) {
        for (int64_t wider = 0; wider < 3; wider++) {
            ech_box box = make_box(dims, begin, size, d, wider);
            check_runs(dims, shape, &box);
        }
    }
}

/* Calls check_box for every box of the shape, dimension d and following. */
static void check_boxes(int d, int dims, const int64_t *shape, int64_t *begin, int64_t *size)
{
    if (d == dims || d == ECH_MAX_DIMS) {
        check_box(dims, shape, begin, size);
        return;
    }
    for (begin[d] = 0; begin[d] <= shape[d]; begin[d]++) {
        for (size[d] = 0; size[d] <= shape[d] - begin[d]; size[d]++) {
            check_boxes(d + 1, dims, shape, begin, size);
        }
    }
}

TEST(test_every_small_box)
{
    static const struct {
        int dims;
        int64_t shape[ECH_MAX_DIMS];
    } cases[] = {{1, {5}},       {2, {3, 4}},       {2, {1, 4}},
                 {3, {2, 3, 2}}, {4, {2, 2, 3, 2}}, {2, {0, 3}}};
    int64_t begin[ECH_MAX_DIMS], size[ECH_MAX_DIMS];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_boxes(0, cases[i].dims, cases[i].shape, begin, size);
    }
}

static ech_box_runs split(const int64_t *shape, int wide_dim, const int64_t *begin,
                          const int64_t *size)
{
    ech_box box = make_box(3, begin, size, wide_dim, 1);
    return ech_box_split(3, shape, &box);
}

TEST(test_runs_are_as_long_as_can_be)
{
    const int64_t shape[] = {6, 4, 5}, origin[] = {2, 0, 0}, size[] = {3, 4, 5};
    ech_box_runs rows = split(shape, 0, origin, size);
    assert_int_equal(rows.count, 1);
    assert_int_equal(rows.length, 60);
    assert_int_equal(ech_box_run_at(&rows, 0).in_whole, 40);
    ech_box_runs columns = split(shape, 0, (int64_t[]){0, 0, 2}, (int64_t[]){6, 4, 2});
    assert_int_equal(columns.count, 24);
    assert_int_equal(columns.length, 2);
    /* the same rows in memory that is wider than they are */
    rows = split(shape, 1, origin, size);
    assert_int_equal(rows.count, 3);
    assert_int_equal(rows.length, 20);
    rows = split(shape, 2, origin, size);
    assert_int_equal(rows.count, 12);
    assert_int_equal(rows.length, 5);
    assert_int_equal(ech_box_run_at(&rows, 1).in_whole, 45);
    assert_int_equal(ech_box_run_at(&rows, 1).in_memory, 6);
}

TEST(test_scalars)
{
    const int64_t none[1] = {0};
    const ech_box box = {0};
    assert_true(ech_box_is_inside(0, none, &box));
    assert_true(ech_box_is_apart(0, &box));
    ech_box_runs runs = ech_box_split(0, none, &box);
    assert_int_equal(runs.count, 1);
    assert_int_equal(runs.length, 1);
    assert_int_equal(ech_box_run_at(&runs, 0).in_whole, 0);
    assert_int_equal(ech_box_run_at(&runs, 0).in_memory, 0);
}

static bool is_inside(int dims, const int64_t *shape, int64_t row, int64_t column, int64_t rows,
                      int64_t columns)
{
    const ech_box box = {.begin = {row, column}, .size = {rows, columns}};
    return ech_box_is_inside(dims, shape, &box);
}

TEST(test_outside)
{
    const int64_t shape[] = {3, 4}, huge[] = {INT64_MAX, 2};
    assert_true(is_inside(2, shape, 3, 4, 0, 0));
    assert_false(is_inside(2, shape, 0, 0, 4, 1));
    assert_false(is_inside(2, shape, 1, 3, 1, 2));
    assert_false(is_inside(2, shape, -1, 0, 1, 1));
    assert_false(is_inside(2, shape, 0, 0, 1, -1));
    assert_false(is_inside(2, shape, INT64_MAX, 0, 1, 1));
    assert_false(is_inside(2, huge, 0, 0, 1, 1));
    assert_false(is_inside(ECH_MAX_DIMS + 1, shape, 0, 0, 1, 1));
    int64_t n = 7;
    assert_false(ech_box_elements(1, (int64_t[]){-1}, &n));
    assert_int_equal(n, 7);
}

static bool is_apart(int64_t rows, int64_t columns, int64_t outer, int64_t inner)
{
    const ech_box box = {.size = {rows, columns}, .stride = {outer, inner}};
    return ech_box_is_apart(2, &box);
}

TEST(test_strides_that_overlap)
{
    assert_true(is_apart(3, 4, 4, 1));
    assert_true(is_apart(3, 1, 1, 7)); /* one column: its stride is not used */
    assert_true(is_apart(1, 4, 0, 1));
    assert_false(is_apart(3, 4, 3, 1));
    assert_false(is_apart(3, 4, 0, 1));
    assert_false(is_apart(3, 4, -4, 1));
    assert_false(is_apart(3, 4, 8, 2)); /* the last dimension is contiguous */
    assert_false(is_apart(3, 4, INT64_MAX, 1));
}

/* ---- cuts ---- */

enum { LONGEST = 7, MOST_ELEMENTS = 4096 };

typedef struct drawing {
    ech_random_key key;
    uint64_t at;
} drawing;

/* Of 0 to n - 1. */
static int64_t draw(drawing *d, int64_t n)
{
    return ech_random_word(d->key, d->at++) % (uint32_t)n;
}

/* At most one dimension has parts. */
static int draw_cuts(drawing *d, ech_cut cut[ECH_MAX_DIMS])
{
    int dims = (int)draw(d, 4), parted = (int)draw(d, 6);
    for (int k = 0; k < dims; k++) {
        int parts = k == parted ? 2 + (int)draw(d, 2) : 1;
        cut[k] = (ech_cut){.size = parts * (1 + draw(d, k == parted ? 3 : LONGEST)),
                           .parts = parts,
                           .shards = 1 + (int)draw(d, 3)};
    }
    return dims;
}

/* Element i of the shard in the whole tensor, the slow way; -1: it is padding. */
static int64_t place_of(int dims, const ech_cut *cut, int64_t i)
{
    int64_t at = 0, stride = 1, whole_at[ECH_MAX_DIMS];
    for (int d = dims - 1; d >= 0; d--) {
        int64_t part = cut[d].size / cut[d].parts, local = 0;
        while (local * cut[d].shards < part) local++;
        int64_t index = i % (local * cut[d].parts);
        whole_at[d] = cut[d].shard * local + index % local;
        if (whole_at[d] >= part) return -1;
        whole_at[d] += index / local * part;
        i /= local * cut[d].parts;
    }
    for (int d = dims - 1; d >= 0; d--) {
        at += whole_at[d] * stride;
        stride *= cut[d].size;
    }
    return at;
}

/* Adds one to each element of the whole that boxes of the interval have, which must lie where it
 * says. */
static void check_interval(int dims, const ech_cut *cut, int64_t first, int64_t n, int *times)
{
    int64_t shape[ECH_MAX_DIMS] = {0}, found = 0, valid = 0;
    ech_box box[ECH_MOST_BOXES];
    for (int d = 0; d < dims; d++) shape[d] = cut[d].size;
    int boxes = ech_box_cut(dims, cut, first, n, box);
    for (int b = 0; b < boxes; b++) {
        check_runs(dims, shape, &box[b]);
        assert_true(ech_box_count(dims, box[b].size) > 0);
        ech_box_runs runs = ech_box_split(dims, shape, &box[b]);
        for (int64_t i = 0; i < runs.count * runs.length; i++, found++) {
            ech_box_offset at = ech_box_run_at(&runs, i / runs.length);
            int64_t k = at.in_memory + i % runs.length, whole = at.in_whole + i % runs.length;
            assert_in_range(k, 0, n - 1);
            assert_int_equal(place_of(dims, cut, first + k), whole);
            times[whole]++;
        }
    }
    for (int64_t k = 0; k < n; k++) valid += place_of(dims, cut, first + k) >= 0;
    assert_int_equal(found, valid);
}

/* The shard in intervals one after the other. */
static void check_shard(drawing *d, int dims, const ech_cut *cut, int *times)
{
    int64_t all = 1;
    for (int k = 0; k < dims; k++) all *= ech_cut_local(&cut[k]);
    for (int64_t first = 0, n; first < all; first += n) {
        n = draw(d, 3) ? 1 + draw(d, all - first) : all - first;
        check_interval(dims, cut, first, n, times);
    }
    check_interval(dims, cut, all, 0, times);
}

/* Shards along any number of dimensions have each element of the whole once. */
TEST(test_cuts)
{
    drawing d = {.key = {.seed = 6}};
    int several = 0;
    for (int i = 0; i < 300; i++) {
        ech_cut cut[ECH_MAX_DIMS];
        int times[MOST_ELEMENTS] = {0}, dims = draw_cuts(&d, cut), cuts = 0;
        int64_t elements = 1, combinations = 1;
        for (int k = 0; k < dims; k++) {
            elements *= cut[k].size;
            combinations *= cut[k].shards;
            cuts += cut[k].shards > 1;
        }
        several += cuts > 1;
        assert_in_range(elements, 1, MOST_ELEMENTS);
        for (int64_t c = 0; c < combinations; c++) {
            int64_t rest = c;
            for (int k = 0; k < dims; rest /= cut[k++].shards)
                cut[k].shard = (int)(rest % cut[k].shards);
            check_shard(&d, dims, cut, times);
        }
        for (int64_t k = 0; k < elements; k++) assert_int_equal(times[k], 1);
    }
    assert_in_range(several, 50, 300);
}

static int64_t offset_of(const ech_tensor *x, int64_t k)
{
    int64_t at = 0;
    for (int d = x->dims - 1; d >= 0; d--) {
        at += k % x->shape[d] * x->stride[d];
        k /= x->shape[d];
    }
    return at;
}

/* As tensors: what is at a place of the box's memory is there in the whole. */
TEST(test_views)
{
    drawing d = {.key = {.seed = 7}};
    for (int i = 0; i < 100; i++) {
        ech_cut cut[ECH_MAX_DIMS];
        ech_box box[ECH_MOST_BOXES];
        float whole[MOST_ELEMENTS], memory[MOST_ELEMENTS];
        int64_t shape[ECH_MAX_DIMS] = {0}, all = 1;
        int dims = draw_cuts(&d, cut);
        for (int k = 0; k < dims; k++) shape[k] = cut[k].size, all *= ech_cut_local(&cut[k]);
        for (int k = 0; k < MOST_ELEMENTS; k++) whole[k] = memory[k] = (float)k;
        int boxes = ech_box_cut(dims, cut, 0, all, box);
        for (int b = 0; b < boxes; b++) {
            ech_tensor from = ech_box_in_memory(dims, &box[b], memory, ECH_F32);
            ech_tensor to = ech_box_in_whole(dims, shape, &box[b], whole, ECH_F32);
            assert_int_equal(ech_tensor_count(&from), ech_box_count(dims, box[b].size));
            for (int64_t k = 0; k < ech_tensor_count(&from); k++) {
                int64_t local = (int64_t)((float *)from.data)[offset_of(&from, k)];
                assert_int_equal(place_of(dims, cut, local),
                                 (int64_t)((float *)to.data)[offset_of(&to, k)]);
            }
        }
    }
}
