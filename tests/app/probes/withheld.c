/* SPDX-License-Identifier: Apache-2.0
 *
 * A step is WITHHELD on all ranks if the weights of one are not finite. No weight changes a bit,
 * and no state of an optimizer, a layer or the compression. The step does not count as an update.
 */
#include <math.h>

#include "app/probes/parts.h"

typedef struct seen {
    int64_t updates;
    int params, *parts; /* parts: [params], how many there are of each */
    part **of;          /* [params][parts]: weights, then states, before the step */
} seen;

/* Turns of a span count all the same; delayed updates are of gradients from before; of a window one
 * rank's weights are all ranks'. */
static bool applies(const ech_design *design)
{
    return design->layout->sums != ECH_SUMS_SERVERS && !design->layout->servers &&
           design->layout->protocol != ECH_PROTOCOL_CENTRAL &&
           design->schedule->weights == ECH_WEIGHTS_FLUSHED &&
           design->config->memory.offload_delayed_from == 0;
}

/* The last vector, of the head's norm: after it the loss is not finite, nor is any gradient. */
static int find_vector(const ech_model *model)
{
    int found = 0;
    for (int p = 0; p < (int)model->param.n; p++)
        if (model->param.at[p].shape.dims == 1 && !model->param.at[p].commit) found = p;
    return found;
}

/* Makes one rank's copy infinite, or every copy if replicas are independent or ranks have shards.
 * */
static void poison(const ech_session *session, int rank)
{
    const ech_layout *layout = session->plan->layout;
    int param = find_vector(session->plan->model), first = 0;
    while (!ech_layout_holds(layout, first, param)) first++;
    bool all = probe_diverges(layout) || session->plan->zero == 3;
    if (!ech_layout_holds(layout, rank, param) || (rank != first && !all)) return;
    ech_tensor x = ech_exec_param(session->exec, param);
    if (!ech_tensor_count(&x)) return;
    x = ech_tensor_1d(x.data, x.dtype, 1);
    ech_exec_write(session->exec, &x, &(double){INFINITY});
}

static void take(seen *s, const ech_session *session)
{
    const ech_plan *plan = session->plan;
    s->updates = ech_exec_updates(session->exec);
    s->params = (int)plan->model->param.n;
    s->of = ech_calloc((size_t)s->params, sizeof *s->of);
    s->parts = ech_calloc((size_t)s->params, sizeof *s->parts);
    for (int p = 0; p < s->params; p++) {
        if (plan->param[p].bucket < 0) continue;
        s->parts[p] = plan->param[p].states + 1;
        s->of[p] = ech_calloc((size_t)s->parts[p], sizeof **s->of);
        for (int k = 0; k < s->parts[p]; k++) s->of[p][k] = part_take(session, p, k - 1);
    }
}

static void compare(const seen *s, const ech_session *session, int param, int which)
{
    part now = part_take(session, param, which - 1);
    ech_tensor x = which ? ech_exec_state(session->exec, param, which - 1)
                         : ech_exec_param(session->exec, param);
    if (memcmp(s->of[param][which].at, now.at, (size_t)ech_tensor_count(&x) * sizeof *now.at) != 0)
        probe_fail("rank %d: %s %d of %s have changed", session->plan->rank,
                   which ? "state" : "weights", which, session->plan->model->param.at[param].name);
    free(now.at);
}

static void compare_all(const seen *s, const probe_run *run)
{
    const ech_session *session = run->session;
    int poisoned = find_vector(session->plan->model);
    for (int t = 0; t < probe_list(run)->turns; t++)
        if (!ech_exec_readings(session->exec)[t].withheld)
            probe_fail("rank %d: turn %d is not withheld", run->rank, t);
    if (ech_exec_updates(session->exec) != s->updates)
        probe_fail("rank %d: %lld updates, before the step %lld", run->rank,
                   (long long)ech_exec_updates(session->exec), (long long)s->updates);
    for (int p = 0; p < s->params; p++)
        for (int k = p == poisoned; k < s->parts[p]; k++) compare(s, session, p, k);
}

static void observe(void *state, const probe_run *run, probe_moment moment)
{
    seen *s = state;
    if (moment == PROBE_BEFORE) {
        take(s, run->session);
        poison(run->session, run->rank);
    } else if (moment == PROBE_AFTER) {
        compare_all(s, run);
    }
}

static void release(void *state)
{
    seen *s = state;
    for (int p = 0; p < s->params; p++) {
        for (int k = 0; k < s->parts[p]; k++) free(s->of[p][k].at);
        free(s->of[p]);
    }
    free(s->parts);
    free(s->of);
}

const probe probe_withheld = {.name = "withheld",
                              .state = sizeof(seen),
                              .applies = applies,
                              .observe = observe,
                              .release = release,
                              .lists = PROBE_POISONED};
