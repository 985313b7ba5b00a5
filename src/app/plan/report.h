/* SPDX-License-Identifier: Apache-2.0
 *
 * `echelon plan`: the plans of a run's ranks as text for people, as JSON for programs, and as a drawing.
 */
#ifndef ECH_APP_PLAN_REPORT_H
#define ECH_APP_PLAN_REPORT_H

#include "app/setup/setup.h"
#include "simulate/simulate.h"

/* How much is planned. Up to FULL_RANKS, every rank's plan is made with all lists and memory; above, only one
 * of each class. Up to CHECKED_RANKS ranks and CHECKED_RUNS runs of a block over all ranks, the train lists of
 * all ranks are checked against each other and simulated. */
enum { ECH_PLAN_FULL_RANKS = 64, ECH_PLAN_CHECKED_RANKS = 1024, ECH_PLAN_CHECKED_RUNS = 1 << 23 };

/* A class of ranks with the same blocks and number of micro-batches. Their lists, buckets and memory are the
 * same, except the bytes that each writes of a checkpoint. */
typedef struct ech_plan_class {
    const ech_plan *plan; /* of the rank of the class that needs the most memory; borrowed */
    int rank, ranks;      /* that rank's number, and the number of ranks in the class */
} ech_plan_class;

typedef struct ech_plan_options {
    bool steps;    /* show the train list */
    bool simulate; /* show the simulation's results */
} ech_plan_options;

typedef struct ech_plan_report {
    const ech_design *design;
    ech_plan_options options;
    ECH_LIST(ech_plan *) plan; /* of every rank, or of one per class; without values; owned */
    ECH_LIST(ech_plan_class) alike;
    int *class_of;             /* [world] */
    bool checked;              /* the plans of all ranks were checked and simulated */
    ech_simulation simulation; /* of the train list */
    ech_timeline timeline;
} ech_plan_report;

/* Makes, checks and simulates the plans, in seconds with the design's profile, without one in units of a block's
 * forward. Errors: a plan exceeds memory.device_limit; the checker's. */
ech_status ech_plan_report_create(const ech_design *design, const ech_plan_options *options,
                                  ech_plan_report *out);
void ech_plan_report_destroy(ech_plan_report *report);

void ech_plan_report_text(const ech_plan_report *report, ech_text *out);
/* One JSON object; docs/formats.md describes its keys. */
ech_status ech_plan_report_json(const ech_plan_report *report, ech_text *out);
/* The simulated timeline as SVG. Errors: too many ranks to simulate. */
ech_status ech_plan_report_svg(const ech_plan_report *report, ech_text *out);

/* ---- used by these ---- */

#define ECH_PLAN_INDENT "            " /* of the lines of the text below a heading */

/* Appends the axes of the device mesh, the slowest first: "2 stages of 2 chunks x 3 replicas x 2 context (ring) x 2
 * tensor, sequence parallel, 4 sequence chunks". Axes of one rank, and what is not used, are left out. Unequal
 * replicas are given per stage: "3 stages of 3, 1 and 1 replicas". */
void ech_print_axes(const ech_design *design, ech_text *out);
/* What a rank sends in one training step, by axis: ech_plan_traffic of its train list over its training steps. */
void ech_plan_step_traffic(const ech_plan *plan, ech_traffic traffic[ECH_TRAFFIC_AXES]);
/* Appends that for every class of ranks, as a table; nothing for a single rank. */
void ech_plan_print_traffic(const ech_plan_report *report, ech_text *out);
/* Appends gradient buckets and memory by kind; if ranks differ, a table with a row per class, which includes
 * the one that needs the most. */
void ech_plan_print_memory(const ech_plan_report *report, ech_text *out);
/* The number of parameters (elements) of a block. */
int64_t ech_plan_block_elements(const ech_plan *plan, int block);
/* The most bytes that are live at once in any list: no placement of values can need less. */
int64_t ech_plan_lower_bound(const ech_plan *plan);
/* Floating-point operations of a training step, over all ranks. */
double ech_plan_step_flops(const ech_design *design);
/* ech_layout_imbalance of the design; *stage: the slowest. */
double ech_plan_imbalance(const ech_design *design, int *stage);

#endif
