/* SPDX-License-Identifier: Apache-2.0
 *
 * The board: positions, marks, the abort flag, and their text in a report.
 */
#include "comm/board.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "comm/life.h"

enum { STALE_MS = 200 }; /* waits poll every 0.1 ms, on crowded machines every few ms */
enum { WORDS = ECH_BOARD_TEXT / sizeof(uint64_t) };

_Static_assert(sizeof(ech_board_slot) == 128, "a slot is two cache lines");
_Static_assert(offsetof(ech_board, slot) == 64, "slots start on a cache line");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "the board is shared between processes");

size_t ech_board_bytes(int slots)
{
    return sizeof(ech_board) + (size_t)slots * sizeof(ech_board_slot);
}

void ech_board_init(ech_board *board, int slots)
{
    memset(board, 0, ech_board_bytes(slots));
    atomic_store(&board->aborted_by, -1);
    board->slots = slots;
    board->magic = ECH_BOARD_MAGIC;
    for (int i = 0; i < slots; i++) {
        atomic_store(&board->slot[i].rank, -1);
        for (int t = 0; t < ECH_BOARD_THREADS; t++)
            atomic_store(&board->slot[i].mark[t].waits_for, -1);
        atomic_store(&board->slot[i].saves, -1);
        ech_board_set_position(board, i, -1, "");
    }
}

bool ech_board_take(ech_board *board, int members)
{
    int32_t none = 0;
    return atomic_compare_exchange_strong(&board->members, &none, members);
}

void ech_board_join(ech_board *board, int slot, int rank)
{
    int64_t dead = 2;
    atomic_compare_exchange_strong(&board->slot[slot].spared, &dead,
                                   1); /* another takes its place */
    atomic_store(&board->has_dead, 0);
    atomic_store(&board->slot[slot].rank, rank);
    atomic_store(&board->slot[slot].space, ech_life_space());
    atomic_store(&board->slot[slot].process, (int32_t)getpid());
}

void ech_board_leave(ech_board *board, int slot)
{
    atomic_store(&board->slot[slot].process, 0);
}

void ech_board_spare(ech_board *board, int slot)
{
    atomic_store(&board->slot[slot].spared, 1);
}

bool ech_board_lose(ech_board *board, int slot)
{
    if (!atomic_load(&board->slot[slot].spared)) return false;
    atomic_store(&board->slot[slot].spared, 2);
    return true;
}

void ech_board_note_death(ech_board *board, int slot)
{
    if (atomic_load(&board->slot[slot].process)) atomic_store(&board->has_dead, 1);
}

bool ech_board_has_dead(const ech_board *board)
{
    return atomic_load(&board->has_dead) != 0;
}

void ech_board_set_position(ech_board *board, int slot, int64_t step, const char *what)
{
    char text[ECH_BOARD_TEXT] = {0};
    uint64_t words[WORDS];
    memcpy(text, what, strnlen(what, ECH_BOARD_TEXT - 1));
    memcpy(words, text, sizeof words);
    ech_board_slot *at = &board->slot[slot];
    for (int i = 0; i < WORDS; i++)
        atomic_store_explicit(&at->text[i], words[i], memory_order_relaxed);
    atomic_store_explicit(&at->step, step, memory_order_relaxed);
}

void ech_board_set_wait(ech_board *board, int slot, ech_board_thread thread, int peer)
{
    ech_board_mark *mark = &board->slot[slot].mark[thread];
    uint32_t now_ms = (uint32_t)(uint64_t)(ech_clock_now() * 1000);
    atomic_store_explicit(&mark->looked, now_ms, memory_order_relaxed);
    atomic_store_explicit(&mark->waits_for, peer, memory_order_relaxed);
}

void ech_board_end_wait(ech_board *board, int slot, ech_board_thread thread, int peer, int next)
{
    int32_t own = peer;
    atomic_compare_exchange_strong(&board->slot[slot].mark[thread].waits_for, &own, next);
}

/* FNV-1a by words, over everything that ranks write while they run. */
uint64_t ech_board_pulse(const ech_board *board)
{
    const uint64_t fnv_prime = UINT64_C(0x100000001b3);
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int i = 0; i < board->slots; i++) {
        const ech_board_slot *at = &board->slot[i];
        hash = (hash ^ (uint64_t)atomic_load(&at->step)) * fnv_prime;
        hash = (hash ^ (uint64_t)atomic_load(&at->process)) * fnv_prime;
        hash = (hash ^ (uint64_t)atomic_load(&at->saves)) * fnv_prime;
        for (int t = 0; t < ECH_BOARD_THREADS; t++) {
            hash = (hash ^ (uint64_t)atomic_load(&at->mark[t].waits_for)) * fnv_prime;
            hash = (hash ^ atomic_load(&at->mark[t].looked)) * fnv_prime;
        }
        for (int w = 0; w < WORDS; w++) hash = (hash ^ atomic_load(&at->text[w])) * fnv_prime;
    }
    return (hash ^ (uint64_t)atomic_load(&board->progress)) * fnv_prime;
}

void ech_board_abort(ech_board *board, int rank)
{
    int32_t none = -1;
    atomic_compare_exchange_strong(&board->aborted_by, &none, rank);
}

void ech_board_give_reason(ech_board *board, ech_status status)
{
    int32_t none = ECH_OK;
    if (status != ECH_EABORTED) atomic_compare_exchange_strong(&board->reason, &none, status);
}

void ech_board_note_signal(ech_board *board, int signal)
{
    int32_t none = 0;
    atomic_compare_exchange_strong(&board->killed_by, &none, signal);
}

bool ech_board_aborted(const ech_board *board)
{
    return atomic_load_explicit(&board->aborted_by, memory_order_acquire) >= 0;
}

bool ech_board_claim_report(ech_board *board)
{
    return atomic_exchange(&board->reported, 1) == 0;
}

static const ech_board_slot *find_slot(const ech_board *board, int rank)
{
    /* Usually the ranks of a machine are consecutive. */
    int guess = rank - atomic_load(&board->slot[0].rank);
    if (guess >= 0 && guess < board->slots && atomic_load(&board->slot[guess].rank) == rank)
        return &board->slot[guess];
    for (int i = 0; i < board->slots; i++)
        if (atomic_load(&board->slot[i].rank) == rank) return &board->slot[i];
    return NULL;
}

static const ech_board_mark *find_mark(const ech_board_slot *at, ech_board_thread thread)
{
    return &at->mark[atomic_load(&at->saves) >= 0 ? thread : ECH_BOARD_RANK];
}

bool ech_board_waits(const ech_board *board, int rank, ech_board_thread thread)
{
    const ech_board_slot *at = find_slot(board, rank);
    return at && atomic_load(&find_mark(at, thread)->waits_for) >= 0;
}

static void describe_saver(const ech_board_slot *at, ech_text *out)
{
    long long saves = atomic_load(&at->saves);
    int peer = atomic_load(&at->mark[ECH_BOARD_SAVER].waits_for);
    if (saves < 0) return;
    ech_text_append(out, ", writing checkpoint %lld", saves);
    if (peer >= 0) ech_text_append(out, " (waits for rank %d there)", peer);
}

void ech_board_describe(const ech_board *board, int rank, ech_text *out)
{
    const ech_board_slot *at = find_slot(board, rank);
    if (!at) {
        ech_text_append(out, "on another machine");
        return;
    }
    char text[ECH_BOARD_TEXT];
    uint64_t words[WORDS];
    for (int i = 0; i < WORDS; i++)
        words[i] = atomic_load_explicit(&at->text[i], memory_order_relaxed);
    memcpy(text, words, sizeof text);
    text[ECH_BOARD_TEXT - 1] = '\0';

    int64_t step = atomic_load(&at->step);
    int peer = atomic_load(&at->mark[ECH_BOARD_RANK].waits_for);
    if (step >= 0)
        ech_text_append(out, "step %lld", (long long)step);
    else
        ech_text_append(out, "in no step");
    if (text[0]) ech_text_append(out, ", %s", text);
    if (atomic_load(&at->spared) == 2) {
        ech_text_append(out, ", where it has died; the others go on without it");
        return;
    }
    describe_saver(at, out);
    if (peer >= 0)
        ech_text_append(out, ", waits for rank %d", peer);
    else
        ech_text_append(out, ", does not wait");
}

void ech_board_print(const ech_board *board)
{
    for (int i = 0; i < board->slots; i++) {
        int rank = atomic_load(&board->slot[i].rank);
        ECH_FREED_TEXT text = {0};
        if (rank < 0) continue; /* it never joined, or the board has spare slots */
        ech_board_describe(board, rank, &text);
        ech_log_warn("rank %d: %s", rank, text.at);
    }
}

/* Follows the marks at least once around a cycle. */
int ech_board_culprit(const ech_board *board, int peer, ech_board_thread thread)
{
    uint32_t oldest = 0, newest = 0;
    int rank = peer, stopped = -1;
    for (int i = 0; i <= board->slots; i++) { /* the last may be on another machine */
        const ech_board_slot *at = find_slot(board, rank);
        const ech_board_mark *mark = at ? find_mark(at, thread) : NULL;
        int next = mark ? atomic_load(&mark->waits_for) : -1;
        if (next < 0) return rank;
        uint32_t looked = atomic_load(&mark->looked);
        if (stopped < 0 || (int32_t)(looked - newest) > 0) newest = looked;
        if (stopped < 0 || (int32_t)(looked - oldest) < 0) {
            oldest = looked;
            stopped = rank;
        }
        rank = next;
    }
    return newest - oldest > STALE_MS ? stopped : peer;
}

/* ---- the board in a mapped file, for ranks that are processes ---- */

static ech_status map(const ech_transient *file, int slots, ech_board **out)
{
    size_t bytes = ech_board_bytes(slots);
    /* Reserved now: a full /dev/shm must be an error here, not a bus error later. */
    int error = posix_fallocate(file->hold, 0, (off_t)bytes);
    if (error)
        ECH_FAIL(ECH_EIO,
                 "cannot reserve %zu bytes in %s: %s; give /dev/shm more (docker: --shm-size)",
                 bytes, file->path, strerror(error));
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->hold, 0);
    if (at == MAP_FAILED)
        ECH_FAIL(ECH_EIO, "cannot map %s: %s", file->path, ech_system_error(errno));
    *out = at;
    return ECH_OK;
}

ech_status ech_board_file_create(int slots, ech_transient *file, ech_board **out)
{
    ech_transient made;
    ECH_TRY(ech_transient_create(false, &made));
    ech_status st = map(&made, slots, out);
    if (st != ECH_OK) {
        ech_transient_remove(&made);
        return st;
    }
    ech_board_init(*out, slots);
    *file = made;
    return ECH_OK;
}

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

/* Maps the whole file if it is a board of this user with room for `slots`, else NULL. *error: of
 * open(2). */
static ech_board *map_path(const char *path, int slots, int *error)
{
    int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    *error = fd < 0 ? errno : 0;
    if (fd < 0) return NULL;
    ech_board *board = map_open(fd, slots);
    close(fd);
    return board;
}

ech_status ech_board_file_open(const char *path, int slots, ech_board **out)
{
    int error;
    ech_board *board = map_path(path, slots, &error);
    if (error)
        ECH_FAIL(ECH_EIO,
                 "cannot open %s, made by another process of this machine: %s (ranks in "
                 "containers must share /dev/shm)",
                 path, strerror(error));
    if (!board)
        ECH_FAIL(
            ECH_EIO,
            "%s: cannot be mapped as a board of %d ranks; start all ranks with the same program",
            path, slots);
    *out = board;
    return ECH_OK;
}

/* A path from another machine does not exist here, and a board that others have taken is theirs. */
ech_board *ech_board_file_take_given(int slots, ech_transient *file)
{
    int error;
    const char *given = getenv(ECH_BOARD_VARIABLE);
    if (!given || strlen(given) >= sizeof file->path) return NULL;
    ech_board *board = map_path(given, slots, &error);
    if (!board || !ech_board_take(board, slots)) {
        ech_board_file_unmap(board);
        return NULL;
    }
    file->hold = -1; /* its maker holds it */
    strcpy(file->path, given);
    return board;
}

ech_status ech_board_file_take(int slots, ech_transient *file, ech_board **out)
{
    ech_board *board = ech_board_file_take_given(slots, file);
    if (!board) {
        ECH_TRY(ech_board_file_create(slots, file, &board));
        ech_board_take(board, slots);
    }
    *out = board;
    return ECH_OK;
}

void ech_board_file_unmap(ech_board *board)
{
    if (board) munmap(board, ech_board_bytes(board->slots));
}
