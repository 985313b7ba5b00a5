/* SPDX-License-Identifier: Apache-2.0
 *
 * Data-sheet values of GPUs (device/cards.def). Pure.
 */
#ifndef ECH_DEVICE_CARD_H
#define ECH_DEVICE_CARD_H

/* The types of a product's operands; sums are in fp32. */
typedef enum ech_card_operands { ECH_CARD_HALVES, ECH_CARD_TF32, ECH_CARD_FP32 } ech_card_operands;

/* FLOP/s of dense products, by a name like "NVIDIA H100 80GB HBM3"; 0: the card is unknown. */
double ech_card_flops(const char *name, ech_card_operands operands);

#endif
