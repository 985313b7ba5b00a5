/* SPDX-License-Identifier: Apache-2.0
 *
 * Which library computes a product in fp32, by instruction set and shape.
 */
#include "kernel/cpu/gemm.h"

#include <oneapi/dnnl/dnnl.h>

#ifdef ECH_HAS_BLAS
#include <cblas.h>
#endif

#include "kernel/isa.h"

#ifdef ECH_HAS_BLAS
/* With AVX2, oneDNN 2.6 reads operands in place if 1/M + 1/N is at least 0.0038
 * (nocopy_checker_avx2 of its gemm_driver.cpp). An operand with a row for each k then takes a new
 * cache line for each, and lines whose distance is a multiple of 256 numbers share few sets of the
 * cache. OpenBLAS packs. GFLOP/s on two Zen 5 cores, of 272 at their peak with AVX2:
 *
 *                                        oneDNN    OpenBLAS
 *     dW 768 x 768, 1,024 rows           226       254
 *     dW 512 x 512, 1,024 rows           193       251
 *     dW 192 x 1,024, 2,048 rows         132       239
 *     y 1,024 to 1,024, 64 rows          144       232
 *     y 2,048 to 2,048, 256 rows         146       239
 *     y 1,024 to 4,096, 256 rows         155       253
 *
 * For other strides, thicker products and AVX-512, oneDNN is as fast or faster. BLIS 0.9 is not
 * faster than these, and takes processors that it does not know for old ones (84 GFLOP/s here). */
bool ech_cpu_gemm_is_blas(const ech_gemm *of)
{
    enum { SETS = 256 };
    const double thin = 0.0038;
    const int64_t lengths[] = {of->M, of->N, of->K, of->a_stride, of->b_stride, of->c_stride};
    ech_isa isa = ECH_ISA_PORTABLE;
    bool same_sets = (of->a_transposed && of->a_stride % SETS == 0) ||
                     (!of->b_transposed && of->b_stride % SETS == 0);
    if (!same_sets || 1.0 / (double)of->M + 1.0 / (double)of->N < thin) return false;
    for (int i = 0; i < 6; i++)
        if (lengths[i] > INT32_MAX) return false;
    return ech_isa_decide(&isa) == ECH_OK && isa == ECH_ISA_AVX2;
}

static void multiply_by_blas(const ech_gemm *of, const float *a, const float *b, float *c)
{
    cblas_sgemm(CblasRowMajor, of->a_transposed ? CblasTrans : CblasNoTrans,
                of->b_transposed ? CblasTrans : CblasNoTrans, (int)of->M, (int)of->N, (int)of->K,
                1.0F, a, (int)of->a_stride, b, (int)of->b_stride, of->add ? 1.0F : 0.0F, c,
                (int)of->c_stride);
}
#else
bool ech_cpu_gemm_is_blas(const ech_gemm *of)
{
    (void)of;
    return false;
}

static void multiply_by_blas(const ech_gemm *of, const float *a, const float *b, float *c)
{
    (void)of, (void)a, (void)b, (void)c;
}
#endif

void ech_cpu_gemm(const ech_gemm *of, const float *a, const float *b, float *c)
{
    if (ech_cpu_gemm_is_blas(of)) {
        multiply_by_blas(of, a, b, c);
        return;
    }
    dnnl_status_t status =
        dnnl_sgemm(of->a_transposed ? 'T' : 'N', of->b_transposed ? 'T' : 'N', of->M, of->N, of->K,
                   1.0F, a, of->a_stride, b, of->b_stride, of->add ? 1.0F : 0.0F, c, of->c_stride);
    ECH_ASSERT(status == dnnl_success); /* fails only on wrong arguments or without memory */
}
