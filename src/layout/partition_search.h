/* SPDX-License-Identifier: Apache-2.0
 *
 * The dynamic program over blocks and workers, level by level. best(w, i) is the best of all ways to
 * run blocks i and all behind, up to some end, on w components of a level: a first stage of q
 * components up to a cut j, and best(w - q, j) for the rest. Inside a stage of an outer level stands
 * the inner level's best for those blocks, from a table of all (i, j).
 *
 * It runs twice. First "best" is the shortest time. Then all stages and boundaries slower than that
 * are forbidden, and "best" is the fewest stages. Where the number of stages is given there is a
 * layer of best(w, i) for each number n of them. Private to this room.
 */
#ifndef ECH_LAYOUT_PARTITION_SEARCH_H
#define ECH_LAYOUT_PARTITION_SEARCH_H

#include "base/memory.h"
#include "layout/partition_costs.h"

/* What a component's own best depends on besides its blocks. */
typedef struct ech_search_context {
    int64_t copies; /* of the component, in the stages of outer levels around it */
    int64_t behind; /* workers of all stages behind the component's */
    int depth;
    int divisor[ECH_MOST_LEVELS]; /* copies level by level, outermost first */
} ech_search_context;

/* Of all components of a level together, which are one component of the next: its best. */
typedef struct ech_search_table {
    ech_search_context around;
    double *best; /* [layers][pairs i < j] */
} ech_search_table;

typedef struct ech_search_level {
    int workers; /* components */
    double bandwidth;
    int64_t size;                     /* workers of one component */
    int layers;                       /* most stages + 1, or 1 where any number will do */
    double *best;                     /* [layers][workers + 1][blocks + 1] */
    ECH_LIST(ech_search_table) table; /* those that this run has needed */
} ech_search_level;

typedef struct ech_search {
    const ech_partition_costs *costs;
    ech_search_level level[ECH_MOST_LEVELS];
    int stages;   /* 0: any number */
    bool counts;  /* the second run */
    double limit; /* of it: the shortest time */
    double *gate; /* [blocks + 1] best of what comes behind a cut, and the cut's own */
    int *queue;   /* [blocks + 1] */
} ech_search;

/* A stage of q of the w components that are left. */
typedef struct ech_search_stage {
    int level, q, w;
    const ech_search_context *around;
    const double *inside; /* the best of one of the q, a layer of the inner level's table */
} ech_search_stage;

/* The search in its first run. */
void ech_search_create(ech_search *s, const ech_partition_costs *costs, int stages);
/* Its second run: from here on all is counted that takes at most `limit` seconds. */
void ech_search_count(ech_search *s, double limit);
void ech_search_free(ech_search *s);

/* best(w, i) of level k up to `end`, into its `best`. */
void ech_search_fill(ech_search *s, int k, const ech_search_context *around, int end);
/* The row of all i. */
double *ech_search_best(const ech_search *s, int k, int layer, int w);

/* What stands around a component of a stage of q on level k, with w left; in lowest terms, and
 * without what plays no part, so that one table serves many stages. */
ech_search_context ech_search_inside(const ech_search *s, int k, const ech_search_context *around,
                                     int q, int w);
/* The layers that a stage of q components, of w and layer n, may have inside: *first .. *last. */
void ech_search_layers(const ech_search *s, int k, int n, int q, int w, int *first, int *last);
/* With that layer inside. */
ech_search_stage ech_search_stage_of(ech_search *s, int k, const ech_search_context *around, int q,
                                     int w, int layer);
/* Of the stage for blocks i .. j - 1. */
double ech_search_score(const ech_search *s, const ech_search_stage *st, int i, int j);
/* Fills gate[j] for all cuts j < end behind the stage; `rest` is the row of what comes there. */
void ech_search_find_gates(const ech_search *s, const ech_search_stage *st, const double *rest,
                           int end);
/* The score of both together. */
double ech_search_both(const ech_search *s, double a, double b);

#endif
