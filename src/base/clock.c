/* SPDX-License-Identifier: Apache-2.0
 *
 * The clocks of the operating system.
 */
#include "base/clock.h"

#include <time.h>

static double read_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double ech_clock_now(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

double ech_clock_wall(void)
{
    return read_clock(CLOCK_REALTIME);
}

double ech_clock_mine(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

double ech_clock_take_gap(double *looked, double now)
{
    const double longest_look = 1;
    double gap = now - *looked;
    *looked = now;
    return gap > longest_look ? gap : 0;
}

void ech_clock_sleep_until(double time)
{
    for (double left; (left = time - ech_clock_now()) > 0;) {
        time_t whole = (time_t)left;
        nanosleep(
            &(struct timespec){.tv_sec = whole, .tv_nsec = (long)(1e9 * (left - (double)whole))},
            NULL);
    }
}

int ech_clock_ms_until(double time)
{
    double left = time - ech_clock_now();
    return left <= 0 ? 0 : left < 3600 ? (int)(left * 1000) + 1 : 3600000;
}
