/* SPDX-License-Identifier: Apache-2.0
 *
 * Damaged checkpoints: cut at every length, every bit flipped, files missing or swapped. Each is
 * refused, and the older one is taken with a word about why.
 */
#include <sys/stat.h>

#include "checkpoint/fixture.h"
#include "checkpoint/shards.h"

static const char *const files[] = {"manifest.json",           "model/config.json",
                                    "model/model.safetensors", "state/state.safetensors",
                                    "model/tokenizer.json",    "model/tokenizer_config.json"};
enum { FILES = 6 };

static char *newest_of(const char *directory, const char *name)
{
    char *step = ech_file_join(directory, "step-00000002");
    char *path = ech_file_join(step, name);
    free(step);
    return path;
}

/* A directory with the whole steps 1 and 2, of seeds 1 and 2. */
static void add_tokenizer(int rank, ech_checkpoint_info *info, ech_saved_tensor *tensors, int *n)
{
    (void)rank, (void)tensors, (void)n;
    info->text[ECH_FILE_TOKENIZER].at = (char *)(uintptr_t) "{\"version\": \"1.0\"}";
    info->text[ECH_FILE_TOKENIZER].n = 18;
    info->text[ECH_FILE_TOKENIZER_CONFIG].at = (char *)(uintptr_t) "{}";
    info->text[ECH_FILE_TOKENIZER_CONFIG].n = 2;
}

static char *make_two(void)
{
    char *directory = scratch_make();
    fixture_save_one(directory, 1, 1);
    fixture_job job = {.directory = directory, .step = 2, .seed = 2, .change = add_tokenizer};
    fixture_save(1, &job);
    assert_int_equal(job.results[0], ECH_OK);
    return directory;
}

static void assert_refused(const char *directory, const char *file, size_t place)
{
    ech_checkpoint *checkpoint = NULL;
    char *path = ech_file_join(directory, "step-00000002");
    if (ech_checkpoint_open(path, true, &checkpoint) == ECH_OK) {
        fail_msg("taken, with damage at %zu of %s", place, file);
    }
    assert_null(checkpoint);
    assert_error_has("step-00000002");
    free(path);
}

/* The same, and what it says about it on standard error. */
static void assert_newest_says(const char *directory, int64_t step, int seed, const char *says)
{
    char *path = ech_file_join(directory, "said");
    int said = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    int kept = dup(STDERR_FILENO);
    dup2(said, STDERR_FILENO);
    bool quiet = ech_log_set_quiet(false);
    fixture_assert_newest(directory, step, seed);
    ech_log_set_quiet(quiet);
    dup2(kept, STDERR_FILENO);
    close(kept);
    char text[2048] = "";
    ssize_t n = pread(said, text, sizeof text - 1, 0);
    close(said);
    assert_true(n >= 0);
    if (!strstr(text, says) || !strstr(text, "skipped")) {
        fail_msg("it said \"%s\", not \"%s\"", text, says);
    }
    unlink(path);
    free(path);
}

TEST(test_cut_at_every_length)
{
    char *directory = make_two();
    for (int f = 0; f < FILES; f++) {
        char *path = newest_of(directory, files[f]), *bytes;
        size_t n;
        assert_int_equal(ech_file_read(path, 1 << 20, &bytes, &n), ECH_OK);
        for (size_t cut = n; cut-- > 0;) {
            assert_int_equal(truncate(path, (off_t)cut), 0);
            assert_refused(directory, files[f], cut);
            if (cut % 1000 == 0) fixture_assert_newest(directory, 1, 1);
        }
        assert_newest_says(directory, 1, 1, files[f]);
        scratch_replace(path, bytes, n);
        free(bytes);
        free(path);
    }
    fixture_assert_newest(directory, 2, 2);
    scratch_remove(directory);
}

static void flip(int fd, size_t bit)
{
    unsigned char byte;
    assert_int_equal(pread(fd, &byte, 1, (off_t)(bit / 8)), 1);
    byte ^= (unsigned char)(1 << bit % 8);
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)(bit / 8)), 1);
}

TEST(test_every_bit)
{
    char *directory = make_two();
    for (int f = 0; f < FILES; f++) {
        char *path = newest_of(directory, files[f]);
        struct stat info;
        assert_int_equal(stat(path, &info), 0);
        int fd = open(path, O_RDWR);
        for (size_t bit = 0; bit < 8 * (size_t)info.st_size; bit++) {
            flip(fd, bit);
            assert_refused(directory, files[f], bit);
            if (bit % 9973 == 0) fixture_assert_newest(directory, 1, 1);
            flip(fd, bit);
        }
        flip(fd, 5);
        assert_newest_says(directory, 1, 1, files[f]);
        flip(fd, 5);
        close(fd);
        free(path);
    }
    fixture_assert_newest(directory, 2, 2);
    scratch_remove(directory);
}

TEST(test_too_long)
{
    char *directory = make_two();
    for (int f = 0; f < FILES; f++) {
        char *path = newest_of(directory, files[f]);
        struct stat info;
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(truncate(path, info.st_size + 1), 0);
        assert_refused(directory, files[f], (size_t)info.st_size);
        assert_int_equal(truncate(path, info.st_size), 0);
        free(path);
    }
    fixture_assert_newest(directory, 2, 2);
    scratch_remove(directory);
}

TEST(test_missing_and_strange_files)
{
    char *directory = make_two();
    for (int f = 0; f < FILES; f++) {
        char *path = newest_of(directory, files[f]);
        char *aside = ech_file_join(directory, "aside");
        assert_int_equal(rename(path, aside), 0);
        assert_refused(directory, files[f], 0);
        assert_newest_says(directory, 1, 1, "step-00000002");
        assert_int_equal(mkdir(path, 0700), 0);
        assert_refused(directory, files[f], 0);
        assert_int_equal(rmdir(path), 0);
        if (f > 0) { /* a pipe nobody writes to must not be waited for */
            assert_int_equal(mkfifo(path, 0600), 0);
            assert_refused(directory, files[f], 0);
            assert_int_equal(unlink(path), 0);
        }
        assert_int_equal(rename(aside, path), 0);
        free(aside);
        free(path);
    }
    fixture_assert_newest(directory, 2, 2);
    scratch_remove(directory);
}

/* Files of two steps mixed, and a folder under another step's name. */
TEST(test_mixed_steps)
{
    char *directory = make_two();
    char *one = ech_file_join(directory, "step-00000001"), *bytes;
    char *from = ech_file_join(one, files[3]), *to = newest_of(directory, files[3]);
    size_t n;
    assert_int_equal(ech_file_read(from, 1 << 20, &bytes, &n), ECH_OK);
    scratch_replace(to, bytes, n);
    free(bytes);
    assert_newest_says(directory, 1, 1, files[3]);

    char *nine = ech_file_join(directory, "step-00000009");
    assert_int_equal(rename(one, nine), 0);
    ech_checkpoint *checkpoint = NULL;
    assert_int_equal(ech_checkpoint_open_newest(directory, true, &checkpoint), ECH_EINPUT);
    assert_error_has("none of its 2 checkpoints");
    assert_int_equal(rename(nine, one), 0);
    assert_newest_says(directory, 1, 1, files[3]);
    free(nine);
    free(from);
    free(to);
    free(one);
    scratch_remove(directory);
}

/* What a resume reads before it verifies, and what a choice without verifying rests on. */
TEST(test_without_verify_texts_are_checked)
{
    static const char *const texts[] = {"model/config.json", "model/tokenizer.json",
                                        "model/tokenizer_config.json"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char *directory = make_two();
        char *path = newest_of(directory, texts[i]);
        ech_checkpoint *checkpoint;
        int fd = open(path, O_RDWR);
        flip(fd, 1);
        close(fd);
        assert_int_equal(ech_checkpoint_open_newest(directory, false, &checkpoint), ECH_OK);
        assert_int_equal(ech_checkpoint_get_info(checkpoint)->step, 1);
        ech_checkpoint_close(checkpoint);
        free(path);
        scratch_remove(directory);
    }
}

TEST(test_without_verify_sizes_are_checked)
{
    char *directory = make_two();
    char *path = newest_of(directory, files[2]);
    char *step = ech_file_join(directory, "step-00000002");
    ech_checkpoint *checkpoint;
    assert_int_equal(ech_checkpoint_open(step, false, &checkpoint), ECH_OK);
    assert_string_equal(ech_checkpoint_path(checkpoint), step);
    assert_true(fixture_holds(checkpoint, 2));
    ech_checkpoint_close(checkpoint);
    assert_int_equal(truncate(path, 4096), 0);
    assert_int_equal(ech_checkpoint_open(step, false, &checkpoint), ECH_EINPUT);
    assert_error_has("4096 bytes");
    free(step);
    free(path);
    scratch_remove(directory);
}

/* Opens model/ of step 2 by one of its names. */
static ech_status open_model(const char *folder, bool verify)
{
    const ech_family family = {.prefix = "", .buffers = ""};
    ech_shards *weights = NULL;
    char *found;
    ech_status st = ech_shards_find(folder, &found);
    if (st == ECH_OK) {
        st = ech_shards_open(found, &family, false, verify, &weights);
        free(found);
    }
    ech_shards_close(weights);
    return st;
}

/* A path that names model/ itself is checked by the hashes beside it, under any name and without
 * state/. */
TEST(test_model_folders_named_directly)
{
    char *directory = make_two(), *step = newest_of(directory, ""),
         *model = newest_of(directory, "model");
    char *link = ech_file_join(directory, "best"), *dot = ech_file_join(model, ".");
    char *state_folder = newest_of(directory, "state");
    const char *const names[] = {step, model, link, dot};
    assert_int_equal(symlink(model, link), 0);
    assert_int_equal(ech_file_remove_all(state_folder), ECH_OK);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(open_model(names[i], true), ECH_OK);
    for (int f = 0; f < FILES; f++) {
        if (f == 3) continue;
        char *path = newest_of(directory, files[f]);
        struct stat info;
        assert_int_equal(stat(path, &info), 0);
        int fd = open(path, O_RDWR);
        for (size_t bit = 3; bit < 8 * (size_t)info.st_size; bit += 997) {
            flip(fd, bit);
            for (size_t i = 0; i < sizeof names / sizeof *names; i++)
                if (open_model(names[i], true) == ECH_OK)
                    fail_msg("%s: taken, with bit %zu of %s flipped", names[i], bit, files[f]);
            assert_error_has(files[f]);
            flip(fd, bit);
        }
        close(fd);
        free(path);
    }
    assert_int_equal(open_model(link, true), ECH_OK);
    free(state_folder);
    free(dot);
    free(link);
    free(model);
    free(step);
    scratch_remove(directory);
}

/* The name of a checkpoint without its manifest is one that was never finished; other folders have
 * no hashes, and a manifest of somebody else's says nothing. */
TEST(test_model_folders_of_others)
{
    char *directory = make_two(), *step = newest_of(directory, "");
    char *manifest = newest_of(directory, "manifest.json"),
         *other = ech_file_join(directory, "other");
    assert_int_equal(unlink(manifest), 0);
    assert_int_equal(open_model(step, false), ECH_EINPUT);
    assert_error_has("its save did not finish");
    step[strlen(step) - 1] = '\0'; /* the slash */
    assert_int_equal(rename(step, other), 0);
    assert_int_equal(open_model(other, true), ECH_OK);
    free(scratch_write(other, "manifest.json", "{\"name\":\"a web page\"}", 21));
    assert_int_equal(open_model(other, true), ECH_OK);
    free(scratch_write(other, "manifest.json", "{\"format\":\"echelon checkpoint\"}", 31));
    assert_int_equal(open_model(other, true), ECH_EINPUT);
    free(other);
    free(manifest);
    free(step);
    scratch_remove(directory);
}
