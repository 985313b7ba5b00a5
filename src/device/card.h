/* SPDX-License-Identifier: Apache-2.0
 *
 * What data sheets say of GPUs (device/cards.def). Pure.
 */
#ifndef ECH_DEVICE_CARD_H
#define ECH_DEVICE_CARD_H

#include <stdbool.h>

/* FLOP/s of dense products of 16-bit types with fp32 sums, or of fp32 (no TF32), by a name like "NVIDIA H100 80GB HBM3"; 0: the
 * card is not known. */
double ech_card_flops(const char *name, bool of_halves);

#endif
