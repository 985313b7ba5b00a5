/* SPDX-License-Identifier: Apache-2.0
 *
 * Token embedding, and learned position embedding.
 */
#include "kernel/cuda/reduce.cuh"

/* ---- forward: row r of y is row r of x, if there is one, plus the table's row for r ---- */

namespace
{
/* The table's row for a row: by its id or, without ids, by its position. -1: none. */
struct table_rows {
    const int32_t *ids;
    int64_t first_id, size; /* of the table */
    ech_rows rows;
    ech_maybe starts;

    __device__ int64_t operator()(int64_t r) const
    {
        if (!ids) return ech_row_place(ech_rows_now(&rows), r).in_document(starts.get());
        int64_t id = ids[r] - first_id;
        return id >= 0 && id < size ? id : -1;
    }
};
} // namespace

static table_rows rows_of_ids(const ech_tensor *ids, int64_t first_id, const ech_tensor *table)
{
    return {static_cast<const int32_t *>(ids->data), first_id, table->shape[0], {}, NULL};
}

static table_rows rows_of_positions(const ech_rows *rows, const ech_tensor *starts,
                                    const ech_tensor *table)
{
    return {NULL, 0, table->shape[0], *rows, starts};
}

static void forward(const ech_kernel_context *context, const table_rows &place, ech_numbers x,
                    ech_numbers table, const ech_tensor *y)
{
    const ech_numbers to = y;
    const int64_t C = y->shape[1];
    ech_each_of_rows(context, y->shape[0], C, [=] __device__(int64_t r, int64_t c, int n) {
        int64_t row = place(r);
        wide sum[ECH_PART] = {}, more[ECH_PART];
        if (row >= 0) table.load(row * C + c, n, sum);
        if (x.is_here()) {
            x.load(r * C + c, n, more);
            for (int k = 0; k < ECH_PART; k++) sum[k] += more[k];
        }
        to.store(r * C + c, n, sum);
    });
}

void ECH_CUDA(embedding_forward)(ech_kernel_context *context, const ech_tensor *table,
                                 const ech_tensor *ids, int64_t first_id, const ech_tensor *y)
{
    ech_cuda_check(ECH_OP_embedding_forward, ECH_REAL, table, ids, y);
    const ech_tensor *none = NULL;
    forward(context, rows_of_ids(ids, first_id, table), none, table, y);
}

void ECH_CUDA(position_forward)(ech_kernel_context *context, const ech_tensor *x,
                                const ech_tensor *table, const ech_rows *rows,
                                const ech_tensor *starts, const ech_tensor *y)
{
    ech_cuda_check(ECH_OP_position_forward, ECH_REAL, x, table, y);
    ech_rows_check(__FILE__, __LINE__, rows, NULL, x->shape[0]);
    forward(context, rows_of_positions(rows, starts, table), x, table, y);
}

/* ---- the gradient: rows of dy are sorted by the table's row, their key, in a stable order; then
 * the rows of each key are added. A radix sort, lowest digit first: blocks count digits, and then
 * know where each of their rows goes. ---- */

enum { DIGITS = ECH_CUDA_DIGITS, BITS = 8, SORT_WARPS = DIGITS / ECH_WARP };

namespace
{
/* A pass moves keys and rows; the first one creates them. */
struct sort_pass {
    table_rows place;
    const int32_t *key, *row; /* NULL in the first */
    int32_t *to_key, *to_row;
    int64_t R;
    int shift;

    __device__ int32_t key_of(int64_t i) const
    {
        if (key) return key[i];
        int64_t row_of_table = place(i);
        return (int32_t)(row_of_table < 0 ? place.size : row_of_table);
    }
};
} // namespace

/* A warp counts its run's digits, 32 rows at a time; rows with equal digits find each other by its
 * bits. `moves`: each goes where the count says. */
static __device__ void go_through(const sort_pass &pass, bool moves, int32_t *count)
{
    int64_t warps = (int64_t)gridDim.x * SORT_WARPS;
    int64_t warp = (int64_t)blockIdx.x * SORT_WARPS + threadIdx.x / ECH_WARP;
    unsigned lane = threadIdx.x % ECH_WARP;
    int64_t end = pass.R * (warp + 1) / warps;
    for (int64_t first = pass.R * warp / warps; first < end; first += ECH_WARP) {
        int64_t i = first + lane;
        bool in = i < end;
        int32_t key = in ? pass.key_of(i) : 0, digit = (key >> pass.shift) % DIGITS;
        unsigned alike = __ballot_sync(~0u, in);
        for (int b = 0; b < BITS; b++) {
            bool has = digit >> b & 1;
            unsigned all = __ballot_sync(~0u, has);
            alike &= has ? all : ~all;
        }
        unsigned before = alike & ((1u << lane) - 1);
        if (in && moves) {
            int32_t to = count[digit] + __popc(before);
            pass.to_key[to] = key;
            pass.to_row[to] = pass.row ? pass.row[i] : (int32_t)i;
        }
        __syncwarp();
        if (in && before == 0) count[digit] += __popc(alike);
        __syncwarp();
    }
}

/* count (SORT_WARPS, DIGITS) */
static __device__ void count_block(const sort_pass &pass, int32_t *count)
{
    for (int w = 0; w < SORT_WARPS; w++) count[w * DIGITS + threadIdx.x] = 0;
    __syncthreads();
    go_through(pass, false, count + threadIdx.x / ECH_WARP * DIGITS);
    __syncthreads();
}

/* counts (blocks, DIGITS) */
static __global__ void count_digits(sort_pass pass, int32_t *counts)
{
    ECH_SHARED(int32_t, count, SORT_WARPS * DIGITS);
    int32_t sum = 0;
    count_block(pass, count);
    for (int w = 0; w < SORT_WARPS; w++) sum += count[w * DIGITS + threadIdx.x];
    counts[(int64_t)blockIdx.x * DIGITS + threadIdx.x] = sum;
}

/* The sum over the block's threads before this one. room: one number per thread. */
static __device__ int32_t sum_before(int32_t n, int32_t *room)
{
    int32_t sum = n;
    for (unsigned distance = 1; distance < blockDim.x; distance *= 2) {
        __syncthreads();
        room[threadIdx.x] = sum;
        __syncthreads();
        if (threadIdx.x >= distance) sum += room[threadIdx.x - distance];
    }
    return sum - n;
}

/* A row goes after rows of smaller digits, and after rows of the same digit in earlier warps. */
static __global__ void move_rows(sort_pass pass, const int32_t *counts)
{
    ECH_SHARED(int32_t, count, SORT_WARPS * DIGITS);
    ECH_SHARED(int32_t, room, DIGITS);
    int32_t all = 0, before = 0;
    count_block(pass, count);
    for (unsigned b = 0; b < gridDim.x; b++) {
        int32_t n = counts[(int64_t)b * DIGITS + threadIdx.x];
        all += n;
        if (b < blockIdx.x) before += n;
    }
    int32_t to = sum_before(all, room) + before;
    for (int w = 0; w < SORT_WARPS; w++) {
        int32_t n = count[w * DIGITS + threadIdx.x];
        count[w * DIGITS + threadIdx.x] = to;
        to += n;
    }
    __syncthreads();
    go_through(pass, true, count + threadIdx.x / ECH_WARP * DIGITS);
}

/* ---- the sums ---- */

static __device__ inline double number(half16 x)
{
    return ech_widen(x);
}

template <typename T> static __device__ inline double number(T x)
{
    return x;
}

/* sum += n columns of each of `rows` rows of x, in order; the k-th is row(k). Several loads are in
 * flight. */
template <typename T, typename F>
static __device__ inline void add_rows(const T *x, int64_t stride, int n, int64_t rows, F row,
                                       double *sum)
{
    enum { CHUNKS = sizeof(ech_part<T>) / sizeof(ech_chunk), AT_ONCE = 8 / CHUNKS };
    bool whole = n == ECH_PART && ech_is_aligned(x) && stride * sizeof(T) % sizeof(ech_chunk) == 0;
    for (int64_t k = 0; whole && k < rows; k += AT_ONCE) {
        ech_part<T> part[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
#pragma unroll
            for (int i = 0; i < CHUNKS && k + j < rows; i++)
                part[j].chunk[i] = reinterpret_cast<const ech_chunk *>(x + row(k + j) * stride)[i];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
#pragma unroll
            for (int i = 0; i < ECH_PART && k + j < rows; i++) sum[i] += number(part[j].value[i]);
    }
    for (int64_t k = 0; !whole && k < rows; k++)
#pragma unroll
        for (int i = 0; i < ECH_PART; i++)
            if (i < n) sum[i] += number(x[row(k) * stride + i]);
}

/* The first of sorted places [from, to) whose key is at least `least`. The warp's lanes search
 * together. */
static __device__ int64_t find(const int32_t *key, int64_t from, int64_t to, int64_t least)
{
    while (from < to) {
        int64_t step = (to - from + ECH_WARP - 1) / ECH_WARP;
        int64_t last = from + (threadIdx.x % ECH_WARP + 1) * step - 1;
        from += __popc(__ballot_sync(~0u, last < to && key[last] < least)) * step;
        to = from + step - 1 < to ? from + step - 1 : to;
    }
    return from;
}

namespace
{
/* Sums in pieces of PIECE rows of a key, so that a key with many rows does not depend on a single
 * block. The rows of a piece depend only on the key's rows, not on other keys, nor on which of them
 * are here. */
struct key_sums {
    const int32_t *key, *row;
    int64_t R, size, C;
    ech_numbers dy;
    double *pieces;

    /* The end of the key's places from `first` on, at most `most` of them. */
    __device__ int64_t end(int64_t first, int64_t most) const
    {
        return find(key, first, first + most < R ? first + most : R, (int64_t)key[first] + 1);
    }
    /* Adds the rows of places [first, end). */
    __device__ void add(int64_t c, int n, int64_t first, int64_t end, double *sum) const
    {
        auto row_at = [&](int64_t k) { return row[first + k]; };
        if (dy.has_halves())
            add_rows(static_cast<const half16 *>(dy.data) + c, C, n, end - first, row_at, sum);
        else
            add_rows(static_cast<const wide *>(dy.data) + c, C, n, end - first, row_at, sum);
    }
};
} // namespace

enum { PIECE = ECH_CUDA_PIECE, PLACES = 8 };

/* A block for PIECE places, in which at most one piece begins that is not its key's first:
 * pieces[block] = its sum. */
static __global__ void add_pieces(key_sums a)
{
    int64_t from = ((int64_t)blockIdx.x + 1) * PIECE, key = a.key[from];
    if (key == a.size) return;
    int64_t first = find(a.key, 0, from, key);
    int64_t begin = first + (from - first + PIECE - 1) / PIECE * PIECE;
    if (begin == first || begin >= a.R || a.key[begin] != key) return;
    int64_t end = a.end(begin, PIECE);
    for (int64_t c = (int64_t)threadIdx.x * ECH_PART; c < a.C; c += blockDim.x * ECH_PART) {
        int n = ech_part_count(a.C - c);
        double sum[ECH_PART] = {};
        a.add(c, n, begin, end, sum);
#pragma unroll
        for (int k = 0; k < ECH_PART; k++)
            if (k < n) a.pieces[blockIdx.x * a.C + c + k] = sum[k];
    }
}

static __device__ void add_key(const key_sums &a, int64_t first, bool accumulate,
                               const ech_numbers &dtable)
{
    int64_t key = a.key[first], end = a.end(first, PIECE), more = 0;
    if (end == first + PIECE) more = (a.end(end - 1, a.R) - end + PIECE - 1) / PIECE;
    for (int64_t c = (int64_t)threadIdx.x * ECH_PART; c < a.C; c += blockDim.x * ECH_PART) {
        int n = ech_part_count(a.C - c);
        double sum[ECH_PART] = {};
        wide part[ECH_PART] = {};
        if (accumulate) dtable.load(key * a.C + c, n, part);
        for (int k = 0; k < ECH_PART; k++) sum[k] = part[k];
        a.add(c, n, first, end, sum);
        add_rows(
            a.pieces + c, a.C, n, more, [=](int64_t k) { return first / PIECE + k; }, sum);
        for (int k = 0; k < ECH_PART; k++) part[k] = (wide)sum[k];
        dtable.store(key * a.C + c, n, part);
    }
}

/* A block for PLACES places adds the rows of the keys that begin there. */
static __global__ void add_keys(key_sums a, bool accumulate, ech_numbers dtable)
{
    unsigned lane = threadIdx.x % ECH_WARP;
    int64_t first = (int64_t)blockIdx.x * PLACES, i = first + lane;
    bool begins = lane < PLACES && i < a.R && a.key[i] != a.size;
    begins = begins && (i == 0 || a.key[i - 1] != a.key[i]);
    for (unsigned bits = __ballot_sync(~0u, begins); bits; bits &= bits - 1)
        add_key(a, first + __ffs((int)bits) - 1, accumulate, dtable);
}

static void backward(ech_kernel_context *context, const ech_tensor *dy, const table_rows &place,
                     bool accumulate, const ech_tensor *dtable)
{
    int64_t R = dy->shape[0], C = dy->shape[1], pieces = ech_cuda_pieces(R);
    ech_cuda_table_scratch at = ech_cuda_table_scratch_of(R, C);
    char *scratch = static_cast<char *>(ech_scratch(context, at.bytes));
    int32_t *counts = reinterpret_cast<int32_t *>(scratch + at.counts), *key[2], *row[2];
    dim3 blocks((unsigned)ech_cuda_sort_blocks(R));
    sort_pass pass = {place, NULL, NULL, NULL, NULL, R, 0};
    ECH_ASSERT(R <= INT32_MAX && place.size < INT32_MAX);
    for (int i = 0; i < 2; i++) {
        key[i] = reinterpret_cast<int32_t *>(scratch + 2 * (size_t)i * at.each);
        row[i] = reinterpret_cast<int32_t *>(scratch + (2 * (size_t)i + 1) * at.each);
    }
    if (!accumulate) ECH_CUDA(fill)(context, dtable, 0);
    if (R == 0) return;
    for (int to = 0; pass.shift == 0 || place.size >> pass.shift > 0;
         pass.shift += BITS, to = !to) {
        pass.to_key = key[to];
        pass.to_row = row[to];
        ech_launch(context, count_digits, blocks, DIGITS, 0, pass, counts);
        ech_launch(context, move_rows, blocks, DIGITS, 0, pass, (const int32_t *)counts);
        pass.key = pass.to_key;
        pass.row = pass.to_row;
    }
    const key_sums sums = {
        pass.key, pass.row, R, place.size, C, dy, reinterpret_cast<double *>(scratch + at.pieces)};
    ech_launch(context, add_pieces, dim3((unsigned)pieces), ech_row_threads(C), 0, sums);
    ech_launch(context, add_keys, dim3((unsigned)ech_ceil(R, PLACES)), ech_row_threads(C), 0, sums,
               accumulate, ech_numbers(dtable));
}

void ECH_CUDA(embedding_backward)(ech_kernel_context *context, const ech_tensor *dy,
                                  const ech_tensor *ids, int64_t first_id, bool accumulate,
                                  const ech_tensor *dtable)
{
    ech_cuda_check(ECH_OP_embedding_backward, ECH_REAL, dy, ids, dtable);
    backward(context, dy, rows_of_ids(ids, first_id, dtable), accumulate, dtable);
}

void ECH_CUDA(position_backward)(ech_kernel_context *context, const ech_tensor *dy,
                                 const ech_rows *rows, const ech_tensor *starts, bool accumulate,
                                 const ech_tensor *dtable)
{
    ech_cuda_check(ECH_OP_position_backward, ECH_REAL, dy, dtable);
    ech_rows_check(__FILE__, __LINE__, rows, NULL, dy->shape[0]);
    backward(context, dy, rows_of_positions(rows, starts, dtable), accumulate, dtable);
}
