/* SPDX-License-Identifier: Apache-2.0
 *
 * Simulates failures, one after the other: from the end of a restart to the next failure, a job's
 * checkpoints follow each other regularly.
 */
#include "simulate/goodput.h"

#include <math.h>
#include "base/memory.h"
#include "base/random.h"

typedef struct job {
    const ech_failures *failures;
    uint64_t seed;
    uint32_t draws; /* of this failure */
    double now;
    double *repaired; /* [spares + 1] ring: when machines return, in this order */
    int first, away;  /* of the ring */
    double waited, restarted, failed;
} job;

/* The time until the next failure. Each failure has numbers of its own, so that other intervals
 * meet the same failures. */
static double draw(job *j, uint64_t failure)
{
    ech_random_key key = {.seed = j->seed, .step = j->draws++, .stream = 1};
    uint32_t words[4];
    ech_random_words(key, failure, words);
    double unit = ((double)words[0] + ((double)words[1] + 0.5) * 0x1p-32) * 0x1p-32;
    return -log(unit) * j->failures->between;
}

/* A machine fails now. The job waits if more are away than there are spares. */
static void fail(job *j)
{
    const ech_failures *f = j->failures;
    int places = f->spares + 1;
    while (j->away > 0 && j->repaired[j->first] <= j->now) {
        j->first = (j->first + 1) % places;
        j->away--;
    }
    j->repaired[(j->first + j->away++) % places] = j->now + f->repair;
    j->failed++;
    if (j->away < places) return;
    j->waited += j->repaired[j->first] - j->now;
    j->now = j->repaired[j->first];
    j->first = (j->first + 1) % places;
    j->away--;
}

/* Until the job trains again. */
static void restart(job *j, uint64_t failure)
{
    fail(j);
    for (;;) {
        double next = draw(j, failure);
        double spent = fmin(next, j->failures->restart);
        j->now += spent;
        j->restarted += spent;
        if (next >= j->failures->restart) return;
        fail(j);
    }
}

/* A restart takes exp(restart / between) attempts: from so many on, hardly anything else happens,
 * and there would be no end of drawing. */
static const double most_restart = 7;

ech_goodput ech_goodput_simulate(const ech_failures *failures, double interval, int count,
                                 uint64_t seed)
{
    if (failures->restart > most_restart * failures->between) {
        double useful = ech_goodput_expected(failures, interval, failures->spares == 0);
        return (ech_goodput){
            .useful = useful, .restarting = 1 - useful, .failures = 1 / failures->between};
    }
    job j = {.failures = failures, .seed = seed};
    double kept = 0, period = fmax(interval + failures->stall, failures->writing);
    ECH_FREED double *repaired = j.repaired =
        ech_calloc((size_t)failures->spares + 1, sizeof *j.repaired);
    for (int i = 0; i < count; i++) {
        j.draws = 0;
        double runs = draw(&j, (uint64_t)i);
        kept += fmax(0, floor((runs - failures->writing) / period));
        j.now += runs;
        restart(&j, (uint64_t)i);
    }
    ech_goodput g = {.useful = kept * interval / j.now,
                     .saving = kept * (period - interval) / j.now,
                     .restarting = j.restarted / j.now,
                     .waiting = j.waited / j.now,
                     .failures = j.failed / j.now};
    g.lost = fmax(0, 1 - g.useful - g.saving - g.restarting - g.waiting);
    return g;
}

double ech_goodput_young(const ech_failures *failures)
{
    return sqrt(2 * failures->stall * failures->between);
}

double ech_goodput_daly(const ech_failures *failures)
{
    double stall = failures->stall, mean = failures->between, part = stall / (2 * mean);
    if (stall >= 2 * mean) return mean;
    return sqrt(2 * stall * mean) * (1 + sqrt(part) / 3 + part / 9) - stall;
}

/* A period is complete with probability exp(-period / between), and the first after a restart only
 * if its checkpoint is. A restart succeeds with probability exp(-restart / between). */
double ech_goodput_expected(const ech_failures *failures, double interval, bool waits)
{
    double mean = failures->between, period = fmax(interval + failures->stall, failures->writing);
    double kept = exp(-failures->writing / mean) / expm1(period / mean);
    double each = (mean + (waits ? failures->repair : 0)) * exp(failures->restart / mean);
    return kept * interval / each;
}

int ech_goodput_spares(const ech_failures *failures, double fraction)
{
    enum { MOST = 1000000 };
    double load = failures->repair / failures->between, blocked = load / (1 + load);
    int machines = 1; /* that may be in repair: the spares and one */
    for (; blocked > fraction && machines < MOST; machines++)
        blocked = load * blocked / (machines + 1 + load * blocked);
    return machines - 1;
}

/* The best number of steps among low, low * ratio ..; its goodput is *out. */
static int64_t find_best(const ech_failures *failures, double step, double low, double high,
                         double ratio, int count, uint64_t seed, ech_goodput *out)
{
    int64_t best = 0;
    for (double at = low; at <= high; at = fmax(at * ratio, floor(at) + 1)) {
        ech_goodput g = ech_goodput_simulate(failures, floor(at) * step, count, seed);
        if (best && g.useful < 0.9 * out->useful) break; /* it has one maximum */
        if (best && g.useful <= out->useful) continue;
        *out = g;
        best = (int64_t)at;
    }
    return best;
}

int64_t ech_goodput_best(const ech_failures *failures, double step, int count, uint64_t seed,
                         ech_goodput *out)
{
    double young = ech_goodput_young(failures), daly = ech_goodput_daly(failures);
    double low = fmax(1, fmax(young, failures->writing) / 16 / step);
    double high = fmax(low, 16 * failures->between / step);
    double near = (double)find_best(failures, step, low, high, 1.1, count / 10, seed, out);
    near = (double)find_best(failures, step, fmax(1, near / 1.1), near * 1.1, 1.01, count / 10,
                             seed, out);
    const double tried[] = {near, fmax(1, round(young / step)), fmax(1, round(daly / step))};
    int64_t best = 0;
    for (int i = 0; i < 3; i++) {
        ech_goodput g = ech_goodput_simulate(failures, tried[i] * step, count, seed);
        if (best && g.useful <= out->useful) continue;
        *out = g;
        best = (int64_t)tried[i];
    }
    return best;
}
