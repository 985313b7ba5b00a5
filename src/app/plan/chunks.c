/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether sequence chunks pay: what is carried from chunk to chunk (keys, values, their gradients)
 * of all layers may be more than what shorter chunks save.
 */
#include "app/plan/report.h"
#include "base/log.h"

/* Of the run with other choices; 0: a rule is against them. */
static int64_t plan_with(const ech_design *design, int64_t chunks, int offload)
{
    ech_design other = {0};
    ech_config *config = ech_config_copy(design->config);
    config->memory.sequence_chunks = chunks;
    config->memory.offload_activations = offload;
    int ranks = ech_layout_ranks(design->layout);
    bool quiet = ech_log_set_quiet(true);
    ech_status status = ech_design_create(config, design->tokenizer, ranks, 1, &other);
    ech_log_set_quiet(quiet);
    int64_t bytes = status == ECH_OK ? ech_design_device_bytes(&other) : 0;
    ech_design_destroy(&other);
    ech_config_destroy(config);
    return bytes;
}

ech_plan_chunks ech_plan_compare_chunks(const ech_design *design, int64_t bytes)
{
    const ech_config *config = design->config;
    int offload = config->memory.offload_activations;
    ech_plan_chunks chunks = {0};
    if (config->memory.sequence_chunks < 2) return chunks;
    chunks.whole = plan_with(design, 1, offload);
    if (chunks.whole > 0) chunks.bytes = bytes;
    if (ech_plan_chunks_waste(&chunks) && offload == ECH_OFFLOAD_NONE)
        chunks.away = plan_with(design, config->memory.sequence_chunks, ECH_OFFLOAD_HOST);
    return chunks;
}
