/* SPDX-License-Identifier: Apache-2.0
 *
 * The graph of a block (layer.h): its values, its nodes, and the calls of nodes in programs.
 */
#ifndef ECH_LAYER_NODE_H
#define ECH_LAYER_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/collective.h"
#include "layer/samples.h"
#include "layer/shape.h"

enum { ECH_MAX_PORTS = 6 };

/* ---- values of a block ---- */

typedef enum ech_block_value_source {
    ECH_FROM_NODE,  /* a layer of this block writes it */
    ECH_FROM_BLOCK, /* the previous block's output; for gradients, the next block's */
    ECH_FROM_BATCH  /* LOAD writes it */
} ech_block_value_source;

typedef enum ech_block_value_role {
    ECH_ROLE_ACTIVATION,
    ECH_ROLE_GRADIENT,
    ECH_ROLE_BATCH,
    /* indices, counts and statistics: kept and recomputed like an activation, without gradient */
    ECH_ROLE_TABLE,
    ECH_ROLE_SPILL,  /* on the host: room for a kept value whose code does not fit */
    ECH_ROLE_SCRATCH /* shared by calls of one program; no other program reads it */
} ech_block_value_role;

/* The purpose of a list of steps. */
typedef enum ech_purpose { ECH_TRAIN, ECH_EVALUATE, ECH_GENERATE, ECH_PURPOSES } ech_purpose;

/* How a value is kept from F to B and W. */
typedef enum ech_kept {
#define X(name, text, meaning) ECH_KEPT_##name,
#include "layer/kept.def"
#undef X
    ECH_KEPTS
} ech_kept;

const char *ech_kept_name(ech_kept kept);

typedef struct ech_block_value {
    const char *name;
    ech_shape shape;
    ech_block_value_source source;
    ech_block_value_role role;
    ech_type type;
    ech_dtype dtype; /* of ECH_TYPE_FIXED */
    ech_slot slot;   /* of ECH_FROM_BATCH */
    /* bit 1 << purpose: lists in which the value exists; 0: only its gradient exists */
    unsigned purposes;
    /* A view: columns [first, first + its own) of the base value's last dimension, with another
     * shape. base < 0: the value has memory of its own. */
    int base;
    int64_t first;
    ech_kept kept;
    int recomputed; /* the value that B and W read instead: R's, or decoded; -1: this one */
    bool again;     /* recompute calls make it */
    bool trains;    /* something that it is computed from is trained: it has a gradient */
    bool zeros;     /* of inputs: many elements are 0 (ech_block_has_zeros) */
    bool places;    /* of tables of bytes: all are below 16 */
    bool stays;     /* R reads the forward's value, which is kept, instead of making it again */
    bool cached; /* shared by all sequence chunks of a micro-batch: KV cache, starts of documents */
} ech_block_value;

/* ---- nodes ---- */

typedef struct ech_layer ech_layer;

/* What B and W need of a value that they read; from the most to the least. */
typedef enum ech_need {
    ECH_NEED_VALUE,   /* its bits */
    ECH_NEED_10_BITS, /* the nearest number of a code of 10 bits will do */
    ECH_NEED_8_BITS,  /* of 8 bits */
    ECH_NEED_SIGN,    /* only whether it is above 0 */
    ECH_NEED_NOTHING
} ech_need;

/* What a phase reads. Masks of ports: bit i is port i. */
typedef struct ech_reads {
    unsigned in, out, keep; /* values of the forward */
    unsigned param;         /* parameters */
} ech_reads;

/* The collective of a call. */
typedef struct ech_exchange {
    ech_collective kind; /* ECH_COLLECTIVE_NONE: none, the call computes */
    ech_mesh over;       /* among ranks that differ only in these coordinates */
    /* SHIFT, SLIDE: number of ranks of the group (comm/comm.h). ALL_TO_ALL: from tokens to heads
     * (> 0), back (< 0), or of equal blocks that are contiguous in memory (0), in values of any
     * shape and type. EXCHANGE_ROWS: from the packed buffer, with the table as the node's second
     * input, to slices, with the table as the third input (> 0), or back (< 0). ALL_GATHER or
     * REDUCE_SCATTER of a node that goes by counts: moves slices; the second input is the table
     * of all. */
    int distance;
} ech_exchange;

typedef struct ech_node {
    const ech_layer *layer;
    const void *options; /* the layer's own struct */
    int ins, in[ECH_MAX_PORTS];
    int outs, out[ECH_MAX_PORTS];
    int keeps, keep[ECH_MAX_PORTS];
    int params, param[ECH_MAX_PORTS]; /* indices of the model's parameters */
    unsigned added;                   /* parameters that are only added to the output (biases) */
    unsigned frozen;                  /* parameters without gradients */
    unsigned untrained;               /* parameters that F reads only outside of training */
    ech_reads b, w;                   /* what B and W read besides gradients */
    /* inputs that F copies into a cache: for R, which finds them there, the input is -1 */
    unsigned cached;
    unsigned passes;   /* inputs whose gradient equals the output's */
    unsigned constant; /* activations among the inputs that get no gradient from the node */
    uint32_t site;     /* index among the block's dropouts; selects its random stream */
    /* For inputs without rows, the value over whose rows they are sums: it decides whose partial
     * sums and reports are added. -1: the inputs have rows. */
    int rows_of;
    const ech_exchange *exchange; /* [2], of F and of B; NULL: the layer's */
    int report;                   /* the block's report to which F adds; -1: none */
    int round;                    /* from 1: number of its round (ech_block_begin_round); 0: none */
    /* index among the block's nodes; copies and fused nodes have the index of the node that they
     * replace */
    int position;
    bool recompute_only; /* not in the forward: recomputes a value for the backward */
    bool in_phase;       /* recompute_only: in R; otherwise right before the reader, in B or W */
    bool made_by_r;      /* the calls of R that B and W need recompute its outputs */
    bool sharded_rows;   /* input 0's rows are ech_call.shard, not ech_call.rows */
    /* its gradient of input 0 is a partial sum, which a collective completes */
    bool partial_gradient;
    bool back;         /* B is needed for gradients of inputs */
    bool trains;       /* some parameter has a gradient */
    bool goes_on;      /* F adds to an earlier node's outputs and saved values */
    bool is_part;      /* B writes some rows of its input's gradient; other nodes write the rest */
    unsigned purposes; /* bits 1 << purpose: lists in which F does something */
} ech_node;

/* Numbers that a node reports in each training step: each forward adds to them, they are summed
 * over micro-batches and all ranks, and the host reads them with the loss. R and lists other than
 * training report nothing. */
typedef struct ech_reported {
    const char *kind; /* says what the numbers are */
    const char *name; /* of the layer: "model.layers.3.mlp" */
    int64_t numbers;
    /* axes along which ranks have different rows or columns; of tensor ranks with the same ones,
     * the first counts */
    ech_mesh over;
    bool local; /* counts decisions of single ranks, which depend on the layout */
} ech_reported;

/* Which array of ech_call holds an operand. */
typedef enum ech_port {
    ECH_PORT_IN, /* values of the block, up to ADD */
    ECH_PORT_OUT,
    ECH_PORT_KEEP,
    ECH_PORT_DOUT,
    ECH_PORT_DIN,
    ECH_PORT_ADD,
    ECH_PORT_PARAM,
    ECH_PORT_DPARAM,
    ECH_TENSOR_PORTS,
    ECH_PORT_SCRATCH = ECH_TENSOR_PORTS /* ech_call.context's */
} ech_port;

typedef enum ech_mode {
    ECH_READ,
    ECH_WRITE, /* overwrites all of it (of a view: its columns) */
    /* Adds to what is there, or writes a part and reads the rest. For parameters' gradients
     * (gradient accumulation), the first call of a training step writes (ech_list_writes_first). */
    ECH_ADD
} ech_mode;

/* One value, parameter or scratch that a call reads or writes, in lists of some purposes; the same
 * for every micro-batch. */
typedef struct ech_operand {
    uint8_t port, index; /* ech_port; index in its array of ech_call */
    uint8_t mode;        /* ech_mode */
    uint8_t purposes;    /* bit 1 << purpose */
    /* DIN, OUT: may reuse the memory of the IN of that index, if that value's life ends here */
    bool overwrites;
    int value; /* of the block, never a view; PARAM, DPARAM: the model's parameter; SCRATCH: -1 */
    /* the block's value whose shape it has here: what it is a view of, or the gradient of */
    int like;
} ech_operand;

/* One execution of one node in a program. */
typedef struct ech_block_call {
    int node;       /* -1: no node; din[0] = add[0] + dout[0], where gradients are summed */
    bool recompute; /* in B, W or R: runs the node's forward, whose outputs the backward needs */
    /* Block values or -1: gradients of the outputs (read), of the inputs (written), and values to
     * add to the latter. */
    int dout[ECH_MAX_PORTS], din[ECH_MAX_PORTS], add[ECH_MAX_PORTS];
    unsigned purposes;           /* in other lists it does nothing, and has no operands */
    int first_operand, operands; /* in block.operand: values, then parameters, then scratch */
} ech_block_call;

typedef enum __attribute__((packed)) ech_phase {
    ECH_FORWARD,
    ECH_BACKWARD_INPUT,
    ECH_BACKWARD_WEIGHT,
    ECH_RECOMPUTE, /* recomputes what B and W read and F did not keep */
    ECH_PHASES
} ech_phase;

#endif
