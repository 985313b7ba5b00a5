/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of NVIDIA GPUs: ech_cuda_NAME_f32 and so on. With ECH_EMULATED the same source is
 * compiled for the processor: ech_emulated_NAME_f32.
 */
#ifndef ECH_KERNEL_CUDA_ROWS_H
#define ECH_KERNEL_CUDA_ROWS_H

#include "kernel/kernel.h"

/* Columns of a matrix are summed in a fixed order by blocks of at most ECH_CUDA_COLUMNS columns and
 * a group of at least ECH_CUDA_GROUP_ROWS rows. There are at most ECH_CUDA_COLUMN_BLOCKS blocks,
 * two per multiprocessor of the largest GPUs. */
enum { ECH_CUDA_COLUMNS = 4096, ECH_CUDA_COLUMN_BLOCKS = 264, ECH_CUDA_GROUP_ROWS = 8 };
/* A product's workspace: NVIDIA's recommendation for cuBLASLt on Hopper. One size on all
 * architectures makes the choice of an algorithm, and a plan, independent of the card. */
#ifdef ECH_EMULATED
enum { ECH_CUDA_WORKSPACE = 4 << 10 };
#else
enum { ECH_CUDA_WORKSPACE = 32 << 20 };
#endif
/* Alignment in bytes of each array in scratch. */
enum { ECH_CUDA_ALIGNMENT = 256 };

/* Bytes of a query's facts in attention's backward (ech_query_facts): two indices and two wide
 * numbers, rounded up to 16. */
#define ECH_CUDA_FACTS_BYTES(wide_bytes) ((8 + 2 * (wide_bytes) + 15) / 16 * 16)

static inline size_t ech_cuda_align(size_t bytes)
{
    return (bytes + ECH_CUDA_ALIGNMENT - 1) / ECH_CUDA_ALIGNMENT * ECH_CUDA_ALIGNMENT;
}

static inline int64_t ech_cuda_slices(int64_t C)
{
    return (C + ECH_CUDA_COLUMNS - 1) / ECH_CUDA_COLUMNS;
}

/* Groups of rows: the most for a matrix of any number of columns; the number for this matrix. */
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

/* Numbers of scratch: one per group and column, and at least as many as a smaller matrix needs. */
static inline int64_t ech_cuda_column_parts(int64_t R, int64_t C)
{
    int64_t parts = ech_cuda_most_groups(R) * C;
    int64_t most = (int64_t)ECH_CUDA_COLUMN_BLOCKS * ECH_CUDA_COLUMNS;
    most = most > C ? most : C;
    return parts < most ? parts : most;
}

/* A norm's gradient has two sums per row in scratch if a block's columns are not the whole row. */
static inline int64_t ech_cuda_norm_sums(int64_t R, int64_t C)
{
    return ech_cuda_slices(C) > 1 ? 2 * R : 0;
}

/* A gate's rows are processed by one thread each, in blocks of ECH_CUDA_GATE_CHUNK rows, at most
 * ECH_CUDA_GATE_BLOCKS at a time. */
enum { ECH_CUDA_GATE_CHUNK = 32, ECH_CUDA_GATE_BLOCKS = 64 };

/* Scratch of a gate's rows in progress. */
static inline size_t ech_cuda_gate_room(int64_t L, int64_t K)
{
    return ech_cuda_align(
        (size_t)(ECH_CUDA_GATE_BLOCKS * ECH_CUDA_GATE_CHUNK * ech_gate_room(L, K)) *
        sizeof(double));
}

/* Byte offsets in gate_forward's scratch: rows in progress come first, then choices, entropies,
 * partial sums over chunks, sums of groups and their losses. dims: N, L, K, groups. */
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

/* A table's gradient is sorted by row with blocks of one thread per digit. Blocks have a minimum
 * number of rows; with the maximum number of blocks, each has more. Sums run in parallel pieces of
 * ECH_CUDA_PIECE rows. */
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

/* Stored sums of pieces: for each row of the table all but its first piece's. */
static inline int64_t ech_cuda_pieces(int64_t R)
{
    return R > 0 ? (R - 1) / ECH_CUDA_PIECE : 0;
}

/* Offsets in that gradient's scratch: keys and rows, each twice and of `each` bytes, then counts of
 * digits and sums of pieces. */
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
