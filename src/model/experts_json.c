/* SPDX-License-Identifier: Apache-2.0
 *
 * Experts in config.json: their number, and which layers are dense.
 */
#include <stdio.h>

#include "base/memory.h"
#include "model/family.h"

#define DENSE "mlp_only_layers"

void ech_family_export_dense(const ech_config *config, json_t *json)
{
    json_t *layers = json_array();
    for (int64_t i = 0; i < config->model.moe_first_dense; i++)
        json_array_append_new(layers, json_integer(i));
    json_object_set_new(json, DENSE, layers);
}

/* Which layers are said to be dense: the first ones. Others may be listed that decoder_sparse_step
 * makes dense. */
ech_status ech_family_import_dense(const ech_family_import *in)
{
    const json_t *list = ech_family_import_get(in, DENSE);
    int64_t first = 0, i, L = in->config->model.num_hidden_layers;
    char text[32];
    ECH_FREED bool *listed = ech_calloc((size_t)L + 1, sizeof *listed);
    if (list && !json_is_array(list))
        ECH_FAIL(ECH_EINPUT, "%s: " DENSE ": must be a list", in->path);
    for (size_t k = 0; k < json_array_size(list); k++) {
        if (!ech_json_to_int(json_array_get(list, k), 0, L - 1, &i))
            ECH_FAIL(ECH_EINPUT, "%s: " DENSE ": must be numbers of layers, from 0 to %lld",
                     in->path, (long long)(L - 1));
        listed[i] = true;
    }
    while (listed[first]) first++;
    for (i = first; i < L; i++)
        if (listed[i] && (i + 1) % in->config->model.moe_every == 0)
            ECH_FAIL(ECH_EUNSUPPORTED,
                     "%s: " DENSE ": lists layer %lld as dense, but not all layers before it; "
                     "supported are dense layers at the start, and those that decoder_sparse_step "
                     "makes dense anyway",
                     in->path, (long long)i);
    snprintf(text, sizeof text, "%lld", (long long)first);
    return ech_family_import_set(in, "model.moe_first_dense", text);
}

/* transformers 4 writes num_experts, 5 num_local_experts; both read both. */
ech_status ech_family_import_experts(const ech_family_import *in, const char *otherwise)
{
    const char *name = "num_experts";
    if (!ech_family_import_get(in, name)) name = "num_local_experts";
    const ech_family_row row = {name, "model.num_local_experts", .initial = otherwise};
    return ech_family_import_row(in, &row);
}
