/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that are slowed down for experiments (parallel.delay). Private to src/layout.
 */
#ifndef ECH_LAYOUT_DELAY_H
#define ECH_LAYOUT_DELAY_H

#include "layout/layout.h"

/* Fills layout->delay. Errors: see ech_layout_create. */
ech_status ech_layout_fill_delays(const ech_config *config, ech_layout *layout);

#endif
