/* SPDX-License-Identifier: Apache-2.0
 *
 * Plugins that are wrong in one way each: -DBROKEN_name.
 */
#include <echelon_plugin.h>

static void declare(const echelon_param *param, const echelon_numbers *numbers,
                    echelon_needs *needs)
{
    (void)param, (void)numbers;
    needs->states = 1;
    needs->state[0].name = "average";
#ifdef BROKEN_axis
    needs->state[0].axes = "MODEL LENGTH";
#endif
#ifdef BROKEN_statistic
    needs->statistics = 1;
    needs->statistic[0].axes = "";
#endif
}

#ifndef BROKEN_missing
static void update(const echelon_optimizer_work *work)
{
    float *weights = work->weights.data;
    for (int64_t i = 0; i < work->weights.count; i++) weights[i] *= 0.5F;
#ifdef BROKEN_after
    weights[work->weights.count] = 1;
#endif
#ifdef BROKEN_before
    ((float *)work->state[0].data)[-1] = 1;
#endif
#ifdef BROKEN_reads
    ((float *)work->gradient.data)[0] = 1;
#endif
}
#endif

static const echelon_optimizer optimizer = {.size = sizeof optimizer,
#ifdef BROKEN_clash
                                            .name = "adamw",
#else
                                            .name = "broken",
#endif
#ifdef BROKEN_key
                                            .reads = "optimizer.gamma",
#endif
#ifndef BROKEN_missing
                                            .update = update,
#endif
                                            .declare = declare};
static const echelon_optimizer *const optimizers[] = {&optimizer, NULL};

#ifndef BROKEN_table
#ifdef BROKEN_version
enum { VERSION = ECHELON_PLUGIN_VERSION + 1 };
#else
enum { VERSION = ECHELON_PLUGIN_VERSION };
#endif
const echelon_plugin echelon_plugin_table = {
    .size = sizeof(echelon_plugin), .version = VERSION, .name = "broken", .optimizers = optimizers};
#else
int something_else(void);
int something_else(void)
{
    return optimizers[0] != NULL;
}
#endif
