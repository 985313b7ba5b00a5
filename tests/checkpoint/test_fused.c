/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameters that files have in one tensor: saved by any grid of tensor and expert ranks, of whole
 * shards or of intervals of them, as the same file; read by any other; and what does not fit.
 */
#include "checkpoint/fixture.h"
#include "checkpoint/shards.h"
#include "checkpoint/stored.h"

enum { D = 2, KEYS = 2, QUERIES = 4, C = 3, E = 2, F = 4, MOST = E * F * C, PARAMS = 9 };

/* The parameters, and where their tensors have them: queries, keys and values one after the other
 * and by key heads, a bias by key heads, and experts' products row by row, transposed. */
static const ech_param params[PARAMS] = {
    {.name = "a.q.weight",
     .file_name = "a.qkv.weight",
     .shape = {2, {ECH_AXIS_HEADS, ECH_AXIS_MODEL}, {QUERIES * D, C}},
     .place = {.width = 8, .period = 16}},
    {.name = "a.k.weight",
     .file_name = "a.qkv.weight",
     .shape = {2, {ECH_AXIS_KV_HEADS, ECH_AXIS_MODEL}, {KEYS * D, C}},
     .place = {.width = 4, .period = 16, .offset = 8}},
    {.name = "a.v.weight",
     .file_name = "a.qkv.weight",
     .shape = {2, {ECH_AXIS_KV_HEADS, ECH_AXIS_MODEL}, {KEYS * D, C}},
     .place = {.width = 4, .period = 16, .offset = 12}},
    {.name = "b.q.bias",
     .file_name = "b.qkv.bias",
     .shape = {1, {ECH_AXIS_HEADS}, {QUERIES * D}},
     .place = {.width = 4, .period = 8}},
    {.name = "b.k.bias",
     .file_name = "b.qkv.bias",
     .shape = {1, {ECH_AXIS_KV_HEADS}, {KEYS * D}},
     .place = {.width = 2, .period = 8, .offset = 4}},
    {.name = "b.v.bias",
     .file_name = "b.qkv.bias",
     .shape = {1, {ECH_AXIS_KV_HEADS}, {KEYS * D}},
     .place = {.width = 2, .period = 8, .offset = 6}},
    {.name = "c.experts.%d.gate.weight",
     .file_name = "c.experts.gate_up",
     .shape = {3, {ECH_AXIS_EXPERTS, ECH_AXIS_FFN, ECH_AXIS_MODEL}, {E, F, C}},
     .place = {.dim = 1, .width = 1, .period = 2, .transposed = true}},
    {.name = "c.experts.%d.up.weight",
     .file_name = "c.experts.gate_up",
     .shape = {3, {ECH_AXIS_EXPERTS, ECH_AXIS_FFN, ECH_AXIS_MODEL}, {E, F, C}},
     .place = {.dim = 1, .width = 1, .period = 2, .offset = 1, .transposed = true}},
    {.name = "d.norm.weight", .shape = {1, {ECH_AXIS_MODEL}, {C}}}};

/* Ranks are expert x tensor x parts; `parts` ranks share each shard out. */
typedef struct grid {
    int expert, tensor, parts;
} grid;

static const grid grids[] = {{1, 1, 1}, {1, 2, 1}, {2, 1, 1}, {2, 2, 1},
                             {1, 1, 3}, {2, 2, 2}, {1, 1, 5}};
enum { GRIDS = sizeof grids / sizeof *grids };

typedef struct mine {
    double weight[PARAMS][MOST], state[PARAMS][MOST];
    ech_saved_list list;
} mine;

static int ranks_of(grid g)
{
    return g.expert * g.tensor * g.parts;
}

/* The boxes of a rank; the first rank with a shard of a tensor that is not cut so has it. */
static void set_boxes(grid g, int rank, const ech_param *p, ech_saved_tensor *whole)
{
    ech_sharding sharding = {
        .tensor = g.tensor, .key_value = g.tensor, .expert = g.expert, .replicas = 1};
    ech_shard_at at = {.tensor = rank / g.parts % g.tensor, .expert = rank / g.parts / g.tensor};
    bool by_tensor = !ech_shape_has(&p->shape, ECH_AXIS_MODEL) || p->shape.dims > 1;
    if ((!by_tensor && at.tensor > 0) || (p->shape.dims < 3 && at.expert > 0)) return;
    int64_t n = ech_shape_count(&p->shape, ech_extent_of_params(sharding));
    int64_t part = (n + g.parts - 1) / g.parts, first = rank % g.parts * part;
    int64_t end = first + part < n ? first + part : n;
    if (first < end)
        whole->boxes =
            ech_shape_interval_boxes(&p->shape, sharding, at, first, end - first, whole->box);
}

static void list_mine(grid g, int rank, bool states, mine *m)
{
    for (int i = 0; i < PARAMS; i++)
        for (int is_state = 0; is_state <= states; is_state++) {
            ech_saved_tensor whole = {.dtype = ECH_F64,
                                      .dims = params[i].shape.dims,
                                      .file = is_state ? ECH_FILE_STATE : ECH_FILE_MODEL,
                                      .data = is_state ? m->state[i] : m->weight[i]};
            memcpy(whole.shape, params[i].shape.size, sizeof whole.shape);
            set_boxes(g, rank, &params[i], &whole);
            ech_saved_list_add(&m->list, &params[i], is_state ? "exp_avg" : NULL, &whole);
        }
}

/* Element `index` of parameter i. */
static double value_of(int i, bool is_state, int64_t index)
{
    return 1000 * i + (double)index + (is_state ? 0.5 : 0);
}

/* Sets or compares what the rank has, by the boxes of whole parameters. */
static int visit(grid g, int rank, mine *m, bool put)
{
    int wrong = 0;
    for (int i = 0; i < PARAMS; i++) {
        ech_saved_tensor whole = {.dims = params[i].shape.dims};
        memcpy(whole.shape, params[i].shape.size, sizeof whole.shape);
        set_boxes(g, rank, &params[i], &whole);
        for (int b = 0; b < whole.boxes; b++) {
            ech_box_runs runs = ech_box_split(whole.dims, whole.shape, &whole.box[b]);
            for (int64_t k = 0; k < runs.count * runs.length; k++) {
                ech_box_offset at = ech_box_run_at(&runs, k / runs.length);
                int64_t memory = at.in_memory + k % runs.length;
                for (int s = 0; s < 2; s++) {
                    double *to = s ? &m->state[i][memory] : &m->weight[i][memory];
                    double value = value_of(i, s, at.in_whole + k % runs.length);
                    wrong += *to != value;
                    if (put) *to = value;
                }
            }
        }
    }
    return wrong;
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
    mine m = {.weight = {{0}}};
    ech_checkpoint_info info = fixture_info(j->step);
    int64_t bytes;
    list_mine(j->grid, rank, true, &m);
    visit(j->grid, rank, &m, true);
    ech_status st = ech_checkpoint_save(world, j->directory, &info, m.list.tensor.at,
                                        (int)m.list.tensor.n, &bytes);
    ech_saved_list_free(&m.list);
    ech_group_destroy(world);
    return st;
}

static char *file_of(const char *directory, int64_t step, const char *file)
{
    char name[64];
    snprintf(name, sizeof name, "step-%08d/%s", (int)step, file);
    return ech_file_join(directory, name);
}

static void save(const char *directory, grid g, int64_t step)
{
    job j = {.grid = g, .directory = directory, .step = step};
    assert_int_equal(ranks_run(ranks_of(g), 30, save_rank, &j, NULL), ECH_OK);
}

static void same_file(const char *directory, int64_t a, int64_t b, const char *file)
{
    char *path[2] = {file_of(directory, a, file), file_of(directory, b, file)}, *bytes[2];
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

TEST(any_grid_to_any)
{
    char *directory = scratch_make();
    for (int g = 0; g < GRIDS; g++) {
        save(directory, grids[g], g + 1);
        ECH_CLEANUP(ech_checkpoint_close_at) ech_checkpoint *checkpoint = NULL;
        assert_int_equal(ech_checkpoint_open_newest(directory, true, &checkpoint), ECH_OK);
        for (int h = 0; h < GRIDS; h++)
            for (int rank = 0; rank < ranks_of(grids[h]); rank++) {
                mine m = {.weight = {{0}}};
                list_mine(grids[h], rank, true, &m);
                assert_int_equal(
                    ech_checkpoint_load(checkpoint, m.list.tensor.at, (int)m.list.tensor.n),
                    ECH_OK);
                assert_int_equal(visit(grids[h], rank, &m, false), 0);
                ech_saved_list_free(&m.list);
            }
        same_file(directory, 1, g + 1, "model/model.safetensors");
        same_file(directory, 1, g + 1, "state/state.safetensors");
    }
    scratch_remove(directory);
}

static void read_whole(const char *path, const char *name, int dims, const int64_t *shape,
                       double *to)
{
    ECH_CLEANUP(ech_safetensors_close_at) ech_safetensors *file = NULL;
    assert_int_equal(ech_safetensors_open(path, &file), ECH_OK);
    int i = ech_safetensors_find(file, name);
    assert_true(i >= 0);
    ech_saved_tensor t = ech_safetensors_get(file, i);
    assert_int_equal(t.dims, dims);
    assert_memory_equal(t.shape, shape, (size_t)dims * sizeof *shape);
    saved_whole(&t, to);
    assert_int_equal(ech_safetensors_read(file, i, &t), ECH_OK);
}

/* What others find in the files. */
TEST(tensors_as_others_have_them)
{
    char *directory = scratch_make();
    double x[64];
    save(directory, grids[3], 1);
    char *model = file_of(directory, 1, "model/model.safetensors");
    char *states = file_of(directory, 1, "state/state.safetensors");
    read_whole(model, "a.qkv.weight", 2, (int64_t[]){16, C}, x);
    for (int r = 0; r < 16; r++)
        for (int c = 0; c < C; c++) {
            int i = r < 8 ? 0 : r < 12 ? 1 : 2, row = r < 8 ? r : r < 12 ? r - 8 : r - 12;
            assert_true(x[r * C + c] == value_of(i, false, row * C + c));
        }
    read_whole(model, "b.qkv.bias", 1, (int64_t[]){16}, x);
    static const int bias[16][2] = {{3, 0}, {3, 1}, {3, 2}, {3, 3}, {4, 0}, {4, 1}, {5, 0}, {5, 1},
                                    {3, 4}, {3, 5}, {3, 6}, {3, 7}, {4, 2}, {4, 3}, {5, 2}, {5, 3}};
    for (int r = 0; r < 16; r++) assert_true(x[r] == value_of(bias[r][0], false, bias[r][1]));
    read_whole(model, "c.experts.gate_up", 3, (int64_t[]){E, C, 2 * F}, x);
    for (int e = 0; e < E; e++)
        for (int c = 0; c < C; c++)
            for (int r = 0; r < 2 * F; r++)
                assert_true(x[(e * C + c) * 2 * F + r] ==
                            value_of(6 + r % 2, false, (e * F + r / 2) * C + c));
    read_whole(states, "a.k.weight.exp_avg", 2, (int64_t[]){KEYS * D, C}, x);
    assert_true(x[4] == value_of(1, true, 4));
    read_whole(states, "c.experts.1.up.weight.exp_avg", 2, (int64_t[]){F, C}, x);
    assert_true(x[4] == value_of(7, true, F * C + 4));
    free(model);
    free(states);
    scratch_remove(directory);
}

TEST(folder)
{
    static const ech_family family = {.prefix = "model.", .buffers = ""};
    char *directory = scratch_make();
    save(directory, grids[0], 1);
    char *folder = file_of(directory, 1, "model");
    ECH_CLEANUP(ech_shards_close_at) ech_shards *weights = NULL;
    assert_int_equal(ech_shards_open(folder, &family, false, true, &weights), ECH_OK);
    assert_int_equal(ech_shards_count(weights), 4);
    for (int h = 0; h < GRIDS; h++)
        for (int rank = 0; rank < ranks_of(grids[h]); rank++) {
            mine m = {.weight = {{0}}};
            list_mine(grids[h], rank, false, &m);
            for (int i = 0; i < PARAMS; i++) /* no states here */
                for (int k = 0; k < MOST; k++) m.state[i][k] = -1;
            assert_int_equal(ech_shards_check(weights, m.list.tensor.at, (int)m.list.tensor.n),
                             ECH_OK);
            assert_int_equal(ech_shards_load(weights, m.list.tensor.at, (int)m.list.tensor.n),
                             ECH_OK);
            mine all = m;
            visit(grids[h], rank, &all, true);
            for (int i = 0; i < PARAMS; i++)
                assert_memory_equal(m.weight[i], all.weight[i], sizeof m.weight[i]);
            ech_saved_list_free(&m.list);
        }
    mine m = {.weight = {{0}}};
    list_mine(grids[0], 0, false, &m);
    m.list.tensor.at[1].place.period = m.list.tensor.at[1].place.width = 4;
    assert_int_equal(ech_shards_check(weights, m.list.tensor.at, PARAMS), ECH_EINPUT);
    assert_error_has("'a.qkv.weight' has shape [16, 3]; by the model section it is [4, 3]");
    ech_saved_list_free(&m.list);
    free(folder);
    scratch_remove(directory);
}

static void refuse(ech_saved_list *list, int n, const char *part)
{
    ech_stored stored;
    assert_int_equal(ech_stored_plan(list->tensor.at, n, ECH_FILE_MODEL, NULL, &stored),
                     ECH_EINTERNAL);
    assert_error_has(part);
    ech_stored_free(&stored);
}

TEST(parts_that_do_not_make_a_tensor_up)
{
    mine m = {.weight = {{0}}};
    list_mine(grids[0], 0, false, &m);
    ech_saved_tensor *t = m.list.tensor.at, kept;
    refuse(&m.list, 2, "the 2 parts of tensor 'a.qkv.weight' to be saved do not make it up");
    refuse(&m.list, 1, "the 1 parts");
    kept = t[2];
    t[2].place.offset = 8;
    refuse(&m.list, 3, "'a.qkv.weight'");
    t[2] = kept;
    t[2].dtype = ECH_F32;
    refuse(&m.list, 3, "'a.qkv.weight'");
    t[2] = kept;
    t[2].place = (ech_box_place){0};
    refuse(&m.list, 3, "'a.qkv.weight'");
    t[2] = kept;
    t[8].name = "a.qkv.weight";
    refuse(&m.list, PARAMS, "'a.qkv.weight'");
    ech_saved_list_free(&m.list);
}
