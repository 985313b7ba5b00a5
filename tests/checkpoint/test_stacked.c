/* SPDX-License-Identifier: Apache-2.0
 *
 * In files, a parameter that stacks experts is one tensor per expert. Any grid of expert groups and
 * tensor ranks saves it, in whole shards or in intervals of them, and any other grid loads it. The
 * folder of weights is the same as that of one rank.
 */
#include "checkpoint/fixture.h"
#include "checkpoint/shards.h"

enum { EXPERTS = 8, WIDTH = 6, COLUMNS = 4, ALL = EXPERTS * WIDTH * COLUMNS };

static const ech_param stack = {
    .name = "model.experts.%d.w1.weight",
    .shape = {3, {ECH_AXIS_EXPERTS, ECH_AXIS_FFN, ECH_AXIS_MODEL}, {EXPERTS, WIDTH, COLUMNS}}};
static const ech_param plain = {.name = "model.norm.weight",
                                .shape = {1, {ECH_AXIS_MODEL}, {COLUMNS}}};

/* Ranks are expert x tensor x parts; `parts` members of an addend group share a shard out. */
typedef struct grid {
    int expert, tensor, parts;
} grid;

static const grid grids[] = {{1, 1, 1}, {2, 1, 1}, {4, 2, 1}, {1, 3, 2},
                             {2, 2, 3}, {8, 1, 1}, {4, 1, 4}, {2, 3, 2}};
enum { GRIDS = sizeof grids / sizeof *grids };

static int ranks_of(grid g)
{
    return g.expert * g.tensor * g.parts;
}

typedef struct mine {
    double stack[ALL], state[ALL], norm[COLUMNS];
    ech_saved_list list;
} mine;

static void set_shape(ech_saved_tensor *t, const ech_shape *shape)
{
    t->dims = shape->dims;
    for (int d = 0; d < shape->dims; d++) t->shape[d] = shape->size[d];
}

/* What a rank has; the first one has what is not stacked. */
static void list_mine(grid g, int rank, mine *m)
{
    ech_sharding sharding = {.tensor = g.tensor, .expert = g.expert};
    ech_shard_at at = {.tensor = rank / g.parts % g.tensor, .expert = rank / g.parts / g.tensor};
    int64_t n = ALL / (g.expert * g.tensor), part = (n + g.parts - 1) / g.parts;
    int64_t first = rank % g.parts * part, end = first + part < n ? first + part : n;
    ech_saved_tensor whole = {.dtype = ECH_F64, .data = m->stack};
    set_shape(&whole, &stack.shape);
    whole.boxes =
        ech_shape_interval_boxes(&stack.shape, sharding, at, first, end - first, whole.box);
    ech_saved_list_add(&m->list, &stack, NULL, &whole);
    whole.data = m->state;
    whole.file = ECH_FILE_STATE;
    ech_saved_list_add(&m->list, &stack, "exp_avg", &whole);
    ech_saved_tensor norm = {.dtype = ECH_F64};
    set_shape(&norm, &plain.shape);
    if (rank == 0) saved_whole(&norm, m->norm);
    ech_saved_list_add(&m->list, &plain, NULL, &norm);
}

static double value_at(bool is_state, int64_t index)
{
    return (is_state ? 0.5 : 0.25) + (double)index;
}

/* Element k of the stack in whole, from the rank's boxes, by coordinates alone; calls `each` with
 * its place in memory. */
static void visit(grid g, int rank, mine *m, void (*each)(double *at, double value, int *wrong),
                  int *wrong)
{
    int experts = EXPERTS / g.expert, rows = WIDTH / g.tensor;
    int64_t n = (int64_t)experts * rows * COLUMNS, part = (n + g.parts - 1) / g.parts;
    int64_t begin = rank % g.parts * part;
    int expert = rank / g.parts / g.tensor, tensor = rank / g.parts % g.tensor;
    for (int64_t k = begin; k < begin + part && k < n; k++) {
        int64_t e = expert * experts + k / (rows * COLUMNS);
        int64_t row = tensor * rows + k / COLUMNS % rows;
        int64_t index = (e * WIDTH + row) * COLUMNS + k % COLUMNS;
        each(&m->stack[k - begin], value_at(false, index), wrong);
        each(&m->state[k - begin], value_at(true, index), wrong);
    }
    for (int i = 0; i < COLUMNS && rank == 0; i++) each(&m->norm[i], i, wrong);
}

static void put(double *at, double value, int *wrong)
{
    (void)wrong;
    *at = value;
}

static void compare(double *at, double value, int *wrong)
{
    *wrong += *at != value;
}

typedef struct job {
    grid grid;
    const char *directory;
    int64_t step;
} job;

static ech_status save_rank(ech_comm *comm, void *context)
{
    const job *j = context;
    int rank = ech_comm_rank(comm), all[RANKS_MOST];
    for (int r = 0; r < ech_comm_size(comm); r++) all[r] = r;
    ech_group *world;
    ECH_TRY(ech_group_create(comm, "world", all, ech_comm_size(comm), &world));
    mine m = {.stack = {0}};
    ech_checkpoint_info info = fixture_info(j->step);
    int64_t bytes;
    list_mine(j->grid, rank, &m);
    visit(j->grid, rank, &m, put, NULL);
    ech_status st = ech_checkpoint_save(world, j->directory, &info, m.list.tensor.at,
                                        (int)m.list.tensor.n, &bytes);
    ech_saved_list_free(&m.list);
    ech_group_destroy(world);
    return st;
}

static char *model_of(const char *directory, int64_t step, const char *file)
{
    char *path, name[64];
    snprintf(name, sizeof name, "step-%08d/%s", (int)step, file);
    path = ech_file_join(directory, name);
    return path;
}

static void same_file(const char *directory, int64_t a, int64_t b, const char *file)
{
    char *path[2] = {model_of(directory, a, file), model_of(directory, b, file)}, *bytes[2];
    size_t n[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(ech_file_read(path[i], 1 << 20, &bytes[i], &n[i]), ECH_OK);
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(bytes[0], bytes[1], n[0]);
    for (int i = 0; i < 2; i++) {
        free(bytes[i]);
        free(path[i]);
    }
}

static void check_loads(const ech_checkpoint *checkpoint)
{
    for (int g = 0; g < GRIDS; g++)
        for (int rank = 0; rank < ranks_of(grids[g]); rank++) {
            int wrong = 0;
            mine m = {.stack = {0}};
            list_mine(grids[g], rank, &m);
            assert_int_equal(
                ech_checkpoint_load(checkpoint, m.list.tensor.at, (int)m.list.tensor.n), ECH_OK);
            visit(grids[g], rank, &m, compare, &wrong);
            assert_int_equal(wrong, 0);
            ech_saved_list_free(&m.list);
        }
}

TEST(test_any_grid_to_any)
{
    char *directory = scratch_make();
    for (int g = 0; g < GRIDS; g++) {
        job j = {.grid = grids[g], .directory = directory, .step = g + 1};
        assert_int_equal(ranks_run(ranks_of(grids[g]), 30, save_rank, &j, NULL), ECH_OK);
        ECH_CLEANUP(ech_checkpoint_close_at) ech_checkpoint *checkpoint = NULL;
        assert_int_equal(ech_checkpoint_open_newest(directory, true, &checkpoint), ECH_OK);
        check_loads(checkpoint);
        same_file(directory, 1, g + 1, "model/model.safetensors");
        same_file(directory, 1, g + 1, "state/state.safetensors");
    }
    scratch_remove(directory);
}

/* What others find in the file: matrices by name. */
TEST(test_one_tensor_an_expert)
{
    char *directory = scratch_make();
    job j = {.grid = grids[2], .directory = directory, .step = 1};
    assert_int_equal(ranks_run(ranks_of(j.grid), 30, save_rank, &j, NULL), ECH_OK);
    char *path = model_of(directory, 1, "model/model.safetensors");
    ECH_CLEANUP(ech_safetensors_close_at) ech_safetensors *file = NULL;
    assert_int_equal(ech_safetensors_open(path, &file), ECH_OK);
    assert_int_equal(ech_safetensors_count(file), EXPERTS + 1);
    for (int e = 0; e < EXPERTS; e++) {
        char name[64];
        double matrix[WIDTH * COLUMNS];
        snprintf(name, sizeof name, "model.experts.%d.w1.weight", e);
        int i = ech_safetensors_find(file, name);
        assert_true(i >= 0);
        ech_saved_tensor t = ech_safetensors_get(file, i);
        assert_int_equal(t.dims, 2);
        assert_true(t.shape[0] == WIDTH && t.shape[1] == COLUMNS);
        saved_whole(&t, matrix);
        assert_int_equal(ech_safetensors_read(file, i, &t), ECH_OK);
        for (int k = 0; k < WIDTH * COLUMNS; k++)
            assert_true(matrix[k] == value_at(false, e * WIDTH * COLUMNS + k));
    }
    free(path);
    scratch_remove(directory);
}

/* A folder of weights must have each expert, and no more. */
TEST(test_folder)
{
    static const ech_family family = {.prefix = "model.", .buffers = ""};
    char *directory = scratch_make();
    job j = {.grid = grids[4], .directory = directory, .step = 1};
    assert_int_equal(ranks_run(ranks_of(j.grid), 30, save_rank, &j, NULL), ECH_OK);
    char *folder = model_of(directory, 1, "model");
    ECH_CLEANUP(ech_shards_close_at) ech_shards *weights = NULL;
    assert_int_equal(ech_shards_open(folder, &family, false, true, &weights), ECH_OK);
    mine m = {.stack = {0}};
    int wrong = 0;
    list_mine(grids[0], 0, &m);
    for (size_t i = 0; i < m.list.tensor.n;) { /* states are in no such folder */
        if (m.list.tensor.at[i].file)
            m.list.tensor.at[i] = m.list.tensor.at[--m.list.tensor.n];
        else
            i++;
    }
    assert_int_equal(m.list.tensor.n, EXPERTS + 1);
    assert_int_equal(ech_shards_check(weights, m.list.tensor.at, EXPERTS + 1), ECH_OK);
    assert_int_equal(ech_shards_load(weights, m.list.tensor.at, EXPERTS + 1), ECH_OK);
    for (int k = 0; k < ALL; k++) compare(&m.stack[k], value_at(false, k), &wrong);
    assert_int_equal(wrong, 0);
    ech_saved_tensor fewer[EXPERTS];
    memcpy(fewer, m.list.tensor.at, 3 * sizeof *fewer);
    memcpy(fewer + 3, m.list.tensor.at + 4, (EXPERTS - 3) * sizeof *fewer);
    assert_int_not_equal(ech_shards_check(weights, fewer, EXPERTS), ECH_OK);
    assert_error_has("model.experts.3.w1.weight");
    m.list.tensor.at[5].name = "model.experts.8.w1.weight";
    assert_int_not_equal(ech_shards_check(weights, m.list.tensor.at, EXPERTS + 1), ECH_OK);
    assert_error_has("model.experts.8.w1.weight");
    ech_saved_list_free(&m.list);
    free(folder);
    scratch_remove(directory);
}
