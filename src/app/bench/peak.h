/* SPDX-License-Identifier: Apache-2.0
 *
 * What this machine's matrix products reach: the measure for mfu.
 */
#ifndef ECH_APP_BENCH_PEAK_H
#define ECH_APP_BENCH_PEAK_H

#include "kernel/kernel.h"

/* Floating-point operations per second of the best of a few matrix products (a fraction of a
 * second in all), with that many threads. 0 if it cannot be measured. */
double ech_peak_flops(const ech_kernels *kernels, int threads);

#endif
