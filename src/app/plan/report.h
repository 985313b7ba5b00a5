/* SPDX-License-Identifier: Apache-2.0
 *
 * `echelon plan`: the plans of a run's ranks as text for people, as JSON for programs, and as a
 * drawing. One process makes the plans of all ranks; nothing is collective.
 */
#ifndef ECH_APP_PLAN_REPORT_H
#define ECH_APP_PLAN_REPORT_H

#include "app/advice/advice.h"
#include "app/setup/setup.h"
#include "schedule/plan.h"
#include "schedule/traffic.h"
#include "simulate/simulate.h"

/* Limit on the size of the train lists that are checked and simulated: the number of forwards of
 * blocks in the lists of one rank per class of ech_classes. Such lists have some 10 GiB. */
enum { ECH_PLAN_CHECKED_WORK = 1 << 23 };

/* A memory class: ranks with the same blocks and number of micro-batches. Their buckets and memory
 * are the same, except for snapshots: each rank writes other parameters into a checkpoint. The
 * layout's classes (ech_classes) are finer: lists of their ranks differ only in their peers. */
typedef struct ech_plan_class {
    const ech_plan *plan; /* of `rank`; borrowed */
    int rank, ranks;      /* the first rank with the largest snapshot; the number of ranks */
} ech_plan_class;

typedef struct ech_plan_options {
    bool steps;    /* show the train list */
    bool simulate; /* show the simulation's results (it is made in any case) */
    /* only memory and the simulated training step: no list is checked, other lists are not made */
    bool brief;
    bool timed; /* with `brief`: not even memory */
    /* memory and the simulated training step of the whole plans: no list is checked */
    bool unchecked;
    double tokens; /* of the training whose time is forecast; 0: of the run's steps */
    ech_advice_options advice;
    /* called with what is being done, for people; static text. NULL: not wanted */
    void (*progress)(const char *doing, void *context);
    void *context;
} ech_plan_options;

/* The plan of each evaluator. */
typedef struct ech_plan_evaluator {
    ech_config *config;
    ech_design design;
    ech_plan *plan; /* without values (ech_plan_forget_values); NULL: there are no evaluators */
} ech_plan_evaluator;

/* What sequence chunks save, in bytes of the device arena of the rank that needs the most. */
typedef struct ech_plan_chunks {
    int64_t bytes; /* of the run; 0: it has no sequence chunks, or cannot run without them */
    int64_t whole; /* of the same run with one chunk */
    int64_t away;  /* with memory.offload_activations = host; 0: not computed, or impossible */
} ech_plan_chunks;

typedef struct ech_plan_report {
    const ech_design *design; /* borrowed */
    ech_plan_options options;
    ECH_LIST(ech_plan *) plan;      /* all plans, without values (ech_plan_forget_values); owned */
    ECH_LIST(ech_plan_class) alike; /* the memory classes, with a whole plan each, no outline */
    /* [ech_classes.n] plans of the first rank of each class of the layout, with the train list;
     * NULL if the lists are too long to be checked */
    const ech_plan **listed;
    ech_plan_evaluator evaluator;
    ech_plan_chunks chunks;
    ech_corpus_counts data;    /* what the run reads; samples 0: it was not counted */
    char *no_data;             /* why not; NULL: the run file names no data. Owned */
    int *class_of;             /* [world] index in `alike` */
    bool checked;              /* the train lists were checked and simulated */
    ech_simulation simulation; /* of the train lists, if checked */
    ech_timeline timeline;     /* of the simulation, finished; empty unless checked */
    ech_advice advice;
    double list_time[ECH_LIST_KINDS]; /* of SYNC and GOSSIP lists, simulated; 0: there is none */
} ech_plan_report;

/* Makes, checks and simulates the plans. Simulated times are in seconds if the design has a cluster
 * or a profile, else in units of a block's forward (ech_costs). Errors: a plan exceeds
 * memory.device_limit; as for the checker. After an error *out is unset. */
ech_status ech_plan_report_create(const ech_design *design, const ech_plan_options *options,
                                  ech_plan_report *out);
void ech_plan_report_destroy(ech_plan_report *report);

/* Bytes of the device arena of the rank that needs the most. */
int64_t ech_plan_report_bytes(const ech_plan_report *report);

void ech_plan_report_text(const ech_plan_report *report, ech_text *out);
/* Appends one JSON object; docs/formats.md describes its keys. */
ech_status ech_plan_report_json(const ech_plan_report *report, ech_text *out);
/* Appends a page of the same object, with the train lists as with options.steps: one HTML file. */
ech_status ech_plan_report_html(const ech_plan_report *report, ech_text *out);
/* Appends the simulated timeline as SVG. Errors: the lists were too long to simulate. */
ech_status ech_plan_report_svg(const ech_plan_report *report, ech_text *out);

/* ---- parts of these functions ---- */

/* Plans the run again with one sequence chunk. If chunks do not save memory, also plans the chunks
 * with activations on the host (memory.offload_activations). bytes: of the run. */
ech_plan_chunks ech_plan_compare_chunks(const ech_design *design, int64_t bytes);
/* True if the run needs at least as much of the device as with one chunk. */
static inline bool ech_plan_chunks_waste(const ech_plan_chunks *chunks)
{
    return chunks->bytes > 0 && chunks->bytes >= chunks->whole;
}

#define ECH_PLAN_INDENT "            " /* of the lines of the text below a heading */

/* Appends the axes of the device mesh, the slowest first: "2 stages of 2 chunks x 3 replicas x 2
 * context (ring) x 2 tensor, sequence parallel, 4 sequence chunks". Chunks of stages are model
 * chunks. Axes of degree 1 and unused features are omitted. Unequal replicas are given per stage:
 * "3 stages of 3, 1 and 1 replicas". */
void ech_print_axes(const ech_design *design, ech_text *out);
/* Where the time of a step goes, on average over ranks. */
enum {
    ECH_FORECAST_PRODUCTS,
    ECH_FORECAST_KERNELS,
    ECH_FORECAST_UPDATES,
    ECH_FORECAST_LAYERS,
    ECH_FORECAST_STAGES,
    ECH_FORECAST_SUMS,
    ECH_FORECAST_GATHERS,
    ECH_FORECAST_REST,
    ECH_FORECAST_PARTS
};
/* The forecast of a step on the design's cluster; only if report->checked. FLOP/s are per rank. The
 * model's FLOPs are ech_model_flops; executed ones include recomputation. */
typedef struct ech_plan_forecast {
    /* low, high: seconds minus and plus the cluster's fraction step_spread */
    double seconds, low, high, tokens_per_second;
    double tokens, days, device_hours;        /* of the whole training: ech_plan_options.tokens */
    double model_flops, executed_flops, peak; /* FLOPs per second */
    double part[ECH_FORECAST_PARTS];          /* fractions of the step's time; their sum is 1 */
} ech_plan_forecast;
ech_plan_forecast ech_plan_forecast_of(const ech_plan_report *report);
/* Days of the whole training without failures; 0: unknown, as there is no cluster. */
double ech_plan_days(const ech_plan_report *report);
const char *ech_plan_forecast_part(int part); /* for people */
/* Appends it; nothing without a cluster. */
void ech_plan_print_forecast(const ech_plan_report *report, ech_text *out);
/* Appends step time, bubble, waits, micro-batches in flight and links of the simulated train
 * lists. */
void ech_plan_print_simulation(const ech_plan_report *report, ech_text *out);
/* The amount that the plan's rank sends in one training step, by axis: ech_plan_traffic divided by
 * the list's training steps. */
void ech_plan_step_traffic(const ech_plan *plan, ech_traffic traffic[ECH_TRAFFIC_AXES]);
/* Appends this traffic as a table, by classes of ranks (of many classes the first ones and the
 * last); nothing for a single rank. */
void ech_plan_print_traffic(const ech_plan_report *report, ech_text *out);
/* Appends gradient buckets and memory by kind if there is one class of ranks, else a table with a
 * row per class. Of many classes some rows are omitted, but never the class that needs the most
 * memory. */
void ech_plan_print_memory(const ech_plan_report *report, ech_text *out);
/* The number of parameters (elements) of a block of the model, unsharded; any block, also of
 * another rank. */
int64_t ech_plan_block_elements(const ech_plan *plan, int block);
/* Floating-point operations of one training step (ech_model_flops), over all ranks. */
double ech_plan_step_flops(const ech_design *design);
double ech_plan_token_flops(const ech_design *design); /* the same per token */
/* ech_layout_imbalance of the design: multiply-adds of the busiest rank over the mean, 1: even.
 * *stage: the busiest rank's. */
double ech_plan_imbalance(const ech_design *design, int *stage);

#endif
