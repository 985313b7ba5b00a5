/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks are ALIKE: all ranks that hold an element of a weight have the same bits of it and of its
 * optimizer states. All ranks read the same loss, tokens and reports, and ranks that clip together
 * read the same norm and factor.
 */
#include <math.h>

#include "app/probes/parts.h"

enum { TURNS = 64, MOST_STATES = 8, READINGS = 5 };

typedef struct seen {
    double reading[TURNS][READINGS];
    int turns, params, replica;  /* replica: the independent replica, else 0 */
    part (*of)[MOST_STATES + 1]; /* [params][weights, then states] */
    ech_shape (*shape)[MOST_STATES + 1];
} seen;

/* Servers and their workers read and hold different things. */
static bool applies(const ech_design *design)
{
    return design->world > 1 && !design->layout->servers &&
           design->layout->protocol != ECH_PROTOCOL_LOCK_FREE;
}

static void take(seen *s, const probe_run *run, int param, int state)
{
    const ech_plan *plan = run->session->plan;
    const ech_state *is =
        state < 0 ? NULL : &plan->state.at[plan->param[param].first_state + state].is;
    if (is && ech_shape_replicas(&is->shape) >= 0) return; /* each replica has another */
    s->shape[param][state + 1] = is ? is->shape : plan->model->param.at[param].shape;
    s->of[param][state + 1] = part_take(run->session, param, state);
}

static void take_all(seen *s, const probe_run *run)
{
    const ech_plan *plan = run->session->plan;
    s->params = (int)plan->model->param.n;
    s->of = ech_calloc((size_t)s->params, sizeof *s->of);
    s->shape = ech_calloc((size_t)s->params, sizeof *s->shape);
    s->replica = part_replica(plan);
    for (int p = 0; p < s->params; p++)
        for (int state = -1; state < plan->param[p].states && state < MOST_STATES; state++)
            if (plan->param[p].bucket >= 0) take(s, run, p, state);
}

static void observe(void *state, const probe_run *run, probe_moment moment)
{
    seen *s = state;
    if (moment != PROBE_AFTER) return;
    bool trains = run->list == ECH_LIST_TRAIN || run->list == ECH_LIST_UNDELAYED;
    for (int t = 0; trains && t < probe_list(run)->turns && s->turns < TURNS; t++) {
        const ech_readings *r = &ech_exec_readings(run->session->exec)[t];
        bool together = !probe_diverges(run->session->plan->layout) &&
                        ech_weights_are_synchronous(run->design->schedule->weights);
        double told = 0; /* what blocks report, number by number */
        for (int64_t i = 0; r->reports && i < run->design->model->reports; i++)
            told += (double)(i + 1) * r->reports[i];
        double all[READINGS] = {told, r->loss, r->tokens, together ? r->grad_norm : 0,
                                together ? r->clip : 0};
        memcpy(s->reading[s->turns++], all, sizeof all);
    }
    /* After all training lists of the run. */
    if (run->list == ECH_LIST_VALIDATE && !s->of) take_all(s, run);
}

static void compare(void *const *states, int ranks, int replica, int param, int which)
{
    ECH_FREED double *whole = NULL;
    ECH_FREED bool *has = NULL;
    for (int r = 0; r < ranks; r++) {
        const seen *s = states[r];
        if (s->replica != replica || !s->of[param][which].at) continue;
        const ech_shape *shape = &s->shape[param][which];
        if (!whole) {
            whole = ech_calloc((size_t)ech_shape_whole(shape), sizeof *whole);
            has = ech_calloc((size_t)ech_shape_whole(shape), sizeof *has);
        }
        if (!part_put(&s->of[param][which], shape, whole, has))
            probe_fail("rank %d has other bits of %s %d of parameter %d", r,
                       which ? "state" : "weights", which, param);
    }
}

static void compare_readings(const seen *one, const seen *other, int rank)
{
    for (int t = 0; t < one->turns; t++)
        for (int k = 0; k < READINGS; k++)
            if (!(fabs(one->reading[t][k] - other->reading[t][k]) <=
                  1e-10 * fabs(one->reading[t][k])))
                probe_fail("step %d: rank %d reads %.17g (%d), rank 0 %.17g", t + 1, rank,
                           other->reading[t][k], k, one->reading[t][k]);
}

static void judge(void *const *states, const probe_case *c)
{
    int replicas = 1;
    for (int r = 0; r < c->ranks; r++) {
        const seen *s = states[r];
        compare_readings(states[0], s, r);
        if (s->replica >= replicas) replicas = s->replica + 1;
    }
    for (int replica = 0; replica < replicas; replica++)
        for (int p = 0; p < ((const seen *)states[0])->params; p++)
            for (int which = 0; which <= MOST_STATES; which++)
                compare(states, c->ranks, replica, p, which);
}

static void release(void *state)
{
    seen *s = state;
    for (int p = 0; p < s->params; p++)
        for (int which = 0; which <= MOST_STATES; which++) free(s->of[p][which].at);
    free(s->of);
    free(s->shape);
}

const probe probe_alike = {.name = "alike",
                           .state = sizeof(seen),
                           .applies = applies,
                           .observe = observe,
                           .judge = judge,
                           .release = release};
