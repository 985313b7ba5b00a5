/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of reductions, their segments, and ech_group_reduce.
 */
#include "comm/reduce.h"

/* ---- the arithmetic of reductions, put on the data's queue ---- */

/* fp32's kernels sum and convert types that are only used in messages. */
static const ech_kernels *kernels_of(const ech_comm_queue *on, ech_dtype dtype)
{
    return ech_kernels_on(on->device->name, ech_dtype_is_real(dtype) ? dtype : ECH_F32);
}

/* In place. */
static void convert(const ech_sum *sum, char *x, ech_dtype from, ech_dtype to, int64_t n)
{
    if (from == to || n == 0) return;
    ech_tensor before = ech_tensor_1d(x, from, n), after = ech_tensor_1d(x, to, n);
    const ech_comm_queue *on = &sum->group->on;
    kernels_of(on, from)->convert(on->context, &before, &after);
}

void ech_narrow(const ech_sum *sum, char *x, int64_t n)
{
    convert(sum, x, sum->dtype, sum->wire, n);
}

void ech_widen(const ech_sum *sum, char *x, int64_t n)
{
    convert(sum, x, sum->wire, sum->dtype, n);
}

static void add_as(const ech_sum *sum, ech_dtype dtype, char *to, char *own, char *parts,
                   int others, int index, int64_t n)
{
    if (n == 0) return;
    ech_tensor mine = ech_tensor_1d(own, dtype, n), all = ech_tensor_1d(to, dtype, n);
    ech_tensor theirs = ech_tensor_2d(parts, dtype, others, n);
    const ech_comm_queue *on = &sum->group->on;
    kernels_of(on, dtype)->add_parts(on->context, &mine, &theirs, index, &all);
}

void ech_add_parts(const ech_sum *sum, char *to, char *own, char *parts, int others, int index,
                   int64_t n)
{
    add_as(sum, sum->wire, to, own, parts, others, index, n);
}

void ech_add(const ech_sum *sum, char *to, char *from, int64_t n)
{
    ech_add_parts(sum, to, to, from, 1, 0, n);
}

void ech_add_in_order(const ech_sum *sum, char *to, char *own, char *parts, int64_t n)
{
    ech_add_parts(sum, to, own, parts, sum->group->size - 1, sum->group->index, n);
}

static char *destination(const ech_sum *sum, int64_t k)
{
    return sum->shard + (size_t)(k * sum->segment) * sum->item;
}

char *ech_sum_address(const ech_sum *sum, int64_t k)
{
    ech_lineup of = ech_group_lineup(sum->group);
    if (sum->dtype != sum->wire) return ech_sum_segment(sum, sum->group->index, k).x;
    if (sum->delivery == ECH_DELIVER_OVER) return destination(sum, k);
    return ech_sum_slot(sum, k, ech_sum_parts(&of));
}

void ech_sum_deliver(const ech_sum *sum, char *from, int64_t k)
{
    int64_t n = ech_sum_segment(sum, sum->group->index, k).n;
    char *to = destination(sum, k);
    if (n == 0 || sum->delivery == ECH_DELIVER_DROPPED) return;
    ech_widen(sum, from, n);
    if (sum->delivery == ECH_DELIVER_ADDED)
        add_as(sum, sum->dtype, to, to, from, 1, 0, n);
    else if (to != from)
        ech_group_copy(sum->group, to, from, (size_t)n * sum->item);
}

void ech_sum_deliver_all(const ech_sum *sum)
{
    for (int64_t k = 0; k < ech_sum_segments(sum); k++)
        ech_sum_deliver(sum, ech_sum_segment(sum, sum->group->index, k).x, k);
}

/* A member receives at most so many whole segments at the same time; segments are shorter where
 * there are more members, but not by more. */
enum { SHARES = 16 };

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
    bool has_library = backend->library_start || (backend->data && backend->data->library);
    return reduction != ECH_REDUCTION_LIBRARY || has_library;
}

int64_t ech_sum_scattered(int64_t n, const ech_lineup *of, int index)
{
    return ech_lineup_adds(of, index) ? n - ech_lineup_shard_count(of, n, index) : 0;
}

int64_t ech_sum_gathered(int64_t n, const ech_lineup *of, int index)
{
    return ech_sum_parts(of) * ech_lineup_shard_count(of, n, index);
}

int64_t ech_segment_elements(size_t item, const ech_lineup *of)
{
    int64_t whole = of->segment ? of->segment : (int64_t)ech_device_row_find("cpu")->segment;
    int64_t shares = of->size > SHARES ? of->size - 1 : SHARES;
    if (shares > SHARES * SHARES) shares = SHARES * SHARES;
    return SHARES * whole / shares / (int64_t)item;
}

int64_t ech_segment_count(int64_t count, int64_t at, int64_t segment)
{
    if (at >= count) return 0;
    return count - at < segment ? count - at : segment;
}

bool ech_reduction_takes(ech_reduction reduction, ech_dtype wire, bool narrowed)
{
    bool as_it_is = (wire == ECH_F32 || wire == ECH_F64) && !narrowed;
    return ech_dtype_converts(wire) && (as_it_is || table[reduction].row->narrows);
}

bool ech_reduction_has_halves(ech_reduction reduction)
{
    return table[reduction].row->part[ECH_REDUCTION_SCATTER].run != NULL;
}

size_t ech_reduction_part_scratch(ech_reduction reduction, ech_reduction_part part, ech_dtype wire,
                                  int64_t n, ech_lineup of)
{
    const ech_reduction_way *way = &table[reduction].row->part[part];
    size_t item = ech_dtype_bytes(wire);
    return of.size < 2 || n == 0 || !way->scratch ? 0 : (size_t)way->scratch(item, n, &of) * item;
}

int64_t ech_reduction_part_elements(ech_reduction reduction, ech_reduction_part part, int64_t n,
                                    ech_lineup of, int index)
{
    return of.size < 2 ? 0 : table[reduction].row->part[part].sent(n, &of, index);
}

size_t ech_reduction_scratch(ech_reduction reduction, ech_dtype wire, int64_t n, ech_lineup of)
{
    return ech_reduction_part_scratch(reduction, ECH_REDUCTION_WHOLE, wire, n, of);
}

int64_t ech_reduction_bytes(ech_reduction reduction, ech_dtype wire, int64_t n, ech_lineup of,
                            int index)
{
    return ech_reduction_part_elements(reduction, ECH_REDUCTION_WHOLE, n, of, index) *
           (int64_t)ech_dtype_bytes(wire);
}

ech_status ech_sum_make(ech_group *group, ech_comm_call call, const ech_tensor *x, ech_dtype wire,
                        void *scratch, ech_sum *out)
{
    if (!ech_dtype_is_real(x->dtype))
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s over group %s: %s cannot be summed; sum fp32, fp64, bf16 or fp16",
                 ech_comm_call_name(call), group->of->name, ech_dtype_name(x->dtype));
    ECH_ASSERT(ech_tensor_is_contiguous(x));
    ECH_ASSERT(wire == x->dtype || ech_dtype_bytes(wire) < ech_dtype_bytes(x->dtype));
    size_t item = ech_dtype_bytes(wire);
    ech_lineup of = ech_group_lineup(group);
    *out = (ech_sum){.group = group,
                     .x = x->data,
                     .scratch = scratch,
                     .n = ech_tensor_count(x),
                     .segment = ech_segment_elements(item, &of),
                     .item = ech_dtype_bytes(x->dtype),
                     .wire_item = item,
                     .dtype = x->dtype,
                     .wire = wire,
                     .scatters = group->free_set,
                     .gathers = !group->free_set};
    ech_group_begin(group, call);
    return ECH_OK;
}

ech_status ech_group_prepare(ech_group *group, ech_reduction reduction)
{
    const ech_reduction_row *row = table[reduction].row;
    return row->prepare && group->size > 1 ? row->prepare(group) : ECH_OK;
}

static ech_status check_supported(const ech_group *group, ech_reduction reduction,
                                  const ech_tensor *x, ech_dtype wire)
{
    if (!ech_reduction_supported(group->comm->opened, reduction))
        ECH_FAIL(
            ECH_EUNSUPPORTED,
            "parallel.reduction %s needs parallel.comm mpi or nccl, not %s; use direct or ring",
            ech_reduction_name(reduction), group->comm->opened->name);
    if (ech_dtype_is_real(x->dtype) && !ech_reduction_takes(reduction, wire, wire != x->dtype))
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "parallel.reduction %s sums fp32 and fp64, which travel as they are, not %s that "
                 "travels as %s; use direct",
                 ech_reduction_name(reduction), ech_dtype_name(x->dtype), ech_dtype_name(wire));
    return ECH_OK;
}

static ech_status check_halves(ech_reduction reduction)
{
    if (ech_reduction_has_halves(reduction)) return ECH_OK;
    ECH_FAIL(ECH_EUNSUPPORTED,
             "parallel.reduction %s does not sum by shards; use direct, ring, torus, hierarchical "
             "or library",
             ech_reduction_name(reduction));
}

static const ech_reduction_way *way_of(const ech_sum *sum)
{
    return &sum->row->part[sum->part];
}

static bool has_messages(const ech_sum *sum)
{
    return sum->group->size > 1 && sum->n > 0;
}

static ech_status begin(ech_sum *sum, const ech_reduction_row *row)
{
    sum->row = row;
    return has_messages(sum) && way_of(sum)->begin ? way_of(sum)->begin(sum) : ECH_OK;
}

/* The messages of a half are all in one set; the last messages of a whole sum are not in the set
 * with which it begins. */
static ech_status begin_half(ech_sum *sum, ech_reduction reduction)
{
    sum->gathers = sum->scatters;
    sum->group->free_set = !sum->scatters;
    return begin(sum, table[reduction].row);
}

ech_status ech_sum_begin(ech_group *group, ech_reduction reduction, const ech_tensor *x,
                         ech_dtype wire, void *scratch, ech_sum *out)
{
    ech_sum sum;
    ECH_TRY(check_supported(group, reduction, x, wire));
    ECH_TRY(ech_group_prepare(group, reduction));
    ECH_TRY(ech_sum_make(group, ECH_CALL_REDUCE, x, wire, scratch, &sum));
    ECH_TRY(begin(&sum, table[reduction].row));
    *out = sum;
    return ECH_OK;
}

ech_status ech_sum_begin_scatter(ech_group *group, ech_reduction reduction, const ech_tensor *x,
                                 ech_dtype wire, void *shard, ech_delivery delivery, void *scratch,
                                 ech_sum *out)
{
    ech_sum sum;
    ECH_TRY(check_halves(reduction));
    ECH_TRY(check_supported(group, reduction, x, wire));
    if (group->size == 1) wire = x->dtype; /* nothing is sent */
    ECH_TRY(ech_sum_make(group, ECH_CALL_SCATTER, x, wire, scratch, &sum));
    sum.part = ECH_REDUCTION_SCATTER;
    sum.shard = shard;
    sum.delivery = delivery;
    ECH_TRY(begin_half(&sum, reduction));
    *out = sum;
    return ECH_OK;
}

/* Nothing is added, so a shard is one message. */
ech_status ech_sum_begin_gather(ech_group *group, ech_reduction reduction, const ech_tensor *x,
                                void *shard, ech_sum *out)
{
    size_t item = ech_dtype_bytes(x->dtype);
    ECH_TRY(check_halves(reduction));
    ECH_ASSERT(ech_tensor_is_contiguous(x));
    ech_sum sum = {.group = group,
                   .x = x->data,
                   .n = ech_tensor_count(x),
                   .segment = ech_tensor_count(x),
                   .item = item,
                   .dtype = x->dtype,
                   .wire_item = item,
                   .wire = x->dtype,
                   .part = ECH_REDUCTION_GATHER,
                   .shard = shard,
                   .scatters = group->free_set};
    ech_group_begin(group, ECH_CALL_GATHER_SHARDS);
    ECH_TRY(begin_half(&sum, reduction));
    *out = sum;
    return ECH_OK;
}

/* The work without messages: the shard is copied to its place in x; a single member's sum is its
 * own data. */
static void run_alone(const ech_sum *sum)
{
    if (sum->part == ECH_REDUCTION_GATHER) {
        ech_segment own = ech_sum_segment(sum, sum->group->index, 0);
        if (own.n > 0 && own.x != sum->shard)
            ech_group_copy(sum->group, own.x, sum->shard, own.bytes);
    }
    if (sum->part == ECH_REDUCTION_SCATTER && sum->group->size == 1) ech_sum_deliver_all(sum);
}

ech_status ech_sum_run(const ech_sum *sum)
{
    if (sum->n == 0) return ECH_OK;
    run_alone(sum);
    return has_messages(sum) ? way_of(sum)->run(sum) : ECH_OK;
}

ech_status ech_sum_end(const ech_sum *sum)
{
    return has_messages(sum) && way_of(sum)->end ? way_of(sum)->end(sum) : ECH_OK;
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
