/* SPDX-License-Identifier: Apache-2.0
 *
 * Learning-rate curves. Warmup-stable-decay: Hu et al. 2024, arXiv:2404.06395.
 */
#include <math.h>
#include <string.h>

#include "base/added.h"
#include "optim/optim.h"
#include "optim/plugged.h"

static double constant(const ech_config *config, double t, double steps)
{
    (void)t, (void)steps;
    return config->optimizer.learning_rate;
}

/* Interpolates between the lowest rate (fraction 0) and the highest (fraction 1). */
static double between(const ech_config *config, double fraction)
{
    double low = config->optimizer.min_learning_rate, high = config->optimizer.learning_rate;
    return low + (high - low) * fraction;
}

static double linear(const ech_config *config, double t, double steps)
{
    (void)steps;
    return between(config, 1 - t);
}

static double cosine(const ech_config *config, double t, double steps)
{
    (void)steps;
    return between(config, 0.5 * (1 + cos(3.14159265358979323846 * t)));
}

static double wsd(const ech_config *config, double t, double steps)
{
    double decay = (double)config->optimizer.decay_steps, left = (1 - t) * steps;
    return between(config, left < decay ? left / decay : 1);
}

/* A function of the update's number, with warmup. */
static double rsqrt(const ech_config *config, double t, double steps)
{
    double rate = 1 / sqrt(t * steps + 1 + (double)config->optimizer.warmup_steps);
    return rate < config->optimizer.learning_rate ? rate : config->optimizer.learning_rate;
}

/* Adafactor's relative steps, as in transformers: a function of the update's number only. */
static double relative_step(const ech_config *config, double t, double steps)
{
    double number = round(t * steps + 1);
    double most = config->optimizer.warmup_init == 1 ? 1e-6 * number : 1e-2;
    return fmin(most, 1 / sqrt(number));
}

static const ech_curve relative = {
    "optimizer.relative_step = true (multiplying by the size of weights is "
    "optimizer.scale_parameter)",
    "", relative_step, NULL};
static const ech_curve row_constant = {"constant", "", constant, NULL};
static const ech_curve row_linear = {"linear", "optimizer.min_learning_rate", linear, NULL};
static const ech_curve row_cosine = {"cosine", "optimizer.min_learning_rate", cosine, NULL};
static const ech_curve row_rsqrt = {"rsqrt", "", rsqrt, NULL};
static const ech_curve row_wsd = {"wsd", "optimizer.min_learning_rate optimizer.decay_steps", wsd,
                                  NULL};

static const ech_curve *const rows[] = {
#define X(name, help) &row_##name,
#include "optim/learning_rates.def"
#undef X
};
static const char built_in[] =
#define X(name, help) #name " "
#include "optim/learning_rates.def"
#undef X
    ;
enum { ROWS = sizeof rows / sizeof *rows };

static ech_added added = ECH_ADDED("learning-rate curve"); /* plugins' */

static size_t count(void)
{
    return ROWS + atomic_load(&added.n);
}

static const ech_curve *row_at(size_t i)
{
    return i < ROWS ? rows[i] : added.at[i - ROWS];
}

const ech_curve *ech_curve_find(const char *name)
{
    for (size_t i = 0; i < count(); i++)
        if (strcmp(row_at(i)->name, name) == 0) return row_at(i);
    return NULL;
}

const ech_curve *ech_curve_of(const ech_config *config)
{
    return config->optimizer.relative_step == 1 ? &relative
                                                : row_at((size_t)config->optimizer.schedule);
}

const char *ech_curve_names(void)
{
    return ech_added_names(&added, built_in);
}

ech_status ech_curve_plug(const char *plugin, const echelon_curve *row)
{
    ECH_TRY(ech_plugged_check_curve(plugin, row));
    return ech_added_put(&added, plugin, row->name, built_in, ech_plugged_curve(row));
}

/* Keys that all curves of optimizer.schedule read, and relative steps do not. */
static const char scheduled[] = "optimizer.learning_rate optimizer.schedule optimizer.warmup_steps";

static const char *reads_scheduled(const ech_config *config)
{
    return ech_curve_of(config) == &relative ? "" : scheduled;
}

void ech_curve_mark_keys(const ech_config *config)
{
    ech_config_mark_unread(config, scheduled, reads_scheduled(config));
}

ech_status ech_curve_check_keys(const ech_config *config)
{
    const ech_curve *own = ech_curve_of(config);
    ECH_FREED_TEXT owned = {0}, read = {0};
    ech_text_append(&owned, "%s", scheduled);
    ech_text_append(&read, "%s %s", reads_scheduled(config), own->reads);
    for (size_t i = 0; i < count(); i++) ech_text_append(&owned, " %s", row_at(i)->reads);
    return ech_config_check_read(config, owned.at, read.at, own->name);
}

double ech_learning_rate(const ech_config *config, const ech_curve *curve, int64_t count)
{
    double warmup = (double)config->optimizer.warmup_steps, last = (double)config->training.steps;
    if ((double)count <= warmup) return config->optimizer.learning_rate * (double)count / warmup;
    double steps = last - warmup, t = steps > 0 ? ((double)count - 1 - warmup) / steps : 1;
    return curve->rate(config, t < 1 ? t : 1, steps);
}
