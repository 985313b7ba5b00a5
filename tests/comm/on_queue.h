/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives whose data are on queues of the device `queued`: arithmetic there, and reductions
 * that have the bits and counts of those in host memory, over any backend.
 */
#ifndef ECH_TESTS_COMM_ON_QUEUE_H
#define ECH_TESTS_COMM_ON_QUEUE_H

#include "comm/checks.h"
#include "kernel/kernel.h"

/* ---- a queue, and the context of its sums ---- */

static inline ech_status on_queue_open(const ech_device *device, ech_comm_queue *on)
{
    *on = (ech_comm_queue){.device = device};
    ECH_TRY(device->queue_create(&on->queue));
    ECH_TRY(ech_kernel_context_create(1, &on->context));
    ech_kernel_context_defer(on->context, device, on->queue);
    return device->event_create(&on->mark);
}

static inline void on_queue_close(ech_comm_queue *on)
{
    on->device->queue_destroy(on->queue);
    on->device->event_destroy(on->mark);
    ech_kernel_context_destroy(on->context);
}

/* ---- reductions ---- */

/* Of n elements that travel as `wire`: the same bits and counts there as here. */
static inline ech_status on_queue_check_reduction(ech_group *here, ech_group *there,
                                                  const ech_comm_queue *on, const checks_case *c)
{
    size_t bytes = (size_t)c->n * ech_dtype_bytes(c->dtype);
    size_t scratch_bytes =
        ech_reduction_scratch(c->reduction, c->wire, c->n, ech_group_lineup(here));
    void *memory, *there_scratch;
    ECH_FREED char *x = malloc(bytes + 1);
    ECH_FREED char *y = malloc(bytes + 1);
    ECH_FREED char *scratch = malloc(scratch_bytes + 1);
    ECH_TRY(on->device->alloc(bytes, &memory));
    ECH_TRY(on->device->alloc(scratch_bytes, &there_scratch));
    checks_fill(x, c->dtype, c->n, ech_group_index(here), c->whole);
    ECH_TRY(ech_device_copy_now(on->device, on->queue, memory, x, bytes));
    ech_tensor view = ech_tensor_1d(x, c->dtype, c->n), far = view;
    far.data = memory;
    ECH_TRY(ech_group_reduce(here, c->reduction, &view, c->wire, scratch));
    ECH_TRY(ech_group_reduce(there, c->reduction, &far, c->wire, there_scratch));
    ECH_TRY(ech_device_copy_now(on->device, on->queue, y, memory, bytes));
    RANKS_CHECK(memcmp(x, y, bytes) == 0);
    ech_comm_count a = ech_group_count(here, ECH_COMM_REDUCES),
                   b = ech_group_count(there, ECH_COMM_REDUCES);
    RANKS_CHECK(memcmp(&a, &b, sizeof a) == 0);
    on->device->release(memory, bytes);
    on->device->release(there_scratch, scratch_bytes);
    return ECH_OK;
}

/* A scatter that adds, then a gather: likewise. */
static inline ech_status on_queue_run_halves(ech_group *group, const checks_case *c, void *x,
                                             void *shard, void *scratch)
{
    ech_tensor view = ech_tensor_1d(x, c->dtype, c->n);
    ech_sum scatter, gather;
    ECH_TRY(
        ech_sum_begin_scatter(group, c->reduction, &view, c->wire, shard, true, scratch, &scatter));
    ECH_TRY(ech_sum_run(&scatter));
    ECH_TRY(ech_sum_end(&scatter));
    ECH_TRY(ech_sum_begin_gather(group, c->reduction, &view, shard, &gather));
    ECH_TRY(ech_sum_run(&gather));
    return ech_sum_end(&gather);
}

static inline ech_status on_queue_check_halves(ech_group *here, ech_group *there,
                                               const ech_comm_queue *on, const checks_case *c)
{
    int N = ech_group_size(here), index = ech_group_index(here);
    size_t item = ech_dtype_bytes(c->dtype), bytes = (size_t)c->n * item;
    size_t own = (size_t)ech_collective_shard_count(c->n, N, index) * item;
    size_t scratch_bytes = ech_reduction_part_scratch(c->reduction, ECH_REDUCTION_SCATTER, c->wire,
                                                      c->n, ech_group_lineup(here));
    size_t all = bytes + own + scratch_bytes;
    void *memory;
    ECH_FREED char *x = malloc(all + 1);
    ECH_FREED char *y = malloc(bytes + 1);
    ECH_TRY(on->device->alloc(all, &memory));
    checks_fill(x, c->dtype, c->n, index, c->whole);
    checks_fill(x + bytes, c->dtype, (int64_t)(own / item), index + 20, c->whole);
    ECH_TRY(ech_device_copy_now(on->device, on->queue, memory, x, bytes + own));
    ECH_TRY(on_queue_run_halves(here, c, x, x + bytes, x + bytes + own));
    char *far = memory;
    ECH_TRY(on_queue_run_halves(there, c, far, far + bytes, far + bytes + own));
    ECH_TRY(ech_device_copy_now(on->device, on->queue, y, memory, bytes));
    RANKS_CHECK(memcmp(x, y, bytes) == 0);
    for (ech_comm_counted kind = ECH_COMM_SCATTERS; kind <= ECH_COMM_GATHERS; kind++) {
        ech_comm_count a = ech_group_count(here, kind), b = ech_group_count(there, kind);
        RANKS_CHECK(memcmp(&a, &b, sizeof a) == 0);
    }
    ECH_TRY(ech_group_barrier(here)); /* others' queues may still read it */
    on->device->release(memory, all);
    return ECH_OK;
}

static inline ech_status on_queue_reduce(ech_comm *comm, void *context)
{
    (void)context;
    static const checks_case cases[] = {
        {ECH_REDUCTION_DIRECT, ECH_F32, ECH_F32, 100003, false},
        {ECH_REDUCTION_DIRECT, ECH_F64, ECH_F64, 2, false},
        {ECH_REDUCTION_DIRECT, ECH_F32, ECH_BF16, 70001, false},
        {ECH_REDUCTION_DIRECT, ECH_BF16, ECH_BF16, 1000, false},
        {ECH_REDUCTION_RING, ECH_F32, ECH_F32, 100003, false},
        {ECH_REDUCTION_TORUS, ECH_F32, ECH_F32, 100003, false},
        {ECH_REDUCTION_HIERARCHICAL, ECH_F32, ECH_F32, 100003, false},
        {ECH_REDUCTION_NAIVE, ECH_F32, ECH_F32, 1000, false}};
    ech_group *here, *there;
    ech_comm_queue on;
    ECH_TRY(on_queue_open(ech_device_find("queued"), &on));
    ECH_TRY(checks_world(comm, &here));
    there = ech_group_open(here, 1);
    ech_group_prepare_gathers(there);
    ECH_TRY(ech_group_set_queue(there, &on));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ECH_TRY(on_queue_check_reduction(here, there, &on, &cases[i]));
    for (size_t i = 0; i + 1 < sizeof cases / sizeof *cases; i++) /* the last one has no halves */
        ECH_TRY(on_queue_check_halves(here, there, &on, &cases[i]));
    ECH_TRY(ech_group_barrier(here)); /* other queues may still copy from this one's memory */
    on_queue_close(&on);
    ech_group_destroy(there);
    ech_group_destroy(here);
    return ECH_OK;
}

#endif
