/* SPDX-License-Identifier: Apache-2.0
 *
 * What `echelon plan` shows of a run: as text for people, as JSON for programs, as a picture.
 */
#ifndef ECH_APP_PLAN_REPORT_H
#define ECH_APP_PLAN_REPORT_H

#include "app/setup/setup.h"
#include "simulate/simulate.h"

enum {
    ECH_PLAN_FULL_RANKS =
        64, /* up to so many ranks all plans are made with all lists and memory; of more
                                 one of each kind, which needs the most */
    ECH_PLAN_CHECKED_RANKS = 1024, /* up to so many are checked against each other and simulated, */
    ECH_PLAN_CHECKED_RUNS = 1 << 23 /* and up to so many runs of a block, of all ranks */
};

/* A kind of ranks: those that run the same blocks as often have the same lists, buckets and memory, but for
 * what each writes of a checkpoint. */
typedef struct ech_plan_class {
    const ech_plan *plan; /* of the first of its ranks that need the most memory; borrowed */
    int rank, ranks;      /* that rank's number, and how many there are */
} ech_plan_class;

typedef struct ech_plan_options {
    bool steps;    /* show the train list */
    bool simulate; /* show what the simulation says */
} ech_plan_options;

typedef struct ech_plan_report {
    const ech_design *design;
    ech_plan_options options;
    ECH_LIST(ech_plan *) plan; /* of every rank, or of one of each class; without values; owned */
    ECH_LIST(ech_plan_class) alike;
    int *class_of;             /* [world] */
    bool checked;              /* plans of all ranks, against each other, and simulated */
    ech_simulation simulation; /* of the train list */
    ech_timeline timeline;
} ech_plan_report;

/* Makes, checks and simulates the plans: with the design's profile in seconds, without one in units of a
 * block's forward. Errors: a plan over memory.device_limit, and what the checker finds. */
ech_status ech_plan_report_create(const ech_design *design, const ech_plan_options *options,
                                  ech_plan_report *out);
void ech_plan_report_destroy(ech_plan_report *report);

void ech_plan_report_text(const ech_plan_report *report, ech_text *out);
/* One object with "version": 1; docs/formats.md names its keys. */
ech_status ech_plan_report_json(const ech_plan_report *report, ech_text *out);
/* The timeline. Errors: too many ranks to simulate. */
ech_status ech_plan_report_svg(const ech_plan_report *report, ech_text *out);

/* ---- for all forms ---- */

/* What a rank sends in one training step: ech_plan_traffic of its list, whose training steps send the
 * same. */
void ech_plan_step_traffic(const ech_plan *plan, ech_traffic traffic[ECH_TRAFFIC_AXES]);
/* The same of every kind of rank, as a table; of one rank alone nothing. */
void ech_plan_print_traffic(const ech_plan_report *report, ech_text *out);
/* Gradient buckets and memory by kind, or, where ranks differ, a table, in which who needs the most is. */
void ech_plan_print_memory(const ech_plan_report *report, ech_text *out);
/* Parameters of a block: elements. */
int64_t ech_plan_block_elements(const ech_plan *plan, int block);
/* The most bytes that are ever live at once. */
int64_t ech_plan_lower_bound(const ech_plan *plan);
/* Floating-point operations of a step of all ranks. */
double ech_plan_step_flops(const ech_design *design);
/* ech_layout_imbalance of the design. */
double ech_plan_imbalance(const ech_design *design, int *stage);

#endif
