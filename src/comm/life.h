/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes of this machine: whether they live and their state, from pidfd_open(2) and /proc; and
 * the processes of the ranks on a board.
 */
#ifndef ECH_COMM_LIFE_H
#define ECH_COMM_LIFE_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/memory.h"
#include "comm/board.h"

typedef enum ech_life {
    ECH_LIFE_SHOWN,  /* *fd becomes readable when the process ends */
    ECH_LIFE_OVER,   /* it has ended and its parent has waited for it: *fd is readable */
    ECH_LIFE_HIDDEN, /* no descriptor: kernel before 5.3, another namespace, or forbidden */
    ECH_LIFE_LATER   /* no descriptor free at the moment: try later */
} ech_life;

/* This process's pid namespace (containers have others); 0: unknown. */
uint64_t ech_life_space(void);

/* Opens a pidfd (close-on-exec) of a process of namespace `space`. SHOWN and OVER set *fd, which
 * the caller closes. */
ech_life ech_life_open(pid_t process, uint64_t space, int *fd);

/* A process's state; all zero if /proc does not show it. */
typedef struct ech_life_signs {
    /* proc(5): R running, S asleep, D in an uninterruptible call, T suspended (SIGSTOP), t
     * suspended by a debugger, Z ended; 0: unknown */
    char state;
    bool is_frozen; /* by its control group, version 1 or 2 */
    uint64_t ticks; /* CPU time that it has used, in 1/sysconf(_SC_CLK_TCK) s */
    int end;        /* of a Z: the status that waitpid gives */
} ech_life_signs;
void ech_life_look(pid_t process, ech_life_signs *out);

/* Reads a file of /proc/PID into text[size], as far as it fits, with a NUL. Returns the bytes read
 * before the NUL; 0: there is no such file, or it is empty. */
size_t ech_life_read(pid_t process, const char *file, char *text, size_t size);

typedef ECH_LIST(pid_t) ech_process_ids;
/* Appends the processes that a process's first thread has started: launchers start ranks from
 * it. */
void ech_life_children(pid_t parent, ech_process_ids *out);

/* The processes of the ranks on a board, from the time that they join it. */
typedef struct ech_watch {
    ech_board *board;
    int slots;
    pid_t *process;        /* [slots] of each slot, once seen; 0: none yet */
    struct pollfd *polled; /* [1 + slots]: one of the caller's, then each pidfd; fd -1: none */
} ech_watch;

/* Without a board (board NULL, slots 0) only ech_watch_poll and ech_watch_end may be called. The
 * caller sets polled[0].fd. */
void ech_watch_begin(ech_watch *watch, ech_board *board, int slots);
void ech_watch_end(ech_watch *watch); /* closes the pidfds, not polled[0].fd */
/* Opens pidfds of the processes that have joined since the last call; is_ours (NULL: all are) says
 * which to watch. True if all ranks of the board have joined. */
bool ech_watch_update(ech_watch *watch, bool (*is_ours)(pid_t process));
/* Closes a slot's descriptor. */
void ech_watch_forget(ech_watch *watch, int slot);
/* Polls for at most `ms` milliseconds (-1: no limit). False: nothing is readable, or a signal
 * came. */
bool ech_watch_poll(ech_watch *watch, int ms);
/* After a poll: the first slot >= `slot` whose process has ended, which is forgotten
 * (ech_watch_forget); -1: none. */
int ech_watch_next_end(ech_watch *watch, int slot);

#endif
