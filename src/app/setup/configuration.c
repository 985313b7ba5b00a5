/* SPDX-License-Identifier: Apache-2.0
 *
 * From a run file and assignments to a checked configuration.
 */
#include "app/setup/setup.h"

#include <string.h>

#include "app/setup/initial.h"
#include "app/setup/plugins.h"
#include "app/setup/template.h"
#include "base/file.h"
#include "base/log.h"
#include "config/follow.h"
#include "config/strategy.h"
#include "layer/layers.h"

ech_status ech_setup_defaults(ech_config **out)
{
    const ech_config_names names[] = {
        {"models", ech_family_names()},        {"optimizers", ech_optimizer_names()},
        {"curves", ech_curve_names()},         {"comms", ech_comm_names()},
        {"reductions", ech_reduction_names()}, {"schedules", ech_generator_names()},
        {"devices", ech_device_names()},       {"gates", ech_gate_names()},
        {"losses", ech_loss_names()}};
    return ech_config_create(names, sizeof names / sizeof *names, out);
}

/* A resolved run file has all keys that its optimizer reads. One without
 * optimizer.scale_parameter is from before that key, and what it says of optimizer.relative_step
 * is said of that now. */
static ech_status rename_relative_step(ech_config *config, const char *name)
{
    if (!ech_config_is_set(config, "optimizer.relative_step") ||
        ech_config_is_set(config, "optimizer.scale_parameter"))
        return ECH_OK;
    const char *scales = config->optimizer.relative_step == 1 ? "true" : "false";
    config->optimizer.relative_step = 0;
    return ech_config_fill(config, "optimizer.scale_parameter", scales, name, false);
}

/* In a run file that was written by hand it means what it says. */
static void warn_of_relative_step(const ech_config *config)
{
    if (ech_config_is_set(config, "optimizer.relative_step") &&
        config->optimizer.relative_step == 0 &&
        !ech_config_is_set(config, "optimizer.scale_parameter"))
        ech_log_warn("optimizer.relative_step = false: optimizer.scale_parameter = true still "
                     "multiplies learning rates by the size of the weights; in older run files "
                     "relative_step = false turned that off, too: set optimizer.scale_parameter = "
                     "false for that");
}

/* The family of model.mapping, which a run file may name before or after its key. *out: NULL
 * without such a key. */
static ech_status map_family(const char *run_file, const char *text, char *const *assignments,
                             int n, const ech_family **out)
{
    ECH_FREED char *path = ech_config_peek_path(run_file, text, assignments, n, "model.mapping");
    *out = NULL;
    return *path ? ech_family_map(path, out) : ECH_OK;
}

/* What is special about a configuration: */
enum {
    FILLS = 1,  /* the model section may come from model.init_from */
    PLANS = 2,  /* nothing is read or written: keys that name data and folders may be missing */
    SAVED = 4,  /* the user did not write the text, so paths in it are literal */
    PARTIAL = 8 /* required keys may be missing */
};

/* Fills required keys that a plan does not use. */
static ech_status fill_unused(ech_config *config)
{
    ECH_TRY(ech_config_fill(config, "data.train", "", "a plan", true));
    return ech_config_fill(config, "log.directory", "none", "a plan", true);
}

/* A length in epochs becomes steps in ech_design_resolve_epochs. */
static ech_status take_epochs(ech_config *config)
{
    if (!(config->training.epochs > 0)) return ECH_OK;
    if (ech_config_is_set(config, "training.steps"))
        return ech_config_complain(config, "training.epochs",
                                   "training.steps is set, too; remove one of the two");
    return ech_config_fill(config, "training.steps", "0", "training.epochs", true);
}

/* A boolean would be taken for a path, and a path is not used if the run has checkpoints. A folder
 * of such a name is meant. */
static ech_status check_resume(const ech_config *config)
{
    const char *resume = config->checkpoint.resume;
    if (ech_file_exists(resume)) return ECH_OK;
    if (ech_text_find_word("false no none", resume) >= 0)
        return ech_config_complain(config, "checkpoint.resume",
                                   "not a path; set never to refuse to start where there are "
                                   "checkpoints, or name another log.directory");
    if (ech_text_find_word("true yes latest", resume) >= 0)
        return ech_config_complain(config, "checkpoint.resume", "not a path; set auto");
    return ECH_OK;
}

static ech_status read_source(ech_config *config, const char *name, const char *text, int special)
{
    if (!text) return ech_config_read_file(config, name);
    if (!(special & SAVED)) return ech_config_read_own_text(config, text, strlen(text), name);
    ECH_TRY(ech_config_read_text(config, text, strlen(text), name));
    return rename_relative_step(config, name);
}

/* The assignments come before the check, which reports missing keys as well as wrong ones. `text`
 * NULL: of the file `name`. A user's own model section may come from model.mapping. */
static ech_status make_config(const char *name, const char *text, int special,
                              char *const *assignments, int n, ech_config **out)
{
    ECH_CLEANUP(ech_config_destroy_at) ech_config *config = NULL;
    const ech_family *mapped = NULL;
    bool saved = special & SAVED;
    ECH_TRY(ech_plugins_open(name, text, saved, assignments, n));
    if (!saved) ECH_TRY(map_family(name, text, assignments, n, &mapped));
    ECH_TRY(ech_setup_defaults(&config));
    ech_status status = read_source(config, name, text, special);
    for (int i = 0; i < n; i++) ECH_ALSO(&status, ech_config_set(config, assignments[i]));
    if (status == ECH_OK && mapped)
        status = ech_config_fill(config, "model.architecture", mapped->name, config->model.mapping,
                                 false);
    bool is_filled = !(special & FILLS) || !(ech_config_is_named(config, "model.init_from") ||
                                            ech_config_is_named(config, "lora.init_from"));
    if (status == ECH_OK && !is_filled) status = ech_setup_fill_model(config);
    if (ech_config_is_set(config, "model.architecture"))
        ech_model_choose(config);
    else
        ech_model_mark_unnamed(config);
    if (status == ECH_OK && special & PLANS) status = fill_unused(config);
    if (status == ECH_OK) status = take_epochs(config);
    if (status == ECH_OK) ech_curve_mark_keys(config);
    bool is_checked = !(special & PARTIAL) && (status == ECH_OK || is_filled);
    if (is_checked) ECH_ALSO(&status, ech_config_check(config));
    if (status == ECH_OK && !saved) status = check_resume(config);
    if (status == ECH_OK) status = ech_strategy_apply(config);
    if (status == ECH_OK) ech_config_follow(config);
    if (status == ECH_OK && !saved) status = ech_plugins_check(config);
    if (status == ECH_OK && !saved) warn_of_relative_step(config);
    ECH_TRY(status);
    ech_config_hide(config, "training.plugins"); /* a resolved run file names none */
    *out = config;
    config = NULL;
    return ECH_OK;
}

ech_status ech_setup_config(const char *run_file, char *const *assignments, int n, ech_config **out)
{
    return make_config(run_file, NULL, FILLS, assignments, n, out);
}

ech_status ech_setup_config_text(const char *text, const char *name, char *const *assignments,
                                 int n, ech_config **out)
{
    return make_config(name, text, SAVED, assignments, n, out);
}

ech_status ech_setup_config_own(const char *name, const char *text, bool plans,
                                char *const *assignments, int n, ech_config **out)
{
    return make_config(name, text, plans ? FILLS | PLANS : FILLS, assignments, n, out);
}

ech_status ech_setup_config_partial(const char *name, const char *text, char *const *assignments,
                                    int n, ech_config **out)
{
    return make_config(name, text, FILLS | PARTIAL, assignments, n, out);
}

ech_status ech_setup_config_of_model(const char *folder, int ranks, char *const *assignments, int n,
                                     ech_config **out)
{
    ECH_FREED_TEXT text = {0}, name = {0};
    ECH_TRY(ech_template_of_model(folder, ranks, &text));
    ech_text_append(&name, "`echelon init %s`", folder);
    return make_config(name.at, text.at, FILLS | SAVED, assignments, n, out);
}

ech_status ech_setup_config_saved(const ech_checkpoint *checkpoint, ech_config **out)
{
    ECH_FREED char *folder = ech_file_join(ech_checkpoint_path(checkpoint), "model");
    ECH_TRY(ech_family_map_folder(folder));
    return make_config(ech_checkpoint_path(checkpoint),
                       ech_checkpoint_get_info(checkpoint)->run_yaml, SAVED, NULL, 0, out);
}
