/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of NVIDIA GPUs: ech_cuda_NAME_f32 and so on. With ECH_EMULATED, of the same source on
 * the processor: ech_emulated_NAME_f32.
 */
#ifndef ECH_KERNEL_CUDA_ROWS_H
#define ECH_KERNEL_CUDA_ROWS_H

#include "kernel/kernel.h"

/* Columns of a matrix are summed by blocks, which have so many columns at most and a group of the
 * rows, in a fixed order. There are so many blocks at most, two a multiprocessor of the largest
 * GPUs; a group has so many rows at least. */
enum { ECH_CUDA_COLUMNS = 4096, ECH_CUDA_COLUMN_BLOCKS = 264, ECH_CUDA_GROUP_ROWS = 8 };
/* A product's workspace: what NVIDIA advises for cuBLASLt on Hopper; one size on all architectures,
 * so that its choice of an algorithm, and a plan, does not depend on the card. */
#ifdef ECH_EMULATED
enum { ECH_CUDA_WORKSPACE = 4 << 10 };
#else
enum { ECH_CUDA_WORKSPACE = 32 << 20 };
#endif
/* Scratch of several arrays: each begins at a multiple of so many bytes. */
enum { ECH_CUDA_ALIGNMENT = 256 };

/* A query's facts in attention's backward (ech_query_facts): two indices and two wide numbers, in
 * multiples of 16. */
#define ECH_CUDA_FACTS_BYTES(wide_bytes) ((8 + 2 * (wide_bytes) + 15) / 16 * 16)

static inline size_t ech_cuda_align(size_t bytes)
{
    return (bytes + ECH_CUDA_ALIGNMENT - 1) / ECH_CUDA_ALIGNMENT * ECH_CUDA_ALIGNMENT;
}

static inline int64_t ech_cuda_slices(int64_t C)
{
    return (C + ECH_CUDA_COLUMNS - 1) / ECH_CUDA_COLUMNS;
}

/* Groups of rows, of a matrix of any number of columns at most; then of this one. */
static inline int64_t ech_cuda_most_groups(int64_t R)
{
    int64_t groups = (R + ECH_CUDA_GROUP_ROWS - 1) / ECH_CUDA_GROUP_ROWS;
    return groups < ECH_CUDA_COLUMN_BLOCKS ? groups : (int64_t)ECH_CUDA_COLUMN_BLOCKS;
}

static inline int64_t ech_cuda_row_groups(int64_t R, int64_t C)
{
    int64_t slices = ech_cuda_slices(C), groups = ech_cuda_most_groups(R);
    int64_t most = slices > 1 ? ECH_CUDA_COLUMN_BLOCKS / slices : ECH_CUDA_COLUMN_BLOCKS;
    most = most > 1 ? most : 1;
    return groups < most ? groups : most;
}

/* Numbers of scratch: one of each group and column, and no fewer than of a smaller matrix. */
static inline int64_t ech_cuda_column_parts(int64_t R, int64_t C)
{
    int64_t parts = ech_cuda_most_groups(R) * C;
    int64_t most = (int64_t)ECH_CUDA_COLUMN_BLOCKS * ECH_CUDA_COLUMNS;
    most = most > C ? most : C;
    return parts < most ? parts : most;
}

/* A norm's gradient has two sums a row in scratch where a block's columns are not the whole row. */
static inline int64_t ech_cuda_norm_sums(int64_t R, int64_t C)
{
    return ech_cuda_slices(C) > 1 ? 2 * R : 0;
}

/* A gate's rows are chosen for a thread each, by blocks of so many, of which there are so many at
 * most. */
enum { ECH_CUDA_GATE_CHUNK = 32, ECH_CUDA_GATE_BLOCKS = 64 };

/* Scratch of rows of a gate that are under way. */
static inline size_t ech_cuda_gate_room(int64_t L, int64_t K)
{
    return ech_cuda_align(
        (size_t)(ECH_CUDA_GATE_BLOCKS * ECH_CUDA_GATE_CHUNK * ech_gate_room(L, K)) *
        sizeof(double));
}

/* Where gate_forward's scratch has what: rows under way, and from these bytes on choices,
 * entropies, parts of sums over chunks, sums of groups and their losses. dims: N, L, K, groups. */
typedef struct ech_cuda_gate_scratch {
    size_t chosen, entropy, parts, sums, losses, bytes;
} ech_cuda_gate_scratch;

static inline ech_cuda_gate_scratch ech_cuda_gate_scratch_of(const int64_t *dims)
{
    int64_t N = dims[0], L = dims[1], K = dims[2], groups = dims[3];
    int64_t chunks = groups + N / ECH_CUDA_GATE_CHUNK;
    ech_cuda_gate_scratch at;
    at.chosen = ech_cuda_gate_room(L, K);
    at.entropy = at.chosen + ech_cuda_align((size_t)(N * K) * sizeof(int32_t));
    at.parts = at.entropy + ech_cuda_align((size_t)N * sizeof(double));
    at.sums = at.parts + ech_cuda_align((size_t)(chunks * (2 * L + 1)) * sizeof(double));
    at.losses = at.sums + ech_cuda_align((size_t)(groups * 4 * L) * sizeof(double));
    at.bytes = at.losses + ech_cuda_align((size_t)(groups * 3) * sizeof(double));
    return at;
}

/* Rows of a table's gradient are sorted by blocks of a thread for each digit, which have so many
 * rows at least; of so many blocks each has more. A sum is made in pieces of so many rows, beside
 * each other. */
enum { ECH_CUDA_DIGITS = 256, ECH_CUDA_PIECE = 128 };
#ifdef ECH_EMULATED
enum { ECH_CUDA_SORT_ROWS = 64, ECH_CUDA_SORT_BLOCKS = 3 };
#else
enum { ECH_CUDA_SORT_ROWS = 1024, ECH_CUDA_SORT_BLOCKS = 128 };
#endif

static inline int64_t ech_cuda_sort_blocks(int64_t R)
{
    int64_t blocks = (R + ECH_CUDA_SORT_ROWS - 1) / ECH_CUDA_SORT_ROWS;
    return blocks < ECH_CUDA_SORT_BLOCKS ? blocks : (int64_t)ECH_CUDA_SORT_BLOCKS;
}

/* Sums of pieces that are kept: of any row of the table all but its first piece's. */
static inline int64_t ech_cuda_pieces(int64_t R)
{
    return R > 0 ? (R - 1) / ECH_CUDA_PIECE : 0;
}

/* Where that gradient's scratch has what: behind keys and rows, each twice and of `each` bytes,
 * counts of digits and sums of pieces. */
typedef struct ech_cuda_table_scratch {
    size_t each, counts, pieces, bytes;
} ech_cuda_table_scratch;

static inline ech_cuda_table_scratch ech_cuda_table_scratch_of(int64_t R, int64_t C)
{
    ech_cuda_table_scratch at;
    at.each = ech_cuda_align((size_t)R * sizeof(int32_t));
    at.counts = 4 * at.each;
    at.pieces = at.counts + ech_cuda_align((size_t)(ech_cuda_sort_blocks(R) * ECH_CUDA_DIGITS) *
                                           sizeof(int32_t));
    at.bytes = at.pieces + ech_cuda_align((size_t)(ech_cuda_pieces(R) * C) * sizeof(double));
    return at;
}

#ifdef ECH_EMULATED
#define ECH_CUDA_TABLE          ech_kernels_emulated
#define ECH_CUDA_NAME(op, type) ech_emulated_##op##_##type
#else
#define ECH_CUDA_TABLE          ech_kernels_cuda
#define ECH_CUDA_NAME(op, type) ech_cuda_##op##_##type
#endif

#if defined ECH_REAL_F64
#define ECH_REAL     ECH_F64
#define ECH_CUDA(op) ECH_CUDA_NAME(op, f64)
#elif defined ECH_REAL_BF16
#define ECH_REAL     ECH_BF16
#define ECH_CUDA(op) ECH_CUDA_NAME(op, bf16)
#elif defined ECH_REAL_F16
#define ECH_REAL     ECH_F16
#define ECH_CUDA(op) ECH_CUDA_NAME(op, f16)
#else
#define ECH_REAL     ECH_F32
#define ECH_CUDA(op) ECH_CUDA_NAME(op, f32)
#endif

#ifdef __cplusplus
extern "C" {
#endif
const ech_kernels *ECH_CUDA_TABLE(ech_dtype dtype);

#define DECLARE(name, type, arguments)                                                             \
    void ECH_CUDA_NAME(name, type)(ech_kernel_context * context ECH_UNPACK arguments);
#define X(name, arguments, ...)                                                                    \
    DECLARE(name, f32, arguments)                                                                  \
    DECLARE(name, f64, arguments) DECLARE(name, bf16, arguments) DECLARE(name, f16, arguments)
#include "kernel/kernel.def"
#undef X
#undef DECLARE
#ifdef __cplusplus
}
#endif

#endif
