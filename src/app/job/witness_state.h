/* SPDX-License-Identifier: Apache-2.0
 *
 * What a witness knows, shared by the files that watch. Private to them.
 */
#ifndef ECH_APP_JOB_WITNESS_STATE_H
#define ECH_APP_JOB_WITNESS_STATE_H

#include <poll.h>

#include "app/job/folder.h"
#include "app/job/rank_process.h"
#include "app/job/stall.h"
#include "app/job/witness.h"
#include "comm/board.h"

enum { ECH_WITNESS_PATH = 256 };

/* What has been done so far because patience ended. */
typedef enum ech_witness_phase {
    ECH_WATCHING,
    ECH_RANKS_KILLED,
    ECH_CHILD_BLAMED, /* who was started hangs */
    ECH_CHILD_LOST    /* nor does it end when it is killed */
} ech_witness_phase;

struct ech_witness {
    ech_board *board;
    char path[ECH_WITNESS_PATH];
    int hold; /* on its file */
    ech_job_folder *folder;
    int slots;
    int32_t *known; /* process of each slot, once seen; 0: none yet */
    int *life;      /* a descriptor that can be read when it has ended; -1: none */
    struct pollfd *polled;
    ech_rank_processs processes; /* until all have come */
    bool any;                    /* a rank's process was seen, at least at its beginning */
    ech_witness_phase phase;
    pid_t child;           /* the launcher, or the process of all ranks; 0: not known */
    bool asked;            /* the job was told to stop */
    ech_stall stall;       /* and when it was looked at last: */
    double looked_at;      /* seconds on the clock; 0: never */
    ech_stall_kind halted; /* why the ranks were killed */
    ech_text how;          /* and how they were found then */
    double ended_at; /* seconds on the clock: a rank's process ended that had not left; 0: none */
    int first_dead;  /* the rank that died first; -1: none, or several at once */
    int killed_by; /* the signal that has ended it; 0: none, or the launcher has not left it to be seen */
    bool has_dead; /* before anybody raised the abort flag */
    pid_t early;   /* the process that died before any had come; 0: none, or several at once */
};

/* Looks at the ranks when that is due. True, once, when they stand still for too long: all positions
 * were printed then. */
bool ech_witness_check_stall(ech_witness *witness);

/* The same as an error message. */
void ech_witness_describe_halt(const ech_witness *witness, ech_text *out);

/* The process that slot i names: its rank has come to the board and not left it; 0: none. */
static inline int32_t ech_witness_present(const ech_witness *witness, int slot)
{
    return atomic_load(&witness->board->slot[slot].process);
}

/* Behind the child's end: waits a moment for the ranks', then kills who is left. */
void ech_witness_see_off(ech_witness *witness);

/* The process of slot i if it has come and not ended; 0: none, or not known. */
pid_t ech_witness_process(const ech_witness *witness, int slot);

#endif
