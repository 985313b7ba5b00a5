/* SPDX-License-Identifier: Apache-2.0
 *
 * A profile of a run, as if it had been measured. After fixture.h.
 */
#ifndef ECH_TESTS_APP_MADE_UP_PROFILE_H
#define ECH_TESTS_APP_MADE_UP_PROFILE_H

#include "layout/profile.h"

/* Some blocks cost more than others. */
static inline void made_up_profile_write(const ech_design *design, const char *path)
{
    ech_text model = {0};
    ech_profile_describe(design->config, &model);
    ech_profile profile = {.blocks = (int)design->model->block.n,
                           .update_seconds = 1e-9,
                           .bandwidth = 1e9,
                           .processor_share = 1,
                           .model = model.at};
    profile.block = ech_calloc((size_t)profile.blocks, sizeof *profile.block);
    for (int b = 0; b < profile.blocks; b++) {
        ech_profile_block *cost = &profile.block[b];
        cost->activation_bytes = cost->boundary_bytes = cost->param_bytes = 1000;
        for (int phase = 0; phase < ECH_PROFILE_PHASES; phase++)
            cost->low[phase] = cost->seconds[phase] = cost->high[phase] = 1e-3 * (1 + b * 3 % 4);
    }
    ECH_ASSERT(ech_profile_write(&profile, path) == ECH_OK);
    free(profile.block);
    ech_text_free(&model);
}

#endif
