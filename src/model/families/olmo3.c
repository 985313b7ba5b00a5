/* SPDX-License-Identifier: Apache-2.0
 *
 * OLMo 3. Team OLMo 2025, arXiv:2512.13961: OLMo 2, of whose layers all but every fourth one have
 * attention windows. The angles of these are never scaled.
 */
#include "model/family.h"

static const ech_family_row rows[] = {ECH_ROWS_SIZES,
                                      ECH_ROW_KV_HEADS_AS_HEADS,
                                      ECH_ROWS_LLAMA("2048", "1e-5"),
                                      ECH_ROWS_ATTENTION_BIAS("false"),
                                      ECH_ROW_WINDOW("4096"),
                                      ECH_ROWS_LLAMA_REST("false"),
                                      ECH_ROWS_END};

static const ech_windows windows = {.has = ech_windows_but_every, .otherwise = 4};

/* Versions of transformers differ in which layers have the base of a file that states one: in 5.24,
 * those with a window have 500000 in any case. */
static ech_status import_more(const ech_family_import *in)
{
    const json_t *theta = ech_family_import_get(in, "rope_theta");
    const json_t *rope = ech_family_import_get(in, "rope_parameters");
    bool by_type =
        json_object_get(rope, "full_attention") || json_object_get(rope, "sliding_attention");
    if (by_type || (!rope && (!theta || json_number_value(theta) == 500000))) return ECH_OK;
    ECH_FAIL(ECH_EUNSUPPORTED,
             "%s: %s: not of each type of layers; state rope_parameters with full_attention and "
             "sliding_attention, each with its rope_theta",
             in->path, rope ? "rope_parameters" : "rope_theta");
}

static const ech_rope_names rope = {
    .theta_initial = "500000", .local = "rope_theta", .local_initial = "500000", .by_type = true};

static ech_status check(const ech_config *config)
{
    if (config->model.rope_local_base_freq == 0)
        return ech_config_complain(config, "model.rope_local_base_freq",
                                   "olmo3 has a base of its own for layers with a window; set it "
                                   "to model.rope_theta");
    return ech_rope_check_by_type(config);
}

const ech_family ech_family_row_olmo3 = {
    .name = "olmo3",
    .help = "OLMo 3: OLMo 2, of whose layers all but every fourth have windows",
    .reads = ECH_DECODER_KEYS ECH_ROTARY_KEYS " model.rope_local_base_freq",
    .constants = "model.norm_placement=after model.head_norm=full",
    .defaults = "model.sliding_window=4096 model.window_layers=LLLG model.rope_theta=500000 "
                "model.rope_local_base_freq=500000",
    .check = check,
    .architecture = "Olmo3ForCausalLM",
    .windows = &windows,
    .rows = rows,
    .import_more = import_more,
    .rope = &rope,
    ECH_ROTARY_FILES("")};
