/* SPDX-License-Identifier: Apache-2.0
 *
 * AdamW with 8-bit states. Dettmers et al. 2022, arXiv:2110.02861.
 */
#include "kernel/cuda/update.cuh"

extern "C" {
#include "kernel/dynamic_map.h"
}

enum { UPDATE_THREADS = 128 };

namespace
{
/* The values of both maps, copied from host memory, and the middles between them. */
struct maps {
    float value[2][ECH_MAP_CODES];
};

struct adamw8_call {
    ech_numbers param, grad, most[2], rounded; /* of both: the mean, then the square */
    uint8_t *code[2];
    int64_t C, block, blocks; /* elements per block, and blocks per row */
    ech_update update;
    maps map;
};
} // namespace

/* The code of the nearest value: the last one whose lower middle x reaches. middle[code]: between
 * it and the one before. */
static __device__ uint8_t nearest(const float *middle, wide x)
{
    int code = 0;
    x -= (wide)ECH_MAP_TIE * fabs(x);
    for (int step = ECH_MAP_CODES / 2; step > 0; step /= 2) {
        if (x >= (wide)middle[code + step]) code += step;
    }
    return (uint8_t)code;
}

namespace
{
/* Both averages of element i, and the parameter after the step. */
struct moved {
    wide average[2], param;
};
} // namespace

static __device__ moved move(const adamw8_call &at, const ech_update_now &step, const float *value,
                             const wide *most, int64_t i)
{
    moved out;
    for (int s = 0; s < 2; s++)
        out.average[s] = (wide)value[s * ECH_MAP_CODES + at.code[s][i]] * most[s];
    wide g = at.grad.get(i) * (wide)step.now.grad_scale;
    out.param = ech_adamw(step, g, at.param.get(i), &out.average[0], &out.average[1]);
    return out;
}

/* A block of threads processes some blocks of elements twice: first to find the largest magnitudes
 * of the averages, then to round them, since their memory holds codes until then. Slow parts of the
 * step are computed once. */
static __global__ void update_blocks(const adamw8_call at, int64_t blocks)
{
    ECH_SHARED(float, value, 2 * ECH_MAP_CODES);
    ECH_SHARED(float, middle, 2 * ECH_MAP_CODES);
    ECH_SHARED(wide, room, 2 * UPDATE_THREADS / ECH_WARP);
    ECH_SHARED(ech_update_now, step, 1);
    if (threadIdx.x == 0) ech_begin_adamw(at.update, step);
    for (int i = (int)threadIdx.x; i < 2 * ECH_MAP_CODES; i += UPDATE_THREADS) {
        const float *map = at.map.value[i / ECH_MAP_CODES];
        int code = i % ECH_MAP_CODES;
        value[i] = map[code];
        middle[i] = code > 0 ? 0.5F * (map[code - 1] + map[code]) : 0;
    }
    __syncthreads();
    for (int64_t b = blockIdx.x; b < blocks; b += gridDim.x) {
        int64_t of_row, row = ech_divide(b, at.blocks, &of_row), column = of_row * at.block;
        int64_t first = row * at.C + column, left = at.C - column,
                n = left < at.block ? left : at.block;
        for (int64_t i = threadIdx.x; step->is_withheld && at.rounded.is_here() && i < n;
             i += UPDATE_THREADS)
            at.rounded.put(first + i, at.param.get(first + i));
        if (step->is_withheld) continue;
        const wide before[2] = {at.most[0].get(b), at.most[1].get(b)};
        wide most[2] = {0, 0};
        for (int64_t i = threadIdx.x; i < n; i += UPDATE_THREADS) {
            moved m = move(at, *step, value, before, first + i);
            for (int s = 0; s < 2; s++) most[s] = fmax(most[s], fabs(m.average[s]));
        }
        for (int s = 0; s < 2; s++)
            most[s] = ech_block_fold(ech_larger(), most[s], room + s * UPDATE_THREADS / ECH_WARP);
        for (int64_t i = threadIdx.x; i < n; i += UPDATE_THREADS) {
            moved m = move(at, *step, value, before, first + i);
            for (int s = 0; s < 2; s++)
                at.code[s][first + i] =
                    nearest(middle + s * ECH_MAP_CODES, most[s] > 0 ? m.average[s] / most[s] : 0);
            at.param.put(first + i, m.param);
            if (at.rounded.is_here()) at.rounded.put(first + i, m.param);
        }
        for (int s = 0; threadIdx.x == 0 && s < 2; s++) at.most[s].put(b, most[s]);
    }
}

void ECH_CUDA(adamw8)(ech_kernel_context *context, const ech_tensor *param, const ech_tensor *grad,
                      const ech_tensor *exp_avg, const ech_tensor *exp_avg_sq,
                      const ech_tensor *exp_avg_max, const ech_tensor *exp_avg_sq_max,
                      const ech_update *update, const ech_tensor *rounded)
{
    ech_cuda_check(ECH_OP_adamw8, ECH_REAL, param, grad, exp_avg, exp_avg_sq, exp_avg_max,
                   exp_avg_sq_max, rounded);
    int64_t C = grad->shape[1], blocks = ech_ceil(C, update->block);
    ECH_ASSERT(exp_avg_max->shape[1] == blocks);
    adamw8_call at = {
        param,
        grad,
        {exp_avg_max, exp_avg_sq_max},
        rounded,
        {static_cast<uint8_t *>(exp_avg->data), static_cast<uint8_t *>(exp_avg_sq->data)},
        C,
        update->block,
        blocks,
        *update,
        {}};
    for (int s = 0; s < 2; s++)
        memcpy(at.map.value[s], ech_dynamic_map_of(s == 0)->value, sizeof at.map.value[s]);
    int64_t all = grad->shape[0] * blocks;
    ech_launch(context, update_blocks, ech_blocks(all * UPDATE_THREADS, UPDATE_THREADS),
               UPDATE_THREADS, 0, at, all);
}
