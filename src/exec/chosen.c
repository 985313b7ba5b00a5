/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients sent as selections of their largest numbers, with error feedback (top-k: Lin et al.
 * 2018, arXiv:1712.01887). For each matrix, with G this rank's part of its gradient and E the
 * residual that it has not sent before:
 *
 *     RESIDUAL        D = G + E, in the gradient's place
 *     CHOOSE          this rank's selection: the largest numbers of each line of D, with indices
 *     GATHER_CHOSEN   the selections of all ranks that add to the gradient
 *     NORM            the norm of the sum of all selections
 *     DECOMPRESS      E = D without its own selection, unless the update is withheld;
 *                     G = the sum of all selections, in member order
 *
 * A line is a row, or a column if tensor ranks shard columns (ech_compression_by_columns). So a
 * rank has whole lines, and selects the same numbers as a rank with the whole matrix.
 */
#include "exec/compression.h"
#include "schedule/states.h"

/* A parameter's part of a selection: (lines, chosen). */
typedef struct selected {
    ech_tensor values, indices;
} selected;

static selected part_of(ech_exec *exec, const ech_step *step, int param, int member)
{
    const ech_plan_param *p = &exec->plan->param[param];
    const ech_bucket *bucket = &exec->plan->bucket.at[step->index];
    ech_dtype dtype = exec->plan->types.wide;
    char *selection = (char *)ech_exec_used(exec, step, ECH_USE_FACTORS, 0) +
                      (size_t)(member * bucket->chosen + p->in_selection) * ech_dtype_bytes(dtype);
    ech_tensor both = ech_tensor_2d(selection, dtype, 2 * p->lines, p->chosen);
    return (selected){.values = ech_tensor_rows(&both, 0, p->lines),
                      .indices = ech_tensor_rows(&both, p->lines, p->lines)};
}

static int own_member(const ech_exec *exec, const ech_step *step)
{
    const ech_plan *plan = exec->plan;
    return ech_layout_membership(plan->layout, plan->model, plan->rank,
                                 plan->bucket.at[step->index].group)
        .index;
}

/* Calls `use` for each of a parameter's matrices, in x, and its part of a selection. */
typedef void (*on_matrix)(ech_exec *exec, const ech_tensor *x, bool columns, const selected *part,
                          double factor);

static void each_matrix(ech_exec *exec, int param, const ech_tensor *x, const selected *part,
                        double factor, on_matrix use)
{
    const ech_plan_param *p = &exec->plan->param[param];
    int64_t size[2], lines = p->lines / p->stacked;
    ech_plan_own_matrix(exec->plan, param, size);
    bool columns = ech_compression_by_columns(&exec->plan->model->param.at[param]);
    for (int one = 0; one < p->stacked; one++) {
        ech_tensor matrix = ech_tensor_rows(x, one * size[0], size[0]);
        selected own = {.values = ech_tensor_rows(&part->values, one * lines, lines),
                        .indices = ech_tensor_rows(&part->indices, one * lines, lines)};
        use(exec, &matrix, columns, &own, factor);
    }
}

static void choose(ech_exec *exec, const ech_tensor *x, bool columns, const selected *part,
                   double factor)
{
    (void)factor;
    exec->plan->kernels->wide->choose(exec->context, x, columns, &part->values, &part->indices);
}

static void add(ech_exec *exec, const ech_tensor *x, bool columns, const selected *part,
                double factor)
{
    exec->plan->kernels->wide->add_chosen(exec->context, &part->values, &part->indices, columns,
                                          factor, x);
}

ech_status ech_handle_CHOOSE(ech_exec *exec, const ech_step *step)
{
    int n;
    const int *params = ech_exec_bucket_params(exec, step, &n);
    for (int i = 0; i < n; i++) {
        ech_tensor gradient = ech_compression_gradient(exec, step, params[i]);
        ech_tensor x = ech_compression_rows(exec, params[i], &gradient);
        selected own = part_of(exec, step, params[i], own_member(exec, step));
        each_matrix(exec, params[i], &x, &own, 0, choose);
    }
    return ECH_OK;
}

void ech_chosen_take(ech_exec *exec, const ech_step *step, int param, const ech_tensor *x)
{
    selected own = part_of(exec, step, param, own_member(exec, step));
    each_matrix(exec, param, x, &own, -1, add);
}

void ech_chosen_sum(ech_exec *exec, const ech_step *step, int param, const ech_tensor *x)
{
    int selections = ech_plan_selections(exec->plan, &exec->plan->bucket.at[step->index]);
    exec->plan->kernels->wide->fill(exec->context, x, 0);
    for (int member = 0; member < selections; member++) {
        selected own = part_of(exec, step, param, member);
        each_matrix(exec, param, x, &own, 1, add);
    }
}

/* Each member of the group counts its shard, as for uncompressed gradients. */
void ech_chosen_norm(ech_exec *exec, const ech_step *step, int param)
{
    const ech_plan *plan = exec->plan;
    const ech_plan_param *p = &plan->param[param];
    double *partials = ech_exec_touch(exec, plan->partials);
    int64_t size[2], first, own = ech_plan_own(plan, param, &first);
    ech_plan_own_matrix(plan, param, size);
    ech_tensor sum = ech_tensor_2d(ech_exec_touch(exec, step->scratch), plan->types.wide,
                                   p->elements / size[1], size[1]);
    ech_chosen_sum(exec, step, param, &sum);
    ech_tensor all = ech_tensor_flat(&sum), shard = ech_tensor_narrow(&all, 0, first, own);
    ech_tensor sums = ech_tensor_1d(&partials[p->norm_first], ECH_F64,
                                    (own + ECH_NORM_BLOCK - 1) / ECH_NORM_BLOCK);
    if (exec->scanning)
        ech_scan_tensor(exec, step, "the sum over ranks of the gradient of",
                        plan->model->param.at[param].name, &all);
    if (own == 0) return; /* COUNT has written a zero */
    plan->kernels->square_sums(exec->context, &shard, &sums);
    ech_scalars_count_squares(exec, step->turn, param, &sums, exec->share[param].counts);
}
