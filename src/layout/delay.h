/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that are slowed for experiments (parallel.delay). Private to src/layout.
 */
#ifndef ECH_LAYOUT_DELAY_H
#define ECH_LAYOUT_DELAY_H

#include "layout/layout.h"

/* Fills layout->delay. Errors: as ech_layout_create's. */
ech_status ech_layout_fill_delays(const ech_config *config, ech_layout *layout);

#endif
