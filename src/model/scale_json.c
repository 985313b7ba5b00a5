/* SPDX-License-Identifier: Apache-2.0
 *
 * The factor of attention's scores in config.json, as other programs have it: the factor itself, or
 * the whole number whose square root divides the scores.
 */
#include <math.h>
#include <stdio.h>

#include "model/family.h"

static const char key[] = "model.attention_scale";

/* 0 in the run file: 1 / sqrt(head_dim). */
static double scale_of(const ech_config *config)
{
    double scale = config->model.attention_scale;
    return scale > 0 ? scale : 1 / sqrt((double)config->model.head_dim);
}

ech_status ech_scale_import(const ech_family_import *in, const char *name, double otherwise,
                            ech_scale_form form)
{
    const json_t *value = ech_family_import_get(in, name);
    double number = value ? json_number_value(value) : otherwise, ours = scale_of(in->config);
    char text[32];
    if (!(number > 0) || !isfinite(number))
        ECH_FAIL(ECH_EINPUT, "%s: %s: must be a number above 0", in->path, name);
    double scale = form == ECH_SCALE_ROOT ? 1 / sqrt(number) : number;
    bool is_set = ech_config_is_set(in->config, key);
    if (is_set && fabs(ours - scale) < 1e-9 * scale) return ECH_OK;
    ech_text_print(text, sizeof text, "%.17g", scale);
    return ech_family_import_set(in, key, text);
}

void ech_scale_export(const ech_config *config, const char *name, ech_scale_form form, json_t *json)
{
    double scale = scale_of(config);
    json_object_set_new(json, name,
                        form == ECH_SCALE_ROOT ? json_integer(llround(1 / (scale * scale)))
                                               : json_real(scale));
}

ech_status ech_scale_check_root(const ech_config *config)
{
    double scale = scale_of(config), square = 1 / (scale * scale);
    if (square > 0.5 && square < 1e15 && fabs(square - round(square)) < 1e-6) return ECH_OK;
    return ech_config_complain(config, key,
                               "files of %s say 1 / scale^2 as a whole number; it is %g here",
                               ech_family_of(config)->name, square);
}
