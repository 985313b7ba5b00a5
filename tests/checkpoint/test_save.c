/* SPDX-License-Identifier: Apache-2.0
 *
 * Saved under one layout, loaded under any other.
 */
#include <math.h>
#include <sys/stat.h>

#include "base/random.h"
#include "checkpoint/fixture.h"
#include "tensor/tensor.h"

/* Loads with every number of ranks and every cut, rank after rank. */
static void check_loads(const ech_checkpoint *checkpoint, int seed)
{
    for (int cut = 0; cut < FIXTURE_CUTS; cut++) {
        for (int ranks = 1; ranks <= 4; ranks++) {
            for (int rank = 0; rank < ranks; rank++) {
                assert_true(fixture_loads(checkpoint, (fixture_cut)cut, rank, ranks, seed));
            }
        }
    }
}

static void check_info(const ech_checkpoint *checkpoint, int64_t step, int ranks)
{
    const ech_checkpoint_info *have = ech_checkpoint_get_info(checkpoint);
    ech_checkpoint_info want = fixture_info(step);
    assert_int_equal(have->step, step);
    assert_int_equal(have->optimizer_count, want.optimizer_count);
    assert_int_equal(have->samples, want.samples);
    assert_int_equal(have->skipped_steps, want.skipped_steps);
    assert_true(have->loss == want.loss);
    assert_int_equal(have->ranks, ranks);
    assert_string_equal(have->run_yaml, want.run_yaml);
    assert_string_equal(have->text[ECH_FILE_CONFIG].at, want.text[ECH_FILE_CONFIG].at);
    assert_null(have->text[ECH_FILE_TOKENIZER].at);
    assert_null(have->text[ECH_FILE_TOKENIZER_CONFIG].at);
}

TEST(test_any_cut_to_any_cut)
{
    char *directory = scratch_make();
    for (int ranks = 1; ranks <= 4; ranks++) {
        for (int cut = 0; cut < FIXTURE_CUTS; cut++) {
            int seed = FIXTURE_CUTS * ranks + cut;
            fixture_job job = {
                .directory = directory, .cut = (fixture_cut)cut, .step = seed, .seed = seed};
            fixture_save(ranks, &job);
            for (int r = 0; r < ranks; r++) {
                assert_int_equal(job.results[r], ECH_OK);
                assert_int_equal(job.bytes[r], job.bytes[0]);
            }
            ech_checkpoint *checkpoint;
            assert_int_equal(ech_checkpoint_open_newest(directory, true, &checkpoint), ECH_OK);
            check_info(checkpoint, seed, ranks);
            check_loads(checkpoint, seed);
            ech_checkpoint_close(checkpoint);
        }
    }
    scratch_remove(directory);
}

/* Both files of step 1, one after the other. */
static char *read_step(const char *directory, size_t *n)
{
    static const char *const names[] = {"step-00000001/model/model.safetensors",
                                        "step-00000001/state/state.safetensors"};
    char *bytes[2], *both;
    size_t size[2];
    for (int f = 0; f < 2; f++) {
        char *path = ech_file_join(directory, names[f]);
        assert_int_equal(ech_file_read(path, 1 << 20, &bytes[f], &size[f]), ECH_OK);
        free(path);
    }
    *n = size[0] + size[1];
    both = ech_calloc(*n, 1);
    memcpy(both, bytes[0], size[0]);
    memcpy(both + size[0], bytes[1], size[1]);
    free(bytes[0]);
    free(bytes[1]);
    return both;
}

TEST(test_files_do_not_depend_on_the_cut)
{
    char *directory = scratch_make();
    size_t n, m;
    fixture_save_one(directory, 1, 1);
    char *first = read_step(directory, &n);
    for (int cut = 0; cut < FIXTURE_CUTS; cut++) {
        fixture_job job = {.directory = directory, .cut = (fixture_cut)cut, .step = 1, .seed = 1};
        fixture_save(3, &job);
        assert_int_equal(job.results[0], ECH_OK);
        char *bytes = read_step(directory, &m);
        assert_int_equal(n, m);
        assert_memory_equal(bytes, first, n);
        free(bytes);
    }
    free(first);
    scratch_remove(directory);
}

static int64_t size_of(const char *folder, const char *name)
{
    char *path = ech_file_join(folder, name);
    struct stat info;
    int64_t size = stat(path, &info) == 0 ? info.st_size : 0;
    free(path);
    return size;
}

TEST(test_bytes_and_files)
{
    char *directory = scratch_make();
    char *below = ech_file_join(directory, "run/checkpoints"); /* made with its parent */
    fixture_job job = {.directory = below, .step = 5, .seed = 1};
    fixture_save(2, &job);
    assert_int_equal(job.results[0], ECH_OK);
    char *step = ech_file_join(below, "step-00000005");
    int64_t sum = size_of(step, "manifest.json") + size_of(step, "model/config.json") +
                  size_of(step, "model/model.safetensors") +
                  size_of(step, "state/state.safetensors");
    assert_int_equal(job.bytes[0], sum);
    char *temporary = ech_file_join(below, "step-00000005.tmp");
    assert_false(ech_file_exists(temporary));

    /* tensors of 8 bytes an element come first, so that all data is aligned */
    char *model = ech_file_join(step, "model/model.safetensors");
    ech_safetensors *file;
    assert_int_equal(ech_safetensors_open(model, &file), ECH_OK);
    assert_int_equal(ech_safetensors_count(file), FIXTURE_MODEL_TENSORS);
    assert_string_equal(ech_safetensors_get(file, 0).name, "conv.weight");
    assert_int_equal(ech_safetensors_get(file, FIXTURE_MODEL_TENSORS - 1).dtype, ECH_BF16);
    ech_safetensors_close(file);
    free(model);
    free(temporary);
    free(step);
    free(below);
    scratch_remove(directory);
}

/* ---- loading what is not there, or is of another type ---- */

static ech_saved_tensor whole(int i, void *data)
{
    ech_saved_tensor t = fixture_tensors[i];
    saved_whole(&t, data);
    return t;
}

TEST(test_conversion)
{
    char *directory = scratch_make();
    fixture_save_one(directory, 1, 1);
    ech_checkpoint *checkpoint;
    assert_int_equal(ech_checkpoint_open_newest(directory, true, &checkpoint), ECH_OK);
    double wide[42];
    ech_saved_tensor t = whole(0, wide);
    t.dtype = ECH_F64;
    t.box[0].begin[1] = 2;
    t.box[0].size[1] = 3;
    assert_int_equal(ech_checkpoint_load(checkpoint, &t, 1), ECH_OK);
    assert_true(fixture_is(&t, 1));
    float narrow[72];
    t = whole(3, narrow);
    t.dtype = ECH_F32;
    assert_int_equal(ech_checkpoint_load(checkpoint, &t, 1), ECH_OK);
    assert_true(fixture_is(&t, 1));

    uint16_t halves[15]; /* bf16: the upper half of an fp32 */
    t = whole(2, halves);
    assert_int_equal(ech_checkpoint_load(checkpoint, &t, 1), ECH_OK);
    t = whole(2, narrow);
    t.dtype = ECH_F32;
    assert_int_equal(ech_checkpoint_load(checkpoint, &t, 1), ECH_OK);
    for (int i = 0; i < 15; i++) {
        uint32_t bits;
        memcpy(&bits, &narrow[i], sizeof bits);
        assert_int_equal(bits, (uint32_t)halves[i] << 16);
    }

    t = whole(2, narrow);
    t.dtype = ECH_I32;
    assert_int_equal(ech_checkpoint_load(checkpoint, &t, 1), ECH_EINPUT);
    assert_error_has("half.weight");
    assert_error_has("bf16");
    t = whole(0, wide);
    t.dtype = ECH_F64;
    t.box[0].begin[0] = 1; /* leaves the shape */
    assert_int_equal(ech_checkpoint_load(checkpoint, &t, 1), ECH_EINTERNAL);
    ech_checkpoint_close(checkpoint);
    scratch_remove(directory);
}

/* ---- saved as a narrower type ---- */

enum { NARROW_ROWS = 7, NARROW_COLUMNS = 150001 }; /* a row is longer than the buffer */

/* Every magnitude that stays finite, and rounding. */
static float wide_value(int64_t k)
{
    uint32_t bits = ech_random_word((ech_random_key){.seed = 11}, (uint64_t)k);
    if (k % 16 == 0) bits = (bits & 0xffff0000u) | 0x8000u;       /* ties */
    if ((bits & 0x7fffffffu) >= 0x7f7f8000u) bits ^= 0x40000000u; /* infinite, rounded or not */
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Rank r of n has a range of columns, which are written row by row. */
static void narrow_box(ech_saved_tensor *t, ech_tensor *part, int rank, int ranks)
{
    int64_t first = fixture_bound(NARROW_COLUMNS, rank, ranks);
    int64_t n = fixture_bound(NARROW_COLUMNS, rank + 1, ranks) - first;
    *t = (ech_saved_tensor){.name = "w", .dtype = ECH_F32, .dims = 2};
    t->shape[0] = NARROW_ROWS;
    t->shape[1] = NARROW_COLUMNS;
    *part = ech_tensor_2d(NULL, ECH_F32, NARROW_ROWS, n);
    float *data = part->data = ech_calloc((size_t)(NARROW_ROWS * n), sizeof *data);
    for (int64_t k = 0; k < NARROW_ROWS * n; k++)
        data[k] = wide_value(k / n * NARROW_COLUMNS + first + k % n);
    ech_saved_add(t, (int64_t[]){0, first}, part);
}

static ech_status save_narrowed(ech_comm *comm, void *context)
{
    int rank = ech_comm_rank(comm), ranks = ech_comm_size(comm), all[RANKS_MOST];
    for (int r = 0; r < ranks; r++) all[r] = r;
    ech_group *world;
    ECH_TRY(ech_group_create(comm, "world", all, ranks, &world));
    ech_saved_tensor t[3];
    ech_tensor part;
    narrow_box(&t[0], &part, rank, ranks);
    t[1] = t[2] = t[0];
    t[0].narrowed = true;
    t[0].narrow = ECH_BF16;
    t[1].name = "w.master";
    t[1].file = ECH_FILE_STATE;
    t[2] = (ech_saved_tensor){.name = "few", .dtype = ECH_F64, .dims = 1, .shape = {2}};
    t[2].narrowed = true;
    t[2].narrow = ECH_F32;
    double few[] = {1.0 / 3, 0x1p-200};
    if (rank == 0) saved_whole(&t[2], few);
    ech_checkpoint_info info = fixture_info(1);
    int64_t bytes;
    ech_status st = ech_checkpoint_save(world, context, &info, t, 3, &bytes);
    free(part.data);
    ech_group_destroy(world);
    return st;
}

static void check_narrowed(const ech_checkpoint *checkpoint)
{
    int64_t n = (int64_t)NARROW_ROWS * NARROW_COLUMNS;
    uint16_t *halves = ech_calloc((size_t)n, sizeof *halves);
    float *full = ech_calloc((size_t)n, sizeof *full);
    ech_saved_tensor t = {
        .name = "w", .dtype = ECH_BF16, .dims = 2, .shape = {NARROW_ROWS, NARROW_COLUMNS}};
    saved_whole(&t, halves);
    assert_int_equal(ech_checkpoint_load(checkpoint, &t, 1), ECH_OK);
    t.name = "w.master";
    t.file = ECH_FILE_STATE;
    t.dtype = ECH_F32;
    saved_whole(&t, full);
    assert_int_equal(ech_checkpoint_load(checkpoint, &t, 1), ECH_OK);
    for (int64_t k = 0; k < n; k++) {
        float value = wide_value(k);
        uint16_t half;
        ech_convert(&value, ECH_F32, &half, ECH_BF16, 1);
        if (halves[k] != half || memcmp(&full[k], &value, sizeof value) != 0)
            fail_msg("element %lld: %g is %04x, not %04x", (long long)k, (double)value, halves[k],
                     half);
    }
    float few[2];
    t = (ech_saved_tensor){.name = "few", .dtype = ECH_F32, .dims = 1, .shape = {2}};
    saved_whole(&t, few);
    assert_int_equal(ech_checkpoint_load(checkpoint, &t, 1), ECH_OK);
    assert_true(few[0] == (float)(1.0 / 3) && few[1] == 0);
    free(halves);
    free(full);
}

TEST(test_narrowed)
{
    for (int ranks = 1; ranks <= 3; ranks += 2) {
        char *directory = scratch_make();
        ech_checkpoint *checkpoint;
        assert_int_equal(ranks_run(ranks, 60, save_narrowed, directory, NULL), ECH_OK);
        assert_int_equal(ech_checkpoint_open_newest(directory, true, &checkpoint), ECH_OK);
        check_narrowed(checkpoint);
        ech_checkpoint_close(checkpoint);
        scratch_remove(directory);
    }
}

TEST(test_missing_and_misshapen)
{
    char *directory = scratch_make();
    fixture_save_one(directory, 1, 1);
    ech_checkpoint *checkpoint;
    assert_int_equal(ech_checkpoint_open_newest(directory, true, &checkpoint), ECH_OK);
    double data[128];
    ech_saved_tensor t = whole(0, data);
    t.name = "wte.wieght";
    assert_int_equal(ech_checkpoint_load(checkpoint, &t, 1), ECH_EINPUT);
    assert_error_has("'wte.wieght'");
    assert_error_has("'wte.weight'"); /* the nearest */
    assert_error_has("model/model.safetensors");
    t = whole(1, data);
    t.file = ECH_FILE_STATE;
    assert_int_equal(ech_checkpoint_load(checkpoint, &t, 1), ECH_EINPUT);
    assert_error_has("state/state.safetensors");
    t = whole(0, data);
    t.shape[1] = t.box[0].size[1] = 5;
    assert_int_equal(ech_checkpoint_load(checkpoint, &t, 1), ECH_EINPUT);
    assert_error_has("'wte.weight' has shape [7, 6], the run needs [7, 5]");
    t = whole(0, data);
    t.dims = 1;
    assert_int_equal(ech_checkpoint_load(checkpoint, &t, 1), ECH_EINPUT);
    assert_error_has("[7]");
    ech_checkpoint_close(checkpoint);
    scratch_remove(directory);
}

/* A conversion in several pieces: more elements than its buffer holds, cut in the last one. */
static ech_status save_large(ech_comm *comm, void *context)
{
    enum { ROWS = 3, COLUMNS = 100000 };
    int all[] = {0};
    ech_group *world;
    ECH_TRY(ech_group_create(comm, "world", all, 1, &world));
    float *data = ech_calloc(ROWS * COLUMNS, sizeof *data);
    for (int k = 0; k < ROWS * COLUMNS; k++) data[k] = (float)k;
    ech_saved_tensor t = {.name = "w", .dtype = ECH_F32, .dims = 2, .shape = {ROWS, COLUMNS}};
    saved_whole(&t, data);
    ech_checkpoint_info info = fixture_info(1);
    info.run_yaml = info.text[ECH_FILE_CONFIG].at = NULL;
    info.loss = (double)NAN;
    int64_t bytes;
    ech_status st = ech_checkpoint_save(world, context, &info, &t, 1, &bytes);
    free(data);
    ech_group_destroy(world);
    return st;
}

TEST(test_conversion_in_pieces)
{
    char *directory = scratch_make();
    assert_int_equal(ranks_run(1, 60, save_large, directory, NULL), ECH_OK);
    ech_checkpoint *checkpoint;
    assert_int_equal(ech_checkpoint_open_newest(directory, true, &checkpoint), ECH_OK);
    enum { ROWS = 3, COLUMNS = 99999 };
    double *data = ech_calloc(ROWS * COLUMNS, sizeof *data);
    ech_saved_tensor t = {.name = "w", .dtype = ECH_F64, .dims = 2, .shape = {ROWS, 100000}};
    ech_tensor part = ech_tensor_2d(data, ECH_F64, ROWS, COLUMNS);
    ech_saved_add(&t, (int64_t[]){0, 1}, &part);
    assert_int_equal(ech_checkpoint_load(checkpoint, &t, 1), ECH_OK);
    for (int r = 0; r < ROWS; r++) {
        for (int c = 0; c < COLUMNS; c++) {
            assert_true(data[r * COLUMNS + c] == r * 100000 + c + 1);
        }
    }
    const ech_checkpoint_info *info = ech_checkpoint_get_info(checkpoint);
    assert_true(isnan(info->loss));
    assert_string_equal(info->run_yaml, "");
    assert_null(info->text[ECH_FILE_CONFIG].at);
    free(data);
    ech_checkpoint_close(checkpoint);
    scratch_remove(directory);
}
