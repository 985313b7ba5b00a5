/* SPDX-License-Identifier: Apache-2.0
 *
 * What is converted, open.
 */
#include "app/convert.h"

#include <stdlib.h>

#include "app/setup/initial.h"
#include "app/setup/setup.h"
#include "base/file.h"

static ech_status fill_from_folder(const char *in, ech_conversion *c)
{
    ECH_TRY(ech_shards_find(in, &c->folder));
    ECH_FREED char *path = ech_file_join(c->folder, "config.json");
    ech_text_ends ends = {0};
    ech_status st = ech_model_import(c->config, path, &ends);
    c->begin_of_text = ends.begin;
    c->end_of_text = ends.end;
    c->format = "Hugging Face folder";
    ECH_TRY(st);
    return ech_initial_check_shapes(c->config, c->folder);
}

static ech_status fill_from_file(const char *in, ech_conversion *c)
{
    ECH_TRY(ech_raw_open(in, c->config, &c->raw));
    c->format = c->raw.format;
    c->dtype = c->raw.dtype;
    c->begin_of_text = c->raw.begin_of_text;
    c->end_of_text = c->raw.end_of_text;
    return ECH_OK;
}

static ech_status check_shards(ech_conversion *c)
{
    ECH_TRY(ech_initial_check_model(c->model, c->shards));
    ECH_TRY(ech_shards_check_head(c->shards));
    c->dtype = ech_shards_dtype(c->shards, c->model->param.at[0].name);
    return ECH_OK;
}

static ech_status check_raw(const ech_conversion *c)
{
    for (size_t i = 0; i < c->model->param.n; i++) {
        const ech_param *want = &c->model->param.at[i];
        const ech_raw_tensor *has = ech_raw_find(&c->raw, want->name);
        bool same = has && has->dims == want->shape.dims;
        for (int d = 0; same && d < want->shape.dims; d++)
            same = has->shape[d] == want->shape.size[d];
        if (!same)
            ECH_FAIL(ECH_EINTERNAL, "%s: a %s has no tensor '%s' of the model's shape", c->raw.path,
                     c->format, want->name);
    }
    return ECH_OK;
}

static ech_status open_all(const char *in, ech_conversion *c)
{
    ECH_TRY(ech_setup_defaults(&c->config));
    if (ech_file_is_folder(in))
        ECH_TRY(fill_from_folder(in, c));
    else
        ECH_TRY(fill_from_file(in, c));
    ECH_TRY(ech_model_resolve(c->config, 1));
    ECH_TRY(ech_model_create_uncut(c->config, &c->model));
    if (!c->folder) return check_raw(c);
    ECH_TRY(ech_initial_open(c->config, c->folder, true, &c->shards));
    return check_shards(c);
}

ech_status ech_conversion_open(const char *in, ech_conversion *out)
{
    ech_conversion c = {.raw.fd = -1};
    ech_status st = open_all(in, &c);
    if (st == ECH_OK)
        *out = c;
    else
        ech_conversion_close(&c);
    return st;
}

void ech_conversion_close(ech_conversion *conversion)
{
    ech_shards_close(conversion->shards);
    ech_raw_close(&conversion->raw);
    ech_model_destroy(conversion->model);
    ech_config_destroy(conversion->config);
    free(conversion->folder);
}
