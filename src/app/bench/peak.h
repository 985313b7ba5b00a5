/* SPDX-License-Identifier: Apache-2.0
 *
 * The peak rate of matrix products on this machine, the denominator of mfu.
 */
#ifndef ECH_APP_BENCH_PEAK_H
#define ECH_APP_BENCH_PEAK_H

#include "kernel/kernel.h"

/* FLOP/s of the fastest of a few matrix products with `threads` threads; takes a fraction of a second. 0: it
 * cannot be measured. */
double ech_peak_flops(const ech_kernels *kernels, int threads);

#endif
