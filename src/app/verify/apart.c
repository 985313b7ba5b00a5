/* SPDX-License-Identifier: Apache-2.0
 *
 * The serial replay of replicas: all numbers of each are kept in fp64, beside the one rank that trains them in turn.
 */
#include "app/verify/apart.h"

#include <stdlib.h>
#include <string.h>

struct ech_apart {
    ech_compared_run *alone;
    int replicas;
    int64_t updates;     /* of the replica that is loaded, before the step */
    ech_loader **loader; /* [replicas] of the same batches: what is another replica's is padding */
    double **kept;       /* [replicas] weights and states of all parameters */
    int64_t *first;      /* [tensors + 1] where each begins there */
    double rate, momentum;
};

enum { TENSORS = 1 + ECH_MAX_STATES }; /* of a parameter: the weights, then states */

static int params_of(const ech_apart *a)
{
    return (int)a->alone->design->model->param.n;
}

static ech_tensor tensor_of(const ech_apart *a, int param, int k)
{
    ech_exec *exec = a->alone->session.exec;
    return k == 0 ? ech_exec_param(exec, param) : ech_exec_state(exec, param, k - 1);
}

static int tensors_of(const ech_apart *a, int param)
{
    return 1 + a->alone->session.plan->param[param].states;
}

static double *kept(const ech_apart *a, int replica, int param, int k)
{
    return a->kept[replica] + a->first[param * TENSORS + k];
}

static void lay_out(ech_apart *a)
{
    int n = params_of(a) * TENSORS;
    a->first = ech_calloc((size_t)n + 1, sizeof *a->first);
    for (int i = 0; i < n; i++) {
        ech_tensor x = {0};
        bool has = i % TENSORS < tensors_of(a, i / TENSORS);
        if (has) x = tensor_of(a, i / TENSORS, i % TENSORS);
        a->first[i + 1] = a->first[i] + (has ? ech_tensor_count(&x) : 0);
    }
}

/* What the single rank reads of a step for one replica. */
static ech_status read_replica(ech_apart *a, int replica)
{
    const ech_design *design = a->alone->design;
    ech_loader_options options = ech_design_reads(design, 0, true, INT64_MAX);
    options.replicas = a->replicas;
    options.replica = replica;
    return ech_loader_create(a->alone->data, &options, 0, &a->loader[replica]);
}

ech_status ech_apart_create(const ech_compared_run *layout, ech_compared_run *alone,
                            ech_apart **out)
{
    const ech_config *config = layout->design->config;
    ech_apart *a = *out = ech_calloc(1, sizeof *a);
    a->alone = alone;
    a->replicas = layout->design->layout->replicas[0];
    a->rate = config->parallel.outer_learning_rate;
    a->momentum = config->parallel.outer_momentum;
    a->loader = ech_calloc((size_t)a->replicas, sizeof *a->loader);
    a->kept = ech_calloc((size_t)a->replicas, sizeof *a->kept);
    lay_out(a);
    size_t all = (size_t)a->first[params_of(a) * TENSORS];
    for (int r = 0; r < a->replicas; r++) {
        a->kept[r] = ech_calloc(all + 1, sizeof *a->kept[r]);
        ech_apart_store(a, r);
        ECH_TRY(read_replica(a, r));
    }
    return ECH_OK;
}

void ech_apart_destroy(ech_apart *a)
{
    if (!a) return;
    for (int r = 0; r < a->replicas; r++) {
        ech_loader_destroy(a->loader[r]);
        free(a->kept[r]);
    }
    free(a->loader);
    free(a->kept);
    free(a->first);
    free(a);
}

void ech_apart_store(ech_apart *a, int replica)
{
    for (int p = 0; p < params_of(a); p++)
        for (int k = 0; k < tensors_of(a, p); k++) {
            ech_tensor x = tensor_of(a, p, k);
            ech_exec_read(a->alone->session.exec, &x, kept(a, replica, p, k));
        }
}

void ech_apart_load(ech_apart *a, int replica)
{
    ech_exec *exec = a->alone->session.exec;
    for (int p = 0; p < params_of(a); p++)
        for (int k = 0; k < tensors_of(a, p); k++) {
            ech_tensor x = tensor_of(a, p, k);
            ech_exec_write(exec, &x, kept(a, replica, p, k));
        }
    if (replica == 0) a->updates = ech_exec_updates(exec);
    ech_exec_set_updates(exec, a->updates);
    ech_exec_set_loader(exec, ECH_TRAIN, a->loader[replica]);
}

/* The tensor of a parameter's state of that role. */
static int state_of(const ech_apart *a, int param, ech_state_role role)
{
    return 1 + ech_plan_state_of(a->alone->session.plan, param, role);
}

/* The numbers of a tensor become those of the first replica in all others, too. */
static void share(ech_apart *a, int param, int k, int64_t n)
{
    for (int r = 1; r < a->replicas; r++)
        memcpy(kept(a, r, param, k), kept(a, 0, param, k), (size_t)n * sizeof(double));
}

static void meet(ech_apart *a, int param)
{
    int full = 1 + a->alone->session.plan->param[param].master;
    int at_anchor = state_of(a, param, ECH_STATE_ANCHOR);
    int at_momentum = state_of(a, param, ECH_STATE_OUTER_MOMENTUM);
    ech_tensor weights = tensor_of(a, param, 0);
    int64_t n = ech_tensor_count(&weights);
    double *anchor = kept(a, 0, param, at_anchor), *m = kept(a, 0, param, at_momentum);
    for (int64_t i = 0; i < n; i++) {
        double d = 0;
        for (int r = 0; r < a->replicas; r++) d += anchor[i] - kept(a, r, param, full)[i];
        d /= a->replicas;
        if (at_momentum) {
            m[i] = a->momentum * m[i] + d;
            d += a->momentum * m[i];
        }
        anchor[i] -= a->rate * d;
        kept(a, 0, param, 0)[i] = kept(a, 0, param, full)[i] = anchor[i];
    }
    share(a, param, 0, n);
    share(a, param, full, n);
    share(a, param, at_anchor, n);
    if (at_momentum) share(a, param, at_momentum, n);
}

void ech_apart_meet(ech_apart *a)
{
    for (int p = 0; p < params_of(a); p++) meet(a, p);
}

static void mix(ech_apart *a, int param)
{
    int full = 1 + a->alone->session.plan->param[param].master, N = a->replicas;
    ech_tensor weights = tensor_of(a, param, 0);
    int64_t n = ech_tensor_count(&weights);
    ECH_FREED double *before = ech_calloc((size_t)(n * N) + 1, sizeof *before);
    for (int r = 0; r < N; r++)
        memcpy(before + r * n, kept(a, r, param, full), (size_t)n * sizeof *before);
    for (int r = 0; r < N; r++) {
        const double *own = before + r * n, *next = before + (r + 1) % N * n;
        const double *last = before + (r + N - 1) % N * n;
        for (int64_t i = 0; i < n; i++)
            kept(a, r, param, full)[i] = kept(a, r, param, 0)[i] = (own[i] + next[i] + last[i]) / 3;
    }
}

void ech_apart_mix(ech_apart *a)
{
    for (int p = 0; p < params_of(a); p++) mix(a, p);
}
