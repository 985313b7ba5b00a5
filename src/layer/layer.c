/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of layers, and helpers of their files.
 */
#include "layer/layer.h"

#include "layer/layers.h"

const ech_layer *const ech_layers[] = {
#define X(name, meaning) &ech_layer_row_##name,
#include "layer/layers.def"
#undef X
};
const int ech_layers_count = sizeof ech_layers / sizeof *ech_layers;

ech_dropout ech_call_dropout(const ech_call *call, double p, uint32_t site)
{
    return (ech_dropout){
        .p = call->purpose == ECH_TRAIN ? p : 0,
        .key = {.seed = call->seed, .stream = ech_random_stream(call->layer, site)},
        .step = call->step};
}

ech_rows ech_context_rows(const ech_block_options *options, ech_extent extent, int64_t first_sample,
                          int index)
{
    int context = options->sharding.context;
    return ech_rows_context(first_sample, extent.sequence, extent.tokens, context, index,
                            context > 1 && !options->ulysses);
}

size_t ech_query_matmul(const ech_scratch_query *query, int64_t M, int64_t N, int64_t K,
                        bool a_transposed, bool b_transposed, bool bias, bool add)
{
    int64_t dims[] = {M, N, K, a_transposed, b_transposed, bias, add};
    return ech_kernel_scratch(query->kernels, ECH_OP_matmul, query->threads, dims);
}
