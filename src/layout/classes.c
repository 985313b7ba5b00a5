/* SPDX-License-Identifier: Apache-2.0
 *
 * Classes of ranks that are alike: the coarsest partition that agrees with stages, numbers of
 * micro-batches, delays, and for every group and every neighbouring stage with the classes of its
 * members. Its members are also on machines, and on units of each level of a cluster, in the same
 * way. Found by refinement: a rank's colour is hashed with its partners' colours, until the number
 * of colours no longer grows.
 */
#include "layout/layout.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

typedef struct colours {
    const ech_layout *layout;
    const ech_model *model;
    uint64_t *now, *next; /* [world] */
    int *members;         /* [world] */
    bool *seen;           /* [world] */
    int unit[1 + ECH_MOST_LEVELS]; /* ranks of a machine, then of units of the cluster's levels */
    int units;
} colours;

/* The finalizer of splitmix64, over both. */
static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = a * 0x9e3779b97f4a7c15u + b + 0x632be59bd9b4e019u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint64_t mix_real(uint64_t a, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return mix(a, bits);
}

static int compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static int count_colours(const uint64_t *colour, int n)
{
    ECH_FREED uint64_t *sorted = ech_calloc((size_t)n, sizeof *sorted);
    int count = 0;
    memcpy(sorted, colour, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, compare);
    for (int i = 0; i < n; i++) count += i == 0 || sorted[i] != sorted[i - 1];
    return count;
}

static uint64_t first_colour(const ech_layout *layout, int rank, bool by_context)
{
    const ech_coordinates *at = &layout->coordinates[rank];
    uint64_t colour = mix(0, (uint64_t)at->stage);
    colour = mix(colour, (uint64_t)ech_layout_micro_batches(layout, rank));
    colour = mix_real(colour, ech_layout_delay(layout, rank));
    return by_context ? mix(colour, (uint64_t)at->context) : colour;
}

/* The colour of a group for its members: the number of members of each colour, and the numbers of
 * successive members on one machine, and the units of each level from the first to the last member
 * (ech_rates_between). */
static uint64_t colour_group(const colours *c, int n)
{
    uint64_t sum = 0, machines = 0;
    int node = c->unit[0], row = 0;
    for (int i = 0; i < n; i++) {
        sum += mix(1, c->now[c->members[i]]);
        row++;
        bool ends = i == n - 1 || c->members[i] / node != c->members[i + 1] / node;
        if (ends) machines = mix(machines, (uint64_t)row);
        if (ends) row = 0;
    }
    uint64_t colour = mix(sum, machines);
    for (int u = 1; n && u < c->units; u++)
        colour = mix(colour, (uint64_t)(c->members[n - 1] / c->unit[u] - *c->members / c->unit[u]));
    return colour;
}

/* In a regular layout, either all ranks of a stage are in groups of a kind or none is. */
static void add_groups(const colours *c, ech_layout_group kind)
{
    int without = -1; /* a stage without such groups */
    memset(c->seen, 0, (size_t)c->layout->world * sizeof *c->seen);
    for (int rank = 0; rank < c->layout->world; rank++) {
        int stage = c->layout->coordinates[rank].stage;
        if (c->seen[rank] || stage == without) continue;
        int n = ech_layout_members(c->layout, c->model, rank, kind, c->members);
        if (n == 0) without = stage;
        uint64_t colour = mix((uint64_t)kind, colour_group(c, n));
        for (int i = 0; i < n; i++) {
            c->seen[c->members[i]] = true;
            c->next[c->members[i]] = mix(c->next[c->members[i]], colour);
        }
    }
}

static void add_neighbours(const colours *c, int rank)
{
    const ech_layout *layout = c->layout;
    const ech_coordinates *at = &layout->coordinates[rank];
    for (int chunk = 0; chunk < layout->chunks; chunk++)
        for (int after = 0; after < 2; after++) {
            int s = ech_layout_neighbour(layout, rank, chunk, after);
            if (s < 0) continue;
            int peer = ech_layout_rank_at(layout, layout->virtual_stage[s].stage, at->data,
                                          at->context, at->tensor);
            c->next[rank] = mix(c->next[rank], c->now[peer]);
            for (int u = 0; u < c->units; u++)
                c->next[rank] = mix(c->next[rank], peer / c->unit[u] == rank / c->unit[u]);
        }
}

static void refine(const colours *c)
{
    int world = c->layout->world, before = 0, count = count_colours(c->now, world);
    while (count > before) {
        memcpy(c->next, c->now, (size_t)world * sizeof *c->next);
        for (int kind = 0; kind < ECH_GROUPS; kind++) add_groups(c, (ech_layout_group)kind);
        for (int rank = 0; rank < world; rank++) add_neighbours(c, rank);
        memcpy(c->now, c->next, (size_t)world * sizeof *c->now);
        before = count;
        count = count_colours(c->now, world);
    }
}

/* A rank has the same neighbours in all stages, and all ranks take part in the same sums. */
static bool is_regular(const ech_layout *layout)
{
    bool regular = layout->sums == ECH_SUMS_ALL && !layout->servers;
    for (int s = 1; s < layout->stages; s++)
        regular = regular && layout->replicas[s] == layout->replicas[0];
    return regular;
}

typedef struct coloured {
    uint64_t colour;
    int rank;
} coloured;

static int compare_coloured(const void *a, const void *b)
{
    const coloured *x = a, *y = b;
    if (x->colour != y->colour) return x->colour < y->colour ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Numbers the classes in the order of their first ranks. */
static void number(ech_classes *classes, const uint64_t *colour, int world)
{
    ECH_FREED coloured *sorted = ech_calloc((size_t)world, sizeof *sorted);
    for (int rank = 0; rank < world; rank++) sorted[rank] = (coloured){colour[rank], rank};
    qsort(sorted, (size_t)world, sizeof *sorted, compare_coloured);
    for (int i = 0, first = 0; i < world; i++) { /* meanwhile `of` has the class's first rank */
        if (i && sorted[i].colour != sorted[i - 1].colour) first = i;
        classes->of[sorted[i].rank] = sorted[first].rank;
    }
    for (int rank = 0; rank < world; rank++) {
        int first = classes->of[rank];
        if (first == rank) classes->first[classes->n++] = rank;
        classes->of[rank] = first == rank ? classes->n - 1 : classes->of[first];
        classes->ranks[classes->of[rank]]++;
    }
}

void ech_layout_free_classes(ech_layout *layout)
{
    free(layout->classes.of);
    free(layout->classes.first);
    free(layout->classes.ranks);
    layout->classes = (ech_classes){0};
}

void ech_layout_find_classes(ech_layout *layout, const ech_model *model, const ech_cluster *cluster,
                             bool uneven)
{
    size_t world = (size_t)layout->world;
    ech_classes *classes = &layout->classes;
    ech_layout_free_classes(layout);
    *classes = (ech_classes){.of = ech_calloc(world, sizeof *classes->of),
                             .first = ech_calloc(world, sizeof *classes->first),
                             .ranks = ech_calloc(world, sizeof *classes->ranks)};
    ECH_FREED uint64_t *now = ech_calloc(world, sizeof *now);
    ECH_FREED uint64_t *next = ech_calloc(world, sizeof *next);
    ECH_FREED int *members = ech_calloc(world, sizeof *members);
    ECH_FREED bool *seen = ech_calloc(world, sizeof *seen);
    colours c = {layout, model, now, next, members, seen, {layout->node}, 1};
    for (int l = 0; cluster && l < cluster->levels; l++)
        c.unit[c.units++] = cluster->level[l].ranks;
    bool regular = !uneven && is_regular(layout), by_context = ech_model_slides(model);
    for (int rank = 0; rank < layout->world; rank++)
        now[rank] = regular ? first_colour(layout, rank, by_context) : (uint64_t)rank;
    if (regular) refine(&c);
    number(classes, now, layout->world);
}
