/* SPDX-License-Identifier: Apache-2.0
 *
 * The page of `echelon plan --html`: one HTML file with its data, style and script, which loads
 * nothing.
 */
#ifndef ECH_APP_PLAN_PAGE_H
#define ECH_APP_PLAN_PAGE_H

#include "base/text.h"

/* Appends the page of `json`, the text of a plan (ech_plan_report_json) or of a search
 * (ech_search_json). Strings of the data cannot end the element that holds them. */
void ech_plan_page(const char *json, ech_text *out);

/* Style and script of the page (page.css, page.js), which the build embeds. */
extern const char ech_plan_page_style[], ech_plan_page_script[];

#endif
