/* SPDX-License-Identifier: Apache-2.0
 *
 * How much a run amplifies rounding. A second single rank, the twin, begins each training step with
 * the single rank's weights after a random last bit of each weight has been changed. It updates by
 * the layout's gradients, changed in the same way. The difference between its results and the single
 * rank's is the unit of the comparison. If the layout computes inputs from outputs, which rounds
 * them, the twin does so, too.
 */
#include <float.h>
#include <stdlib.h>

#include "app/verify/verifier.h"
#include "base/random.h"

static double epsilon_of(ech_dtype dtype)
{
    return dtype == ECH_F64    ? DBL_EPSILON
           : dtype == ECH_F32  ? (double)FLT_EPSILON
           : dtype == ECH_F16  ? 0x1p-10
           : dtype == ECH_BF16 ? 0x1p-7
                               : 0; /* codes */
}

/* Each of the n numbers stays, or becomes its neighbour on one of the two sides. Layer states stay:
 * they are updated by counts, which are exact. */
static void change_last_bits(const ech_verifier *v, int param, ech_dtype dtype, double *x,
                             int64_t n)
{
    const double by = ech_verifier_param(v, param)->commit ? 0 : epsilon_of(dtype);
    const ech_random_key key = {.step = (uint32_t)v->step, .stream = (uint32_t)param};
    for (int64_t i = 0; i < n; i++)
        x[i] *= 1 + by * (double)((int)(ech_random_word(key, (uint64_t)i) % 3) - 1);
}

static void copy_tensor(ech_verifier *v, int param, const ech_tensor *from, const ech_tensor *to,
                        bool changed)
{
    int64_t n = ech_tensor_count(from);
    ECH_FREED double *x = ech_calloc((size_t)n, sizeof *x);
    ech_exec_read(v->single.session.exec, from, x);
    if (changed) change_last_bits(v, param, from->dtype, x, n);
    ech_exec_write(v->twin.session.exec, to, x);
}

void ech_unit_begin(ech_verifier *v)
{
    ech_exec *from = v->single.session.exec, *to = v->twin.session.exec;
    for (int p = 0; p < ech_verifier_params(v); p++) {
        ech_tensor x = ech_exec_param(from, p), y = ech_exec_param(to, p);
        copy_tensor(v, p, &x, &y, true);
        for (int k = 0; k < v->single.session.plan->param[p].states; k++) {
            x = ech_exec_state(from, p, k);
            y = ech_exec_state(to, p, k);
            copy_tensor(v, p, &x, &y, false);
        }
    }
}

/* Stores the twin's gradients, and gives it the layout's. */
static void exchange_gradients(ech_verifier *v, ech_exec *exec)
{
    for (int p = 0; p < ech_verifier_params(v); p++) {
        ech_tensor gradient = ech_exec_gradient(exec, p);
        ech_exec_read(exec, &gradient, v->twin_gradients + v->first[p]);
    }
    for (size_t i = 0; i < v->copy.n; i++) {
        const ech_copy *copy = &v->copy.at[i];
        ech_tensor gradient = ech_exec_gradient(exec, copy->param);
        int64_t n = ech_tensor_count(&gradient);
        ECH_FREED double *x = ech_calloc((size_t)n, sizeof *x);
        const double *given =
            ech_verifier_chooses(v, copy) ? copy->sent : v->gradients + copy->at;
        for (int64_t k = 0; k < n; k++) x[k] = given[k];
        change_last_bits(v, copy->param, gradient.dtype, x, n);
        ech_exec_write(exec, &gradient, x);
    }
    v->twin_taken = true;
}

static void observe(void *context, ech_exec *exec, const ech_step *step)
{
    ech_verifier *v = context;
    if (!ech_verifier_has_gradients(&v->twin, v->twin_replay, step) || v->twin_taken) return;
    exchange_gradients(v, exec);
}

ech_status ech_unit_open(ech_verifier *v, double clip_norm)
{
    ECH_TRY(ech_comm_open(ech_comm_find("local"), 1, v->config[1]->parallel.deadline,
                          &v->twin_alone));
    v->twin.design = &v->reference;
    if (v->layout.design->model->options.invert) {
        v->config[2] = ech_config_copy(v->config[1]);
        v->config[2]->memory.invert = 1;
        ECH_TRY(ech_design_create_alone(&v->compared, v->config[2], &v->inverted));
        v->twin.design = &v->inverted;
    }
    ECH_TRY(ech_compared_run_open(&v->twin, v->twin_alone));
    v->twin_gradients =
        ech_calloc((size_t)v->first[ech_verifier_params(v)], sizeof *v->twin_gradients);
    if (v->pushed) return ech_pushed_create(&v->layout, &v->twin, &v->twin_pushed);
    if (v->apart) ECH_TRY(ech_apart_create(&v->layout, &v->twin, &v->twin_apart));
    if (v->replay) v->twin_replay = ech_replay_create(&v->layout, &v->twin, clip_norm);
    ech_exec_observe(v->twin.session.exec, observe, v);
    return ECH_OK;
}

ech_status ech_unit_train(ech_verifier *v)
{
    v->twin_taken = false;
    ech_unit_begin(v);
    if (v->twin_replay) ech_replay_begin(v->twin_replay, v->list, v->turn);
    ECH_TRY(ech_exec_run(v->twin.session.exec, ECH_LIST_TRAIN, v->step));
    if (v->twin_replay) ech_replay_remember(v->twin_replay);
    return ECH_OK;
}

ech_status ech_unit_push(ech_verifier *v, const ech_serve *serves, const double *loss)
{
    int turns = v->layout.design->schedule->turns;
    ECH_FREED double *twin = ech_calloc((size_t)turns, sizeof *twin);
    ECH_TRY(ech_pushed_replay(v->twin_pushed, v->step, serves, twin));
    for (int turn = 0; turn < turns; turn++) ech_unit_note(v, &twin[turn], &loss[turn], 1, 0);
    return ECH_OK;
}

void ech_unit_note(ech_verifier *v, const double *twin, const double *single, int64_t n,
                   double floor_)
{
    double unit = ech_verifier_error(twin, single, n, floor_);
    if (!(unit <= v->result->unit)) v->result->unit = unit;
}

void ech_unit_compare(ech_verifier *v, const ech_tensor *x, const double *single,
                      const double *layout, double floor_)
{
    int64_t n = ech_tensor_count(x);
    ECH_FREED double *twin = ech_calloc((size_t)n, sizeof *twin);
    ech_exec_read(v->twin.session.exec, x, twin);
    ech_unit_note(v, twin, single, n, floor_);
    ech_exec_write(v->twin.session.exec, x, layout);
}

void ech_unit_close(ech_verifier *v)
{
    ech_replay_destroy(v->twin_replay);
    ech_pushed_destroy(v->twin_pushed);
    ech_apart_destroy(v->twin_apart);
    ech_compared_run_close(&v->twin);
    ech_comm_close(v->twin_alone);
    free(v->twin_gradients);
}
