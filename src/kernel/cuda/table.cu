/* SPDX-License-Identifier: Apache-2.0
 *
 * Token embedding, and learned position embedding.
 */
#include "kernel/cuda/reduce.cuh"

/* ---- forward: y's row r is x's, if there is one, and the table's row of r ---- */

namespace
{
/* Which row of the table a row belongs to: that of its id or, without ids, of its position. -1: none. */
struct table_rows {
    const int32_t *ids;
    int64_t first_id, size; /* of the table */
    ech_rows rows;
    ech_maybe starts;

    __device__ int64_t operator()(int64_t r) const
    {
        if (!ids) return ech_row_in_document(&rows, starts.get(), r);
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

static __global__ void look_up(table_rows place, ech_numbers x, ech_numbers table, ech_numbers y,
                               int64_t C, int64_t parts, int64_t n)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    place.rows = ech_rows_now(&place.rows);
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        int64_t r = i / parts, c = i % parts * ECH_PART, row = place(r);
        int count = ech_part_count(C - c);
        wide sum[ECH_PART] = {}, more[ECH_PART];
        if (row >= 0) table.load(row * C + c, count, sum);
        if (x.is_here()) {
            x.load(r * C + c, count, more);
            for (int k = 0; k < ECH_PART; k++) sum[k] += more[k];
        }
        y.store(r * C + c, count, sum);
    }
}

static void forward(const ech_kernel_context *context, const table_rows &place, const ech_tensor *x,
                    const ech_tensor *table, const ech_tensor *y)
{
    int64_t C = y->shape[1], parts = ech_ceil(C, ECH_PART), n = y->shape[0] * parts;
    ech_launch(context, look_up, ech_blocks(n, ECH_BLOCK), ECH_BLOCK, 0, place, ech_numbers(x),
               ech_numbers(table), ech_numbers(y), C, parts, n);
}

void ECH_CUDA(embedding_forward)(ech_kernel_context *context, const ech_tensor *table,
                                 const ech_tensor *ids, int64_t first_id, const ech_tensor *y)
{
    ech_cuda_check(ECH_OP_embedding_forward, ECH_REAL, table, ids, y);
    forward(context, rows_of_ids(ids, first_id, table), NULL, table, y);
}

void ECH_CUDA(position_forward)(ech_kernel_context *context, const ech_tensor *x,
                                const ech_tensor *table, const ech_rows *rows,
                                const ech_tensor *starts, const ech_tensor *y)
{
    ech_cuda_check(ECH_OP_position_forward, ECH_REAL, x, table, y);
    ech_rows_check(__FILE__, __LINE__, rows, NULL, x->shape[0]);
    forward(context, rows_of_positions(rows, starts, table), x, table, y);
}

/* ---- the gradient by ids: rows are sorted by id, and keep their order; then a block adds those of one id ---- */

enum { SORT_THREADS = 512, BITS = 4, DIGITS = 1 << BITS };

/* Keys and rows, each in two places, from one to the other with each digit. */
struct sorted {
    int32_t *key[2], *row[2];
};

/* count becomes the sum of all before it, by one thread's DIGITS after the other. */
static __device__ void add_before(int32_t *count, int32_t *room)
{
    int32_t *own = count + threadIdx.x * DIGITS, sum = 0;
    for (int i = 0; i < DIGITS; i++) sum += own[i];
    room[threadIdx.x] = sum;
    for (unsigned distance = 1; distance < SORT_THREADS; distance *= 2) {
        __syncthreads();
        int32_t before = threadIdx.x >= distance ? room[threadIdx.x - distance] : 0;
        __syncthreads();
        room[threadIdx.x] += before;
    }
    sum = room[threadIdx.x] - sum;
    for (int i = 0; i < DIGITS; i++) {
        int32_t next = sum + own[i];
        own[i] = sum;
        sum = next;
    }
}

/* A radix sort by one block, lowest digit first. Each thread has a run of rows, counts their digits, and knows then where
 * each of its rows goes: behind those of smaller digits, and of the same in runs before. */
static __global__ void sort_rows(table_rows place, int64_t R, int passes, sorted at)
{
    ECH_SHARED(int32_t, count, DIGITS * SORT_THREADS);
    ECH_SHARED(int32_t, room, SORT_THREADS);
    int64_t first = R * threadIdx.x / SORT_THREADS, end = R * (threadIdx.x + 1) / SORT_THREADS;
    for (int64_t r = first; r < end; r++) {
        int64_t row = place(r);
        at.key[0][r] = (int32_t)(row < 0 ? place.size : row);
        at.row[0][r] = (int32_t)r;
    }
    for (int pass = 0; pass < passes; pass++) {
        bool odd = pass % 2;
        const int32_t *key = odd ? at.key[1] : at.key[0], *row = odd ? at.row[1] : at.row[0];
        int32_t *to_key = odd ? at.key[0] : at.key[1], *to_row = odd ? at.row[0] : at.row[1];
        for (int d = 0; d < DIGITS; d++) count[d * SORT_THREADS + threadIdx.x] = 0;
        for (int64_t r = first; r < end; r++)
            count[(key[r] >> pass * BITS) % DIGITS * SORT_THREADS + threadIdx.x]++;
        __syncthreads();
        add_before(count, room);
        __syncthreads();
        for (int64_t r = first; r < end; r++) {
            int32_t to = count[(key[r] >> pass * BITS) % DIGITS * SORT_THREADS + threadIdx.x]++;
            to_key[to] = key[r];
            to_row[to] = row[r];
        }
        __syncthreads();
    }
}

static __global__ void add_sorted(const int32_t *key, const int32_t *row, int64_t R, int64_t size,
                                  ech_numbers dy, bool accumulate, ech_numbers dtable, int64_t C)
{
    int64_t first = blockIdx.x, end = first + 1, id = key[first];
    if (id == size || (first > 0 && key[first - 1] == id)) return;
    while (end < R && key[end] == id) end++;
    for (int64_t c = (int64_t)threadIdx.x * ECH_PART; c < C; c += blockDim.x * ECH_PART) {
        int n = ech_part_count(C - c);
        double sum[ECH_PART] = {};
        wide part[ECH_PART];
        if (accumulate) {
            dtable.load(id * C + c, n, part);
            for (int k = 0; k < ECH_PART; k++) sum[k] = part[k];
        }
#pragma unroll 4
        for (int64_t i = first; i < end; i++) {
            dy.load(row[i] * C + c, n, part);
            for (int k = 0; k < ECH_PART; k++) sum[k] += part[k];
        }
        for (int k = 0; k < ECH_PART; k++) part[k] = (wide)sum[k];
        dtable.store(id * C + c, n, part);
    }
}

void ECH_CUDA(embedding_backward)(ech_kernel_context *context, const ech_tensor *dy,
                                  const ech_tensor *ids, int64_t first_id, bool accumulate,
                                  const ech_tensor *dtable)
{
    ech_cuda_check(ECH_OP_embedding_backward, ECH_REAL, dy, ids, dtable);
    int64_t R = dy->shape[0], V = dtable->shape[0], C = dy->shape[1];
    size_t bytes = ech_cuda_align((size_t)R * sizeof(int32_t));
    ECH_ASSERT(R <= INT32_MAX && V < INT32_MAX);
    char *scratch = static_cast<char *>(ech_scratch(context, 4 * bytes));
    sorted at;
    int passes = 0;
    for (int i = 0; i < 2; i++) {
        at.key[i] = reinterpret_cast<int32_t *>(scratch + 2 * (size_t)i * bytes);
        at.row[i] = reinterpret_cast<int32_t *>(scratch + (2 * (size_t)i + 1) * bytes);
    }
    while (V >> passes * BITS > 0) passes++;
    if (!accumulate) ECH_CUDA(fill)(context, dtable, 0);
    if (R == 0) return;
    ech_launch(context, sort_rows, dim3(1), SORT_THREADS, 0, rows_of_ids(ids, first_id, dtable), R,
               passes, at);
    ech_launch(context, add_sorted, dim3((unsigned)R), ech_row_threads(C), 0,
               (const int32_t *)at.key[passes % 2], (const int32_t *)at.row[passes % 2], R, V,
               ech_numbers(dy), accumulate, ech_numbers(dtable), C);
}

/* ---- the gradient by positions: a block for each of the table's rows looks for those that belong to it ---- */

/* Which rows of `first` and on belong to `wanted`: a bit for each of the block's threads. */
static __device__ void find_rows(const table_rows &place, int64_t R, int64_t first, int64_t wanted,
                                 unsigned *hits)
{
    int64_t r = first + threadIdx.x;
    unsigned bits = __ballot_sync(~0u, r < R && place(r) == wanted);
    __syncthreads();
    if (threadIdx.x % ECH_WARP == 0) hits[threadIdx.x / ECH_WARP] = bits;
    __syncthreads();
}

static __global__ void add_found(table_rows place, int64_t R, ech_numbers dy, bool accumulate,
                                 ech_numbers dtable, int64_t C)
{
    ECH_SHARED(unsigned, hits, ECH_BLOCK / ECH_WARP);
    int64_t p = blockIdx.x, c = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * ECH_PART;
    int n = ech_part_count(C - c);
    double sum[ECH_PART] = {};
    wide part[ECH_PART];
    place.rows = ech_rows_now(&place.rows);
    if (accumulate && c < C) {
        dtable.load(p * C + c, n, part);
        for (int k = 0; k < ECH_PART; k++) sum[k] = part[k];
    }
    for (int64_t first = 0; first < R; first += blockDim.x) {
        find_rows(place, R, first, p, hits);
        for (unsigned w = 0; c < C && w < blockDim.x / ECH_WARP; w++)
            for (unsigned bits = hits[w]; bits; bits &= bits - 1) {
                int64_t r = first + w * ECH_WARP + (__ffs((int)bits) - 1);
                dy.load(r * C + c, n, part);
                for (int k = 0; k < ECH_PART; k++) sum[k] += part[k];
            }
    }
    if (c >= C) return;
    for (int k = 0; k < ECH_PART; k++) part[k] = (wide)sum[k];
    dtable.store(p * C + c, n, part);
}

void ECH_CUDA(position_backward)(ech_kernel_context *context, const ech_tensor *dy,
                                 const ech_rows *rows, const ech_tensor *starts, bool accumulate,
                                 const ech_tensor *dtable)
{
    ech_cuda_check(ECH_OP_position_backward, ECH_REAL, dy, dtable);
    ech_rows_check(__FILE__, __LINE__, rows, NULL, dy->shape[0]);
    int64_t C = dy->shape[1], P = dtable->shape[0];
    int threads = ech_row_threads(C);
    dim3 grid((unsigned)P, (unsigned)ech_ceil(C, (int64_t)threads * ECH_PART));
    ech_launch(context, add_found, grid, threads, 0, rows_of_positions(rows, starts, dtable),
               dy->shape[0], ech_numbers(dy), accumulate, ech_numbers(dtable), C);
}
