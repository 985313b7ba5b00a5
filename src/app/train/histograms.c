/* SPDX-License-Identifier: Apache-2.0
 *
 * Counting exponents of gradients in an observer of the training list.
 */
#include "app/train/histograms.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "app/metrics.h"
#include "app/train/tensorboard.h"
#include "base/memory.h"
#include "schedule/states.h"

/* A row of counts: exponents from ECH_EXPONENT_LEAST on, then the next two. */
enum { NONFINITE = ECH_EXPONENTS, SQUARES, COLUMNS };
enum { ROOM = 1 << 16 }; /* numbers that are looked at together */

struct ech_histograms {
    const ech_plan *plan;
    bool *counts;   /* [params] this rank counts its part */
    double *of;     /* [blocks][COLUMNS] */
    double *room;   /* [ROOM] */
    double unscale; /* 1 / the loss scale */
};

static size_t blocks(const ech_histograms *h)
{
    return h->plan->model->block.n;
}

ech_histograms *ech_histograms_create(const ech_plan *plan)
{
    ech_histograms *h = ech_calloc(1, sizeof *h);
    size_t params = plan->model->param.n;
    h->plan = plan;
    h->counts = ech_calloc(params + 1, sizeof *h->counts);
    h->of = ech_calloc(blocks(h) * COLUMNS, sizeof *h->of);
    h->room = ech_calloc(ROOM, sizeof *h->room);
    for (size_t p = 0; p < params; p++)
        h->counts[p] =
            ech_layout_held(plan->layout, plan->model, plan->rank, (int)p, ECH_HELD_GRADIENT, NULL)
                .counts;
    return h;
}

void ech_histograms_destroy(ech_histograms *h)
{
    if (!h) return;
    free(h->counts);
    free(h->of);
    free(h->room);
    free(h);
}

/* ---- counting ---- */

/* Zeros are not counted: they are what is left of a layer's elements, which excludes padding. */
static void count_number(const ech_histograms *h, double x, double *row)
{
    int exponent;
    if (!isfinite(x)) row[NONFINITE]++;
    if (!isfinite(x) || x == 0) return;
    x *= h->unscale;
    row[SQUARES] += x * x;
    frexp(x, &exponent); /* |x| in [2^(exponent - 1), 2^exponent) */
    int column = exponent - 1 - ECH_EXPONENT_LEAST;
    if (column < 0) column = 0;
    if (column >= ECH_EXPONENTS) column = ECH_EXPONENTS - 1;
    row[column]++;
}

static void count_numbers(ech_histograms *h, ech_exec *exec, const char *data, ech_dtype dtype,
                          int64_t n, double *row)
{
    for (int64_t at = 0; at < n; at += ROOM) {
        int64_t some = n - at < ROOM ? n - at : ROOM;
        char *from = (char *)(uintptr_t)data + (size_t)at * ech_dtype_bytes(dtype);
        ech_tensor x = ech_tensor_1d(from, dtype, some);
        ech_exec_read(exec, &x, h->room);
        for (int64_t i = 0; i < some; i++) count_number(h, h->room[i], row);
    }
}

/* An ech_observer. The part of a gradient is the one that NORM counts. */
static void observe(void *context, ech_exec *exec, const ech_step *step)
{
    ech_histograms *h = context;
    if (step->kind != ECH_STEP_NORM) return;
    const ech_bucket *bucket = &h->plan->bucket.at[step->index];
    for (int i = 0; i < bucket->params; i++) {
        int p = h->plan->bucket_param.at[bucket->first_param + i];
        int64_t first, n = ech_plan_own(h->plan, p, &first);
        if (!h->counts[p] || n == 0) continue;
        ech_tensor gradient = ech_exec_own_gradient(exec, p, step->turn);
        size_t skipped = ech_bucket_is_sharded(bucket) ? 0 : (size_t)first;
        const char *data = (const char *)gradient.data + skipped * ech_dtype_bytes(gradient.dtype);
        count_numbers(h, exec, data, gradient.dtype, n,
                      &h->of[h->plan->model->param.at[p].block * COLUMNS]);
    }
}

void ech_histograms_begin(ech_histograms *h, ech_exec *exec)
{
    for (size_t i = 0; i < blocks(h) * COLUMNS; i++) h->of[i] = 0;
    h->unscale = 1 / ech_exec_scaler(exec).scale;
    ech_exec_observe(exec, observe, h);
}

/* ---- the result ---- */

static int64_t elements_of(const ech_model *model, size_t block)
{
    int64_t sum = 0;
    for (size_t p = 0; p < model->param.n; p++)
        if (model->param.at[p].block == (int)block && ech_param_is_trained(&model->param.at[p]))
            sum += ech_shape_whole(&model->param.at[p].shape);
    return sum;
}

static void submit(const ech_histograms *h, size_t block, int64_t step, ech_progress *progress)
{
    const double *row = &h->of[block * COLUMNS];
    ech_note note = {.kind = ECH_NOTE_HISTOGRAM,
                     .histogram = {.step = step,
                                   .layer = h->plan->model->block.at[block]->name,
                                   .elements = elements_of(h->plan->model, block),
                                   .nonfinite = (int64_t)row[NONFINITE],
                                   .norm = sqrt(row[SQUARES]),
                                   .loss_scale = 1 / h->unscale}};
    ech_histogram *out = &note.histogram;
    if (out->elements == 0) return;
    out->zeros = out->elements - out->nonfinite;
    out->count = ech_calloc(ECH_EXPONENTS, sizeof *out->count); /* the record owns it */
    for (int e = 0; e < ECH_EXPONENTS; e++) {
        out->count[e] = (int64_t)row[e];
        out->zeros -= out->count[e];
    }
    ech_progress_submit(progress, &note);
}

ech_status ech_histograms_finish(ech_histograms *h, ech_exec *exec, int64_t step,
                                 ech_progress *progress)
{
    ECH_TRY(ech_group_fold(ech_exec_world(exec), ECH_FOLD_SUM, h->of, (int)blocks(h) * COLUMNS));
    for (size_t b = 0; progress && b < blocks(h); b++) submit(h, b, step, progress);
    return ECH_OK;
}

/* ---- records ---- */

/* The first exponent with a count; its offset past the last one in *end. Both 0: there is none. */
static int find_range(const ech_histogram *h, int *end)
{
    int first = 0;
    *end = ECH_EXPONENTS;
    while (first < ECH_EXPONENTS && h->count[first] == 0) first++;
    if (first == ECH_EXPONENTS) return *end = 0;
    while (h->count[*end - 1] == 0) --*end;
    return first;
}

void ech_histogram_json(const ech_histogram *h, ech_text *json)
{
    int end, first = find_range(h, &end);
    ech_metrics_text(json, "histogram", h->layer);
    ech_metrics_int(json, "elements", h->elements);
    ech_metrics_int(json, "zeros", h->zeros);
    ech_metrics_int(json, "nonfinite", h->nonfinite);
    ech_metrics_real(json, "layer_norm", h->norm);
    ech_metrics_real(json, "scale", h->loss_scale);
    ech_metrics_int(json, "first_exponent", ECH_EXPONENT_LEAST + first);
    ech_text_append(json, ",\"counts\":[");
    for (int e = first; e < end; e++)
        ech_text_append(json, "%s%" PRId64, e > first ? "," : "", h->count[e]);
    ech_text_append(json, "]");
}

void ech_histogram_event(double wall_time, const ech_histogram *h, ech_text *out)
{
    int end, first = find_range(h, &end);
    ECH_FREED_TEXT tag = {0};
    double counts[ECH_EXPONENTS];
    for (int e = first; e < end; e++) counts[e - first] = (double)h->count[e];
    ech_text_append(&tag, "gradient_exponents/%s", h->layer);
    if (end > first)
        ech_event_histogram(wall_time, h->step, tag.at, ECH_EXPONENT_LEAST + first, counts,
                            end - first, out);
}
