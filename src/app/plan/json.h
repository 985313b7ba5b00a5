/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of the JSON of `echelon plan`. Private to app/plan.
 */
#ifndef ECH_APP_PLAN_JSON_H
#define ECH_APP_PLAN_JSON_H

#include <jansson.h>

#include "app/plan/report.h"

/* The whole object; steps: with the train lists. NULL: a name is not UTF-8. */
json_t *ech_plan_report_tree(const ech_plan_report *report, bool steps);
/* Appends and releases it. Errors: it is NULL, or a text in it is not UTF-8. */
ech_status ech_plan_print_tree(json_t *tree, ech_text *out);

/* Sets "train" of a class's row: the steps of its train list, when they run, the values that they
 * touch, and the device memory that is live. The list is made again, since reports keep no
 * values. */
void ech_plan_add_list(const ech_plan_report *report, const ech_plan_class *alike, json_t *row);

/* An array: the levels of the design's cluster, each with the bytes that all ranks together send
 * over it in a training step, by axis. Bytes of a collective count on the outermost level that its
 * group crosses. A rank's messages to other stages are divided over levels as the first rank of its
 * class divides its own. */
json_t *ech_plan_levels_json(const ech_plan_report *report);

#endif
