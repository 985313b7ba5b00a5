/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks (layer.h), and what their programs need: operands, collectives, products and bytes.
 */
#ifndef ECH_LAYER_BLOCK_H
#define ECH_LAYER_BLOCK_H

#include "base/memory.h"
#include "layer/node.h"

/* How a model's layers are parallelized, and other options of blocks. All zero: one rank, and a
 * sample is one document. */
typedef struct ech_block_options {
    ech_sharding sharding;
    ech_sample_kind samples; /* what batches have */
    ech_image image;         /* of samples that are images */
    bool keep;    /* sequence parallelism: gathered inputs are saved for W, not gathered twice */
    bool ulysses; /* context parallelism by all-to-all (Ulysses); otherwise by ring attention */
    int sequence_chunks; /* chunks that share a KV cache; 0 or 1: the sequence is not divided */
    bool documents;      /* attention and positions stay within documents */
    int64_t rows;        /* B·T' of a micro-batch; 0: unknown yet */
    int64_t sequence;    /* T; 0: unknown */
    ech_dtype wide;      /* type of logits, which determines the bytes of their chunks */
    int64_t loss_rows;   /* least rows of a chunk of logits; depends on the device */
    ech_type stream;     /* of values at block boundaries, and of residual sums */
    bool drifts; /* no weight stashing: a backward reads newer weights than its forward did */
    /* what R recomputes in blocks with inputs and outputs: a choice of memory.recompute */
    int recompute;
    unsigned fused;    /* bit 1 << row of fused.def: fused calls that the device's kernels have */
    bool reversible;   /* blocks have two residual streams (RevNet) */
    int norm_replicas; /* replicas whose rows batch norms normalize together; 0 or 1: their own */
    bool invert; /* R recomputes everything in a block with inputs and outputs from its outputs */
    int encode;  /* how kept values are encoded: a choice of memory.encode */
    bool encode_norms;     /* inputs of norms, too */
    double encode_density; /* room for non-zeros in sparse codes, as a share of the elements; 1: the
                              block has no sparse codes */
} ech_block_options;

typedef ECH_LIST(ech_block_call) ech_program;

typedef struct ech_block {
    const char *name; /* "model.layers.3" */
    int index;        /* in the model; selects its random stream */
    ech_pool *pool;   /* the model's */
    ECH_LIST(ech_block_value) value;
    ECH_LIST(ech_node) node;
    ech_program program[ECH_PHASES];
    ECH_LIST(ech_operand) operand;
    ECH_LIST(ech_reported) report;
    /* Offset of its reports' numbers among the model's; its reports follow each other. */
    int64_t first_report;
    ECH_LIST(int) input, output;   /* values that cross the block's boundary */
    ECH_LIST(int) dinput, doutput; /* their gradients, in the same order; -1: not needed */
    /* Nothing in earlier blocks is trained: the inputs have no gradients. The model sets it before
     * ech_block_finish. */
    bool frozen_below;
    bool trains; /* it has a backward: something in it or below is trained */
    /* With a program R that recomputes the whole block: the values that it uses as inputs, and its
     * outputs, in the same order. A block's rinput is its input, or the routput of the block
     * before. If R inverts the block, R computes rinput, and routput is the block's output, or the
     * rinput of the next block. Otherwise empty. */
    ECH_LIST(int) rinput, routput;
    /* number of R's calls that B and W need; later calls make what a neighbour's R reads */
    int needed;
    /* number of first calls of B and of W that are redundant if R ran all its calls */
    int doubled[ECH_PHASES];
    /* number of first calls of B that also recompute what W reads: they precede all of W */
    int shared;
    /* number of inputs whose shards are kept: the last calls of F write these, the first calls of R
     * gather them */
    int sharded;
    int sites;                  /* dropouts so far */
    int rounds, first_of_round; /* rounds so far; the first node of the last one */
    ech_block_options options;
} ech_block;

/* What B and W read for `value`: itself, or the value that is recomputed for them. */
static inline int ech_block_backward_value(const ech_block *block, int value)
{
    int recomputed = block->value.at[value].recomputed;
    return recomputed < 0 ? value : recomputed;
}
/* The value's memory owner (itself or its base). */
int ech_block_base(const ech_block *block, int value);
/* Index of the call's node in the graph; for copies, of the node that they replace; -1: none. */
static inline int ech_call_position(const ech_block *block, const ech_block_call *call)
{
    return call->node < 0 ? -1 : block->node.at[call->node].position;
}
/* The call's collective in lists of that purpose; NULL: the call computes, or does nothing. */
const ech_exchange *ech_call_exchange(const ech_block *block, const ech_block_call *call,
                                      ech_phase phase, ech_purpose purpose);
/* Number of a program's calls that run in lists of that purpose: all but the last ones that do
 * nothing there. */
int ech_program_calls(const ech_block *block, ech_phase phase, ech_purpose purpose);
/* True if some layer of the block uses the parameter. */
bool ech_block_uses(const ech_block *block, int param);
/* `count` products of matrices (M,K) and (K,N). A fraction: of the scores that a mask keeps, or of
 * rows that are used. */
typedef struct ech_products {
    double M, N, K, count;
} ech_products;

/* The matrix products of a call of that phase's program; count 0: none. */
ech_products ech_call_products(const ech_block *block, const ech_block_call *call, ech_phase phase,
                               ech_extent extent);
/* Multiply-adds of a call of that phase's program, and of all programs: one micro-batch of
 * training. */
double ech_call_multiplies(const ech_block *block, const ech_block_call *call, ech_phase phase,
                           ech_extent extent);
double ech_block_multiplies(const ech_block *block, ech_extent extent);
/* Iterates over the call's operands in lists of that purpose: returns the one after `last` (NULL:
 * the first); NULL: the end. */
static inline const ech_operand *ech_call_next(const ech_block *block, const ech_block_call *call,
                                               ech_purpose purpose, const ech_operand *last)
{
    const ech_operand *next = last ? last + 1 : block->operand.at + call->first_operand;
    const ech_operand *end = block->operand.at + call->first_operand + call->operands;
    while (next < end && !(next->purposes & 1u << purpose)) next++;
    return next < end ? next : NULL;
}
static inline bool ech_operand_is_value(const ech_operand *operand)
{
    return operand->port < ECH_PORT_PARAM;
}
/* The value whose memory `operand` of that call may reuse; -1: none. */
int ech_operand_overwrites(const ech_block *block, const ech_block_call *call,
                           const ech_operand *operand);

ech_dtype ech_block_value_dtype(const ech_block *block, int value, ech_types types);
size_t ech_block_value_bytes(const ech_block *block, int value, ech_extent extent, ech_types types);
/* The tensor of `value` in `data`, the memory of its base value or of the base value's gradient. */
ech_tensor ech_block_tensor(const ech_block *block, int value, ech_extent extent, ech_types types,
                            void *data);

#endif
