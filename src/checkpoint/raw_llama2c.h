/* SPDX-License-Identifier: Apache-2.0
 *
 * What both formats of llama2.c share: seven numbers, and a Llama's tensors. Private to this room.
 */
#ifndef ECH_CHECKPOINT_RAW_LLAMA2C_H
#define ECH_CHECKPOINT_RAW_LLAMA2C_H

#include "checkpoint/raw.h"

/* The model section from the seven numbers that begin with the header's number `at`. */
ech_status ech_raw_llama2c_fill(const ech_raw *raw, const void *header, size_t n, int at,
                                bool shared, ech_config *config);

typedef enum ech_raw_llama2c_kind {
    ECH_RAW_TABLE,
    ECH_RAW_FIRST_NORM,
    ECH_RAW_QUERIES,
    ECH_RAW_KEYS,
    ECH_RAW_VALUES,
    ECH_RAW_OUT,
    ECH_RAW_SECOND_NORM,
    ECH_RAW_GATE,
    ECH_RAW_DOWN,
    ECH_RAW_UP,
    ECH_RAW_LAST_NORM,
    ECH_RAW_ANGLES, /* tables of cosines and sines, which are not needed */
    ECH_RAW_HEAD    /* where it is not shared */
} ech_raw_llama2c_kind;

/* Tensors of these kinds one after the other, of a kind those of all layers. Everything is fp32. */
void ech_raw_llama2c_list(ech_raw *raw, int64_t header_bytes, const ech_raw_llama2c_kind *kinds,
                          size_t n, const ech_config *config);

#endif
