/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts that the model writes after prompts during training (log.sample). Rank 0 has a model of its
 * own for them, on one rank, which gets whole weights from the ranks that hold them. So a text
 * depends on the weights alone, not on the layout: it is the text that `echelon sample` writes with
 * the step's checkpoint at temperature 0.
 */
#ifndef ECH_APP_TRAIN_SAMPLES_H
#define ECH_APP_TRAIN_SAMPLES_H

#include "app/train/progress.h"

typedef struct ech_trainer ech_trainer;
typedef struct ech_samples ech_samples;

/* Makes rank 0's model; NULL if no prompts are given, and on other ranks. Needs the texts of
 * checkpoints (ech_trainer_begin_saves). Errors: no tokenizer is known; the model does not fit. */
ech_status ech_samples_create(const ech_trainer *t, ech_samples **out);
void ech_samples_destroy(ech_samples *samples); /* accepts NULL */

/* True if texts are due after the list that ran last. The same on all ranks. */
bool ech_samples_are_due(const ech_trainer *t);
/* Writes the texts of the present weights into log.directory/samples/step-00000100.txt, and
 * submits a note for each. `samples`: NULL on other ranks than the first. Collective. */
ech_status ech_samples_take(ech_samples *samples, ech_trainer *t);

#endif
