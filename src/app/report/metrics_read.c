/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines of metrics.jsonl as series of points.
 */
#include "app/report/parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "app/experts.h"
#include "app/metrics.h"
#include "app/train/progress.h"
#include "base/file.h"
#include "base/json.h"

static const int64_t LAST_STEP = INT64_C(1000000000000000);

/* A number, a null, or no such key at all. */
static bool is_number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return !value || json_is_number(value) || json_is_null(value);
}

static void add(const json_t *object, const char *key, int64_t step, ech_report_points *points)
{
    const json_t *value = json_object_get(object, key);
    if (!value) return;
    double number = json_is_number(value) ? json_number_value(value) : (double)NAN;
    ECH_PUSH(*points, (ech_report_point){.step = step, .value = number});
}

static int64_t last_step(const ech_report_points *points)
{
    return points->n ? points->at[points->n - 1].step : -1;
}

/* Starts, the first left out. Steps do not descend. */
static bool take_start(const json_t *object, int64_t step, ech_metrics_series *out)
{
    int64_t start;
    if (!ech_json_to_int(json_object_get(object, "start"), 1, LAST_STEP, &start)) return false;
    if (step < last_step(&out->restarts)) return false;
    if (start > 1)
        ECH_PUSH(out->restarts, (ech_report_point){.step = step, .value = (double)start});
    return true;
}

/* All lines of a run have the same number of experts; the first line with experts sets it. */
static void take_loads(const json_t *object, int64_t step, ech_report_loads *loads)
{
    const json_t *values = json_object_get(object, "expert_load");
    size_t n = json_array_size(values);
    if (n == 0 || n > ECH_MOST_LOADS || (loads->experts && n != (size_t)loads->experts)) return;
    loads->experts = (int)n;
    ECH_PUSH(loads->step, step);
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(values, i);
        ECH_PUSH(loads->value, json_is_number(value) ? (float)json_number_value(value) : NAN);
    }
}

/* A layer's histogram. One of a later step replaces all before it. */
static bool take_histogram(const json_t *object, int64_t step, ech_report_exponents *out)
{
    enum { MOST_LAYERS = 10000, MOST_EXPONENT = 2000 };
    const json_t *counts = json_object_get(object, "counts");
    const char *name = json_string_value(json_object_get(object, "histogram"));
    size_t n = json_array_size(counts);
    int64_t elements, first;
    if (!name || step < out->step || n > ECH_EXPONENTS ||
        !ech_json_to_int(json_object_get(object, "elements"), 1, INT64_MAX, &elements) ||
        !ech_json_to_int(json_object_get(object, "first_exponent"), -MOST_EXPONENT, MOST_EXPONENT,
                         &first))
        return false;
    if (step > out->step) out->layer.n = out->count.n = 0;
    if (out->layer.n == MOST_LAYERS) return false;
    out->step = step;
    ech_report_layer layer = {.elements = (double)elements,
                              .first = (int)first,
                              .counts = (int)n,
                              .first_count = out->count.n};
    snprintf(layer.name, sizeof layer.name, "%s", name);
    for (size_t i = 0; i < n; i++) {
        double count = json_number_value(json_array_get(counts, i));
        ECH_PUSH(out->count, count > 0 ? count : 0);
    }
    ECH_PUSH(out->layer, layer);
    return true;
}

/* Whether the object belongs into the series. */
static bool take(const json_t *object, ech_metrics_series *out)
{
    bool texts = json_object_get(object, "tokens_per_second") != NULL;
    const char *const keys[] = {"loss", "grad_norm", "learning_rate",
                                texts ? "tokens_per_second" : "samples_per_second",
                                "step_seconds"}; /* as in out->all */
    int64_t step;
    if (!ech_json_to_int(json_object_get(object, "step"), 0, LAST_STEP, &step)) return false;
    if (json_object_get(object, "valid_loss")) {
        if (!is_number(object, "valid_loss") || step < last_step(&out->valid_loss)) return false;
        add(object, "valid_loss", step, &out->valid_loss);
        return true;
    }
    if (json_object_get(object, "histogram")) return take_histogram(object, step, &out->exponents);
    if (json_object_get(object, "start")) return take_start(object, step, out);
    if (!json_object_get(object, "loss")) return true; /* a checkpoint */
    if (step <= out->steps) return false;
    for (int i = 0; i < 5; i++)
        if (!is_number(object, keys[i])) return false;
    for (int i = 0; i < 5; i++) add(object, keys[i], step, &out->all[i]);
    if (is_number(object, "time")) add(object, "time", step, &out->time);
    take_loads(object, step, &out->loads);
    out->steps = step;
    return true;
}

static ech_status take_line(void *context, const char *line, size_t n, int64_t end)
{
    (void)end;
    ech_metrics_series *out = context;
    json_auto_t *object = line ? json_loadb(line, n, JSON_REJECT_DUPLICATES, NULL) : NULL;
    out->skipped += !(object && take(object, out));
    return ECH_OK;
}

ech_status ech_metrics_series_read(const char *path, ech_metrics_series *out)
{
    ech_metrics_series series = {0};
    int fd;
    int64_t bytes;
    ECH_TRY(ech_file_open(path, &fd, &bytes));
    ech_status st = ech_metrics_lines(fd, path, 0, bytes, take_line, &series);
    close(fd);
    if (st == ECH_OK)
        *out = series;
    else
        ech_metrics_series_free(&series);
    return st;
}

void ech_metrics_series_free(ech_metrics_series *series)
{
    for (size_t i = 0; i < sizeof series->all / sizeof *series->all; i++) free(series->all[i].at);
    free(series->loads.step.at);
    free(series->loads.value.at);
    free(series->exponents.layer.at);
    free(series->exponents.count.at);
    *series = (ech_metrics_series){0};
}
