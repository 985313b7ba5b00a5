/* SPDX-License-Identifier: Apache-2.0
 *
 * Goodput of a job whose ranks fail: the fraction of the time that goes into steps that count. Each
 * rank fails at exponentially distributed times, independently of the others, and one failure stops
 * the job, which goes back to its last complete checkpoint.
 *
 * A failure sends the rank's machine to repair, for a fixed time. If a spare machine is there, it
 * takes its place, and the job restarts; otherwise the job waits for the first machine that is
 * repaired. A restart takes a fixed time, in which ranks may fail, too. Spares, and ranks of a job
 * that waits for repair, do not fail.
 *
 * A job trains for an interval, then stalls for a checkpoint, which is complete some time after the
 * stall; the next stall is not before that. Young 1974 and Daly 2006 give the interval that is best
 * if the stall is short and nothing waits for repair.
 */
#ifndef ECH_SIMULATE_GOODPUT_H
#define ECH_SIMULATE_GOODPUT_H

#include <stdbool.h>
#include <stdint.h>

/* Times are in seconds. */
typedef struct ech_failures {
    double between; /* mean time between failures of the job: of a rank, / ranks */
    double restart; /* from a failure, or the end of a wait for repair, until the job trains */
    double repair;  /* of a machine */
    double stall;   /* of training, for one checkpoint */
    double writing; /* from the end of the stall until the checkpoint is complete */
    int spares;     /* machines */
} ech_failures;

/* Fractions of the time; their sum is 1. */
typedef struct ech_goodput {
    double useful; /* steps that count: the goodput */
    double saving; /* stalls of checkpoints that count */
    double lost;   /* steps and stalls that a failure has undone */
    double restarting, waiting;
    double failures; /* per second of this time, those during restarts included */
} ech_goodput;

enum { ECH_GOODPUT_FAILURES = 200000 }; /* that are simulated: a goodput is within 0.5 % */

/* Simulates `count` failures with this seed. interval: seconds of training between checkpoints. */
ech_goodput ech_goodput_simulate(const ech_failures *failures, double interval, int count,
                                 uint64_t seed);
/* The number of steps between checkpoints with the largest simulated goodput. step: seconds of one.
 * *out: this goodput. */
int64_t ech_goodput_best(const ech_failures *failures, double step, int count, uint64_t seed,
                         ech_goodput *out);

/* The first-order and the higher-order optimum of the interval. */
double ech_goodput_young(const ech_failures *failures);
double ech_goodput_daly(const ech_failures *failures);
/* The expected goodput without spares (waits: true), or with as many as are ever needed. */
double ech_goodput_expected(const ech_failures *failures, double interval, bool waits);
/* The fewest spares with which less than this fraction of failures waits for repair, while failures
 * arrive at the rate of a job that never stops (Erlang's loss formula). */
int ech_goodput_spares(const ech_failures *failures, double fraction);

#endif
