/* SPDX-License-Identifier: Apache-2.0
 *
 * Losses that are far above those before them.
 */
#ifndef ECH_APP_TRAIN_SPIKES_H
#define ECH_APP_TRAIN_SPIKES_H

#include <stdbool.h>
#include <stdint.h>

enum { ECH_SPIKES_WINDOW = 50, ECH_SPIKES_FEWEST = 20 };

typedef struct ech_spikes {
    double loss[ECH_SPIKES_WINDOW]; /* the last ones, of steps that counted */
    int64_t seen, count;            /* losses; spikes */
    bool high;                      /* the last loss was one */
} ech_spikes;

/* The next step's loss: how many times the median of the window it is, if that makes it a spike, else 0. It
 * is one if it is at least 1.5 times the median, and by six times their median deviation from it
 * above it, so that losses that are always uneven have none; of fewer than 20 losses nothing is known.
 * *begins: the loss before was none. */
double ech_spikes_take(ech_spikes *spikes, double loss, bool *begins);

#endif
