/* SPDX-License-Identifier: Apache-2.0
 *
 * Which gradients are compressed, and the states that compression keeps between steps. PowerSGD:
 * Vogels et al. 2019, arXiv:1905.13727; embeddings, heads and routers are excluded, as in Ramesh et
 * al. 2021, arXiv:2102.12092, appendix E. The largest numbers: Lin et al. 2018, arXiv:1712.01887,
 * here per line.
 */
#include <math.h>

#include "optim/optim.h"

bool ech_optimizer_is_matrix(const ech_param *param)
{
    ech_shape one = ech_shape_of_one(&param->shape);
    return one.dims == 2 && !ech_shape_has(&one, ECH_AXIS_VOCAB) &&
           !ech_shape_has(&one, ECH_AXIS_POSITION);
}

/* Routers are of the wide type. */
bool ech_is_compressed(const ech_config *config, const ech_param *param)
{
    return config->parallel.compression != ECH_COMPRESSION_NONE && ech_optimizer_is_matrix(param) &&
           ech_param_is_trained(param) && param->type == ECH_TYPE_COMPUTE;
}

int64_t ech_compression_rank(const ech_config *config, const ech_param *param)
{
    if (config->parallel.compression != ECH_COMPRESSION_POWERSGD ||
        !ech_is_compressed(config, param))
        return 0;
    ech_shape one = ech_shape_of_one(&param->shape);
    int64_t rank = config->parallel.compression_rank;
    for (int d = 0; d < 2; d++)
        if (one.size[d] < rank) rank = one.size[d];
    return rank;
}

bool ech_compression_by_columns(const ech_param *param)
{
    ech_shape one = ech_shape_of_one(&param->shape);
    return ech_axis_mesh(one.axis[1]) & ECH_MESH_TENSOR;
}

int64_t ech_compression_line(const ech_param *param)
{
    return ech_shape_of_one(&param->shape).size[ech_compression_by_columns(param) ? 0 : 1];
}

int64_t ech_compression_chosen(const ech_config *config, const ech_param *param)
{
    const double rounding = 1e-9; /* of 0.07 x 100 */
    if (config->parallel.compression != ECH_COMPRESSION_TOPK || !ech_is_compressed(config, param))
        return 0;
    double length = (double)ech_compression_line(param);
    int64_t n = (int64_t)ceil(config->parallel.compression_density * length - rounding);
    return n < 1 ? 1 : n;
}

void ech_compression_declare(const ech_config *config, const ech_param *param,
                             ech_optimizer_needs *needs)
{
    const ech_shape *of = &param->shape;
    int64_t rank = ech_compression_rank(config, param);
    if (!ech_is_compressed(config, param)) return;
    ech_shape residual = {.dims = 3,
                          .axis = {ECH_AXIS_REPLICAS, of->axis[0], of->axis[1]},
                          .size = {ech_optimizer_replicas(config), of->size[0], of->size[1]}};
    ECH_ASSERT(needs->states + 2 <= ECH_MAX_STATES);
    needs->state[needs->states++] = (ech_state){
        .name = "residual", .shape = residual, .type = ECH_TYPE_WIDE, .role = ECH_STATE_RESIDUAL};
    if (rank == 0) return;
    ech_shape basis = ech_shape_2d(ECH_AXIS_NONE, of->size[1], ECH_AXIS_NONE, rank);
    needs->state[needs->states++] = (ech_state){
        .name = "basis", .shape = basis, .type = ECH_TYPE_WIDE, .role = ECH_STATE_BASIS};
}
