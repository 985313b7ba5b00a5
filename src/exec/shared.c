/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that all ranks share: PUBLISH, and mapping it. Each rank writes its own shards there,
 * and reads the others' after they have reported completion.
 */
#include <math.h>
#include <string.h>

#include "base/sort.h"
#include "exec/state.h"
#include "schedule/operands.h"

ech_status ech_exec_map_shared(ech_exec *exec)
{
    size_t bytes = (size_t)exec->plan->arena_bytes[ECH_SPACE_SHARED];
    void *memory;
    if (!bytes) return ECH_OK;
    ECH_TRY(ech_comm_map_shared(exec->comm, exec->device, bytes, &memory));
    exec->arena[ECH_SPACE_SHARED] = memory;
    return ECH_OK;
}

ech_status ech_exec_meet_in_shared(ech_exec *exec)
{
    if (!exec->arena[ECH_SPACE_SHARED]) return ECH_OK;
    return ech_group_barrier(ech_exec_world(exec));
}

/* ---- lock-free ---- */

static char *common_of(ech_exec *exec, const ech_step *step, int cluster)
{
    return ech_exec_touch(exec, ech_plan_common(exec->plan, step->index, cluster));
}

static int own_cluster(const ech_exec *exec)
{
    return ech_ring_cluster(&exec->plan->schedule->ring, exec->plan->rank);
}

/* This rank's part of the equal shards of a cluster's ranks, which may include padding. A rank that
 * will have the ring token, and the first rank that has it, has relayed these weights, and nothing
 * else so far. */
ech_status ech_handle_OFFER(ech_exec *exec, const ech_step *step)
{
    const ech_bucket *bucket = &exec->plan->bucket.at[step->index];
    int ranks = exec->plan->schedule->ring.ranks, rank = exec->plan->rank % ranks;
    int64_t first = ech_collective_shard_first(bucket->elements, ranks, rank);
    int64_t n = ech_collective_shard_count(bucket->elements, ranks, rank);
    size_t item = ech_dtype_bytes(bucket->weight_dtype), at = (size_t)first * item;
    ech_queue *queue = ech_exec_queue(exec, step);
    const char *weights = ech_exec_used(exec, step, ECH_USE_WEIGHTS, 0);
    exec->device->copy(queue, common_of(exec, step, own_cluster(exec)) + at, weights + at,
                       (size_t)n * item);
    if (ech_bucket_is_listed(bucket))
        exec->device->fill(queue, ech_exec_used(exec, step, ECH_USE_SUM, 0), 0,
                           (size_t)bucket->elements * ech_dtype_bytes(bucket->dtype));
    if (exec->plan->relayed < 0) return ECH_OK;
    exec->device->copy(queue, ech_exec_touch(exec, exec->plan->relayed + step->index), weights,
                       (size_t)bucket->elements * item);
    if (exec->plan->rank == 0) *(int64_t *)ech_exec_touch(exec, exec->plan->ring_token) = 0;
    return ECH_OK;
}

ech_tensor ech_exec_rows_listed(ech_exec *exec, const ech_bucket *bucket, int turn)
{
    return ech_tensor_1d(ech_exec_touch(exec, ech_bucket_rows(bucket, turn)), ECH_I32,
                         bucket->rows.most);
}

int32_t *ech_exec_places_listed(ech_exec *exec, const ech_bucket *bucket, int turn)
{
    return (int32_t *)ech_exec_rows_listed(exec, bucket, turn).data + bucket->rows.most;
}

void ech_exec_see_listed(const ech_bucket *bucket, ech_tensor *table)
{
    table->shape[0] = bucket->rows.most;
}

/* From the last row on, since no row moves to the front. */
void ech_exec_spread_rows(ech_exec *exec, int param, int turn, double *numbers)
{
    const ech_bucket *bucket = &exec->plan->bucket.at[exec->plan->param[param].bucket];
    if (!ech_bucket_is_listed(bucket)) return;
    int64_t R = exec->param_view[param].shape[0], k = bucket->rows.most;
    ECH_FREED int32_t *row = ech_calloc((size_t)k, sizeof *row);
    ech_exec_copy(exec, row, ech_exec_look(exec, ech_bucket_rows(bucket, turn)),
                  (size_t)k * sizeof *row);
    int64_t C = ech_tensor_count(&exec->param_view[param]) / R;
    size_t bytes = (size_t)C * sizeof *numbers;
    while (k > 0 && row[k - 1] < 0) k--;
    for (int64_t r = R - 1; r >= 0; r--) {
        bool is_listed = k > 0 && row[k - 1] == r;
        if (is_listed) k--;
        if (!is_listed)
            memset(numbers + r * C, 0, bytes);
        else
            memmove(numbers + r * C, numbers + k * C, bytes);
    }
}

/* Sequence chunks of a micro-batch lie one after the other. */
static void order_places(const ech_exec *exec, const ech_bucket *bucket, const int32_t *from,
                         int32_t *to)
{
    ech_extent extent = exec->list->extent;
    int64_t T = extent.tokens, chunks = extent.sequence / T;
    int64_t samples = bucket->rows.ids / extent.sequence;
    for (int64_t s = 0; s < samples; s++)
        for (int64_t c = 0; c < chunks; c++) {
            int64_t micro = s / extent.batch, row = s % extent.batch;
            int64_t at = (micro * chunks + c) * extent.batch + row;
            memcpy(to + at * T, from + (s * chunks + c) * T, (size_t)T * sizeof *to);
        }
}

/* In staging, after the room for sorting. */
static int32_t *staged_rows(const ech_exec *exec, const ech_step *step)
{
    uint64_t *room = ech_exec_address(exec, step, step->scratch);
    return (int32_t *)(room + 2 * exec->plan->bucket.at[step->index].rows.ids);
}

/* Rows of a table that the turn's batch names, in staging: ascending, and -1 after the last
 * (kernel.def). Then the ids' places. */
static ech_status list_rows(ech_exec *exec, const ech_step *step)
{
    const ech_bucket *bucket = &exec->plan->bucket.at[step->index];
    int64_t all = exec->param_view[exec->plan->bucket_param.at[bucket->first_param]].shape[0];
    size_t ids = (size_t)bucket->rows.ids;
    uint64_t *room = ech_exec_address(exec, step, step->scratch);
    int32_t *rows = staged_rows(exec, step), *places = rows + bucket->rows.most;
    const ech_batch *batch;
    ECH_TRY(ech_exec_find_batch(exec, step, &batch));
    size_t n = ech_sort_distinct(ids, batch->tokens, all, rows, places, room);
    while (n < (size_t)bucket->rows.most) rows[n++] = -1;
    if (exec->list->numbering.sequence_chunks == 1) return ECH_OK;
    memcpy(room, places, ids * sizeof *places);
    order_places(exec, bucket, (const int32_t *)room, places);
    return ECH_OK;
}

ech_status ech_handle_LIST_ROWS(ech_exec *exec, const ech_step *step)
{
    ech_tensor rows = ech_exec_rows_listed(exec, &exec->plan->bucket.at[step->index], step->turn);
    ech_exec_touch(exec, step->scratch);
    ech_exec_put(exec, step, list_rows);
    exec->device->copy(ech_exec_queue(exec, step), rows.data, staged_rows(exec, step),
                       (size_t)ech_bucket_rows_bytes(&exec->plan->bucket.at[step->index]));
    return ECH_OK;
}

ech_status ech_handle_MEET(ech_exec *exec, const ech_step *step)
{
    return ech_group_barrier(exec->channel[step->group][step->lane]);
}

ech_status ech_handle_ADD(ech_exec *exec, const ech_step *step)
{
    const ech_bucket *bucket = &exec->plan->bucket.at[step->index];
    ech_update update = ech_scalars_update(exec, step->turn);
    ech_tensor rows;
    if (ech_bucket_is_listed(bucket)) rows = ech_exec_rows_listed(exec, bucket, step->turn);
    char *common = common_of(exec, step, own_cluster(exec));
    int n;
    const int *params = ech_exec_bucket_params(exec, step, &n);
    for (int i = 0; i < n; i++) {
        ech_tensor gradient =
            ech_exec_part_used(exec, step, params[i], ECH_USE_SUM, 0, bucket->dtype);
        ech_tensor shared;
        ech_update own = update;
        own.learning_rate = exec->plan->model->param.at[params[i]].rate;
        ech_exec_set_weights(exec, params[i], common, &shared);
        if (!ech_bucket_is_listed(bucket)) {
            exec->plan->kernels->sgd_shared(exec->context, &shared, &gradient, &own);
            continue;
        }
        ech_exec_see_listed(bucket, &gradient);
        exec->plan->kernels->sgd_shared_rows(exec->context, &shared, &gradient, &rows, &own);
    }
    return ECH_OK;
}

static ech_status pull_rows(ech_exec *exec, const ech_step *step)
{
    const ech_bucket *bucket = &exec->plan->bucket.at[step->index];
    int table = exec->plan->bucket_param.at[bucket->first_param];
    ech_tensor shared, own;
    if (step->version >= exec->list->turns) return ECH_OK;
    ech_tensor rows = ech_exec_rows_listed(exec, bucket, step->version);
    ech_exec_set_weights(exec, table, common_of(exec, step, own_cluster(exec)), &shared);
    ech_exec_set_weights(exec, table, ech_exec_used(exec, step, ECH_USE_WEIGHTS, 0), &own);
    ech_exec_see_listed(bucket, &own);
    exec->plan->kernels->copy_shared_rows(exec->context, &shared, &rows, &own);
    return ECH_OK;
}

static ech_tensor flat(const ech_bucket *bucket, void *data)
{
    return ech_tensor_2d(data, bucket->weight_dtype, 1, bucket->elements);
}

/* After the last turn all ranks get the mean of the clusters' weights, which no rank changes any
 * more: the same bits. */
ech_status ech_handle_PULL(ech_exec *exec, const ech_step *step)
{
    const ech_bucket *bucket = &exec->plan->bucket.at[step->index];
    const ech_kernels *kernels = exec->plan->kernels;
    if (ech_step_pulls_rows(exec->plan, step)) return pull_rows(exec, step);
    bool all = ech_step_pulls_all(exec->list, step);
    int clusters = all ? exec->plan->schedule->ring.clusters : 1;
    ech_tensor own = flat(bucket, ech_exec_used(exec, step, ECH_USE_WEIGHTS, 0));
    ech_tensor shared = flat(bucket, common_of(exec, step, all ? 0 : own_cluster(exec)));
    kernels->copy_shared(exec->context, &shared, &own);
    for (int c = 1; c < clusters; c++) {
        shared = flat(bucket, common_of(exec, step, c));
        kernels->scaled_sum(exec->context, &shared, 1.0 / clusters, c > 1 ? 1 : 1.0 / clusters, 0,
                            NULL, NULL, &own);
    }
    return ECH_OK;
}

/* beta, the root of beta^n + beta = 1: a cluster's additions have reached it completely when the
 * token has gone around the ring of n. */
static double part_passed_on(int clusters)
{
    double low = 0, high = 1;
    while (high - low > 0x1p-52) {
        double middle = (low + high) / 2;
        if (pow(middle, clusters) + middle > 1)
            high = middle;
        else
            low = middle;
    }
    return low;
}

/* The ring token counts relays: a different number shows that it did not come from the previous
 * cluster, after all others. */
ech_status ech_handle_RELAY(ech_exec *exec, const ech_step *step)
{
    const ech_bucket *bucket = &exec->plan->bucket.at[step->index];
    int clusters = exec->plan->schedule->ring.clusters;
    int64_t *token = (int64_t *)ech_exec_touch(exec, exec->plan->ring_token);
    int64_t before = (int64_t)step->count * ech_plan_shared(exec->plan, (int)exec->plan->bucket.n) +
                     ech_plan_shared(exec->plan, step->index);
    double beta = part_passed_on(clusters), lambda = 1 - pow(beta, clusters - 1);
    ech_tensor own = flat(bucket, common_of(exec, step, own_cluster(exec)));
    ech_tensor next = flat(bucket, common_of(exec, step, (own_cluster(exec) + 1) % clusters));
    ech_tensor relayed = flat(bucket, ech_exec_touch(exec, exec->plan->relayed + step->index));
    if (*token != before)
        ECH_FAIL(ECH_EINTERNAL,
                 "rank %d: the token has seen %lld relays, and should have seen %lld",
                 exec->plan->rank, (long long)*token, (long long)before);
    *token = before + 1;
    exec->plan->kernels->relay_shared(exec->context, &own, &next, &relayed, beta, lambda,
                                      exec->config->parallel.token_rate,
                                      exec->config->parallel.token_tolerance,
                                      ech_step_relays_alone(exec->plan, exec->list, step));
    return ECH_OK;
}

ech_status ech_handle_PUBLISH(ech_exec *exec, const ech_step *step)
{
    return ech_group_barrier(exec->channel[step->group][step->lane]);
}
