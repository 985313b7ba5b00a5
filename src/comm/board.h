/* SPDX-License-Identifier: Apache-2.0
 *
 * The board: memory that the ranks of a job on one machine share. It holds the abort flag and, for
 * each rank, its position (training step and a text) and which rank it waits for. So a report can
 * name the rank that holds up or ended the job. Under `local` it is ordinary memory, under `mpi` a
 * small mapped file. The job monitor, which starts the launcher, may make that file: it can then
 * read the positions after the ranks have died. Fields that change are lock-free atomics; a text
 * that is read while it changes may mix two positions, harmless in a report. A slot is a rank's
 * index among the ranks of the machine. No call is collective.
 */
#ifndef ECH_COMM_BOARD_H
#define ECH_COMM_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "comm/transient.h"

/* Bytes of a position's text with its NUL; the magic number of a board's file. */
enum { ECH_BOARD_TEXT = 40, ECH_BOARD_MAGIC = 0x45434843 };

/* Environment variable of ranks: the path of the board that the job monitor made for them. */
#define ECH_BOARD_VARIABLE "ECHELON_BOARD"

/* The threads of a rank that wait for other ranks. */
typedef enum ech_board_thread {
    ECH_BOARD_RANK,  /* all but the saver; they share a mark */
    ECH_BOARD_SAVER, /* the one that writes the rank's part of a checkpoint */
    ECH_BOARD_THREADS
} ech_board_thread;

/* A mark: the wait of a thread. */
typedef struct ech_board_mark {
    _Atomic int32_t waits_for; /* the rank it waits for; -1: it does not wait */
    _Atomic uint32_t looked;   /* heartbeat: ms on ech_clock_now, wrapping, of its last poll */
} ech_board_mark;

typedef struct ech_board_slot {
    _Atomic int64_t step;    /* training step; -1: outside of any */
    _Atomic int32_t rank;    /* in the job; -1 until it has joined */
    _Atomic int32_t process; /* process id from join to leave; 0: before and after */
    _Atomic uint64_t space;  /* namespace of the process id (ech_life_space) */
    _Atomic int64_t saves;   /* training step of the checkpoint being written; -1: none */
    _Atomic uint64_t text[ECH_BOARD_TEXT / sizeof(uint64_t)]; /* of the position */
    ech_board_mark mark[ECH_BOARD_THREADS];
    _Atomic int64_t spared; /* 1: its death does not end the job (ech_comm_spare); 2: it has died */
    int64_t padding[4];     /* to a cache line */
} ech_board_slot;

typedef struct ech_board {
    _Atomic int32_t aborted_by; /* the abort flag: the rank that raised it first; -1: none has */
    _Atomic int32_t reported;   /* all positions have been printed */
    int32_t slots;
    _Atomic int32_t members; /* ranks that use the board; 0: not taken yet (ech_board_take) */
    uint32_t magic;
    _Atomic int32_t progress;   /* training steps since the start, counted by slot 0's rank */
    _Atomic int32_t is_watched; /* the job monitor reports deaths of ranks: the guard does not */
    _Atomic int32_t is_final;   /* ech_comm_forbid_restart was called */
    _Atomic int32_t has_dead;   /* ech_board_note_death was called */
    _Atomic int32_t reason;     /* the status with which a rank failed first; ECH_OK: none has */
    _Atomic int32_t killed_by;  /* the signal that a launcher saw end a rank first; 0: none */
    int32_t padding[5];         /* slots start on a cache line */
    ech_board_slot slot[];
} ech_board;

size_t ech_board_bytes(int slots);
void ech_board_init(ech_board *board, int slots);

/* Takes the board for the `members` ranks of a machine. True for the first caller only. */
bool ech_board_take(ech_board *board, int members);

/* Enters a rank and its process. */
void ech_board_join(ech_board *board, int slot, int rank);
/* Clears the process, when the rank ends as it should; its position stays. A process that ends
 * before has died. */
void ech_board_leave(ech_board *board, int slot);
/* Marks the rank as spared. */
void ech_board_spare(ech_board *board, int slot);
/* Notes that a rank has died. True if it is spared: then the job continues, and the rank's text
 * says that it died until another process joins in its place. */
bool ech_board_lose(ech_board *board, int slot);
/* Notes that this rank found another rank's process ended and is about to give up. If that process
 * has not left, its death explains the end of the job, also to a job monitor that sees the abort
 * flag at the same time. Valid until another process joins. */
void ech_board_note_death(ech_board *board, int slot);
bool ech_board_has_dead(const ech_board *board);
void ech_board_set_position(ech_board *board, int slot, int64_t step, const char *what);
/* Sets a thread's mark and heartbeat; peer -1: it does not wait. */
void ech_board_set_wait(ech_board *board, int slot, ech_board_thread thread, int peer);
/* Changes the mark from `peer` to `next` (a rank, or -1). Does nothing if the mark is not `peer`:
 * then another thread of the rank has set it, and still waits. */
void ech_board_end_wait(ech_board *board, int slot, ech_board_thread thread, int peer, int next);
/* True if a rank's thread waits; false for a rank of another machine. A rank that writes no
 * checkpoint has no saver: for SAVER its ECH_BOARD_RANK counts then. */
bool ech_board_waits(const ech_board *board, int rank, ech_board_thread thread);

/* A hash of all positions, marks, heartbeats and the progress: it changes whenever a rank does
 * anything. */
uint64_t ech_board_pulse(const ech_board *board);

/* Raises the abort flag; the first rank to do so stays in aborted_by. */
void ech_board_abort(ech_board *board, int rank);
bool ech_board_aborted(const ech_board *board);
/* Notes why a rank ends the job. The first status that is an error of that rank's own stays in
 * `reason`, so that all ranks of the machine have the same exit code. */
void ech_board_give_reason(ech_board *board, ech_status status);
/* Notes the signal that ended a rank; the first one stays in killed_by. */
void ech_board_note_signal(ech_board *board, int signal);

/* True for the first caller only, which prints the positions for all. */
bool ech_board_claim_report(ech_board *board);

/* Appends a rank's position and marks as text: "step 3, forward 0, waits for rank 1", or "step 3,
 * forward 0, writing checkpoint 2, does not wait". */
void ech_board_describe(const ech_board *board, int rank, ech_text *out);

/* Logs all positions as warnings, one line per rank. */
void ech_board_print(const ech_board *board);

/* The rank that holds up a `thread` waiting for rank `peer`. Follows the marks of other ranks'
 * `thread`s from `peer` to a rank that does not wait or is not on this board. If the marks form a
 * cycle, it is the rank with the oldest heartbeat, since a rank that was suspended during a wait
 * keeps its mark; `peer` if all heartbeats are recent. */
int ech_board_culprit(const ech_board *board, int peer, ech_board_thread thread);

/* ---- boards in mapped files: remove *file once every rank has opened it. Errors: ECH_EIO ---- */

/* Makes a file with a board of `slots` slots, and maps it. */
ech_status ech_board_file_create(int slots, ech_transient *file, ech_board **out);
/* Maps and takes the board that ECH_BOARD_VARIABLE names; file->hold is -1, since its maker holds
 * the lock. NULL: this machine has no such file with at least `slots` slots, or others have taken
 * it. */
ech_board *ech_board_file_take_given(int slots, ech_transient *file);
/* Does that, or else makes a board and takes it. */
ech_status ech_board_file_take(int slots, ech_transient *file, ech_board **out);
/* Maps the file of another process, which must have at least `slots` slots. */
ech_status ech_board_file_open(const char *path, int slots, ech_board **out);
void ech_board_file_unmap(ech_board *board); /* accepts NULL */

#endif
