/* SPDX-License-Identifier: Apache-2.0
 *
 * Short functions of headers that kernels for GPUs call, too.
 */
#ifndef ECH_BASE_INLINE_H
#define ECH_BASE_INLINE_H

#ifdef __CUDACC__
#define ECH_EVERYWHERE static inline __host__ __device__
#else
#define ECH_EVERYWHERE static inline
#endif

#endif
