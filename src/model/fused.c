/* SPDX-License-Identifier: Apache-2.0
 *
 * Fused tensors of files: where in them parameters lie, by the family's table.
 */
#include <string.h>

#include "base/text.h"
#include "model/family.h"

/* A parameter that is a part of a fused tensor. */
typedef struct fused_part {
    const ech_family_fused *row;
    int number;   /* of the row's parts */
    size_t at, n; /* where the part stands in the parameter's name */
} fused_part;

/* Word `i` of the row's parts, with its length. */
static const char *word(const ech_family_fused *row, int i, size_t *n)
{
    const char *at = row->parts;
    for (*n = strcspn(at, " "); i > 0 && *at; i--) {
        at += *n + (at[*n] == ' ');
        *n = strcspn(at, " ");
    }
    return *at ? at : NULL;
}

/* Whether the name has the part, as whole components. */
static bool find_part(const char *name, const char *part, size_t n, size_t *at)
{
    for (const char *p = strchr(name, *part); p; p = strchr(p + 1, *part)) {
        if (strncmp(p, part, n) != 0 || (p[n] != '.' && p[n] != '\0')) continue;
        *at = (size_t)(p - name);
        return true;
    }
    return false;
}

static bool is_part(const ech_family_fused *rows, const ech_param *param, fused_part *out)
{
    const char *part;
    for (const ech_family_fused *row = rows; row->file; row++)
        for (int i = 0; (part = word(row, i, &out->n)); i++)
            if (find_part(param->name, part, out->n, &out->at)) {
                out->row = row;
                out->number = i;
                return true;
            }
    return false;
}

/* The parameter's name, with another word in the part's place. */
static char *renamed(ech_model *model, const ech_param *param, const fused_part *is,
                     const char *other, size_t n)
{
    return ech_pool_format(model->pool, "%.*s%.*s%s", (int)is->at, param->name, (int)n, other,
                           param->name + is->at + is->n);
}

static const ech_param *find_param(const ech_model *model, int block, const char *name)
{
    for (size_t i = 0; i < model->param.n; i++) {
        const ech_param *p = &model->param.at[i];
        if (p->block == block && strcmp(p->name, name) == 0) return p;
    }
    return NULL;
}

/* The dimension along which parts are put together: rows of a matrix, outputs of a product. */
static int rows_of(const ech_param *param)
{
    return ech_shape_is_stack(&param->shape) ? 1 : 0;
}

static int64_t groups_of(const ech_config *config, const fused_part *is, const ech_param *first)
{
    if (is->row->order == ECH_FUSED_HEADS) return config->model.num_key_value_heads;
    return is->row->order == ECH_FUSED_ROWS ? first->shape.size[rows_of(first)] : 1;
}

/* A mapping file is the user's. */
static ech_status misfit(const ech_model *model)
{
    return model->family->mapping ? ECH_EINPUT : ECH_EINTERNAL;
}

static ech_status place(const ech_config *config, ech_model *model, ech_param *param,
                        const fused_part *is)
{
    const char *part;
    size_t n;
    int64_t groups = 0;
    bool transposed = is->row->transposed && param->shape.dims > 1; /* no bias is */
    ech_box_place to = {.dim = rows_of(param), .transposed = transposed};
    for (int i = 0; (part = word(is->row, i, &n)); i++) {
        const char *name = renamed(model, param, is, part, n);
        const ech_param *other = find_param(model, param->block, name);
        if (!other)
            ECH_FAIL(misfit(model),
                     "%s: no parameter '%s', which the tensor of '%s' has too; correct fused in "
                     "the mapping file",
                     model->family->name, name, param->name);
        if (i == 0) groups = groups_of(config, is, other);
        int64_t width = other->shape.size[to.dim] / groups;
        if (other->shape.dims != param->shape.dims || width * groups != other->shape.size[to.dim])
            ECH_FAIL(misfit(model),
                     "%s: parameter '%s' does not fit into a tensor with '%s'; correct fused in "
                     "the mapping file",
                     model->family->name, name, param->name);
        if (i == is->number) {
            to.offset = to.period;
            to.width = width;
        }
        to.period += width;
    }
    param->file_name = renamed(model, param, is, is->row->file, strlen(is->row->file));
    param->place = to;
    return ECH_OK;
}

ech_status ech_family_place_params(const ech_config *config, ech_model *model)
{
    fused_part is;
    for (size_t i = 0; model->family->fused && i < model->param.n; i++)
        if (!model->param.at[i].adapter && is_part(model->family->fused, &model->param.at[i], &is))
            ECH_TRY(place(config, model, &model->param.at[i], &is));
    return ECH_OK;
}
