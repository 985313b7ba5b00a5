/* SPDX-License-Identifier: Apache-2.0
 *
 * Faults of a disk: a library that stands before the C library's calls that change files below a
 * folder, counts them, and at a number kills the process, fails, does less than was asked or waits.
 * Tests link it; other programs get it by LD_PRELOAD, with ECH_FAULTS="FOLDER KIND NUMBER" (kind:
 * kill, eio, enospc, full, short, hold, flip) and for hold ECH_FAULTS_HOLD, the file that holds
 * them, in which each that waits leaves a byte. FOLDER may be the beginning of a path; open files
 * have absolute ones.
 */
#ifndef ECH_TESTS_CHECKPOINT_FAULTS_H
#define ECH_TESTS_CHECKPOINT_FAULTS_H

#include <stdint.h>

typedef enum faults_kind {
    FAULTS_NONE,
    FAULTS_KILL,   /* SIGKILL in the middle of a write, or before another call */
    FAULTS_EIO,    /* once */
    FAULTS_ENOSPC, /* once */
    FAULTS_FULL,   /* ENOSPC, from that call on, of all that would take space */
    /* from that call on writes, and counted reads, take a third of what they are given; of pages
     * whole ones, as direct I/O does */
    FAULTS_SHORT,
    FAULTS_HOLD, /* from that call on all wait as long as the file ECH_FAULTS_HOLD is there */
    FAULTS_FLIP  /* once: of what is written one bit is another; other calls pass */
} faults_kind;

/* From now on calls on files below the folder are counted, from 1, and call `at` is faulty. */
void faults_arm(const char *folder, faults_kind kind, int64_t at);
int64_t faults_count(void);
/* fsync of any file does nothing: who is killed without a power cut needs none, and tests are
 * faster. */
void faults_skip_fsync(void);
/* From now on preads are counted, too, and can be faulty. */
void faults_count_reads(void);
/* Called before each counted call, on its own thread. NULL: nobody. */
void faults_watch(void (*watch)(int64_t number, const char *call, const char *path));
/* Called before each pread of a file below the folder, likewise. */
void faults_watch_reads(void (*watch)(const char *path));

#endif
