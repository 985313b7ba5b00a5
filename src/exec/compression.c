/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradient compression. RESIDUAL and DECOMPRESS handle all kinds; selections are in chosen.c.
 *
 * Gradients sent as factors (PowerSGD: Vogels et al. 2019, arXiv:1905.13727). For each matrix, with
 * G this rank's part of its gradient and E the residual that it has not sent before:
 *
 *     RESIDUAL        D = G + E, in the gradient's place
 *     TRANSFORM       P = D Q, with the basis Q of the step before; REDUCE_LEFT sums P
 *     TRANSFORM_BACK  P is made orthonormal; Q = transposed D times P; REDUCE_RIGHT sums Q
 *     NORM            the norm of Q, since P is orthonormal; and its numerical rank: columns of Q
 *                     that are not rounding errors
 *     DECOMPRESS      columns of Q that are rounding errors become 0; G = P times transposed Q;
 *                     unless the update is withheld, E = D - G / replicas, and the basis is Q
 *
 * Gradients are sums over replicas, and so are residuals: what the sum lacks is shared equally.
 * Factors belong to the whole matrix. A rank with a shard of it multiplies its shard with the
 * corresponding rows, and adds zeros elsewhere. So the sums over tensor ranks concatenate parts
 * with different rows, and add partial sums.
 */
#include "exec/compression.h"
#include "schedule/operands.h"
#include "schedule/states.h"

/* One matrix of a parameter. */
typedef struct matrix {
    int param, one;
    int64_t rows, columns, rank;
    ech_tensor left, right; /* (rows, rank), (columns, rank) */
    char *gradient;         /* this rank's part */
    const ech_box *box;     /* [boxes] its place in the whole */
    int boxes;
} matrix;

static ech_dtype dtype_of(const ech_exec *exec)
{
    return exec->plan->types.wide;
}

/* Rows of a factor, from `first` on. */
static ech_tensor rows_of(const ech_tensor *factor, int64_t first, int64_t n)
{
    int64_t rank = factor->shape[1];
    char *data = (char *)factor->data + (size_t)(first * rank) * ech_dtype_bytes(factor->dtype);
    return ech_tensor_2d(data, factor->dtype, n, rank);
}

static ech_tensor gradient_in(const matrix *m, const ech_box *box, ech_dtype dtype)
{
    char *data = m->gradient + (size_t)box->at * ech_dtype_bytes(dtype);
    ech_tensor view = ech_tensor_2d(data, dtype, box->size[0], box->size[1]);
    view.stride[0] = box->stride[0];
    return view;
}

ech_tensor ech_compression_gradient(ech_exec *exec, const ech_step *step, int param)
{
    ech_tensor view;
    ech_exec_set_gradient(exec, param, ech_exec_used(exec, step, ECH_USE_SUM, 0), &view);
    return view;
}

static ech_tensor state_of(ech_exec *exec, const ech_step *step, int param, ech_state_role role)
{
    int state = ech_plan_state_of(exec->plan, param, role);
    ech_ledger_expect(exec, step,
                      exec->plan->state.at[exec->plan->param[param].first_state + state].value);
    return ech_exec_state(exec, param, state);
}

ech_tensor ech_exec_factors(const ech_exec *exec, const ech_step *step)
{
    const ech_bucket *bucket = &exec->plan->bucket.at[step->index];
    return ech_tensor_1d(ech_exec_look(exec, ech_step_uses(exec->list, step, ECH_USE_FACTORS, 0)),
                         dtype_of(exec),
                         bucket->chosen ? ech_plan_selections(exec->plan, bucket) * bucket->chosen
                                        : bucket->left + bucket->right);
}

/* Matrix number `one` of a parameter's stack. */
static matrix matrix_of(ech_exec *exec, const ech_step *step, int param, int one)
{
    const ech_plan *plan = exec->plan;
    const ech_plan_param *p = &plan->param[param];
    ech_dtype dtype = dtype_of(exec);
    int64_t item = (int64_t)ech_dtype_bytes(dtype), size[2];
    ech_plan_matrix(plan, param, size);
    matrix m = {.param = param, .one = one, .rows = size[0], .columns = size[1], .rank = p->rank};
    int64_t left = p->left + one * m.rows * m.rank;
    int64_t right = plan->bucket.at[step->index].left + p->right + one * m.columns * m.rank;
    char *factors = ech_exec_used(exec, step, ECH_USE_FACTORS, 0);
    m.left = ech_tensor_2d(factors + left * item, dtype, m.rows, m.rank);
    m.right = ech_tensor_2d(factors + right * item, dtype, m.columns, m.rank);
    m.gradient = (char *)ech_compression_gradient(exec, step, param).data +
                 one * (p->elements / p->stacked) * item;
    m.box = exec->share[param].box;
    m.boxes = exec->share[param].boxes;
    return m;
}

/* The next right factor, for a step that works on bases. */
static ech_tensor basis_of(ech_exec *exec, const ech_step *step, const matrix *m)
{
    ech_tensor all = state_of(exec, step, m->param, ECH_STATE_BASIS);
    return rows_of(&(ech_tensor){.data = all.data, .dtype = all.dtype, .shape = {0, m->rank}},
                   m->one * m->columns, m->columns);
}

static void take_scratch(ech_exec *exec, const ech_step *step, int64_t room)
{
    exec->context->scratch = NULL;
    exec->context->scratch_bytes = 0;
    if (step->scratch < 0) return;
    int64_t bytes = ech_plan_value(exec->plan, exec->list, step->scratch)->bytes;
    exec->context->scratch = (char *)ech_exec_touch(exec, step->scratch) + room;
    exec->context->scratch_bytes = (size_t)(bytes - room);
}

/* ---- RESIDUAL ---- */

ech_tensor ech_compression_rows(const ech_exec *exec, int param, const ech_tensor *x)
{
    int64_t size[2];
    ech_plan_own_matrix(exec->plan, param, size);
    return ech_tensor_2d(x->data, x->dtype, ech_tensor_count(x) / size[1], size[1]);
}

/* Residuals are stored like gradients without a loss scale, which is fixed, and a power of two. */
ech_status ech_handle_RESIDUAL(ech_exec *exec, const ech_step *step)
{
    int n;
    const int *params = ech_exec_bucket_params(exec, step, &n);
    for (int i = 0; i < n; i++) {
        ech_tensor gradient = ech_compression_gradient(exec, step, params[i]);
        ech_tensor residual = state_of(exec, step, params[i], ECH_STATE_RESIDUAL);
        ech_tensor x = ech_compression_rows(exec, params[i], &residual);
        ech_tensor y = ech_compression_rows(exec, params[i], &gradient);
        exec->plan->kernels->scaled_sum(exec->context, &x, exec->scaler.scale, 1, 0, NULL, NULL,
                                        &y);
    }
    return ECH_OK;
}

/* ---- TRANSFORM, TRANSFORM_BACK ---- */

static void clear(ech_exec *exec, const ech_tensor *x)
{
    exec->plan->kernels->wide->fill(exec->context, x, 0);
}

/* Adds gradients times `with` to the factor; `transposed`: transposed gradients. */
static void multiply(ech_exec *exec, const matrix *m, bool transposed, const ech_tensor *with,
                     const ech_tensor *to)
{
    clear(exec, to);
    for (int b = 0; b < m->boxes; b++) {
        const ech_box *box = &m->box[b];
        int own = transposed, other = !transposed;
        ech_tensor gradient = gradient_in(m, box, with->dtype);
        ech_tensor factor = rows_of(with, box->begin[other], box->size[other]);
        ech_tensor sum = rows_of(to, box->begin[own], box->size[own]);
        exec->plan->kernels->wide->matmul(exec->context, &gradient, transposed, &factor, false,
                                          NULL, &sum, &sum);
    }
}

typedef void (*on_matrix)(ech_exec *exec, const ech_step *step, const matrix *m);

static void each_matrix(ech_exec *exec, const ech_step *step, on_matrix work)
{
    int n;
    const int *params = ech_exec_bucket_params(exec, step, &n);
    for (int i = 0; i < n; i++)
        for (int one = 0; one < exec->plan->param[params[i]].stacked; one++) {
            matrix m = matrix_of(exec, step, params[i], one);
            work(exec, step, &m);
        }
}

static void to_left(ech_exec *exec, const ech_step *step, const matrix *m)
{
    ech_tensor basis = basis_of(exec, step, m);
    multiply(exec, m, false, &basis, &m->left);
}

ech_status ech_handle_TRANSFORM(ech_exec *exec, const ech_step *step)
{
    take_scratch(exec, step, 0);
    each_matrix(exec, step, to_left);
    return ECH_OK;
}

static void to_right(ech_exec *exec, const ech_step *step, const matrix *m)
{
    bool householder = exec->config->parallel.compression_orthogonal == ECH_ORTHOGONAL_HOUSEHOLDER;
    void *room = ech_exec_touch(exec, step->scratch);
    ech_tensor work = ech_tensor_2d(room, ECH_F64, m->rank, m->rows + ECH_ORTHOGONAL_ROOM);
    take_scratch(exec, step, ech_plan_orthogonal_room(exec->plan, m->param));
    exec->plan->kernels->wide->orthogonalize(exec->context, &m->left, m->columns, householder,
                                             &work);
    multiply(exec, m, true, &m->left, &m->right);
}

ech_status ech_handle_TRANSFORM_BACK(ech_exec *exec, const ech_step *step)
{
    each_matrix(exec, step, to_right);
    return ECH_OK;
}

/* ---- NORM ---- */

/* Ranks have the same right factors, so only the first rank of a stage counts them. */
void ech_compression_norm(ech_exec *exec, const ech_step *step, int param)
{
    const ech_plan *plan = exec->plan;
    if (plan->param[param].chosen) {
        ech_chosen_norm(exec, step, param);
        return;
    }
    const ech_plan_param *p = &plan->param[param];
    double *partials = ech_exec_touch(exec, plan->partials);
    int64_t size[2], item = (int64_t)ech_dtype_bytes(dtype_of(exec));
    ech_plan_matrix(plan, param, size);
    int64_t n = p->stacked * size[1] * p->rank;
    char *data = ech_exec_used(exec, step, ECH_USE_FACTORS, 0);
    data += (plan->bucket.at[step->index].left + p->right) * item;
    ech_tensor right = ech_tensor_1d(data, dtype_of(exec), n);
    ech_tensor sums =
        ech_tensor_1d(&partials[p->norm_first], ECH_F64, (n + ECH_NORM_BLOCK - 1) / ECH_NORM_BLOCK);
    ech_held held = ech_plan_held(plan, plan->rank, param, ECH_HELD_STATE,
                                  ech_plan_state_of(plan, param, ECH_STATE_BASIS));
    if (exec->scanning)
        ech_scan_tensor(exec, step, "the right factor of the gradient of",
                        plan->model->param.at[param].name, &right);
    plan->kernels->square_sums(exec->context, &right, &sums);
    ech_scalars_count_squares(exec, step->turn, param, &sums, held.is_first);
    for (int one = 0; held.is_first && one < p->stacked; one++) {
        ech_tensor of_one = ech_tensor_2d((char *)right.data + one * size[1] * p->rank * item,
                                          right.dtype, size[1], p->rank);
        ech_scalars_count_rank(exec, step->turn, &of_one, size[0]);
    }
}

/* ---- DECOMPRESS ---- */

/* y = alpha x + beta y, unless the update is withheld. */
static void commit(ech_exec *exec, const ech_step *step, const ech_tensor *x, double alpha,
                   double beta, const ech_tensor *y)
{
    const ech_update update = {.grad_scale = 1,
                               .withheld = ech_scalars_update(exec, step->turn).withheld};
    exec->plan->kernels->scaled_sum(exec->context, x, alpha, beta, 0, NULL, &update, y);
}

static void multiply_factors(ech_exec *exec, const matrix *m)
{
    for (int b = 0; b < m->boxes; b++) {
        const ech_box *box = &m->box[b];
        ech_tensor gradient = gradient_in(m, box, m->left.dtype);
        ech_tensor left = rows_of(&m->left, box->begin[0], box->size[0]);
        ech_tensor right = rows_of(&m->right, box->begin[1], box->size[1]);
        exec->plan->kernels->wide->matmul(exec->context, &left, false, &right, true, NULL, NULL,
                                          &gradient);
    }
}

/* Number of ranks that each have a residual of the same matrices; smaller for experts. */
static double replicas_of(const ech_exec *exec, int param)
{
    const ech_plan *plan = exec->plan;
    int state = plan->param[param].first_state + ech_plan_state_of(plan, param, ECH_STATE_RESIDUAL);
    const ech_shape *residual = &plan->state.at[state].is.shape;
    return (double)residual->size[ech_shape_replicas(residual)];
}

static void decompress_factors(ech_exec *exec, const ech_step *step, int param, const ech_tensor *x,
                               const ech_tensor *residual)
{
    const double unscale = 1 / exec->scaler.scale;
    const double replicas = replicas_of(exec, param);
    commit(exec, step, x, unscale, 0, residual);
    for (int one = 0; one < exec->plan->param[param].stacked; one++) {
        matrix m = matrix_of(exec, step, param, one);
        exec->plan->kernels->wide->clear_columns(exec->context, &m.right, m.rows);
        multiply_factors(exec, &m);
        ech_tensor basis = basis_of(exec, step, &m);
        commit(exec, step, &m.right, unscale, 0, &basis);
    }
    commit(exec, step, x, -unscale / replicas, 1, residual);
}

/* The numbers that this rank has not selected are its residual. */
static void decompress_selections(ech_exec *exec, const ech_step *step, int param,
                                  const ech_tensor *x, const ech_tensor *residual)
{
    ech_chosen_take(exec, step, param, x);
    commit(exec, step, x, 1 / exec->scaler.scale, 0, residual);
    ech_chosen_sum(exec, step, param, x);
}

ech_status ech_handle_DECOMPRESS(ech_exec *exec, const ech_step *step)
{
    int n;
    const int *params = ech_exec_bucket_params(exec, step, &n);
    take_scratch(exec, step, 0);
    for (int i = 0; i < n; i++) {
        ech_tensor gradient = ech_compression_gradient(exec, step, params[i]);
        ech_tensor residual = state_of(exec, step, params[i], ECH_STATE_RESIDUAL);
        ech_tensor x = ech_compression_rows(exec, params[i], &gradient);
        ech_tensor y = ech_compression_rows(exec, params[i], &residual);
        if (exec->plan->param[params[i]].chosen)
            decompress_selections(exec, step, params[i], &x, &y);
        else
            decompress_factors(exec, step, params[i], &x, &y);
    }
    return ECH_OK;
}

/* ---- bases ---- */

/* Normals that are the same on every rank, under any layout: the parameter's own, with the step
 * number of initial values. */
void ech_compression_init_basis(ech_exec *exec, int param, int state, const ech_tensor *basis)
{
    ech_held held = ech_plan_held(exec->plan, exec->plan->rank, param, ECH_HELD_STATE, state);
    const ech_param *of = &exec->plan->model->param.at[param];
    /* A rank has several experts, one after the other. */
    int64_t stacked = exec->plan->param[param].stacked;
    int64_t first = held.box[0].begin[0] * (ech_tensor_count(basis) / stacked);
    ech_random_key key = {
        .seed = (uint64_t)exec->config->training.seed,
        .step = UINT32_MAX,
        .stream = ech_random_stream((uint32_t)of->block, ECH_SITE_PARAMETER + (uint32_t)of->site)};
    exec->plan->kernels->fill_normal(exec->context, basis, key, first, 0, 1);
}
