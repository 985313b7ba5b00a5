/* SPDX-License-Identifier: Apache-2.0
 *
 * LayerNorm; and RMSNorm, whose mean, bias and dbias are absent here. A row is in registers when
 * its sums are computed, and read once. One kernel computes the gradients of x, gain and bias, and
 * a small one adds its blocks' sums for gain and bias.
 */
#include "kernel/cuda/reduce.cuh"

/* ---- forward ---- */

/* Parts of a row that a thread keeps in registers; of longer rows it reads the other parts
 * again. */
enum { KEPT = 4, MOST_WARPS = 16, ROWS = 4 /* of a block, if a warp has one */ };

namespace
{
struct forward_call {
    ech_numbers x, squares, gain, bias, y, mean, rstd; /* squares: of rows that are parts */
    int64_t R, C;
    double eps, share; /* 1 / C */
    int warps;         /* of a row */
    wide offset;       /* added to gain */
};

/* A thread's position in a row: the row's first element, the thread's first part, and the distance
 * to the next. */
struct row_parts {
    const forward_call &at;
    int64_t row, first, step;
    wide kept[KEPT][ECH_PART];

    __device__ row_parts(const forward_call &at_, int64_t r, int thread)
        : at(at_), row(r * at_.C), first((int64_t)thread * ECH_PART),
          step((int64_t)at_.warps * ECH_WARP * ECH_PART)
    {
        ech_fetched part[KEPT];
#pragma unroll
        for (int p = 0; p < KEPT; p++)
            if (first + p * step < at.C) at.x.fetch(row + first + p * step, count(p), &part[p]);
#pragma unroll
        for (int p = 0; p < KEPT; p++)
            if (first + p * step < at.C) at.x.widen(part[p], kept[p]);
    }
    __device__ int count(int64_t p) const
    {
        return ech_part_count(at.C - first - p * step);
    }
    /* f(first element, count, numbers) */
    template <typename F> __device__ void each(F f)
    {
#pragma unroll
        for (int p = 0; p < KEPT; p++)
            if (first + p * step < at.C) f(first + p * step, count(p), kept[p]);
        for (int64_t p = KEPT; first + p * step < at.C; p++) {
            wide x[ECH_PART];
            at.x.load(row + first + p * step, count(p), x);
            f(first + p * step, count(p), x);
        }
    }
};
} // namespace

/* A sum of numbers of a row over its warps, which are all warps of the block if there are
 * several. */
static __device__ double row_sum(int warps, double sum, double *room)
{
    return warps > 1 ? ech_block_fold(ech_plus(), sum, room) : ech_warp_fold(ech_plus(), sum);
}

static __global__ void __launch_bounds__(MOST_WARPS *ECH_WARP) forward_rows(forward_call at)
{
    ECH_SHARED(double, room, MOST_WARPS);
    int threads = at.warps * ECH_WARP, thread = (int)threadIdx.x % threads;
    int64_t r = (int64_t)blockIdx.x * (blockDim.x / threads) + threadIdx.x / threads;
    if (r >= at.R) return;
    row_parts parts(at, r, thread);
    double sum = 0, squares = 0;
    if (at.mean.is_here())
        parts.each([&](int64_t, int, const wide *x) {
            for (int k = 0; k < ECH_PART; k++) sum += x[k];
        });
    wide mean = at.mean.is_here() ? (wide)(row_sum(at.warps, sum, room) * at.share) : 0;
    if (at.squares.is_here()) {
        squares = at.squares.get(r);
    } else {
        parts.each([&](int64_t, int n, const wide *x) {
            wide part = 0;
            for (int k = 0; k < ECH_PART; k++)
                if (k < n) part += (x[k] - mean) * (x[k] - mean);
            squares += part;
        });
        squares = row_sum(at.warps, squares, room) * at.share;
    }
    wide rstd = 1 / sqrt((wide)(squares + at.eps));
    parts.each([&](int64_t c, int n, wide *x) {
        wide gain[ECH_PART], bias[ECH_PART] = {};
        at.gain.load(c, n, gain);
        if (at.bias.is_here()) at.bias.load(c, n, bias);
        for (int k = 0; k < ECH_PART; k++)
            x[k] = (x[k] - mean) * rstd * (gain[k] + at.offset) + bias[k];
        at.y.store(parts.row + c, n, x);
    });
    if (thread != 0) return;
    if (at.mean.is_here()) at.mean.put(r, mean);
    at.rstd.put(r, rstd);
}

/* One warp per row, or one block if it is long. */
static void forward(const ech_kernel_context *context, forward_call at)
{
    int64_t warps = ech_ceil(at.C, KEPT * ECH_PART * ECH_WARP), most = MOST_WARPS;
    at.share = 1 / (double)at.C;
    at.warps = (int)(warps < 1 ? 1 : warps < most ? warps : most);
    int rows = at.warps > 1 ? 1 : ROWS;
    ech_launch(context, forward_rows, dim3((unsigned)ech_ceil(at.R, rows)),
               rows * at.warps * ECH_WARP, 0, at);
}

void ECH_CUDA(layernorm_forward)(ech_kernel_context *context, const ech_tensor *x,
                                 const ech_tensor *gain, const ech_tensor *bias, double eps,
                                 const ech_tensor *y, const ech_tensor *mean,
                                 const ech_tensor *rstd)
{
    const ech_tensor *none = NULL;
    ech_cuda_check(ECH_OP_layernorm_forward, ECH_REAL, x, gain, bias, y, mean, rstd);
    forward(context, {x, none, gain, bias, y, mean, rstd, x->shape[0], x->shape[1], eps, 0, 0, 0});
}

void ECH_CUDA(rmsnorm_forward)(ech_kernel_context *context, const ech_tensor *x,
                               const ech_tensor *squares, const ech_tensor *gain, double offset,
                               double eps, const ech_tensor *y, const ech_tensor *rstd)
{
    const ech_tensor *none = NULL;
    ech_cuda_check(ECH_OP_rmsnorm_forward, ECH_REAL, x, squares, gain, y, rstd);
    forward(context, {x, squares, gain, none, y, none, rstd, x->shape[0], x->shape[1], eps, 0, 0,
                      (wide)offset});
}

/* ---- backward: with n = (x - mean) rstd and e = dy gain, dx = rstd (e - mean(e) - n mean(e n)),
 * without mean(e) for RMSNorm; dgain = sum of dy n, dbias = sum of dy. If rows are parts,
 * dx = rstd e is without means, and dsquares = - rstd^2 / 2 sum of e n. A team of threads has a
 * row, each thread a part of it, and sums its columns over the rows of the block ---- */

/* Threads of a block whose teams are no larger, limited by registers: for two such blocks, or one
 * in fp64. */
enum {
    ROW_THREADS = 384,
    BOUND = sizeof(wide) == sizeof(float) ? 2 * ROW_THREADS : ECH_COLUMN_THREADS
};

namespace
{
struct backward_call {
    const real *dy;
    ech_numbers x, gain, mean, rstd, add, dx, dsquares;
    int64_t C;
    double share; /* 1 / C */
    wide offset;  /* added to gain */
};

/* Sums of a row's e and e n. */
template <typename T> struct row_sums {
    T e, en;

    template <typename More> __device__ void operator+=(const row_sums<More> &more)
    {
        e += more.e;
        en += more.en;
    }
};

/* A part of a row, read ahead. */
struct backward_part {
    ech_part<real> dy;
    ech_fetched x;
    wide mean, rstd;

    __device__ void fetch(const backward_call &at, int64_t r, int64_t c, int count)
    {
        ech_fetch_part(at.dy + r * at.C + c, count, &dy);
        at.x.fetch(r * at.C + c, count, &x);
        mean = at.mean.is_here() ? at.mean.get(r) : 0;
        rstd = at.rstd.get(r);
    }
    /* The part's dy and n. */
    __device__ void widen(const backward_call &at, wide *d, wide *n) const
    {
        ech_widen_part(dy, d);
        at.x.widen(x, n);
        for (int k = 0; k < ECH_PART; k++) n[k] = (n[k] - mean) * rstd;
    }
};
} // namespace

/* For a part's e and n; e is 0 after the row's end, and so are gradients there. In `wide`, by
 * halves. */
static __device__ row_sums<wide> sums_of_part(const wide *e, const wide *n)
{
    row_sums<wide> half[ECH_PART];
    for (int k = 0; k < ECH_PART; k++) half[k] = {e[k], e[k] * n[k]};
#pragma unroll
    for (int m = ECH_PART / 2; m > 0; m /= 2)
        for (int k = 0; k < m; k++) half[k] += half[k + m];
    return half[0];
}

/* e of a part whose dy is d. */
static __device__ void scale_part(const backward_call &at, int64_t c, int count, wide *d)
{
    wide gain[ECH_PART];
    at.gain.load(c, count, gain);
    for (int k = 0; k < ECH_PART; k++) d[k] *= gain[k] + at.offset;
}

static __device__ row_sums<wide> sums_of_warp(row_sums<wide> sums)
{
    return {ech_warp_fold(ech_plus(), sums.e), ech_warp_fold(ech_plus(), sums.en)};
}

/* If a row is wider than a block's columns: its sums, by a block. */
static __global__ void sum_rows(backward_call at, row_sums<double> *of_rows)
{
    ECH_SHARED(double, room, 2 * ECH_BLOCK / ECH_WARP);
    row_sums<double> own = {0, 0};
    for (int64_t c = (int64_t)threadIdx.x * ECH_PART; c < at.C; c += blockDim.x * ECH_PART) {
        backward_part part;
        wide e[ECH_PART], n[ECH_PART];
        int count = ech_part_count(at.C - c);
        part.fetch(at, blockIdx.x, c, count);
        part.widen(at, e, n);
        scale_part(at, c, count, e);
        own += sums_of_part(e, n);
    }
    own.e = ech_block_fold(ech_plus(), own.e, room);
    own.en = ech_block_fold(ech_plus(), own.en, room + ECH_BLOCK / ECH_WARP);
    if (threadIdx.x == 0) of_rows[blockIdx.x] = own;
}

/* of_rows: the result of sum_rows, or NULL. dx may replace what is read: a row is in registers when
 * it is written. */
template <int N>
static __global__ void __launch_bounds__(BOUND)
    backward_rows(ech_column_grid grid, backward_call at, const row_sums<double> *of_rows,
                  double *parts)
{
    enum { WARPS = ECH_COLUMN_THREADS / ECH_WARP };
    ECH_DYNAMIC_SHARED(shared);
    ECH_SHARED(row_sums<wide>, room, 2 * WARPS);
    ech_column_folds<N, ech_plus> folds(grid, ech_plus(), shared);
    const int warps = grid.lanes / ECH_WARP;
    backward_part next;
    if (folds.has_row()) next.fetch(at, folds.first + folds.row(), folds.c(), folds.count);
    for (; folds.goes_on(); folds.next()) {
        const bool has_row = folds.has_row();
        const int64_t r = folds.first + folds.row();
        const wide rstd = next.rstd;
        wide e[ECH_PART] = {}, n[ECH_PART] = {};
        if (has_row) {
            next.widen(at, e, n);
            folds.add(0, [&](int k) { return e[k] * n[k]; });
            if (N > 1) folds.add(N - 1, [&](int k) { return e[k]; });
            scale_part(at, folds.c(), folds.count, e);
        }
        if (has_row && folds.row() + folds.teams < folds.rows)
            next.fetch(at, r + folds.teams, folds.c(), folds.count);
        row_sums<double> sums = {0, 0};
        if (of_rows) {
            if (has_row) sums = of_rows[r];
        } else {
            row_sums<wide> own = sums_of_warp(sums_of_part(e, n));
            /* In one half of the room sums are read while the other half is written. */
            row_sums<wide> *half = room + folds.turns % 2 * WARPS;
            if (threadIdx.x % ECH_WARP == 0) half[threadIdx.x / ECH_WARP] = own;
            __syncthreads();
            for (int w = 0; w < warps; w++) sums += half[folds.team * warps + w];
        }
        if (!has_row) continue;
        if (at.dsquares.is_here()) {
            if (folds.c() == 0) at.dsquares.put(r, (wide)(sums.en / -2) * rstd * rstd);
            sums.en = 0;
        }
        wide e_mean = N > 1 ? (wide)(sums.e * at.share) : 0;
        wide en_mean = (wide)(sums.en * at.share), add[ECH_PART] = {};
        if (at.add.is_here()) at.add.load(r * at.C + folds.c(), folds.count, add);
        for (int k = 0; k < ECH_PART; k++) e[k] = rstd * (e[k] - e_mean - n[k] * en_mean) + add[k];
        at.dx.store(r * at.C + folds.c(), folds.count, e);
    }
    folds.put(parts);
}

/* N: sums of columns. */
template <int N>
static void backward(const ech_kernel_context *context, const backward_call &at, int64_t R,
                     bool accumulate, ech_numbers dgain, ech_numbers dbias)
{
    if (at.C == 0) return;
    int lanes = (int)ech_ceil(ech_column_lanes(at.C), ECH_WARP) * ECH_WARP;
    int teams = lanes < ROW_THREADS ? ROW_THREADS / lanes : 1;
    int64_t sums = ech_cuda_norm_sums(R, at.C), parts = N * ech_cuda_column_parts(R, at.C);
    double *scratch =
        static_cast<double *>(ech_scratch(context, (size_t)(sums + parts) * sizeof(double)));
    row_sums<double> *of_rows = sums ? reinterpret_cast<row_sums<double> *>(scratch) : NULL;
    if (sums) ech_launch(context, sum_rows, dim3((unsigned)R), ECH_BLOCK, 0, at, of_rows);
    ech_columns_by<N>(
        context, {R, at.C, lanes}, teams * lanes, ech_plus(),
        [=] __device__(int s, int64_t c, double sum) {
            const ech_numbers to = s ? dbias : dgain;
            if (to.is_here()) ech_put_sum{to, accumulate}(c, sum);
        },
        scratch + sums, backward_rows<N>, at, (const row_sums<double> *)of_rows);
}

void ECH_CUDA(layernorm_backward)(ech_kernel_context *context, const ech_tensor *dy,
                                  const ech_tensor *x, const ech_tensor *gain,
                                  const ech_tensor *mean, const ech_tensor *rstd,
                                  const ech_tensor *add, const ech_tensor *dx, bool accumulate,
                                  const ech_tensor *dgain, const ech_tensor *dbias)
{
    const ech_tensor *none = NULL;
    ech_cuda_check(ECH_OP_layernorm_backward, ECH_REAL, dy, x, gain, mean, rstd, add, dx, dgain,
                   dbias);
    backward<2>(context,
                {static_cast<const real *>(dy->data), x, gain, mean, rstd, add, dx, none,
                 x->shape[1], 1 / (double)x->shape[1], 0},
                x->shape[0], accumulate, dgain, dbias);
}

void ECH_CUDA(rmsnorm_backward)(ech_kernel_context *context, const ech_tensor *dy,
                                const ech_tensor *x, const ech_tensor *gain, double offset,
                                const ech_tensor *rstd, const ech_tensor *add, const ech_tensor *dx,
                                const ech_tensor *dsquares, bool accumulate,
                                const ech_tensor *dgain)
{
    const ech_tensor *none = NULL;
    ech_cuda_check(ECH_OP_rmsnorm_backward, ECH_REAL, dy, x, gain, rstd, add, dx, dsquares, dgain);
    backward<1>(context,
                {static_cast<const real *>(dy->data), x, gain, none, rstd, add, dx, dsquares,
                 x->shape[1], 1 / (double)x->shape[1], (wide)offset},
                x->shape[0], accumulate, dgain, none);
}

/* ---- sums of a row's squares ---- */

void ECH_CUDA(squares_forward)(ech_kernel_context *context, const ech_tensor *x, double share,
                               const ech_tensor *y)
{
    ech_cuda_check(ECH_OP_squares_forward, ECH_REAL, x, y);
    const ech_numbers from = x, to = y;
    const int64_t C = x->shape[1];
    ech_fold_rows_by_parts(
        context, x->shape[0], C, ech_plus(),
        [=] __device__(int64_t r, int64_t c, int n, wide *value) {
            from.load(r * C + c, n, value);
            for (int k = 0; k < ECH_PART; k++) value[k] *= value[k];
        },
        [=] __device__(int64_t r, double sum) { to.put(r, (wide)(share * sum)); });
}

void ECH_CUDA(squares_backward)(ech_kernel_context *context, const ech_tensor *dy,
                                const ech_tensor *x, double share, const ech_tensor *add,
                                const ech_tensor *dx)
{
    ech_cuda_check(ECH_OP_squares_backward, ECH_REAL, dy, x, add, dx);
    const ech_numbers rows = dy, from = x, more = add, to = dx;
    const int64_t C = x->shape[1];
    const wide factor = (wide)(2 * share);
    ech_each_of_rows(context, x->shape[0], C, [=] __device__(int64_t r, int64_t c, int n) {
        wide v[ECH_PART], w[ECH_PART] = {}, by = factor * rows.get(r);
        from.load(r * C + c, n, v);
        if (more.is_here()) more.load(r * C + c, n, w);
        for (int k = 0; k < ECH_PART; k++) v[k] = by * v[k] + w[k];
        to.store(r * C + c, n, v);
    });
}
