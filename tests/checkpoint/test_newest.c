/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding, replacing and removing checkpoints in a folder of several.
 */
#include "checkpoint/fixture.h"

static char *join(const char *directory, const char *name)
{
    return ech_file_join(directory, name);
}

static bool has(const char *directory, const char *name)
{
    char *path = join(directory, name);
    bool is_there = ech_file_exists(path);
    free(path);
    return is_there;
}

static void move(const char *directory, const char *from, const char *to)
{
    char *a = join(directory, from), *b = join(directory, to);
    assert_int_equal(rename(a, b), 0);
    free(a);
    free(b);
}

static void damage(const char *directory, const char *step)
{
    char *folder = join(directory, step), *path = join(folder, "model/model.safetensors");
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "x", 1, 4200), 1);
    close(fd);
    free(path);
    free(folder);
}

TEST(test_none_at_all)
{
    char *directory = scratch_make(), *below = join(directory, "none");
    ech_checkpoint *checkpoint = (ech_checkpoint *)directory; /* to be overwritten */
    assert_int_equal(ech_checkpoint_open_newest(directory, true, &checkpoint), ECH_OK);
    assert_null(checkpoint);
    checkpoint = (ech_checkpoint *)directory;
    assert_int_equal(ech_checkpoint_open_newest(below, true, &checkpoint), ECH_OK);
    assert_null(checkpoint);
    assert_int_equal(ech_checkpoint_prune(below, 1, 0, INT64_MAX), ECH_OK);
    assert_int_equal(ech_checkpoint_find(directory, true, &checkpoint), ECH_EUSAGE);
    assert_error_has(directory);
    assert_int_equal(ech_checkpoint_open(directory, true, &checkpoint), ECH_EINPUT);
    assert_error_has("manifest.json");
    char *file = scratch_write(directory, "file", "x", 1);
    assert_int_equal(ech_checkpoint_open_newest(file, true, &checkpoint), ECH_EIO);
    free(file);
    free(below);
    scratch_remove(directory);
}

TEST(test_find)
{
    char *run = scratch_make(), *directory = join(run, "checkpoints");
    fixture_save_one(directory, 8, 1);
    fixture_save_one(directory, 10, 2);
    char *eight = join(directory, "step-00000008");
    const char *const paths[] = {run, directory, eight};
    const int64_t steps[] = {10, 10, 8};
    for (int i = 0; i < 3; i++) {
        ech_checkpoint *checkpoint;
        assert_int_equal(ech_checkpoint_find(paths[i], true, &checkpoint), ECH_OK);
        assert_int_equal(ech_checkpoint_get_info(checkpoint)->step, steps[i]);
        ech_checkpoint_close(checkpoint);
    }
    /* a checkpoint that was asked for by name is not replaced by another */
    damage(directory, "step-00000008");
    ech_checkpoint *checkpoint;
    assert_int_equal(ech_checkpoint_find(eight, true, &checkpoint), ECH_EINPUT);
    assert_error_has("bytes 0..");
    free(eight);
    free(directory);
    scratch_remove(run);
}

TEST(test_replace)
{
    char *directory = scratch_make();
    for (int seed = 1; seed <= 3; seed++) {
        fixture_job job = {.directory = directory, .cut = BY_ROWS, .step = 4, .seed = seed};
        fixture_save(3, &job);
        assert_int_equal(job.results[0], ECH_OK);
        fixture_assert_newest(directory, 4, seed);
    }
    assert_false(has(directory, "step-00000004.old"));
    assert_false(has(directory, "step-00000004.tmp"));
    scratch_remove(directory);
}

/* The writer died between the two renames of a replacement, or right after them. */
TEST(test_old_folders)
{
    char *directory = scratch_make();
    fixture_save_one(directory, 3, 3);
    fixture_save_one(directory, 4, 4);
    move(directory, "step-00000004", "step-00000004.old");
    fixture_assert_newest(directory, 4, 4);
    fixture_save_one(directory, 2, 2); /* gives the old one its name back */
    assert_true(has(directory, "step-00000004"));
    assert_false(has(directory, "step-00000004.old"));
    fixture_assert_newest(directory, 4, 4);

    move(directory, "step-00000003", "step-00000004.old"); /* beside its successor: no checkpoint */
    damage(directory, "step-00000004");
    fixture_assert_newest(directory, 2, 2);
    fixture_save_one(directory, 4, 5);
    assert_false(has(directory, "step-00000004.old"));
    fixture_assert_newest(directory, 4, 5);
    scratch_remove(directory);
}

TEST(test_temporary_folders)
{
    char *directory = scratch_make();
    fixture_save_one(directory, 3, 3);
    fixture_save_one(directory, 9, 9);
    move(directory, "step-00000009", "step-00000009.tmp"); /* whole, but not named yet */
    fixture_assert_newest(directory, 3, 3);
    fixture_save_one(directory, 4, 4);
    assert_false(has(directory, "step-00000009.tmp"));
    fixture_assert_newest(directory, 4, 4);
    scratch_remove(directory);
}

TEST(test_prune)
{
    char *directory = scratch_make();
    static const char *const names[] = {"step-00000001", "step-00000002", "step-00000003",
                                        "step-00000004", "step-00000005", "step-00000009.tmp",
                                        "step-6"};
    for (int step = 1; step <= 5; step++) fixture_save_one(directory, step, step);
    for (int i = 5; i < 7; i++) {
        char *path = join(directory, names[i]);
        assert_int_equal(ech_file_make_folder(path), ECH_OK);
        free(path);
    }
    assert_int_equal(ech_checkpoint_prune(directory, 0, 0, INT64_MAX), ECH_OK);
    assert_int_equal(ech_checkpoint_prune(directory, 5, 0, INT64_MAX), ECH_OK);
    for (int i = 0; i < 7; i++) assert_true(has(directory, names[i]));

    assert_int_equal(ech_checkpoint_prune(directory, 3, 0, INT64_MAX), ECH_OK);
    for (int i = 0; i < 7; i++) assert_int_equal(has(directory, names[i]), i >= 2);

    /* One that is not whole does not count, and stays until it is replaced. */
    damage(directory, names[4]);
    assert_int_equal(ech_checkpoint_prune(directory, 1, 0, INT64_MAX), ECH_OK);
    for (int i = 0; i < 7; i++) assert_int_equal(has(directory, names[i]), i >= 3);
    damage(directory, names[3]);
    fixture_save_one(directory, 1, 1);
    damage(directory, names[0]);
    assert_int_equal(ech_checkpoint_prune(directory, 1, 0, INT64_MAX), ECH_EINPUT);
    for (int i = 3; i < 5; i++) assert_true(has(directory, names[i]));

    fixture_save_one(directory, 5, 5);
    assert_int_equal(ech_checkpoint_prune(directory, 1, 0, INT64_MAX), ECH_OK);
    for (int i = 0; i < 5; i++) assert_int_equal(has(directory, names[i]), i == 4);
    fixture_assert_newest(directory, 5, 5);
    scratch_remove(directory);
}

/* The newest checkpoint from which training has gone on stays, and all that are newer. */
TEST(test_prune_leaves_what_is_proven)
{
    char *directory = scratch_make();
    static const char *const names[] = {"step-00000001", "step-00000002", "step-00000003",
                                        "step-00000004"};
    static const int64_t proven[] = {-1, 0, 2, 3, 3, 4};
    static const int left[] = {4, 4, 3, 2, 2, 1};
    for (int step = 1; step <= 4; step++) fixture_save_one(directory, step, step);
    for (int k = 0; k < 6; k++) {
        assert_int_equal(ech_checkpoint_prune(directory, 1, 0, proven[k]), ECH_OK);
        for (int i = 0; i < 4; i++) assert_int_equal(has(directory, names[i]), i >= 4 - left[k]);
    }
    scratch_remove(directory);
}

/* Files of several hashed ranges, shared out over ranks; damage in one is named by its bytes. */
static ech_status save_ranges(ech_comm *comm, void *context)
{
    enum { ROWS = 40, COLUMNS = 1 << 18 }; /* 40 MiB of fp32 */
    int all[] = {0, 1, 2}, rank = ech_comm_rank(comm), size = ech_comm_size(comm);
    ech_group *world;
    ECH_TRY(ech_group_create(comm, "world", all, size, &world));
    ech_saved_tensor t = {.name = "w", .dtype = ECH_F32, .dims = 2, .shape = {ROWS, COLUMNS}};
    int64_t first = ROWS * rank / size, rows = ROWS * (rank + 1) / size - first, bytes;
    int64_t n = rows * COLUMNS;
    float *data = ech_calloc((size_t)n, sizeof *data);
    for (int64_t k = 0; k < n; k++) data[k] = (float)(first * COLUMNS + k);
    ech_tensor part = ech_tensor_2d(data, ECH_F32, rows, COLUMNS);
    ech_saved_add(&t, (int64_t[]){first, 0}, &part);
    ech_checkpoint_info info = fixture_info(1);
    ech_status st = ech_checkpoint_save(world, context, &info, &t, 1, &bytes);
    free(data);
    ech_group_destroy(world);
    return st;
}

TEST(test_several_ranges)
{
    char *directory = scratch_make(), *step = join(directory, "step-00000001");
    char *path = join(step, "model/model.safetensors");
    ech_checkpoint *checkpoint;
    for (int ranks = 1; ranks <= 3; ranks += 2) {
        assert_int_equal(ranks_run(ranks, 60, save_ranges, directory, NULL), ECH_OK);
        assert_int_equal(ech_checkpoint_open_newest(directory, true, &checkpoint), ECH_OK);
        float row[3];
        ech_saved_tensor t = {.name = "w", .dtype = ECH_F32, .dims = 2, .shape = {40, 1 << 18}};
        ech_tensor part = ech_tensor_2d(row, ECH_F32, 1, 3);
        ech_saved_add(&t, (int64_t[]){21, 7}, &part);
        assert_int_equal(ech_checkpoint_load(checkpoint, &t, 1), ECH_OK);
        for (int k = 0; k < 3; k++) assert_true(row[k] == (float)((21 << 18) + 7 + k));
        ech_checkpoint_close(checkpoint);
    }
    assert_false(has(step, "state"));
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "x", 1, 20 << 20), 1);
    close(fd);
    assert_int_equal(ech_checkpoint_open(step, true, &checkpoint), ECH_EINPUT);
    assert_error_has("bytes 16777216..33554432 are damaged");
    free(path);
    free(step);
    scratch_remove(directory);
}
