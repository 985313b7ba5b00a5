/* SPDX-License-Identifier: Apache-2.0
 *
 * Gates of mixtures of experts (kernel/gate/): one thread per row, one block per expert of a
 * balance group.
 */
#include "kernel/cuda/random.cuh"
#include "kernel/cuda/reduce.cuh"

#define ECH_GATE_WORDS ech_philox
#include "kernel/gate/gates.h"
#include "kernel/update.h"

namespace
{
/* Consecutive rows that one block sums in order. */
enum { CHUNK = ECH_CUDA_GATE_CHUNK };

/* A call's arguments. */
struct gating {
    ech_gate gate;
    const wide *logits, *noise, *bias; /* of the rows read: all members', or the view's own */
    const int32_t *lengths;
    ech_rows rows;
    int64_t S, E, L, K;
    double *room; /* for each row of a block, for all blocks */

    __device__ int64_t sample_of(int64_t r) const
    {
        return (rows.first + r) / rows.tokens;
    }

    __device__ bool is_padding(int64_t r) const
    {
        return lengths && ech_row_position(&rows, r) >= lengths[sample_of(r)];
    }

    __device__ ech_gate_row row() const
    {
        ech_gate_row of;
        ech_gate_row_assign(
            &of, &gate, room + ((int64_t)blockIdx.x * CHUNK + threadIdx.x) * ech_gate_room(L, K));
        return of;
    }

    /* Chooses experts by row `at` of the logits. */
    __device__ void choose(ech_gate_row *of, int64_t at, int64_t whole) const
    {
        of->whole = whole;
        of->has_noise = noise != NULL;
        of->has_bias = bias != NULL;
        for (int64_t i = 0; i < L; i++) {
            of->logits[i] = (double)logits[at * L + i];
            if (noise) of->noise[i] = (double)noise[at * L + i];
            if (bias && i < E) of->bias[i] = (double)bias[i];
            of->load[i] = 0;
        }
        ech_gate_choose(of);
    }
};
} // namespace

static const wide *numbers(const ech_tensor *x)
{
    return x ? static_cast<const wide *>(x->data) : NULL;
}

static gating gating_of(const ech_gate *gate, const ech_tensor *logits, const ech_tensor *noise,
                        const ech_tensor *bias, const ech_tensor *lengths, const ech_rows *rows,
                        int64_t S, double *room)
{
    ECH_ASSERT(logits->shape[1] == ech_gate_logits(gate) && gate->chosen >= 1);
    ECH_ASSERT(gate->chosen <= gate->experts && (!bias || bias->shape[0] == gate->experts));
    gating g;
    g.gate = *gate;
    g.logits = numbers(logits);
    g.noise = numbers(noise);
    g.bias = numbers(bias);
    g.lengths = lengths ? static_cast<const int32_t *>(lengths->data) : NULL;
    g.rows = *rows;
    g.S = S;
    g.E = gate->experts;
    g.L = ech_gate_logits(gate);
    g.K = gate->chosen;
    g.room = room;
    return g;
}

/* ---- forward: rows ---- */

/* Stores the results of a row, which is row r of the view. */
static __device__ void put_row(const gating &g, const ech_gate_row &row, int64_t r, wide *gates,
                               double *entropy)
{
    for (int64_t j = 0; j < g.K; j++) gates[r * g.K + j] = (wide)row.gates[j];
    entropy[r] = row.entropy;
}

/* Without groups: rows of the view. */
static __global__ void choose_rows(gating g, int32_t *chosen, wide *gates, double *entropy)
{
    g.rows = ech_rows_now(&g.rows);
    ech_gate_row row = g.row();
    for (int64_t r = (int64_t)blockIdx.x * CHUNK + threadIdx.x; r < g.S;
         r += (int64_t)gridDim.x * CHUNK) {
        bool padding = g.is_padding(r);
        if (!padding) {
            g.choose(&row, r, ech_row_whole(&g.rows, r));
            put_row(g, row, r, gates, entropy);
        }
        for (int64_t j = 0; j < g.K; j++) chosen[r * g.K + j] = padding ? -1 : row.choice[j];
    }
}

/* Chunks of groups of n rows: parts (chunks, E + L + 1) = sums of shares, loads and rows. */
static __global__ void choose_chunks(gating g, int64_t n, int64_t chunks, int32_t *chosen,
                                     wide *gates, double *entropy, double *parts)
{
    ECH_SHARED(int, here, CHUNK);
    int64_t T = g.rows.whole, own = g.gate.member * g.S, each = ech_gate_statistics(&g.gate) + 1;
    int64_t of_group = (n + CHUNK - 1) / CHUNK, room = ech_gate_room(g.L, g.K);
    ech_gate_row row = g.row();
    for (int64_t c = blockIdx.x; c < chunks; c += gridDim.x) {
        int64_t group = c / of_group, i = c % of_group * CHUNK + threadIdx.x;
        int64_t sample = group * g.gate.samples + i / T, position = i % T;
        bool in = i < n, is = in && position < ech_gate_length(g.lengths, &g.rows, sample);
        if (is) {
            int64_t at = ech_gate_row_index(&g.gate, &g.rows, g.S, sample, position);
            g.choose(&row, at, (g.rows.first_sample + sample) * T + position);
            if (at >= own && at < own + g.S) put_row(g, row, at - own, gates, entropy);
        }
        for (int64_t j = 0; in && j < g.K; j++)
            chosen[(group * n + i) * g.K + j] = is ? row.choice[j] : -1;
        here[threadIdx.x] = is;
        __syncthreads();
        double *part = parts + c * each;
        for (int64_t l = threadIdx.x; l < each; l += CHUNK) {
            const double *from = l < g.E ? row.share + l : row.load + (l - g.E);
            double sum = 0;
            from -= threadIdx.x * room;
            for (int t = 0; t < CHUNK; t++)
                if (here[t]) sum += l == each - 1 ? 1 : from[t * room];
            part[l] = sum;
        }
        __syncthreads();
    }
}

/* ---- forward: groups ---- */

/* sums (groups, 3E + L): choices first and in all, shares, loads. One block per expert of a group
 * handles its choices in their turns. */
static __global__ void fill_experts(gating g, int64_t n, int32_t *chosen, double *sums)
{
    ECH_SHARED(double, room, ECH_BLOCK / ECH_WARP);
    ECH_SHARED(int, warps, ECH_BLOCK / ECH_WARP);
    int64_t a = blockIdx.x / g.E;
    int32_t e = (int32_t)(blockIdx.x % g.E),
            kept_back = ech_gate_fate(&g.gate, e, ECH_GATE_KEPT_BACK);
    double capacity = (double)ech_gate_capacity(&g.gate, g.rows.whole), taken = 0, count = 0;
    double *first = sums + a * (3 * g.E + g.L), *all = first + g.E;
    chosen += a * n * g.K;
    for (int64_t j = 0; j < g.K; j++) {
        for (int64_t start = 0; start < n; start += blockDim.x) {
            int64_t i = start + threadIdx.x;
            int32_t *choice = &chosen[(i < n ? i : 0) * g.K + j];
            bool sent = i < n && *choice == e, is = sent || (i < n && *choice == kept_back);
            int takers;
            double before = taken + ech_before(sent || (is && !g.gate.ports), warps, &takers);
            if (is) ech_gate_take(&g.gate, capacity, e, choice, &before);
            taken += takers;
            count += is;
        }
        if (j > 0) continue;
        double of_first = ech_block_fold(ech_plus(), count, room);
        if (threadIdx.x == 0) first[e] = of_first;
    }
    count = ech_block_fold(ech_plus(), count, room);
    if (threadIdx.x == 0) all[e] = count;
}

static __global__ void lose_groups(gating g, int64_t n, const double *parts, double *sums,
                                   double *statistics, double *losses)
{
    int64_t a = blockIdx.x, width = ech_gate_statistics(&g.gate), each = width + 1;
    int64_t of_group = (n + CHUNK - 1) / CHUNK;
    double *first = sums + a * (3 * g.E + g.L), *all = first + g.E, *share = all + g.E, rows = 0;
    double *slopes = statistics + a * width;
    parts += a * of_group * each;
    for (int64_t l = threadIdx.x; l < width; l += blockDim.x) {
        double sum = 0;
        for (int64_t c = 0; c < of_group; c++) sum += parts[c * each + l];
        share[l] = sum;
        slopes[l] = 0;
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int64_t c = 0; c < of_group; c++) rows += parts[c * each + width];
    ech_gate_group group;
    group.gate = &g.gate;
    group.rows = rows;
    group.first = first;
    group.chosen = all;
    group.share = share;
    group.load = share + g.E;
    group.dshare = slopes;
    group.dload = slopes + g.E;
    group.auxiliary = group.importance = group.load_loss = 0;
    ech_gate_losses(&group);
    losses[3 * a] = group.auxiliary;
    losses[3 * a + 1] = group.importance;
    losses[3 * a + 2] = group.load_loss;
}

/* ---- forward: results of the view's choices ---- */

/* Index of the choices of row r: all has them in the order of samples and positions. */
static __device__ int64_t choices_of(const gating &g, bool all, int64_t r)
{
    return (all ? g.sample_of(r) * g.rows.whole + ech_row_position(&g.rows, r) : r) * g.K;
}

static __global__ void put_choices(gating g, bool all, const int32_t *chosen, wide *gates,
                                   int32_t *choice)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    g.rows = ech_rows_now(&g.rows);
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < g.S * g.K; i += step) {
        int32_t fate = chosen[choices_of(g, all, i / g.K) + i % g.K];
        bool sent = fate >= 0 && fate < g.E;
        choice[i] = sent ? fate : -1;
        if (!sent) gates[i] = 0;
    }
}

/* One block per expert, and one for the sums of rows. */
static __global__ void add_partial(gating g, bool all, const int32_t *chosen, const double *entropy,
                                   const double *losses, int64_t groups, double *partial)
{
    ECH_SHARED(double, room, ECH_BLOCK / ECH_WARP);
    int64_t e = blockIdx.x;
    double sum[3] = {};
    bool rows = e == g.E;
    g.rows = ech_rows_now(&g.rows);
    for (int64_t r = threadIdx.x; r < g.S; r += blockDim.x) {
        const int32_t *of = chosen + choices_of(g, all, r);
        if (of[0] < 0) continue;
        if (rows) {
            sum[0]++;
            sum[1] += entropy[r];
        }
        for (int64_t j = 0; j < g.K; j++) {
            if (rows) sum[2] += of[j] / g.E == ECH_GATE_KEPT_BACK;
            if (of[j] % g.E != e) continue;
            sum[0]++;
            sum[1] += of[j] / g.E == ECH_GATE_DROPPED;
        }
    }
    for (int i = 0; i < 3; i++) sum[i] = ech_block_fold(ech_plus(), sum[i], room);
    if (threadIdx.x != 0) return;
    if (!rows) {
        partial[e] += sum[0];
        partial[g.E + e] += sum[1];
        return;
    }
    double *to = partial + 2 * g.E;
    to[ECH_GATE_ROWS] += sum[0];
    to[ECH_GATE_ENTROPY] += sum[1];
    to[ECH_GATE_UNSENT] += sum[2];
    for (int64_t a = 0; all && g.gate.member == 0 && a < groups; a++) {
        to[ECH_GATE_GROUPS]++;
        to[ECH_GATE_AUXILIARY] += losses[3 * a];
        to[ECH_GATE_IMPORTANCE] += losses[3 * a + 1];
        to[ECH_GATE_LOAD] += losses[3 * a + 2];
    }
}

static dim3 blocks_of(int64_t chunks)
{
    return dim3((unsigned)(chunks < ECH_CUDA_GATE_BLOCKS ? chunks : ECH_CUDA_GATE_BLOCKS));
}

void ECH_CUDA(gate_forward)(ech_kernel_context *context, const ech_gate *gate,
                            const ech_tensor *logits, const ech_tensor *noise,
                            const ech_tensor *all, const ech_tensor *all_noise,
                            const ech_tensor *bias, const ech_tensor *lengths, const ech_rows *rows,
                            const ech_tensor *gates, const ech_tensor *choice,
                            const ech_tensor *statistics, const ech_tensor *partial)
{
    ech_cuda_check(ECH_OP_gate_forward, ECH_REAL, logits, noise, all, all_noise, bias, lengths,
                   gates, choice, statistics, partial);
    ech_gate_check(gate, logits, noise, all, all_noise, rows, statistics, partial);
    ech_rows_check(__FILE__, __LINE__, rows, NULL, logits->shape[0]);
    int64_t S = logits->shape[0], L = logits->shape[1], K = gate->chosen;
    int64_t groups = all ? statistics->shape[0] : 0, n = all ? gate->samples * rows->whole : 0;
    int64_t N = all ? all->shape[0] : S, dims[] = {N, L, K, groups};
    ech_cuda_gate_scratch at = ech_cuda_gate_scratch_of(dims);
    char *scratch = static_cast<char *>(ech_scratch(context, at.bytes));
    int32_t *chosen = reinterpret_cast<int32_t *>(scratch + at.chosen);
    double *entropy = reinterpret_cast<double *>(scratch + at.entropy);
    double *parts = reinterpret_cast<double *>(scratch + at.parts);
    double *sums = reinterpret_cast<double *>(scratch + at.sums);
    double *losses = reinterpret_cast<double *>(scratch + at.losses);
    wide *to = static_cast<wide *>(gates->data);
    gating g = gating_of(gate, all ? all : logits, all ? all_noise : noise, bias, lengths, rows, S,
                         reinterpret_cast<double *>(scratch));
    if (!all) {
        ech_launch(context, choose_rows, blocks_of(ech_ceil(S, CHUNK)), CHUNK, 0, g, chosen, to,
                   entropy);
    } else {
        int64_t chunks = groups * ech_ceil(n, CHUNK);
        double *slopes = static_cast<double *>(statistics->data);
        ech_launch(context, choose_chunks, blocks_of(chunks), CHUNK, 0, g, n, chunks, chosen, to,
                   entropy, parts);
        ech_launch(context, fill_experts, dim3((unsigned)(groups * gate->experts)), ECH_BLOCK, 0, g,
                   n, chosen, sums);
        ech_launch(context, lose_groups, dim3((unsigned)groups), ECH_BLOCK, 0, g, n,
                   (const double *)parts, sums, slopes, losses);
    }
    ech_launch(context, put_choices, ech_blocks(S * K, ECH_BLOCK), ECH_BLOCK, 0, g, all != NULL,
               (const int32_t *)chosen, to, static_cast<int32_t *>(choice->data));
    if (!partial) return;
    ech_launch(context, add_partial, dim3((unsigned)gate->experts + 1), ECH_BLOCK, 0, g,
               all != NULL, (const int32_t *)chosen, (const double *)entropy,
               (const double *)losses, groups, static_cast<double *>(partial->data));
}

/* ---- backward ---- */

static __global__ void differentiate(gating g, const int32_t *choice, const double *statistics,
                                     const wide *dgates, const double *factor, wide *dlogits,
                                     wide *dnoise)
{
    g.rows = ech_rows_now(&g.rows);
    ech_gate_row row = g.row();
    for (int64_t r = (int64_t)blockIdx.x * CHUNK + threadIdx.x; r < g.S;
         r += (int64_t)gridDim.x * CHUNK) {
        bool padding = g.is_padding(r);
        const double *slopes = NULL;
        if (statistics)
            slopes = statistics + g.sample_of(r) / g.gate.samples * ech_gate_statistics(&g.gate);
        for (int64_t l = 0; l < g.L; l++) {
            row.dlogits[l] = row.dnoise[l] = 0;
            row.dload[l] = slopes ? slopes[g.E + l] * *factor : 0;
            if (l < g.E) row.dshare[l] = slopes ? slopes[l] * *factor : 0;
        }
        for (int64_t j = 0; j < g.K; j++) {
            int64_t i = r * g.K + j;
            row.dgates[j] = choice[i] < 0 ? 0 : (double)dgates[i];
        }
        if (!padding) {
            g.choose(&row, r, ech_row_whole(&g.rows, r));
            ech_gate_differentiate(&row);
        }
        for (int64_t l = 0; l < g.L; l++) {
            dlogits[r * g.L + l] = (wide)row.dlogits[l];
            if (dnoise) dnoise[r * g.L + l] = (wide)row.dnoise[l];
        }
    }
}

void ECH_CUDA(gate_backward)(ech_kernel_context *context, const ech_gate *gate,
                             const ech_tensor *logits, const ech_tensor *noise,
                             const ech_tensor *bias, const ech_tensor *lengths,
                             const ech_rows *rows, const ech_tensor *choice,
                             const ech_tensor *statistics, const ech_tensor *dgates,
                             const ech_tensor *factor, const ech_tensor *dlogits,
                             const ech_tensor *dnoise)
{
    ech_cuda_check(ECH_OP_gate_backward, ECH_REAL, logits, noise, bias, lengths, choice, statistics,
                   dgates, factor, dlogits, dnoise);
    ech_rows_check(__FILE__, __LINE__, rows, NULL, logits->shape[0]);
    ECH_ASSERT(!statistics == !factor && !noise == !dnoise);
    int64_t S = logits->shape[0], L = logits->shape[1];
    double *room = static_cast<double *>(ech_scratch(context, ech_cuda_gate_room(L, gate->chosen)));
    gating g = gating_of(gate, logits, noise, bias, lengths, rows, S, room);
    ech_launch(context, differentiate, blocks_of(ech_ceil(S, CHUNK)), CHUNK, 0, g,
               static_cast<const int32_t *>(choice->data),
               statistics ? static_cast<const double *>(statistics->data) : NULL, numbers(dgates),
               factor ? static_cast<const double *>(factor->data) : NULL,
               static_cast<wide *>(dlogits->data),
               dnoise ? static_cast<wide *>(dnoise->data) : NULL);
}

/* ---- balancing by a bias ---- */

/* One block per expert. */
static __global__ void count_load(const int32_t *choice, int64_t n, bool accumulate, double *load)
{
    ECH_SHARED(int, room, ECH_BLOCK / ECH_WARP);
    int64_t e = blockIdx.x;
    int count = ech_block_count(choice, n, (int32_t)e, room);
    if (threadIdx.x == 0) load[e] = (accumulate ? load[e] : 0) + count;
}

void ECH_CUDA(gate_load)(ech_kernel_context *context, const ech_tensor *choice, bool accumulate,
                         const ech_tensor *load)
{
    ech_cuda_check(ECH_OP_gate_load, ECH_REAL, choice, load);
    ech_launch(context, count_load, dim3((unsigned)load->shape[0]), ECH_BLOCK, 0,
               static_cast<const int32_t *>(choice->data), ech_tensor_count(choice), accumulate,
               static_cast<double *>(load->data));
}

static __global__ void move_bias(const double *load, int64_t E, double rate, ech_update told,
                                 wide *bias)
{
    const ech_update *update = &told;
    ech_update now;
    double sum = 0;
    if (!ech_update_begins(&update, &now)) return;
    for (int64_t e = 0; e < E; e++) sum += load[e];
    for (int64_t e = threadIdx.x; e < E; e += blockDim.x)
        bias[e] = (wide)ech_gate_bias_moved((double)bias[e], load[e], sum / (double)E, rate);
}

void ECH_CUDA(gate_balance)(ech_kernel_context *context, const ech_tensor *load, double rate,
                            const ech_update *update, const ech_tensor *bias)
{
    ech_cuda_check(ECH_OP_gate_balance, ECH_REAL, load, bias);
    ech_launch(context, move_bias, dim3(1), ECH_BLOCK, 0, static_cast<const double *>(load->data),
               load->shape[0], rate, *update, static_cast<wide *>(bias->data));
}
