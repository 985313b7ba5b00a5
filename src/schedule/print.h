/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts of lists, steps and values.
 */
#ifndef ECH_SCHEDULE_PRINT_H
#define ECH_SCHEDULE_PRINT_H

#include "schedule/plan.h"

/* Appends a step's text (ech_step_print), with its peer in this list. */
void ech_list_print_step(const ech_list *list, const ech_step *step, ech_text *out);
/* Appends "model.layers.3: linear4.out, micro-batch 2". */
void ech_value_print(const ech_plan *plan, const ech_list *list, int value, ech_text *out);
/* Appends a line for each step: number, lane, text, and the steps it waits for. */
void ech_list_print(const ech_list *list, ech_text *out);
/* Appends one line: F, B, W and R of the compute lane in the papers' notation, "F0.0 B0.0 W0.0 ..."
 * (model chunk, `micro`). Successive blocks of a model chunk are one word, and so is a B with the W
 * right after it and with the R of the next block. */
void ech_list_print_row(const ech_list *list, ech_text *out);

#endif
