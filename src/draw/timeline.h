/* SPDX-License-Identifier: Apache-2.0
 *
 * Timelines: what each rank ran and when, simulated or measured, and pictures of them as the papers
 * draw schedules: a row for a rank or for ranks that do the same, a box for a micro-batch, grey for
 * idle time.
 */
#ifndef ECH_DRAW_TIMELINE_H
#define ECH_DRAW_TIMELINE_H

#include "base/memory.h"
#include "base/text.h"
#include "schedule/plan.h"

typedef struct ech_timeline_bar {
    int rank;
    ech_bar_kind kind;
    int chunk;         /* model chunk of F, B, W */
    int micro;         /* the number in the box; -1: none */
    double begin, end; /* in the timeline's unit */
    double weight;     /* part of end - begin that is W; alternating B and W are one B bar */
} ech_timeline_bar;

typedef struct ech_timeline {
    int ranks;
    const ech_layout *layout; /* of the ranks; borrowed. NULL: unknown */
    bool by_class;            /* only the first rank of each class has bars; the others are alike */
    int chunks;               /* model chunks of a rank, drawn in shades of a colour */
    int sequence_chunks; /* of a micro-batch, each with a number of its own; 0 or 1: not divided */
    double end;          /* when the last rank ends */
    bool seconds;        /* the unit: seconds, or forwards of one block */
    double bubble; /* fraction of ranks x end in which no F, B or W runs; 0 for an empty timeline */
    double waits;  /* fraction of ranks x end in which compute waits for a collective */
    double collective; /* time in which collectives run, summed over all ranks; 0: unknown */
    double forward;    /* the median duration of an F bar; 0: there is none */
    ECH_LIST(ech_timeline_bar) bar; /* by rank, then by begin */
} ech_timeline;

void ech_timeline_free(ech_timeline *timeline);
/* Adds a rank's bars; begin[s] and end[s] are when step s of the list began and ended. On the
 * compute lane successive steps of one kind, model chunk and micro-batch are one bar (a W next to
 * its own B is part of B's bar). Each wait for a collective is a bar, within or before these. Each
 * sum of gradients or gather of weights is a bar, and each update on the host. Ranks may come in
 * any order; call ech_timeline_finish after the last. */
void ech_timeline_add_list(ech_timeline *timeline, int rank, const ech_list *list,
                           const double *begin, const double *end);
/* Sorts the bars and sets `end` (unless it is set), `bubble`, `waits` and `forward` from them.
 * Waits for a collective (ECH_BAR_COLLECTIVE) do not count as work, also within the bar of an F, B
 * or W. Call it once, before the functions below. Time before 0 or past `end` is not drawn and does
 * not count; where bars of a rank overlap, the time counts once. */
void ech_timeline_finish(ech_timeline *timeline);

/* Appends "bubble 21.3 %", or "bubble 21.3 %, waits for collectives 4.0 %". */
void ech_timeline_bubble(const ech_timeline *timeline, ech_text *out);
/* Appends "12.3 ms a step and rank; compute waits for them 8.1 ms". The wait may be longer than the
 * collectives, since it takes time to wake a lane. Appends nothing where no collective runs.
 * `steps`: training steps in the timeline. */
void ech_timeline_collectives(const ech_timeline *timeline, int steps, ech_text *out);
/* Appends a duration with its unit: "33 block forwards", "161.2 ms". */
void ech_timeline_time(const ech_timeline *timeline, double time, ech_text *out);

/* Successive ranks that are drawn as one row, and the bars of the first of them, or of a rank that
 * is alike. */
typedef struct ech_timeline_row {
    int rank, ranks;
    size_t first_bar, bars;
} ech_timeline_row;
typedef ECH_LIST(ech_timeline_row) ech_timeline_rows;

/* A row for each rank; `shared`: one row for successive ranks of a stage with the same bars. Free
 * rows->at. */
void ech_timeline_find_rows(const ech_timeline *timeline, bool shared, ech_timeline_rows *rows);
/* "stage 1, 2 replicas, tensor rank 0", or without a layout "rank 4 .. 7". Returns its length. */
int ech_timeline_name_row(const ech_timeline *timeline, const ech_timeline_row *row, char *name,
                          size_t size);

/* Appends a text picture. A row is a rank, or successive ranks with the same bars; a column is one
 * forward (the shortest F, B or W). "F0.3" (chunk.micro) stands where a bar begins, "BW0.3" where B
 * and W alternate, "-" while it continues, "." for idle; waits, sums, gathers and updates on the
 * host are not shown. Rows longer than `width` characters continue below; after 48 lines they end
 * with "...". Ranks beyond `most_rows` are omitted, and a line says so. The last line has the
 * duration of a column, of the whole timeline, and the bubble. */
void ech_timeline_text(const ech_timeline *timeline, int width, int most_rows, ech_text *out);

/* The most rows of a picture. Ranks that do the same are one row; where more rows remain, the
 * first, the last and evenly spaced ones between are drawn, and the picture says so. */
enum { ECH_TIMELINE_ROWS = 64 };
/* The rank, of `ranks` ranks, that is drawn as row `row`. */
int ech_timeline_rank_of_row(int ranks, int row);

/* One SVG element, for a file or an HTML page: a timeline, or two above each other on one scale. If
 * their units differ each has a scale of its own and the whole width. `below` NULL: there is one;
 * if it is too wide for its numbers, it continues below. Boxes too narrow for a number have none;
 * boxes narrower than a pixel are merged. */
void ech_timeline_svg(const ech_timeline *timeline, const char *title, const ech_timeline *below,
                      const char *below_title, ech_text *out);

#endif
