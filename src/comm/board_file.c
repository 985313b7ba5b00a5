/* SPDX-License-Identifier: Apache-2.0
 *
 * The board in a mapped file, for ranks that are processes.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/board.h"
#include "comm/transient.h"

static ech_status map(int fd, const char *path, int slots, ech_board **out)
{
    void *at = mmap(NULL, ech_board_bytes(slots), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) ECH_FAIL(ECH_EIO, "cannot map %s: %s", path, strerror(errno));
    *out = at;
    return ECH_OK;
}

ech_status ech_board_file_create(int slots, char *path, size_t size, ech_board **out, int *hold)
{
    int fd;
    ECH_TRY(ech_transient_create(false, path, size, &fd));

    /* Reserved now: a full /dev/shm must be an error here, not a bus error later. */
    int error = posix_fallocate(fd, 0, (off_t)ech_board_bytes(slots));
    ech_status st = ECH_OK;
    if (error)
        st = ech_fail_at(__FILE__, __LINE__, ECH_EIO, "cannot reserve %zu bytes in %s: %s",
                         ech_board_bytes(slots), path, strerror(error));
    else
        st = map(fd, path, slots, out);
    if (st != ECH_OK) {
        unlink(path);
        close(fd);
        return st;
    }
    *hold = fd;
    ech_board_init(*out, slots);
    return ECH_OK;
}

/* Maps the whole of an open file, if that is a board of ours with room for `slots`. */
static ech_board *map_open(int fd, int slots)
{
    struct stat file;
    if (fstat(fd, &file) != 0 || !S_ISREG(file.st_mode) || file.st_uid != geteuid()) return NULL;
    if ((size_t)file.st_size < ech_board_bytes(slots)) return NULL;
    ech_board *board = mmap(NULL, (size_t)file.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (board == MAP_FAILED) return NULL;
    bool whole = board->magic == ECH_BOARD_MAGIC && board->slots >= slots &&
                 ech_board_bytes(board->slots) == (size_t)file.st_size;
    if (whole) return board;
    munmap(board, (size_t)file.st_size);
    return NULL;
}

ech_status ech_board_file_open(const char *path, int slots, ech_board **out)
{
    int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        ECH_FAIL(ECH_EIO,
                 "cannot open %s, made by another process of this machine: %s (ranks in "
                 "containers must share /dev/shm)",
                 path, strerror(errno));
    ech_board *board = map_open(fd, slots);
    close(fd);
    if (!board) ECH_FAIL(ECH_EIO, "%s: cannot be mapped as a board of %d ranks", path, slots);
    *out = board;
    return ECH_OK;
}

/* A path from another machine names nothing here, and one that others have taken is theirs. */
ech_board *ech_board_file_take_given(int slots, char *path, size_t size)
{
    const char *given = getenv(ECH_BOARD_VARIABLE);
    if (!given || strlen(given) >= size) return NULL;
    int fd = open(given, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return NULL;
    ech_board *board = map_open(fd, slots);
    close(fd);
    if (board && !ech_board_take(board, slots)) {
        ech_board_file_unmap(board);
        return NULL;
    }
    if (board) strcpy(path, given);
    return board;
}

ech_status ech_board_file_take(int slots, char *path, size_t size, ech_board **out, int *hold)
{
    ech_board *given = ech_board_file_take_given(slots, path, size);
    if (given) {
        *out = given;
        *hold = -1; /* who has made it holds it */
        return ECH_OK;
    }
    ECH_TRY(ech_board_file_create(slots, path, size, out, hold));
    ech_board_take(*out, slots);
    return ECH_OK;
}

void ech_board_file_unmap(ech_board *board)
{
    if (board) munmap(board, ech_board_bytes(board->slots));
}
