/* SPDX-License-Identifier: Apache-2.0
 *
 * Loss spikes, found by the median of the last losses.
 */
#ifndef ECH_APP_TRAIN_SPIKES_H
#define ECH_APP_TRAIN_SPIKES_H

#include <stdbool.h>
#include <stdint.h>

enum { ECH_SPIKES_MOST = 50, ECH_SPIKES_FEWEST = 20 };

typedef struct ech_spikes {
    double loss[ECH_SPIKES_MOST];   /* the last finite losses */
    int64_t seen;                   /* number of finite losses */
    int64_t count;                  /* number of spikes; consecutive ones count once */
    bool high;                      /* the last loss was a spike */
} ech_spikes;

/* Adds a step's loss. Returns loss / median of these losses if the loss is a spike, else 0. It is a
 * spike if it is at least 1.5 times the median and exceeds it by at least six median absolute
 * deviations (so noisy losses have none), and 20 finite losses came before it. *begins: the loss is
 * a spike and the previous one was not. */
double ech_spikes_take(ech_spikes *spikes, double loss, bool *begins);

#endif
