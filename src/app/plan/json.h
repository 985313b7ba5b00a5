/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of the JSON of `echelon plan`, and its page. Private to app/plan and app/search.
 */
#ifndef ECH_APP_PLAN_JSON_H
#define ECH_APP_PLAN_JSON_H

#include <jansson.h>

#include "app/plan/report.h"

/* The whole object; steps: with the train lists. NULL: a name is not UTF-8. */
json_t *ech_plan_report_tree(const ech_plan_report *report, bool steps);

/* Sets "train" of a class's row: the steps of its train list, when they run, the values that they
 * touch, and the device memory that is live. The list is made again, since reports keep no
 * values. */
void ech_plan_add_list(const ech_plan_report *report, const ech_plan_class *alike, json_t *row);

/* An array: the levels of the design's cluster, each with the bytes that all ranks together send
 * over it in a training step, by axis. Bytes of a collective count on the outermost level that its
 * group crosses. A rank's messages to other stages are divided over levels as the first rank of its
 * class divides its own. */
json_t *ech_plan_levels_json(const ech_plan_report *report);

/* ---- the page of `echelon plan --html`: one HTML file that loads nothing ---- */

/* Appends the page of `json`, the text of a plan (ech_plan_report_json) or of a search
 * (ech_search_json), with style and script. Strings of the data cannot end the element that holds
 * them. */
void ech_plan_page(const char *json, ech_text *out);

/* Style and script of the page (page.css, page.js), which the build embeds. */
extern const char ech_plan_page_style[], ech_plan_page_script[];

#endif
