/* SPDX-License-Identifier: Apache-2.0
 *
 * The design of an evaluator.
 */
#include <stdio.h>

#include "app/setup/setup.h"
#include "base/file.h"

/* What is offloaded there is a file by rank, and this design's rank is 0, as another's. */
static void set_offload_folder(ech_config *config, int rank)
{
    char name[32];
    const char *given = config->memory.offload_directory;
    snprintf(name, sizeof name, "evaluator-%d", rank);
    ECH_FREED char *folder = ech_config_is_auto(given)
                                 ? ech_file_join(config->log.directory, "offload")
                                 : ech_strdup(given);
    ECH_FREED char *own = ech_file_join(folder, name);
    ech_config_replace_text(&config->memory.offload_directory, own);
}

ech_status ech_design_create_evaluator(const ech_design *other, int rank, ech_config *config,
                                       ech_design *out)
{
    ech_config_set_alone(config);
    config->parallel.strategy = ECH_STRATEGY_SYNCHRONOUS;
    config->parallel.sync_every = 1;
    config->parallel.outer_learning_rate = 0.7; /* the defaults, which nothing reads */
    config->parallel.outer_momentum = 0.9;
    config->parallel.comm = ECH_COMM_local;
    config->parallel.reduction = ECH_REDUCTION_DIRECT;
    config->parallel.pin = ECH_PIN_FALSE;  /* the cores are bound by those who train */
    config->data.shards = ECH_SHARDS_NONE; /* nothing is trained */
    config->data.shares = ECH_AUTO;
    if (config->memory.offload_parameters == ECH_OFFLOAD_DISK) set_offload_folder(config, rank);
    ECH_TRY(ech_design_create_alone(other, config, out));
    out->first_rank = rank;
    return ECH_OK;
}
