/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the nearest grids that work to one that does not, and the nearest batch.
 */
#include <stdlib.h>

#include "layout/grid.h"

enum {
    MOST_GRIDS = 4,            /* shown */
    MOST_SAMPLES = 1000000000, /* of a step; the bound in keys.def */
    MOST_TRIES = 512           /* other numbers of ranks, on either side */
};

static ech_layout_shape shape_of(const ech_grid_problem *p, const ech_grid *g)
{
    const ech_config_list *list = &p->config->parallel.stage_replicas;
    int64_t micro = p->config->training.global_batch_size / ech_grid_micro_batch(p, g);
    ech_layout_shape shape = {.stages = (int)g->pipeline,
                              .chunks = (int)p->config->parallel.virtual_stages,
                              .micro_batches = (int)(micro / (list->n ? p->most : g->data)),
                              .divides = true};
    for (int s = 0; s < list->n; s++) shape.divides &= micro % list->at[s] == 0;
    return shape;
}

bool ech_grid_is_offered(const ech_grid_problem *problem, const ech_grid *grid)
{
    if (!ech_grid_works(problem, grid, ECH_GRID_WHOLE, NULL)) return false;
    ech_layout_shape shape = shape_of(problem, grid);
    return !problem->filter || problem->filter->accepts(problem->filter->context, &shape);
}

typedef struct candidate {
    ech_grid grid;
    /* The product of ratios of degrees as a fraction, which doubles represent exactly. */
    double over, under;
} candidate;

typedef struct search {
    const ech_grid_problem *problem; /* with the number of ranks being tried */
    ech_grid wanted;
    ECH_LIST(int64_t) divisor; /* of that number */
    ECH_LIST(candidate) found;
} search;

static void add_ratio(candidate *c, int64_t have, int64_t wanted)
{
    c->over *= (double)(have > wanted ? have : wanted);
    c->under *= (double)(have > wanted ? wanted : have);
}

/* Another depth moves every layer, so it counts twice. */
static candidate measure(const search *s, ech_grid grid)
{
    candidate c = {.grid = grid, .over = 1, .under = 1};
    for (int i = 0; i < 2; i++) add_ratio(&c, grid.pipeline, s->wanted.pipeline);
    if (s->wanted.data > 0) add_ratio(&c, grid.data, s->wanted.data);
    add_ratio(&c, grid.context, s->wanted.context);
    add_ratio(&c, grid.tensor, s->wanted.tensor);
    return c;
}

/* At equal distance: fewer stages, then fewer context ranks, then fewer tensor ranks. */
static int by_distance(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    double left = x->over * y->under, right = y->over * x->under;
    if (left != right) return left < right ? -1 : 1;
    const int64_t of_x[] = {x->grid.pipeline, x->grid.context, x->grid.tensor};
    const int64_t of_y[] = {y->grid.pipeline, y->grid.context, y->grid.tensor};
    for (int i = 0; i < 3; i++)
        if (of_x[i] != of_y[i]) return of_x[i] < of_y[i] ? -1 : 1;
    return 0;
}

static void consider(search *s, ech_grid grid)
{
    if (ech_grid_is_offered(s->problem, &grid)) ECH_PUSH(s->found, measure(s, grid));
}

static void find_divisors(search *s)
{
    int64_t n = s->problem->world;
    s->divisor.n = 0;
    for (int64_t d = 1; d * d <= n; d++) {
        if (n % d) continue;
        ECH_PUSH(s->divisor, d);
        if (d * d != n) ECH_PUSH(s->divisor, n / d);
    }
}

/* All ways to write `replicas` as pipeline x data. */
static void find_replicas(search *s, int64_t replicas, int64_t context, int64_t tensor)
{
    for (size_t i = 0; i < s->divisor.n; i++) {
        int64_t stages = s->divisor.at[i];
        if (replicas % stages) continue;
        consider(s, (ech_grid){stages, replicas / stages, context, tensor});
    }
}

/* All ways to write the number of ranks as replicas x context x tensor. */
static void find_grids(search *s)
{
    int64_t ranks = s->problem->world;
    s->found.n = 0;
    find_divisors(s);
    for (size_t i = 0; i < s->divisor.n; i++)
        for (size_t j = 0; j < s->divisor.n; j++) {
            int64_t tensor = s->divisor.at[i], context = s->divisor.at[j];
            if (ranks / tensor % context) continue;
            if (s->problem->listed)
                consider(s, (ech_grid){s->problem->listed, ECH_GRID_LISTED, context, tensor});
            else
                find_replicas(s, ranks / tensor / context, context, tensor);
        }
    if (s->found.n) qsort(s->found.at, s->found.n, sizeof *s->found.at, by_distance);
}

static void print_grids(const search *s, ech_text *out)
{
    for (size_t i = 0; i < s->found.n && i < MOST_GRIDS; i++) {
        const ech_grid *g = &s->found.at[i].grid;
        ech_text_append(out, i ? ", " : "");
        if (g->data == ECH_GRID_LISTED)
            ech_text_append(out, "parallel.stage_replicas");
        else
            ech_text_append(out, "pipeline %lld x data %lld", (long long)g->pipeline,
                            (long long)g->data);
        ech_text_append(out, " x context %lld x tensor %lld", (long long)g->context,
                        (long long)g->tensor);
    }
}

static void print_role(int64_t n, const char *one, const char *many, ech_text *out)
{
    if (n == 1) ech_text_append(out, ", 1 of them %s", one);
    if (n > 1) ech_text_append(out, ", %lld of them %s", (long long)n, many);
}

/* "13, 1 of them a server": all ranks, as --ranks counts them. */
static void print_world(const ech_grid_problem *p, ech_text *out, const char *unit)
{
    int64_t ranks = ech_grid_ranks(p, p->world);
    ech_text_append(out, "%lld%s%s", (long long)ranks, unit, unit[0] && ranks > 1 ? "s" : "");
    print_role(p->servers, "a server", "servers", out);
    print_role(p->evaluators, "an evaluator", "evaluators", out);
}

/* Other numbers of ranks, the nearest first; fewer before more. */
static bool find_elsewhere(search *s, ech_grid_problem *elsewhere, int64_t world)
{
    for (int64_t away = 1; away <= MOST_TRIES; away++)
        for (int64_t side = -1; side <= 1; side += 2) {
            elsewhere->world = world + side * away;
            if (elsewhere->world < 1) continue;
            find_grids(s);
            if (s->found.n) return true;
        }
    return false;
}

void ech_grid_print_nearest(const ech_grid_problem *problem, ech_grid wanted, ech_text *out)
{
    ech_grid_problem tried = *problem;
    search s = {.problem = &tried, .wanted = wanted};
    find_grids(&s);
    bool elsewhere = !s.found.n && find_elsewhere(&s, &tried, problem->world);
    if (elsewhere)
        ech_text_append(out, "; no grid works on %s, but on ",
                        ECH_COUNT(ech_grid_ranks(problem, problem->world), "rank"));
    else if (s.found.n)
        ech_text_append(out, "; grids that work on ");
    if (s.found.n) {
        print_world(&tried, out, elsewhere ? "" : " rank");
        ech_text_append(out, ": ");
    }
    print_grids(&s, out);
    free(s.found.at);
    free(s.divisor.at);
}

/* Larger and smaller multiples of the required divisor, the nearest first; fewer before more. */
int64_t ech_grid_nearest_batch(const ech_grid_problem *problem, const ech_grid *grid)
{
    ech_config config = *problem->config;
    ech_grid_problem tried = *problem;
    int64_t samples = config.training.global_batch_size, b = config.training.micro_batch_size;
    int64_t step = (b == ECH_AUTO ? 1 : b) * (grid->data == ECH_GRID_LISTED ? 1 : grid->data);
    int64_t low = samples / step * step, high = low + step;
    tried.config = &config;
    for (int i = 0; i < MOST_TRIES; i++) {
        bool down = low > 0 && (samples - low <= high - samples || high > MOST_SAMPLES);
        if (!down && high > MOST_SAMPLES) return 0;
        config.training.global_batch_size = down ? low : high;
        if (ech_grid_is_offered(&tried, grid)) return config.training.global_batch_size;
        if (down)
            low -= step;
        else
            high += step;
    }
    return 0;
}
