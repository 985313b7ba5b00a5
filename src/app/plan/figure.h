/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory that Chen's plans save (Chen et al. 2016, arXiv:1604.06174): bytes of activations,
 * their gradients and scratch in a training step, if values share memory or not, if gradients are
 * computed in place or not, and with recomputation of segments.
 */
#ifndef ECH_APP_PLAN_FIGURE_H
#define ECH_APP_PLAN_FIGURE_H

#include "app/setup/setup.h"
#include "base/text.h"

/* Bytes of the train list's values on the device whose number depends on the tokens in flight: all
 * of them without sharing, or those that live at the fullest moment with it. */
typedef struct ech_memory_bytes {
    int64_t neither, in_place, shared, both;
    int longest; /* layers of the longest recomputed segment */
} ech_memory_bytes;
/* The plan has its values (ech_plan_forget_values). */
ech_memory_bytes ech_memory_bytes_of(const ech_plan *plan);

/* Appends the figure of the rank that needs the most. It plans the design's run twice: without
 * recomputation, and with memory.recompute = full. Errors: the run without recomputation cannot be
 * planned, which is logged. */
ech_status ech_memory_figure(const ech_design *design, ech_text *out);

#endif
