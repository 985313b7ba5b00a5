/* SPDX-License-Identifier: Apache-2.0
 *
 * The board of a job on one machine: the abort flag and each rank's last position. Under `local` it
 * lies in the process, under `mpi` in a small mapped file: of whoever started the launcher, who then
 * still has the positions when the ranks are dead, or of the ranks' own. All fields are lock-free
 * atomics; a text read while it changes may mix two positions, which is harmless in a report.
 */
#ifndef ECH_COMM_BOARD_H
#define ECH_COMM_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

enum { ECH_BOARD_TEXT = 40, ECH_BOARD_MAGIC = 0x45434843 };

/* In the environment of ranks: the path of a board for them. */
#define ECH_BOARD_VARIABLE "ECHELON_BOARD"

typedef struct ech_board_slot {
    _Atomic int64_t step;      /* -1: outside of any step */
    _Atomic int32_t rank;      /* in the job; -1 until the rank has joined */
    _Atomic int32_t waits_for; /* the rank it waits for; -1: it does not wait */
    _Atomic uint32_t looked; /* milliseconds, wrapping: when it last looked for the end of a wait */
    _Atomic int32_t process; /* its id while it is on the board; 0: not yet, or it has left */
    _Atomic uint64_t text[ECH_BOARD_TEXT / sizeof(uint64_t)];
    /* Of the thread that writes its checkpoint meanwhile. */
    _Atomic int64_t saves; /* the checkpoint's step; -1: none is being written */
    _Atomic int32_t saver_waits_for;
    _Atomic uint32_t saver_looked;
    _Atomic uint64_t space; /* of the process' id (ech_life_space) */
    int64_t padding[5];     /* to a cache line */
} ech_board_slot;

typedef struct ech_board {
    _Atomic int32_t aborted_by; /* the first rank that raised the abort flag; -1: none */
    _Atomic int32_t reported;   /* a rank has printed all positions */
    int32_t slots;
    _Atomic int32_t members; /* ranks that share the board, as its taker said; 0: nobody has it */
    uint32_t magic;
    _Atomic int32_t progress;   /* training steps done since the start, by the first rank here */
    _Atomic int32_t is_watched; /* who has made it sees deaths, and reports them */
    _Atomic int32_t is_final;   /* it is not to be started again: that would not go on from here */
    int32_t padding[8];         /* slots start on a cache line */
    ech_board_slot slot[];
} ech_board;

size_t ech_board_bytes(int slots);
void ech_board_init(ech_board *board, int slots);

/* True for one caller only: the board is its machine's, for `members` ranks. */
bool ech_board_take(ech_board *board, int members);

void ech_board_join(ech_board *board, int slot, int rank);
/* The rank has done what it had to; its position stays. */
void ech_board_leave(ech_board *board, int slot);
void ech_board_set_position(ech_board *board, int slot, int64_t step, const char *what);
void ech_board_set_wait(ech_board *board, int slot, int peer);
/* Replaces a mark by `next`, another peer or -1, unless the mark has become another one: that is of
 * another thread of the rank, which still waits. */
void ech_board_end_wait(ech_board *board, int slot, int peer, int next);
bool ech_board_waits(const ech_board *board, int rank);
/* The same of the rank's thread that writes a checkpoint; peer -1: it does not wait. A rank that
 * writes none at the moment counts as its other threads do. */
void ech_board_set_saving(ech_board *board, int slot, int64_t step);
void ech_board_set_saver_wait(ech_board *board, int slot, int peer);
bool ech_board_saver_waits(const ech_board *board, int rank);

/* A training step is done. */
void ech_board_count_step(ech_board *board);

/* Another number whenever a rank has changed its position or its waits, or looked. */
uint64_t ech_board_pulse(const ech_board *board);

/* Raises the abort flag; the first rank to do so is remembered. */
void ech_board_abort(ech_board *board, int rank);
bool ech_board_aborted(const ech_board *board);

/* True for one caller only: that one prints the positions for all. */
bool ech_board_claim_report(ech_board *board);

/* Where `rank` is, for people: "step 3, forward 0, waits for rank 1"; or "step 3, forward 0, writing
 * checkpoint 2, does not wait". */
void ech_board_describe(const ech_board *board, int rank, ech_text *out);

/* All positions as warnings, a line a rank. */
void ech_board_print(const ech_board *board);

/* Whom the job waits for when the caller waits for `peer`: from there along the waits to a rank that
 * does not wait or is not on this board. If they go in a circle, then the rank that has not looked
 * for longest, since who is stopped amid a wait keeps its mark; `peer` itself if all look. */
int ech_board_culprit(const ech_board *board, int peer);
/* The same for who writes a checkpoint and waits for another rank's writer. */
int ech_board_saver_culprit(const ech_board *board, int peer);

/* A board in a mapped file of this machine, of `slots` slots. create: a new file, whose path is written to
 * path[size], and which is nobody's to be swept (comm/transient.h) until *hold is closed. take: the board
 * that ECH_BOARD_VARIABLE names if it is one of this machine that nobody has taken (*hold -1), otherwise
 * a new one; take_given: or NULL. open: that of another process, with at least as many slots. The file is
 * needed until everybody has opened it, and best removed then. Errors: ECH_EIO. */
ech_status ech_board_file_create(int slots, char *path, size_t size, ech_board **out, int *hold);
ech_status ech_board_file_take(int slots, char *path, size_t size, ech_board **out, int *hold);
ech_board *ech_board_file_take_given(int slots, char *path, size_t size);
ech_status ech_board_file_open(const char *path, int slots, ech_board **out);
void ech_board_file_unmap(ech_board *board);

#endif
