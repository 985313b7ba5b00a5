/* SPDX-License-Identifier: Apache-2.0
 *
 * Disk arenas: their bytes, what is left over, and what stands in their way.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/random.h"
#include "device/disk.h"
#include "unit.h"

enum { PAGE = ECH_DISK_ALIGNMENT, PAGES = 64 };
static char folder[256];

static int open_folder(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/echelon-test-XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return ech_file_remove_all(folder) == ECH_OK ? 0 : -1;
}

/* NULL: it is refused. */
static ech_disk *make(const char *where, int rank, int64_t bytes)
{
    ech_disk *disk = NULL;
    ech_status status = ech_disk_create(where, "memory.offload_directory", rank, bytes, &disk);
    assert_int_equal(status, disk ? ECH_OK : ECH_EIO);
    return disk;
}

static void refused(const char *where, int rank, int64_t bytes, const char *why)
{
    ech_disk *disk = make(where, rank, bytes);
    assert_null(disk);
    assert_non_null(strstr(ech_last_error(), "memory.offload_directory"));
    if (!strstr(ech_last_error(), why)) fail_msg("%s", ech_last_error());
}

static bool has(const char *name)
{
    return ech_file_has(folder, name);
}

static void put(const char *name)
{
    char *path = ech_file_join(folder, name);
    assert_int_equal(ech_file_write(path, "left", 4), ECH_OK);
    free(path);
}

/* Whether the file system of the folder has direct I/O. */
static bool can_be_direct(void)
{
    char *path = ech_file_join(folder, "probe");
    int fd = open(path, O_RDWR | O_CREAT | O_DIRECT, 0600);
    if (fd >= 0) close(fd);
    unlink(path);
    free(path);
    return fd >= 0;
}

TEST(bytes_come_back)
{
    struct stat info;
    ech_disk *disk = make(folder, 3, PAGES * PAGE), *other = make(folder, 4, PAGE);
    assert_int_equal(stat(ech_disk_path(disk), &info), 0);
    assert_int_equal(info.st_size, PAGES * PAGE);
    assert_true(info.st_blocks * 512 >= PAGES * PAGE); /* reserved */
    assert_int_equal(ech_disk_is_direct(disk), can_be_direct());
    unsigned char *data = aligned_alloc(PAGE, PAGES * PAGE), *back = aligned_alloc(PAGE, 8 * PAGE);
    for (int i = 0; i < PAGES * PAGE; i++) data[i] = (unsigned char)(i * 7 + i / 4001);
    for (int p = PAGES - 1; p >= 0; p--) /* in parts, last first */
        assert_int_equal(ech_disk_write(disk, p * PAGE, data + p * PAGE, PAGE), ECH_OK);
    for (int p = 0; p < PAGES; p += 8) {
        assert_int_equal(ech_disk_read(disk, p * PAGE, back, 8 * PAGE), ECH_OK);
        assert_memory_equal(back, data + p * PAGE, 8 * PAGE);
    }
    assert_int_equal(ech_disk_read(other, 0, back, PAGE), ECH_OK);
    for (int i = 0; i < PAGE; i++) assert_int_equal(back[i], 0);

    assert_int_equal(truncate(ech_disk_path(disk), 5 * PAGE), 0);
    assert_int_equal(ech_disk_read(disk, 4 * PAGE, back, 2 * PAGE), ECH_EINPUT);
    assert_int_equal(ech_disk_write(disk, 6 * PAGE, data, PAGE), ECH_EINPUT); /* a hole before it */
    assert_non_null(strstr(ech_last_error(), "rank-3.offload"));
    free(data);
    free(back);
    ech_disk_destroy(disk);
    assert_true(!has("rank-3.offload") && has("rank-4.offload"));
    ech_disk_destroy(other);
    assert_false(has("rank-4.offload"));
}

/* Ranges that begin and end anywhere, some in one block and some longer than what is moved at once,
 * against an array. */
TEST(any_range_is_written_and_read)
{
    enum { BYTES = 3000 * PAGE, TRIALS = 40 };
    ech_disk *disk = make(folder, 0, BYTES);
    unsigned char *data = calloc(1, BYTES), *back = malloc(BYTES);
    ech_random_key key = {.seed = 18};
    for (int t = 0; t < TRIALS; t++) {
        uint64_t longest = t % 3 == 0 ? BYTES : t % 3 == 1 ? PAGE : 3 * PAGE;
        size_t bytes = 1 + ech_random_word(key, (uint64_t)(2 * t)) % longest;
        size_t at = ech_random_word(key, (uint64_t)(2 * t + 1)) % (BYTES - bytes + 1);
        for (size_t i = at; i < at + bytes; i++) data[i] = (unsigned char)(i * 7 + (size_t)t * 31);
        assert_int_equal(ech_disk_put(disk, (int64_t)at, data + at, bytes), ECH_OK);
        size_t from = at / 2;
        assert_int_equal(ech_disk_get(disk, (int64_t)from, back, BYTES - from), ECH_OK);
        assert_memory_equal(back, data + from, BYTES - from);
    }
    free(data);
    free(back);
    ech_disk_destroy(disk);
}

TEST(what_is_left_over_is_removed)
{
    static const char *const left[] = {"rank-0.offload", "rank-1.offload", "rank-12.offload"};
    static const char *const others[] = {"rank-.offload", "rank-1.offload.gz", "notes"};
    for (int i = 0; i < 3; i++) put(left[i]), put(others[i]);
    ech_disk *disk = make(folder, 1, PAGE), *beside = make(folder, 2, PAGE);
    assert_true(!has(left[0]) && has(left[1]) && !has(left[2]));
    for (int i = 0; i < 3; i++) assert_true(has(others[i]));
    assert_true(has("rank-2.offload")); /* which is locked */
    ech_disk_destroy(beside);
    ech_disk_destroy(disk);
    assert_false(has(left[1]));
    put(left[0]);
    ech_disk_sweep(folder); /* of a run that makes none */
    assert_true(!has(left[0]) && has(others[0]));
    ech_disk_sweep("/proc/echelon-offload"); /* not there */
}

/* A killed run's file stays, without a lock. */
TEST(the_next_start_removes_a_killed_runs)
{
    pid_t child = fork();
    if (child == 0) {
        ech_disk *disk;
        if (ech_disk_create(folder, "x", 5, PAGE, &disk) == ECH_OK) raise(SIGKILL);
        _exit(1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && has("rank-5.offload"));
    ech_disk *disk = make(folder, 0, PAGE);
    assert_false(has("rank-5.offload"));
    ech_disk_destroy(disk);
}

TEST(what_stands_in_the_way)
{
    struct statvfs info;
    ech_disk *first = make(folder, 0, PAGE);
    refused(folder, 0, PAGE, "another run");
    assert_true(has("rank-0.offload"));

    assert_int_equal(statvfs(folder, &info), 0);
    int64_t is_free = (int64_t)(info.f_bavail * info.f_frsize);
    refused(folder, 1, (is_free + (INT64_C(1) << 40)) & -PAGE, "free some space");
    assert_false(has("rank-1.offload"));

    refused("/proc/echelon-offload", 0, PAGE, "cannot make the folder");
    put("file");
    char *below = ech_file_join(folder, "file/offload");
    refused(below, 0, PAGE, "file");
    free(below);

    /* A link of that name is not followed. */
    char *victim = ech_file_join(folder, "notes"), *link = ech_file_join(folder, "rank-2.offload");
    put("notes");
    assert_int_equal(symlink(victim, link), 0);
    refused(folder, 2, PAGE, "cannot make the file");
    assert_int_equal(unlink(link), 0);
    free(victim);
    free(link);
    ech_disk_destroy(first);
}

EACH_TEST(open_folder, remove_folder)
