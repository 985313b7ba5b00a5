/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients of the last step, kept for whoever reads them between lists. Their memory in the arena
 * has other values by then, so each rank notes its part of every sum at its norm, before clipping.
 */
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "exec/holding.h"
#include "schedule/protocol/protocol.h"
#include "schedule/states.h"

struct ech_kept_gradients {
    int64_t *first; /* [params + 1] where each one's elements begin in `of` */
    double *of;     /* as training has them, multiplied by the loss scale */
    bool noted;     /* a step was made */
};

static bool has_gradient(const ech_exec *exec, int param)
{
    return ech_param_is_trained(&exec->plan->model->param.at[param]);
}

/* Number of the gradient's elements that this rank has. */
static int64_t count_own(const ech_exec *exec, int param)
{
    const ech_plan *plan = exec->plan;
    int bucket = plan->param[param].bucket;
    int64_t first;
    if (bucket < 0 || !has_gradient(exec, param)) return 0;
    bool sharded = ech_bucket_is_sharded(&plan->bucket.at[bucket]);
    return sharded ? ech_plan_own(plan, param, &first) : plan->param[param].elements;
}

static void note(void *context, ech_exec *exec, const ech_step *step)
{
    ech_kept_gradients *kept = context;
    const ech_plan *plan = exec->plan;
    if (exec->list->kind != ECH_LIST_TRAIN) return;
    kept->noted = true; /* on ranks without a gradient, too */
    if (step->kind != ECH_STEP_NORM) return;
    const ech_bucket *bucket = &plan->bucket.at[step->index];
    for (int i = 0; i < bucket->params; i++) {
        int param = plan->bucket_param.at[bucket->first_param + i];
        ech_tensor gradient = ech_exec_own_gradient(exec, param, step->turn);
        int64_t n = kept->first[param + 1] - kept->first[param];
        ECH_ASSERT(ech_tensor_count(&gradient) == n);
        if (n) ech_exec_read(exec, &gradient, kept->of + kept->first[param]);
    }
}

static ech_status check(const ech_exec *exec)
{
    static const char remedy[] = "train without reading gradients, or synchronously: "
                                 "parallel.strategy=synchronous, without compression";
    const ech_plan *plan = exec->plan;
    const ech_serial *serial = &ech_protocol_of(plan->layout)->serial;
    const char *strategy = ech_config_name(exec->config, "parallel.strategy");
    const char *compression = ech_config_name(exec->config, "parallel.compression");
    if (exec->config->parallel.backup_workers > 0)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "parallel.backup_workers=%lld: updates are by gradients of the first workers, and "
                 "no rank has the sum of all; %s",
                 (long long)exec->config->parallel.backup_workers, remedy);
    if (serial->train != ech_serial_synchronous)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "parallel.strategy=%s has no sum of all gradients that could be read: workers or "
                 "replicas update by gradients of their own; %s",
                 strategy, remedy);
    if (plan->schedule->turns > 1)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "parallel.schedule=%s makes spans of steps, and keeps no gradient of each; %s",
                 exec->config->parallel.schedule, remedy);
    if (strcmp(compression, "none") != 0)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "parallel.compression=%s: ranks exchange less than the gradients, and none has "
                 "their sum; %s",
                 compression, remedy);
    return ECH_OK;
}

ech_status ech_exec_keep_gradients(ech_exec *exec)
{
    int params = (int)exec->plan->model->param.n;
    ECH_TRY(check(exec));
    ech_kept_gradients *kept = exec->gradients = ech_calloc(1, sizeof *kept);
    kept->first = ech_calloc((size_t)params + 1, sizeof *kept->first);
    for (int p = 0; p < params; p++) kept->first[p + 1] = kept->first[p] + count_own(exec, p);
    size_t bytes = (size_t)kept->first[params] * sizeof *kept->of;
    kept->of = malloc(bytes + 1);
    if (!kept->of)
        ECH_FAIL(ECH_ENOMEM, "no memory for %zu bytes of gradients to be read; train without them",
                 bytes);
    ech_exec_observe(exec, note, kept);
    return ECH_OK;
}

void ech_kept_gradients_destroy(ech_kept_gradients *kept)
{
    if (!kept) return;
    free(kept->first);
    free(kept->of);
    free(kept);
}

int ech_exec_count_gradients(const ech_exec *exec, int param)
{
    return exec->gradients && has_gradient(exec, param);
}

/* Whether this rank's part is needed for the whole tensor: of parts that several ranks have, one's
 * is enough. */
static bool is_part(const ech_exec *exec, int param, const ech_held *held)
{
    const ech_plan *plan = exec->plan;
    const ech_bucket *bucket = &plan->bucket.at[plan->param[param].bucket];
    int first, last, stage = plan->layout->coordinates[plan->rank].stage;
    if (ech_protocol_of(plan->layout)->serial.keeper == ECH_KEPT_BY_SERVERS)
        return ech_layout_serves(plan->layout, plan->rank);
    if (ech_bucket_is_sharded(bucket)) return held->counts;
    return held->is_first &&
           ech_layout_stages_of_param(plan->layout, param, stage, &first, &last) && stage == first;
}

ech_holding ech_exec_gradient_kept(const ech_exec *exec, int param)
{
    const ech_plan *plan = exec->plan;
    bool wide = ech_plan_gradient_dtype(plan, param) == ECH_F64;
    ech_holding of = {.name = ech_holding_gradient,
                      .shape = plan->model->param.at[param].shape,
                      .dtype = wide ? ECH_F64 : ECH_F32,
                      .value = plan->param[param].bucket,
                      .snapshot = -1,
                      .kind = ECH_HELD_GRADIENT};
    if (of.value < 0) return of;
    of.bytes = (size_t)count_own(exec, param) * ech_dtype_bytes(of.dtype);
    of.held = ech_plan_held(plan, plan->rank, param, ECH_HELD_GRADIENT, -1);
    of.held.others = 0;
    of.held.writes = of.bytes && is_part(exec, param, &of.held);
    return of;
}

bool ech_exec_has_gradients(const ech_exec *exec)
{
    return exec->gradients->noted;
}

void ech_exec_copy_gradient(const ech_exec *exec, int param, const ech_holding *of, void *to)
{
    const ech_kept_gradients *kept = exec->gradients;
    int64_t n = kept->first[param + 1] - kept->first[param];
    const double *from = kept->of + kept->first[param];
    double scale = exec->readings[0].loss_scale;
    for (int64_t i = 0; i < n; i++) {
        double x = from[i] / scale;
        if (of->dtype == ECH_F64)
            ((double *)to)[i] = x;
        else
            ((float *)to)[i] = (float)x;
    }
}
