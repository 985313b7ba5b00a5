/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a process of this machine lives, and its state: by pidfd_open(2) and /proc.
 */
#ifndef ECH_COMM_LIFE_H
#define ECH_COMM_LIFE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef enum ech_life {
    ECH_LIFE_SHOWN,  /* *fd becomes readable when the process ends */
    ECH_LIFE_OVER,   /* it has ended and its parent has waited for it */
    ECH_LIFE_HIDDEN, /* no descriptor: kernel before 5.3, another namespace, or forbidden */
    ECH_LIFE_LATER   /* no descriptor free at the moment: try later */
} ech_life;

/* This process's pid namespace (containers have others); 0: unknown. */
uint64_t ech_life_space(void);

/* Opens a pidfd (close-on-exec) of a process of namespace `space`; sets *fd only if SHOWN. */
ech_life ech_life_open(pid_t process, uint64_t space, int *fd);

/* A process's state; all zero if /proc does not show it. */
typedef struct ech_life_signs {
    /* proc(5): R running, S asleep, D in an uninterruptible call, T stopped, t stopped by a debugger, Z
     * ended; 0: unknown */
    char state;
    bool is_frozen; /* by its control group, version 1 or 2 */
    uint64_t ticks; /* clock ticks of processor time that it has used */
    int end;        /* of a Z: the status that waitpid gives */
} ech_life_signs;
void ech_life_look(pid_t process, ech_life_signs *out);

#endif
