/* SPDX-License-Identifier: Apache-2.0
 *
 * What `echelon plan` shows of a run: as text for people and as JSON for programs.
 */
#ifndef ECH_APP_PLAN_REPORT_H
#define ECH_APP_PLAN_REPORT_H

#include "app/setup.h"

/* Up to this many ranks every rank's plan is made, and all are checked against each other. */
enum { ECH_PLAN_ALL_RANKS = 64 };

/* Ranks that run the same blocks have the same lists, buckets and bytes. */
typedef struct ech_plan_class {
    const ech_plan *plan; /* of its first rank; borrowed */
    int ranks;
} ech_plan_class;

typedef struct ech_plan_report {
    const ech_design *design;
    ECH_LIST(ech_plan *) plan; /* of every rank, or of the first of each class; owned */
    ECH_LIST(ech_plan_class) alike;
    int *class_of; /* [world] */
    bool checked;  /* plans of all ranks, against each other */
    bool steps;    /* show the train list */
} ech_plan_report;

/* Makes and checks the plans. Errors: a plan over memory.device_limit, and what the checker finds. */
ech_status ech_plan_report_create(const ech_design *design, bool steps, ech_plan_report *out);
void ech_plan_report_destroy(ech_plan_report *report);

void ech_plan_report_text(const ech_plan_report *report, ech_text *out);
/* One object with "version": 1; docs/formats.md names its keys. */
ech_status ech_plan_report_json(const ech_plan_report *report, ech_text *out);

/* ---- for both forms ---- */

/* Parameters of a block: elements. */
int64_t ech_plan_block_elements(const ech_plan *plan, int block);
/* The most bytes that are ever live at once. */
int64_t ech_plan_lower_bound(const ech_plan *plan);
/* Floating-point operations of a step of all ranks. */
double ech_plan_step_flops(const ech_design *design);

#endif
