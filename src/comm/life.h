/* SPDX-License-Identifier: Apache-2.0
 *
 * The lives of processes of this machine, as descriptors.
 */
#ifndef ECH_COMM_LIFE_H
#define ECH_COMM_LIFE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef enum ech_life {
    ECH_LIFE_SHOWN,  /* *fd can be read when the process has ended */
    ECH_LIFE_OVER,   /* it has ended, and its parent knows */
    ECH_LIFE_HIDDEN, /* the kernel (before 5.3) has no such descriptors, or none of this process */
    ECH_LIFE_LATER   /* it has none left at the moment: to be asked again */
} ech_life;

/* The namespace that numbers of processes are of here, those of containers being others; 0: not
 * shown. */
uint64_t ech_life_space(void);

/* A descriptor that is closed by exec, of a process of that namespace; *fd stays as it is without one.
 * HIDDEN in another namespace. */
ech_life ech_life_open(pid_t process, uint64_t space, int *fd);

/* What the system shows of a process of this namespace. */
typedef struct ech_life_signs {
    char
        state; /* proc(5): R runs, S sleeps, D in a call that cannot be interrupted, T stopped, t held
                     * by a debugger, Z ended; 0: not shown */
    bool is_frozen; /* with its control group, version 1 or 2 */
    uint64_t ticks; /* of processor time that it has used */
    int end;        /* Z: as waitpid tells it */
} ech_life_signs;
void ech_life_look(pid_t process, ech_life_signs *out);

#endif
