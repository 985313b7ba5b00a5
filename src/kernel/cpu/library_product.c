/* SPDX-License-Identifier: Apache-2.0
 *
 * oneDNN's plain product, as a reference speed for the fast one.
 */
#include <oneapi/dnnl/dnnl.h>

#include "kernel/yardstick.h"

bool ech_yardstick_library_product(const ech_tensor *a, bool a_transposed, const ech_tensor *b,
                                   bool b_transposed, const ech_tensor *c)
{
    int64_t M = c->shape[0], N = c->shape[1], K = a->shape[a_transposed ? 0 : 1];
    return dnnl_sgemm(a_transposed ? 'T' : 'N', b_transposed ? 'T' : 'N', M, N, K, 1, a->data,
                      a->shape[1], b->data, b->shape[1], 0, c->data, N) == dnnl_success;
}
