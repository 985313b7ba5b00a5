/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans of a small model without any file: the configuration's fields are set by hand.
 */
#ifndef ECH_TESTS_SCHEDULE_FIXTURE_H
#define ECH_TESTS_SCHEDULE_FIXTURE_H

#include <stdlib.h>
#include <string.h>

#include "schedule/passes.h"

typedef struct fixture {
    ech_config *config;
    ech_model *model;
    ech_layout *layout;
    ech_plan *plan[16];
    int ranks;
} fixture;

static inline ech_config *fixture_config(const char *architecture)
{
    ech_config *config;
    ECH_ASSERT(ech_config_create(NULL, 0, &config) == ECH_OK);
    ech_config_replace_text(&config->model.architecture, architecture);
    config->model.hidden_size = 16;
    config->model.num_hidden_layers = 3;
    config->model.num_attention_heads = 4;
    config->data.sequence_length = 8;
    config->training.steps = 10;
    config->training.global_batch_size = 24;
    config->training.micro_batch_size = 2;
    config->optimizer.learning_rate = 0.1;
    config->parallel.bucket_bytes = 4096;
    return config;
}

/* Takes the configuration. */
static inline fixture fixture_plan(ech_config *config, int ranks)
{
    fixture f = {.config = config, .ranks = ranks};
    ECH_ASSERT(ech_model_resolve(config, 50) == ECH_OK);
    ECH_ASSERT(ech_layout_resolve(config, ranks) == ECH_OK);
    ECH_ASSERT(ech_model_create(config, &f.model) == ECH_OK);
    ECH_ASSERT(ech_layout_create(config, f.model, ranks, &f.layout) == ECH_OK);
    for (int rank = 0; rank < ranks; rank++) {
        ech_plan_request request = {.config = config,
                                    .model = f.model,
                                    .layout = f.layout,
                                    .kernels = ech_kernels_ref(ECH_F32),
                                    .rank = rank,
                                    .threads = 1};
        ECH_ASSERT(ech_plan_create(&request, &f.plan[rank]) == ECH_OK);
    }
    return f;
}

static inline void fixture_free(fixture *f)
{
    for (int rank = 0; rank < f->ranks; rank++) ech_plan_destroy(f->plan[rank]);
    ech_layout_destroy(f->layout);
    ech_model_destroy(f->model);
    ech_config_destroy(f->config);
}

#endif
