/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters of a folder, added to the rows of their matrices.
 */
#include "app/merge.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { A, B, PARTS };
static const char *const endings[PARTS] = {".lora_A.weight", ".lora_B.weight"};

/* The tensors of a parameter's adapter, without boxes; false: it has none. If files have the
 * parameter in a fused tensor, the adapter may be that one's: then A is shared, and B has a part
 * for the parameter's outputs. */
static bool find(const ech_peft *adapters, const ech_model *model, const ech_param *param,
                 ech_saved_list *out)
{
    const char *const names[] = {param->name, param->file_name};
    bool in_first = ech_names_of(model->family).in_first;
    int64_t rank = ech_peft_settings_of(adapters)->rank;
    if (param->shape.dims != 2) return false;
    int64_t in = param->shape.size[in_first ? 0 : 1], outs = param->shape.size[in_first ? 1 : 0];
    for (int i = 0; i < 2 && names[i]; i++) {
        size_t n = strlen(names[i]), end = strlen(".weight");
        if (n <= end || strcmp(names[i] + n - end, ".weight") != 0) continue;
        ECH_FREED_TEXT name = {0};
        ech_text_append(&name, "%.*s%s", (int)(n - end), names[i], endings[A]);
        if (!ech_peft_has(adapters, name.at)) continue;
        if (!out->pool) out->pool = ech_pool_create();
        for (int part = A; part < PARTS; part++) {
            ech_saved_tensor tensor = {.dtype = ECH_F64, .dims = 2, .shape = {outs, rank}};
            tensor.name = ech_pool_format(out->pool, ECH_ADAPTER_PREFIX "%.*s%s", (int)(n - end),
                                          names[i], endings[part]);
            if (part == A) tensor.shape[0] = rank;
            if (part == A) tensor.shape[1] = in;
            if (part == B && i == 1) tensor.place = param->place;
            ECH_PUSH(out->tensor, tensor);
        }
        return true;
    }
    return false;
}

ech_status ech_merge_check(const ech_peft *adapters, const ech_model *model)
{
    ECH_CLEANUP(ech_saved_list_free) ech_saved_list all = {0};
    for (size_t i = 0; i < model->param.n; i++) find(adapters, model, &model->param.at[i], &all);
    return ech_peft_check(adapters, all.tensor.at, (int)all.tensor.n);
}

static void add_whole(ech_saved_tensor *tensor, double *data)
{
    const int64_t origin[ECH_MAX_DIMS] = {0};
    ech_tensor part = ech_tensor_view(data, ECH_F64, tensor->dims, tensor->shape);
    ech_saved_add(tensor, origin, &part);
}

ech_status ech_merge_read(const ech_peft *adapters, const ech_model *model, const ech_param *param,
                          ech_merge *out)
{
    ECH_CLEANUP(ech_saved_list_free) ech_saved_list parts = {0};
    ECH_CLEANUP(ech_merge_free) ech_merge merge = {.model = model};
    *out = (ech_merge){0};
    if (!adapters || !param || !find(adapters, model, param, &parts)) return ECH_OK;
    ech_saved_tensor *tensor = parts.tensor.at;
    merge.rank = tensor[A].shape[0];
    merge.in = tensor[A].shape[1];
    merge.out = tensor[B].shape[0];
    merge.scale = ech_peft_settings_of(adapters)->alpha / (double)merge.rank;
    merge.a = ech_calloc((size_t)(merge.rank * merge.in), sizeof *merge.a);
    merge.b = ech_calloc((size_t)(merge.rank * merge.out), sizeof *merge.b);
    add_whole(&tensor[A], merge.a);
    add_whole(&tensor[B], merge.b);
    ECH_TRY(ech_peft_load(adapters, tensor, PARTS));
    *out = merge;
    merge = (ech_merge){0};
    return ECH_OK;
}

void ech_merge_free(ech_merge *merge)
{
    free(merge->a);
    free(merge->b);
    *merge = (ech_merge){0};
}

/* The row of an output: its row of B, times A. */
static void add_output(const ech_merge *m, int64_t output, double *row)
{
    for (int64_t k = 0; k < m->rank; k++) {
        double factor = m->scale * m->b[output * m->rank + k];
        for (int64_t i = 0; i < m->in; i++) row[i] += factor * m->a[k * m->in + i];
    }
}

/* The row of an input, where matrices are (in,out). */
static void add_input(const ech_merge *m, int64_t input, double *row)
{
    for (int64_t o = 0; o < m->out; o++) {
        double sum = 0;
        for (int64_t k = 0; k < m->rank; k++)
            sum += m->b[o * m->rank + k] * m->a[k * m->in + input];
        row[o] += m->scale * sum;
    }
}

void ech_merge_add(const ech_merge *merge, int64_t first, int64_t rows, double *to)
{
    if (!merge->a) return;
    bool in_first = ech_names_of(merge->model->family).in_first;
    int64_t width = in_first ? merge->out : merge->in;
    for (int64_t row = 0; row < rows; row++)
        (in_first ? add_input : add_output)(merge, first + row, to + row * width);
}
