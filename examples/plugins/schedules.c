/* SPDX-License-Identifier: Apache-2.0
 *
 * A learning-rate curve and a pipeline schedule in one plugin: `exponential` decays by the same
 * factor in every step, and `all_forwards_first` is GPipe's order (Huang et al. 2019).
 *
 *     cc -shared -fPIC -O2 -I include examples/plugins/schedules.c -o schedules.so -lm
 *     echelon train run.yaml training.plugins=./schedules.so optimizer.schedule=exponential \
 *         optimizer.min_learning_rate=1e-5 parallel.schedule=all_forwards_first
 */
#include <echelon_plugin.h>
#include <math.h>
#include <stdio.h>

static double rate(const echelon_numbers *numbers, double t, double steps)
{
    double high = numbers->learning_rate, low = numbers->min_learning_rate;
    (void)steps;
    return low > 0 ? high * pow(low / high, t) : high;
}

static const echelon_curve exponential = {.size = sizeof exponential,
                                          .name = "exponential",
                                          .reads = "optimizer.min_learning_rate",
                                          .rate = rate};

/* A line per stage; without W's each B is followed by its W. */
static void write(const echelon_pipe *pipe, void (*put)(void *to, const char *text), void *to)
{
    char word[64];
    for (int stage = 0; stage < pipe->stages; stage++) {
        for (int chunk = 0; chunk < pipe->chunks; chunk++)
            for (int micro = 0; micro < pipe->micro_batches; micro++) {
                snprintf(word, sizeof word, "F%d.%d ", chunk, micro);
                put(to, word);
            }
        for (int chunk = pipe->chunks - 1; chunk >= 0; chunk--)
            for (int micro = 0; micro < pipe->micro_batches; micro++) {
                snprintf(word, sizeof word, "B%d.%d ", chunk, micro);
                put(to, word);
            }
        put(to, "\n");
    }
}

static const echelon_order all_forwards_first = {
    .size = sizeof all_forwards_first, .name = "all_forwards_first", .write = write};

static const echelon_curve *const curves[] = {&exponential, NULL};
static const echelon_order *const orders[] = {&all_forwards_first, NULL};

const echelon_plugin echelon_plugin_table = {.size = sizeof(echelon_plugin),
                                             .version = ECHELON_PLUGIN_VERSION,
                                             .name = "schedules",
                                             .curves = curves,
                                             .orders = orders};
