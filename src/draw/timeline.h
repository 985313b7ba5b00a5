/* SPDX-License-Identifier: Apache-2.0
 *
 * Timelines: who did what from when to when, simulated or measured, and pictures of them as the
 * papers draw schedules: a row a rank or for ranks that do the same, a box a micro-batch, idle time grey.
 */
#ifndef ECH_DRAW_TIMELINE_H
#define ECH_DRAW_TIMELINE_H

#include "base/memory.h"
#include "base/text.h"
#include "schedule/schedule.h"

typedef struct ech_timeline_bar {
    int rank;
    ech_bar_kind kind;
    int chunk;         /* of F, B, W */
    int micro;         /* the number in the box; -1: none */
    double begin, end; /* in the timeline's unit */
    double weight; /* of this time, in W: where B and W take turns, they are one bar, a BACKWARD */
} ech_timeline_bar;

typedef struct ech_timeline {
    int ranks;
    const ech_layout *layout; /* who the ranks are; borrowed. NULL: not known */
    int chunks;               /* of a rank: shades of a colour */
    int sequence_chunks; /* of a micro-batch, each of which has a number; 0 or 1: it is whole */
    double end;          /* when the last rank is done */
    bool seconds;        /* the unit: seconds, or forwards of one block */
    double bubble;       /* share of ranks x end in which no F, B or W runs; 0 of nothing */
    double waits;        /* the part of it in which compute waits for a collective */
    double collective;   /* time in which collectives run, of all ranks together; 0: not known */
    double forward;      /* the median forward; 0: there is none */
    ECH_LIST(ech_timeline_bar) bar; /* by rank, then by begin */
} ech_timeline;

void ech_timeline_free(ech_timeline *timeline);
/* Adds a rank's compute lane, from the times at which the list's steps began and ended: a bar for the
 * steps of a chunk and micro-batch of one kind, a W beside its own B being part of it; a bar of its own, within such a
 * bar or before it, wherever compute waited for a collective; and one for each sum of the reduce lane. Ranks come in any
 * order, and ech_timeline_finish behind the last. */
void ech_timeline_add_list(ech_timeline *timeline, int rank, const ech_list *list,
                           const double *begin, const double *end);
/* Sorts the bars, which may come in any order, and sets `end` (unless it is set), `bubble`, `waits` and
 * `forward` from them. Where compute waits for a collective (ECH_BAR_COLLECTIVE) no work is done, also
 * within the bar of an F, B or W. To be called once before everything below. What is before 0 or past `end` is
 * not drawn and does not count; where bars of a rank overlap, the time counts once. */
void ech_timeline_finish(ech_timeline *timeline);

/* "bubble 21.3 %", or "bubble 21.3 %, waits for collectives 4.0 %". */
void ech_timeline_bubble(const ech_timeline *timeline, ech_text *out);
/* "12.3 ms a step and rank; compute waits for them 8.1 ms", which may be longer: lanes wake each other.
 * Nothing where no collective runs. `steps`: training steps that the timeline shows. */
void ech_timeline_collectives(const ech_timeline *timeline, int steps, ech_text *out);
/* A duration with its unit: "33 block forwards", "161.2 ms". */
void ech_timeline_time(const ech_timeline *timeline, double time, ech_text *out);

/* Ranks one behind the other that are drawn together, and their bars: those of the first. */
typedef struct ech_timeline_row {
    int rank, ranks;
    size_t first_bar, bars;
} ech_timeline_row;
typedef ECH_LIST(ech_timeline_row) ech_timeline_rows;

/* A row for each rank; `shared`: one for neighbours of a stage with the same bars. Free rows->at. */
void ech_timeline_find_rows(const ech_timeline *timeline, bool shared, ech_timeline_rows *rows);
/* "stage 1, 2 replicas, tensor rank 0", or where the layout is not known "rank 4 .. 7". Returns its length. */
int ech_timeline_name_row(const ech_timeline *timeline, const ech_timeline_row *row, char *name,
                          size_t size);

/* One row a rank, or neighbours with the same bars, of columns one forward (the shortest F, B or W) wide: "F0.3"
 * (chunk.micro) where a bar begins, "BW0.3" where B and W take turns, "-" while it goes on, "." idle; waits and sums are
 * not shown apart. At most `width` characters a row: where that is not enough all rows go on below, and after 48 lines
 * they are cut with "...". Ranks beyond `most_rows` are left out with a line that says so. The last line says how much a
 * column is, how long all takes and the bubble. */
void ech_timeline_text(const ech_timeline *timeline, int width, int most_rows, ech_text *out);

/* The most rows of a picture. Ranks that do the same share a row; where that is no help the
 * first, the last and evenly spaced ones between are drawn, and the picture says so. */
enum { ECH_TIMELINE_ROWS = 64 };
int ech_timeline_rank_of_row(int ranks, int row);

/* A whole SVG document; `title` above it. What is too wide for its numbers goes on below. Boxes too narrow for a number have none, and those narrower
 * than a pixel are drawn together. */
void ech_timeline_svg(const ech_timeline *timeline, const char *title, ech_text *out);
/* Two timelines one above the other on one scale, in one SVG element for a file or an HTML page. Where
 * their units differ there is no common scale, and both take the whole width. */
void ech_timeline_svg_pair(const ech_timeline *above, const char *above_title,
                           const ech_timeline *below, const char *below_title, ech_text *out);

#endif
