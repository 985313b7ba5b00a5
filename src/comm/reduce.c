/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of reductions, their segments, and ech_group_reduce.
 */
#include "comm/reduce.h"

/* ---- the arithmetic of reductions, put where the data are ---- */

void ech_narrow(const ech_sum *sum, char *x, int64_t n)
{
    if (sum->wire == sum->dtype || n == 0) return;
    ech_tensor from = ech_tensor_1d(x, sum->dtype, n), to = ech_tensor_1d(x, sum->wire, n);
    sum->group->on.convert(sum->group->on.context, &from, &to);
}

void ech_widen(const ech_sum *sum, char *x, int64_t n)
{
    if (sum->wire == sum->dtype || n == 0) return;
    ech_tensor from = ech_tensor_1d(x, sum->wire, n), to = ech_tensor_1d(x, sum->dtype, n);
    sum->group->on.convert(sum->group->on.context, &from, &to);
}

static void add_parts(const ech_sum *sum, char *to, char *own, char *parts, int others, int index,
                      int64_t n)
{
    if (n == 0) return;
    ech_tensor mine = ech_tensor_1d(own, sum->wire, n), all = ech_tensor_1d(to, sum->wire, n);
    ech_tensor theirs = ech_tensor_2d(parts, sum->wire, others, n);
    sum->group->on.add_parts(sum->group->on.context, &mine, &theirs, index, &all);
}

void ech_add(const ech_sum *sum, char *to, char *from, int64_t n)
{
    add_parts(sum, to, to, from, 1, 0, n);
}

void ech_add_in_order(const ech_sum *sum, char *to, char *own, char *parts, int64_t n)
{
    add_parts(sum, to, own, parts, sum->group->size - 1, sum->group->index, n);
}

/* Bytes of one segment: large enough to hide latency; small enough that several fit into caches, and
 * that on a link of 1 Gbit/s, where 1 MiB takes 8 ms, the next one's handshake is not queued for long.
 * SEGMENTS: of all segments that a member receives at once, unless they would fall below SEGMENT_LEAST. */
enum { SEGMENT = 1 << 18, SEGMENT_LEAST = 1 << 14, SEGMENTS = (1 << 24) / ECH_UNDER_WAY };

static const struct {
    const char *name;
    const ech_reduction_row *row;
} table[] = {
#define X(name, text, help) {text, &ech_reduce_##name},
#include "comm/reduction.def"
#undef X
};

const char *ech_reduction_name(ech_reduction reduction)
{
    return table[reduction].name;
}

const char *ech_reduction_names(void)
{
    return
#define X(name, text, help) text " "
#include "comm/reduction.def"
#undef X
        ;
}

bool ech_reduction_supported(const ech_comm_backend *backend, ech_reduction reduction)
{
    return reduction != ECH_REDUCTION_LIBRARY || backend->allreduce_start != NULL;
}

int64_t ech_segment_elements(size_t item, int N)
{
    int64_t bytes = SEGMENTS / (N > 1 ? N - 1 : 1);
    if (bytes > SEGMENT) bytes = SEGMENT;
    if (bytes < SEGMENT_LEAST) bytes = SEGMENT_LEAST;
    return bytes / (int64_t)item;
}

int64_t ech_segment_count(int64_t count, int64_t at, int64_t segment)
{
    if (at >= count) return 0;
    return count - at < segment ? count - at : segment;
}

bool ech_reduction_takes(ech_reduction reduction, ech_dtype wire, bool narrowed)
{
    bool as_it_is = (wire == ECH_F32 || wire == ECH_F64) && !narrowed;
    return ech_dtype_is_real(wire) && (as_it_is || table[reduction].row->narrows);
}

size_t ech_reduction_scratch(ech_reduction reduction, ech_dtype wire, int64_t n, int size)
{
    const ech_reduction_row *row = table[reduction].row;
    size_t item = ech_dtype_bytes(wire);
    return size < 2 || n == 0 || !row->scratch ? 0 : (size_t)row->scratch(item, n, size) * item;
}

int64_t ech_reduction_bytes(ech_reduction reduction, ech_dtype wire, int64_t n, int size, int index)
{
    if (size < 2) return 0;
    return table[reduction].row->sent(n, size, index) * (int64_t)ech_dtype_bytes(wire);
}

ech_status ech_sum_make(ech_group *group, ech_comm_call call, const ech_tensor *x, ech_dtype wire,
                        void *scratch, ech_sum *out)
{
    if (!ech_dtype_is_real(x->dtype))
        ECH_FAIL(ECH_EUNSUPPORTED, "%s over group %s: %s is not summed, only real types",
                 ech_comm_call_name(call), group->of->name, ech_dtype_name(x->dtype));
    ECH_ASSERT(ech_tensor_is_contiguous(x));
    ECH_ASSERT(wire == x->dtype || ech_dtype_bytes(wire) < ech_dtype_bytes(x->dtype));
    size_t item = ech_dtype_bytes(wire);
    *out = (ech_sum){.group = group,
                     .x = x->data,
                     .scratch = scratch,
                     .n = ech_tensor_count(x),
                     .segment = ech_segment_elements(item, group->size),
                     .item = ech_dtype_bytes(x->dtype),
                     .wire_item = item,
                     .dtype = x->dtype,
                     .wire = wire};
    ech_group_begin(group, call);
    return ECH_OK;
}

ech_status ech_group_prepare(ech_group *group, ech_reduction reduction)
{
    const ech_reduction_row *row = table[reduction].row;
    return row->prepare && group->size > 1 ? row->prepare(group) : ECH_OK;
}

static bool has_work(const ech_sum *sum)
{
    return sum->group->size > 1 && sum->n > 0;
}

static ech_status begin(ech_sum *sum, const ech_reduction_row *row)
{
    sum->row = row;
    return has_work(sum) && row->begin ? row->begin(sum) : ECH_OK;
}

ech_status ech_sum_begin(ech_group *group, ech_reduction reduction, const ech_tensor *x,
                         ech_dtype wire, void *scratch, ech_sum *out)
{
    ech_sum sum;
    if (!ech_reduction_supported(group->comm->backend, reduction))
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "parallel.reduction %s needs parallel.comm mpi, not %s; use direct or ring",
                 ech_reduction_name(reduction), group->comm->backend->name);
    if (ech_dtype_is_real(x->dtype) && !ech_reduction_takes(reduction, wire, wire != x->dtype))
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "parallel.reduction %s sums fp32 and fp64, which travel as they are, not %s that "
                 "travels as %s; use direct",
                 ech_reduction_name(reduction), ech_dtype_name(x->dtype), ech_dtype_name(wire));
    ECH_TRY(ech_group_prepare(group, reduction));
    ECH_TRY(ech_sum_make(group, ECH_CALL_REDUCE, x, wire, scratch, &sum));
    ECH_TRY(begin(&sum, table[reduction].row));
    *out = sum;
    return ECH_OK;
}

ech_status ech_sum_run(const ech_sum *sum)
{
    return has_work(sum) ? sum->row->run(sum) : ECH_OK;
}

ech_status ech_sum_end(const ech_sum *sum)
{
    return has_work(sum) && sum->row->end ? sum->row->end(sum) : ECH_OK;
}

ech_status ech_group_reduce(ech_group *group, ech_reduction reduction, const ech_tensor *x,
                            ech_dtype wire, void *scratch)
{
    ech_sum sum;
    ECH_TRY(ech_sum_begin(group, reduction, x, wire, scratch, &sum));
    ECH_TRY(ech_sum_run(&sum));
    return ech_sum_end(&sum);
}

ech_status ech_group_all_reduce(ech_group *group, const ech_tensor *x, void *scratch)
{
    ech_sum sum;
    ECH_TRY(ech_sum_make(group, ECH_CALL_ALL_REDUCE, x, x->dtype, scratch, &sum));
    ECH_TRY(begin(&sum, &ech_reduce_DIRECT));
    ECH_TRY(ech_sum_run(&sum));
    return ech_sum_end(&sum);
}
