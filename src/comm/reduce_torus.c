/* SPDX-License-Identifier: Apache-2.0
 *
 * The torus reduction: members are arranged in rows of neighbours and in columns. A reduce-scatter
 * around each row gives each member the row's sum of its column's shards, one around each column
 * gives it the sum of its own shard; then they are gathered around columns and rows. With X columns
 * and Y rows of S bytes each member sends 2 (X - 1) / X S along rows and 2 (Y - 1) / (X Y) S along
 * columns: together as much as the ring, in X + Y - 2 rounds each way instead of X Y - 1.
 *
 * Source: Mikami et al. 2018, "Massively distributed SGD: ImageNet/ResNet-50 training in a flash",
 * arXiv:1811.05233; the interconnects of TPUs are such tori.
 */
#include "comm/reduce.h"

/* This member's torus. Two, three, or another prime number of members are one row. */
typedef struct torus {
    int columns, rows;
    int row, column; /* this member's */
} torus;

static torus torus_of(int N, int index)
{
    int columns = ech_torus_columns(N);
    return (torus){columns, N / columns, index / columns, index % columns};
}

static torus of_group(const ech_sum *sum)
{
    return torus_of(sum->group->size, sum->group->index);
}

static ech_range shard_of(const ech_sum *sum, int member)
{
    int N = sum->group->size;
    return (ech_range){ech_collective_shard_first(sum->n, N, member),
                       ech_collective_shard_count(sum->n, N, member)};
}

/* ---- rows: a chunk is the shards of a column, one run each ---- */

static int member_of_row(const ech_sum *sum, int i)
{
    torus t = of_group(sum);
    return t.row * t.columns + i;
}

static ech_range run_of_row(const ech_sum *sum, int i, int run)
{
    return shard_of(sum, run * of_group(sum).columns + i);
}

static ech_ring row_of(const ech_sum *sum)
{
    torus t = of_group(sum);
    return (ech_ring){t.columns, t.column, t.rows, shard_of(sum, 0).n, member_of_row, run_of_row};
}

/* ---- columns: a chunk is a shard ---- */

static int member_of_column(const ech_sum *sum, int i)
{
    torus t = of_group(sum);
    return i * t.columns + t.column;
}

static ech_range run_of_column(const ech_sum *sum, int i, int run)
{
    (void)run; /* the only one */
    return shard_of(sum, member_of_column(sum, i));
}

static ech_ring column_of(const ech_sum *sum)
{
    torus t = of_group(sum);
    return (ech_ring){t.rows, t.row, 1, shard_of(sum, 0).n, member_of_column, run_of_column};
}

/* ---- the whole and its halves ---- */

static int64_t scratch(size_t item, int64_t n, const ech_lineup *of)
{
    return ech_ring_scratch(item, ech_collective_shard_count(n, of->size, 0),
                            torus_of(of->size, 0).rows, of);
}

/* The shards of a column; the first n mod N have one element more. */
static int64_t count_column(int64_t n, const ech_lineup *of, int column)
{
    torus t = torus_of(of->size, 0);
    int64_t longer = n % of->size - column;
    return n / of->size * t.rows + (longer > 0 ? (longer + t.columns - 1) / t.columns : 0);
}

/* All but the next member's, along the column and then along the row. */
static int64_t gathered(int64_t n, const ech_lineup *of, int index)
{
    torus t = torus_of(of->size, index);
    int below = (t.row + 1) % t.rows * t.columns + t.column;
    return count_column(n, of, t.column) - ech_collective_shard_count(n, of->size, below) + n -
           count_column(n, of, (t.column + 1) % t.columns);
}

static int64_t sent(int64_t n, const ech_lineup *of, int index)
{
    return ech_sum_scattered(n, of, index) + gathered(n, of, index);
}

static ech_status add_all(const ech_sum *sum)
{
    ech_ring row = row_of(sum), column = column_of(sum);
    ECH_TRY(ech_ring_add(sum, &row));
    return ech_ring_add(sum, &column);
}

static ech_status gather(const ech_sum *sum)
{
    ech_ring row = row_of(sum), column = column_of(sum);
    ECH_TRY(ech_ring_gather(sum, &column));
    return ech_ring_gather(sum, &row);
}

static ech_status run(const ech_sum *sum)
{
    ECH_TRY(add_all(sum));
    return gather(sum);
}

static ech_status scatter(const ech_sum *sum)
{
    ECH_TRY(add_all(sum));
    ech_sum_deliver_all(sum);
    return ECH_OK;
}

const ech_reduction_row ech_reduce_TORUS = {
    .part = {
        [ECH_REDUCTION_WHOLE] = {.scratch = scratch, .sent = sent, .run = run},
        [ECH_REDUCTION_SCATTER] = {.scratch = scratch, .sent = ech_sum_scattered, .run = scatter},
        [ECH_REDUCTION_GATHER] = {.sent = gathered, .run = gather}}};
