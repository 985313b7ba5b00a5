/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters of a folder in PEFT's format as the start of a run, and their base.
 */
#include "app/setup/adapters.h"

#include <string.h>

#include "app/setup/initial.h"
#include "base/file.h"
#include "base/log.h"

ech_status ech_setup_open_adapters(const ech_config *config, bool verify, ech_peft **out)
{
    ECH_FREED char *folder = NULL;
    ECH_TRY(ech_peft_find(config->lora.init_from, &folder));
    return ech_peft_open(folder, verify, out);
}

/* ---- keys ---- */

static ech_status fill_real(ech_config *config, const char *key, double value, bool may_differ)
{
    ECH_FREED_TEXT text = {0};
    ech_text_append(&text, "%.17g", value);
    return ech_config_fill(config, key, text.at, config->lora.init_from, may_differ);
}

static ech_status fill(ech_config *config, const ech_peft *adapters)
{
    const ech_peft_settings *said = ech_peft_settings_of(adapters);
    ECH_FREED_TEXT targets = {0};
    ech_peft_append_targets(adapters, &targets);
    if (!targets.n)
        return ech_config_complain(config, "lora.init_from", "there are no adapters in its file");
    ECH_TRY(fill_real(config, "lora.rank", (double)said->rank, false));
    ECH_TRY(fill_real(config, "lora.alpha", said->alpha, false));
    ECH_TRY(fill_real(config, "lora.dropout", said->dropout, true));
    return ech_config_fill(config, "lora.targets", targets.at, config->lora.init_from, true);
}

ech_status ech_setup_check_adapters(const ech_config *config)
{
    if (!config->lora.init_from[0]) return ECH_OK;
    ECH_CLEANUP(ech_peft_close_at) ech_peft *adapters = NULL;
    ECH_TRY(ech_setup_open_adapters(config, false, &adapters));
    ECH_CLEANUP(ech_config_destroy_at) ech_config *resolved = ech_config_copy(config);
    ECH_CLEANUP(ech_model_destroy_at) ech_model *model = NULL;
    ECH_CLEANUP(ech_saved_list_free) ech_saved_list list = {0};
    ECH_TRY(ech_model_resolve(resolved, 1));
    ECH_TRY(ech_model_create_whole(resolved, &model));
    ech_initial_list(model, true, &list);
    return ech_peft_check(adapters, list.tensor.at, (int)list.tensor.n);
}

/* Weights with adapters beside them are more than their base. */
static ech_status check_unnamed(const ech_config *config)
{
    ECH_FREED char *folder = NULL;
    ECH_TRY(ech_shards_find(config->model.init_from, &folder));
    if (!ech_peft_is_there(folder)) return ECH_OK;
    return ech_config_complain(config, "model.init_from",
                               "%s has adapters beside their base; to train them on, set "
                               "lora.init_from to it, too; otherwise name the base, or the folder "
                               "that `echelon convert --merge` writes",
                               folder);
}

ech_status ech_setup_fill_adapters(ech_config *config)
{
    ECH_CLEANUP(ech_peft_close_at) ech_peft *adapters = NULL;
    if (!config->lora.init_from[0]) return check_unnamed(config);
    ECH_TRY(ech_setup_open_adapters(config, false, &adapters));
    return fill(config, adapters);
}

ech_status ech_setup_name_adapters(ech_config *config, const char *folder)
{
    ECH_CLEANUP(ech_peft_close_at) ech_peft *adapters = NULL;
    if (!ech_peft_is_there(folder)) return ECH_OK;
    ech_config_replace_text(&config->lora.init_from, folder);
    if (ech_file_has(folder, "config.json")) return ECH_OK;
    ECH_TRY(ech_peft_open(folder, false, &adapters));
    const char *base = ech_peft_settings_of(adapters)->base;
    if (!ech_file_is_folder(base))
        ECH_FAIL(ECH_EUSAGE,
                 "%s: adapters of the base '%s', which is no folder here; download it, and merge "
                 "both: echelon convert --merge %s NEW --base FOLDER",
                 folder, base, folder);
    ech_config_replace_text(&config->model.init_from, base);
    return ECH_OK;
}

/* ---- the base ---- */

ech_status ech_setup_hash_base(const ech_model *model, const ech_shards *weights,
                               char digits[ECH_CHECKPOINT_DIGITS + 1])
{
    ECH_CLEANUP(ech_saved_list_free) ech_saved_list list = {0};
    ech_initial_list(model, false, &list);
    return ech_shards_hash(weights, list.tensor.at, (int)list.tensor.n, digits);
}

ech_status ech_setup_check_base(const ech_config *config, const ech_peft *adapters,
                                const char *hash)
{
    const char *stated = ech_peft_base(adapters), *base = ech_peft_settings_of(adapters)->base;
    if (!stated) {
        ech_log_info("%s does not state its base's hash; its base is '%s', and this run's %s",
                     config->lora.init_from, base, config->model.init_from);
        return ECH_OK;
    }
    if (strcmp(stated, hash) == 0) return ECH_OK;
    return ech_config_complain(config, "lora.init_from",
                               "has adapters of the base '%s' (weights %.*s), and model.init_from "
                               "= %s has other weights (%s); name that base",
                               base, ECH_CHECKPOINT_DIGITS, stated, config->model.init_from, hash);
}

ech_status ech_setup_export_adapters(const ech_config *config, const ech_model *model,
                                     ech_text *out)
{
    const ech_peft_settings said = {.rank = config->lora.rank,
                                    .alpha = config->lora.alpha,
                                    .dropout = config->lora.dropout,
                                    .base = config->model.init_from};
    return ech_peft_settings_print(&said, model, out);
}
