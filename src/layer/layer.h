/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers and blocks: the differentiable parts that models are made of.
 *
 * A LAYER is a row of layers.def, and an ech_layer of functions. It declares its outputs, what its
 * forward saves for its backward and what each phase reads; it computes forward (F), backward of
 * the input (B) and backward of the weights (W). A BLOCK is a small graph of layers, the unit of
 * schedules. A model file writes its forward once, and ech_block_finish derives its programs: the
 * calls of F, B, W and R (recompute), in order.
 *
 *     int x = ech_block_input(block, "hidden", ech_shape_rows(ECH_AXIS_MODEL, C));
 *     int n = ech_layer_rmsnorm(block, x, weight, eps);        // layers.h: one builder a layer
 *     int y = ech_layer_linear(block, n, ...);
 *     ech_block_output(block, ech_layer_residual(block, x, y));
 *     ech_block_finish(block, params);
 *
 * Everything up to ech_call is a declaration: structs without memory for tensors, which
 * src/schedule turns into steps, lives and offsets. A layer never knows ranks, schedules or
 * recomputation. Nothing here communicates or fails.
 *
 * Where layers are sharded over ranks, builders see it from the names of axes (shape.h). A
 * row-parallel product, whose inner axis is sharded, makes a partial sum; a column-parallel one,
 * whose outer axis is sharded, needs its whole input. Builders put COLLECTIVE nodes between them,
 * which compute nothing and name what a group of ranks does (Shoeybi et al. 2019, arXiv:1909.08053;
 * Korthikanti et al. 2022, arXiv:2205.05198). Model files need not know.
 */
#ifndef ECH_LAYER_LAYER_H
#define ECH_LAYER_LAYER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"
#include "comm/collective.h"
#include "kernel/kernel.h"
#include "layer/shape.h"

enum { ECH_MAX_PORTS = 6 };

/* ---- parameters ---- */

typedef enum ech_initializer {
    ECH_INIT_ZERO,
    ECH_INIT_ONE,
    ECH_INIT_NORMAL,
    ECH_INIT_TRUNCATED /* normals within two standard deviations (kernel.def: fill_truncated) */
} ech_initializer;

struct ech_param;

/* What the commit of a layer state works on: this rank's shard, as the turn's micro-batches and all
 * ranks that have others' rows have left their partials of it. */
typedef struct ech_commit {
    const struct ech_param *of;
    const ech_kernels *kernels;
    ech_kernel_context *context;
    const ech_tensor *state;  /* changed in place; not where the update is withheld */
    const ech_tensor *sum;    /* of the partials, fp64, of the state's shape */
    const ech_update *update; /* has `withheld`, a number on the device */
} ech_commit;

typedef struct ech_param {
    /* As on disk in Hugging Face checkpoints. Of a parameter that is stacked of experts, its first
     * axis, "%d" stands for the number of one: each is a tensor of its own there. */
    const char *name;
    ech_shape shape; /* whole, with named axes */
    ech_type type;   /* matrices are compute, gains and biases wide */
    ech_initializer initializer;
    double std;  /* of ECH_INIT_NORMAL and ECH_INIT_TRUNCATED, before it is truncated */
    bool decay;  /* takes part in weight decay: matrices do, norms and biases do not */
    double rate; /* factor of the learning rate (optimizer.rates) */
    /* A layer state, which no optimizer knows: forwards write partials of it where others write
     * gradients, and once a turn this makes the state's next version of their sum. NULL: a
     * parameter that is trained. */
    void (*commit)(const ech_commit *commit);
    double commit_rate; /* of the layer's own */
    /* The axes of the device mesh along which its gradient is summed: ranks that differ only in
     * these coordinates each have a partial sum. Ranks that differ in another coordinate have
     * another shard, or the same gradient. */
    ech_mesh addends;
    int block; /* the block that declared it */
    int site;  /* which parameter of that block: its random stream */
} ech_param;

/* ---- values of a block ---- */

typedef enum ech_block_value_source {
    ECH_FROM_NODE,  /* a layer of this block writes it */
    ECH_FROM_BLOCK, /* the previous block's output; for gradients: the next block's */
    ECH_FROM_BATCH  /* LOAD writes it */
} ech_block_value_source;

/* The batch tensors that LOAD steps write: token ids, targets, loss weights, starts of documents,
 * lengths, values of features. */
typedef enum ech_slot {
    ECH_TOKENS,
    ECH_TARGETS,
    ECH_WEIGHTS,
    ECH_STARTS, /* per position of the whole sample, on every rank: where its document begins */
    /* per sample, on every rank: tokens of the stream; those behind them are padding */
    ECH_LENGTHS,
    ECH_VALUES, /* per position: the value of the feature whose id is there; 0 in padding */
    ECH_BATCH_SLOTS
} ech_slot;

typedef enum ech_block_value_role {
    ECH_ROLE_ACTIVATION,
    ECH_ROLE_GRADIENT,
    ECH_ROLE_BATCH,
    /* indices, counts and statistics: kept and recomputed like an activation, without gradient */
    ECH_ROLE_TABLE,
    ECH_ROLE_SCRATCH /* shared by calls of one program; no other program reads it */
} ech_block_value_role;

/* What a list of steps is for. */
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
    ech_dtype dtype;   /* of ECH_TYPE_FIXED */
    ech_slot slot;     /* of ECH_FROM_BATCH */
    unsigned purposes; /* bit 1 << purpose: lists in which the value exists */
    /* A view: columns [first, first + its own) of the base value's last dimension, under another
     * shape. base < 0: a value with memory of its own. */
    int base;
    int64_t first;
    ech_kept kept;
    int recomputed; /* not ECH_KEPT_STORED: the value that B and W read instead; otherwise -1 */
    bool again;     /* calls that recompute make it */
    bool cached; /* shared by all sequence chunks of a micro-batch: KV cache, starts of documents */
} ech_block_value;

/* ---- nodes ---- */

typedef struct ech_layer ech_layer;

/* What a phase reads. Masks of ports: bit i is port i. */
typedef struct ech_reads {
    unsigned in, out, keep; /* values of the forward that are read */
    unsigned param;         /* parameters */
} ech_reads;

typedef struct ech_node {
    const ech_layer *layer;
    const void *options; /* the layer's own struct */
    int ins, in[ECH_MAX_PORTS];
    int outs, out[ECH_MAX_PORTS];
    int keeps, keep[ECH_MAX_PORTS];
    int params, param[ECH_MAX_PORTS]; /* indices of the model's parameters */
    unsigned added;                   /* parameters that are only added to the output (biases) */
    ech_reads b, w;                   /* what B and W read besides gradients */
    unsigned cached; /* inputs that F copies to a cache: R, which finds them there, has -1 */
    unsigned passes; /* inputs whose gradient is the output's, unchanged */
    uint32_t site;   /* which dropout of the block: its random stream */
    /* The value over whose rows its inputs are sums, where these have none: it says whose partial
     * sums and reports are added. -1: they have rows. */
    int rows_of;
    int report; /* whose numbers F adds to: of the block; -1: none */
    int round;  /* from 1 on: of a round of that number (ech_block_begin_round); 0: of none */
    /* its index among the block's nodes; of copies and of fused calls' nodes that of whose place
     * they take */
    int place;
    bool recompute_only;   /* not in the forward: recomputes a value for the backward */
    bool in_phase;         /* recompute_only: in R; otherwise right before the reader, in B or W */
    bool made_by_r;        /* its outputs are made again by the calls of R that B and W need */
    bool sharded_rows;     /* input 0's rows are ech_call.shard, not ech_call.rows */
    bool partial_gradient; /* its gradient of input 0 is a partial sum, which a spread sums */
    bool goes_on;          /* F adds to an earlier node's outputs and saved values */
    bool is_part;          /* B writes some rows of its input's gradient; other nodes the rest */
    unsigned purposes;     /* bits 1 << purpose: lists in which F does something */
} ech_node;

/* A collective that a call stands for. */
typedef struct ech_exchange {
    ech_collective kind; /* ECH_COLLECTIVE_NONE: none, the call computes */
    ech_mesh over;       /* among ranks that differ in these coordinates only */
    /* Of SHIFT, in ranks of the group (comm/comm.h). Of ALL_TO_ALL: from tokens to heads (> 0),
     * back (< 0), or of equal blocks that follow each other in memory as they are (0), in values of
     * any shape and type. Of EXCHANGE_ROWS, from the packed buffer, of which the node's second
     * input is the table, to windows, of which it is the third (> 0), or back (< 0). An ALL_GATHER
     * or REDUCE_SCATTER of a node that goes by counts moves windows, of all of which its second
     * input is the table. */
    int distance;
} ech_exchange;

/* Numbers that a node reports of each training step: each forward adds to them, over micro-batches
 * and all ranks they are summed, and the host reads them with the loss. R and lists other than
 * training report nothing. */
typedef struct ech_reported {
    const char *kind; /* says what the numbers are */
    const char *name; /* of the layer: "model.layers.3.mlp" */
    int64_t numbers;
    /* along these axes ranks have other rows or columns; of tensor ranks that have the same the
     * first counts */
    ech_mesh over;
} ech_reported;

/* Where a call finds an operand: in which array of ech_call. */
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
    /* adds to what is there, or writes a part and reads the rest. Of parameters' gradients: the
     * first of a training step writes (ech_list_writes_first) */
    ECH_ADD
} ech_mode;

/* One value, parameter or scratch that a call reads or writes, in lists of some purposes; the same
 * for every micro-batch. */
typedef struct ech_operand {
    uint8_t port, index; /* ech_port; index in its array of ech_call */
    uint8_t mode;        /* ech_mode */
    uint8_t purposes;    /* bit 1 << purpose */
    bool overwrites; /* DIN: may take the memory of the IN of that index, whose life ends here */
    int value; /* of the block, never a view; PARAM, DPARAM: the model's parameter; SCRATCH: -1 */
    /* the block's value whose shape it has here: a view, or the value it is the gradient of */
    int like;
} ech_operand;

/* One execution of one node in a program. */
typedef struct ech_block_call {
    int node;       /* -1: din[0] = add[0] + dout[0], where gradients meet */
    bool recompute; /* in B, W or R: runs the node's forward, whose outputs the backward needs */
    /* Block values or -1: gradients of the outputs (read), of the inputs (written), and what is
     * added to the latter. */
    int dout[ECH_MAX_PORTS], din[ECH_MAX_PORTS], add[ECH_MAX_PORTS];
    unsigned purposes;           /* in other lists it does nothing, and has no operands */
    int first_operand, operands; /* in block.operand: values, then parameters, then scratch */
} ech_block_call;

typedef enum __attribute__((packed)) ech_phase {
    ECH_FORWARD,
    ECH_BACKWARD_INPUT,
    ECH_BACKWARD_WEIGHT,
    ECH_RECOMPUTE, /* what B and W read and F's memory does not have any more */
    ECH_PHASES
} ech_phase;

/* How a model's layers are parallelized, and what else changes blocks. All zero: one rank, and a
 * sample is one document. */
typedef struct ech_block_options {
    ech_sharding sharding;
    bool keep;    /* sequence parallelism: gathered inputs are saved for W, not gathered twice */
    bool ulysses; /* context parallelism by all-to-all; otherwise by a ring of keys and values */
    int sequence_chunks; /* which share a KV cache; 0 or 1: the sequence is not divided */
    bool documents;      /* attention and positions stay inside of documents */
    int64_t rows;        /* B·T' of a micro-batch; 0: not known yet */
    ech_dtype wide;      /* of logits: whose chunks have so many bytes */
    int64_t loss_rows;   /* of a chunk of logits, at least: the device's */
    ech_type stream;     /* of what crosses block boundaries, and residual sums */
    bool drifts; /* no weight stashing: a backward reads newer weights than its forward did */
    /* what R makes again, of blocks with inputs and outputs: a choice of memory.recompute */
    int recompute;
    unsigned fused;  /* bit 1 << row of fused.def: which the device's kernels have */
    bool reversible; /* blocks have two streams, to which nodes of their own add */
    bool invert;     /* R makes all of a block with inputs and outputs again, from its outputs */
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
    /* Where its reports' numbers begin, one report after the other, among the model's. */
    int64_t first_report;
    ECH_LIST(int) input, output;   /* values that cross the block's boundary */
    ECH_LIST(int) dinput, doutput; /* their gradients, in the same order; dinput -1: not needed */
    /* With a program R that makes all of the block again: the values that it reads for the inputs,
     * and its outputs, in the same order. A block's rinput is its input, or the routput of the
     * block before. Where R inverts the block, it makes rinput; routput is the block's output, or
     * the rinput of the block behind. Otherwise empty. */
    ECH_LIST(int) rinput, routput;
    /* calls of R that B and W need; those after them make what R of a neighbour reads */
    int needed;
    int doubled
        /* first calls of B and of W that make what R has made, too, where it does all its calls */
        [ECH_PHASES];
    int shared; /* first calls of B, which recompute what W reads, too: they come before all of W */
    /* inputs of which shards are kept: the last calls of F write these, the first of R gather
     * them */
    int sharded;
    int sites;                  /* dropouts so far */
    int rounds, first_of_round; /* rounds so far; the first node of the last one */
    ech_block_options options;
} ech_block;

ech_block *ech_block_create(ech_pool *pool, const char *name, int index, ech_block_options options);
void ech_block_destroy(ech_block *block); /* accepts NULL */

int ech_block_input(ech_block *block, const char *name, ech_shape shape); /* of the stream's type */
int ech_block_batch(ech_block *block, ech_slot slot);
/* Whether the slot's value is of whole samples: one value for all sequence chunks of a
 * micro-batch. */
bool ech_slot_is_whole(ech_slot slot);
ech_dtype ech_slot_dtype(ech_slot slot);
/* The value with the starts of documents, for layers that need positions; -1: a sample is one
 * document. */
int ech_block_starts(ech_block *block);
void ech_block_output(ech_block *block, int value);
/* A view: columns of `value` from `first` on, as many as `shape` has, read as `shape`. A value with
 * views is read through them only, each view by one layer. */
int ech_block_view(ech_block *block, int value, int64_t first, ech_shape shape);
/* The node reports so many numbers. After its inputs, or `rows_of`, are set. */
void ech_block_report(ech_block *block, ech_node *node, const char *kind, const char *name,
                      int64_t numbers);
/* Derives the programs, the operands of their calls, and the addends of the parameters that its
 * nodes use. `params`: all of the model's (NULL: there are none). Nodes that share a parameter must
 * agree on its addends. */
void ech_block_finish(ech_block *block, ech_param *params);

/* The shape of what crosses block boundaries: (B,T',C), or under sequence parallelism this rank's
 * shard of its rows. */
ech_shape ech_block_stream(const ech_block *block, int64_t C);
/* For builders of column-parallel products: returns the value of x unsharded, and adds the
 * collective that sums the partial sums of its gradient (Megatron's f, or g of sequence
 * parallelism). kept: B reads it, too, so it is saved. */
int ech_block_whole(ech_block *block, int x, bool kept);
/* The same of a table of rows, which has no gradient. */
int ech_block_whole_table(ech_block *block, int table);
/* For builders of what works on row shards: of x, which is whole without sequence parallelism, this
 * tensor rank's rows, and the way back, after which the gradient is one that all have. Rows that
 * are sharded already are returned as they are. */
int ech_block_own_rows(ech_block *block, int x);
int ech_block_all_rows(ech_block *block, int y);
/* Whether a node with that outer axis, which reads what ech_block_whole(x) returned, writes partial
 * sums of the gradient of x itself: without sequence parallelism, where x itself is whole. */
bool ech_block_gradient_is_partial(const ech_block *block, ech_axis axis);
/* For builders of row-parallel products: returns the sum of the partial sums y (Megatron's g);
 * under sequence parallelism, this rank's rows of it. */
int ech_block_sum(ech_block *block, int y);
/* For builders of experts; over an expert group, without one they return what they are given. The
 * first returns the table of what the others have said: `counts` has a piece for each member, whose
 * sum says how many rows it gets. */
int ech_block_exchange_counts(ech_block *block, int counts);
/* Nodes between these two are a *round*: of what they make the forward keeps nothing. B makes again
 * what it reads of it, the last round first, right before its calls of that round's nodes, which
 * write their parameters' gradients, too (ech_layer.finishes_in_b): so there is memory for one
 * round at a time. also: a value from before the rounds that they read and B is to make again with
 * this one, the last; -1: none. */
void ech_block_begin_round(ech_block *block);
void ech_block_end_round(ech_block *block, int also);
/* Which window of pieces that go in `of` windows; {0, 1}: one that has all. */
typedef struct ech_round {
    int at, of;
} ech_round;
/* Whether tables, the inputs behind the first one, say how many rows the node's collective
 * moves. */
bool ech_node_goes_by_counts(const ech_node *node);
/* Of such a node; of others {0, 1}. And the share of the rows that there is room for which is
 * expected in its first round; of others 1. */
ech_round ech_node_round(const ech_node *node);
double ech_node_expected(const ech_node *node);
/* Rows that members send each other, and the way back. `packed` has the rows for one behind those
 * for the other, as tables[0] says, `windows` a piece for each member, of equal size, of whose
 * places tables[1] says how many are in use. They return a value of the shape that they name; what
 * is behind the rows in use is undefined there. */
int ech_block_exchange_rows(ech_block *block, int packed, const int tables[2], ech_shape windows,
                            ech_round round);
/* into: what the round before has returned, to which this one adds its window; -1: a value of the
 * shape `packed`. */
int ech_block_return_rows(ech_block *block, int windows, const int tables[2], ech_shape packed,
                          int into, ech_round round);
/* Windows of rows, (windows,ECH_AXIS_WINDOW,width), of all tensor ranks, one's behind the other's;
 * and of such, which are partial sums, this rank's of their sum. counts: the table of all whole
 * pieces, of which the round's windows follow. Rows behind those in use are not moved, and
 * undefined. Without tensor ranks they return what they are given. */
int ech_block_gather_rows(ech_block *block, int rows, int counts, ech_round round, double expected);
int ech_block_scatter_rows(ech_block *block, int rows, int counts, ech_round round,
                           double expected);
/* The block's last node computes `recomputed` for the backward, which reads it instead of `value`,
 * right before it does. */
void ech_block_set_recompute(ech_block *block, int value, int recomputed);
bool ech_block_is_sharded(const ech_block *block, ech_axis axis); /* over tensor ranks */

/* The rows of fused.def of those names, blanks between: ech_block_options.fused. */
unsigned ech_fused_rows(const char *names);

/* For the builders in layer files. */
ech_node *ech_block_node(ech_block *block, const ech_layer *layer, const void *options,
                         size_t options_bytes);
/* Adds a node without options or parameters, of inputs x and y (-1: x only), of which B reads
 * `reads` (bit i: input i). Returns its output, of the type of x. */
int ech_block_add(ech_block *block, const ech_layer *layer, int x, int y, unsigned reads,
                  ech_shape out);
void ech_node_in(ech_node *node, int value);
/* Adds the optional input `starts` (-1: none). Returns its bit for the masks of ech_reads. */
unsigned ech_node_starts(ech_node *node, int starts);
/* An output that an earlier node made; this node works on it in place. */
void ech_node_out_in_place(ech_node *node, int value);
int ech_node_out(ech_block *block, ech_node *node, const char *name, ech_shape shape);
/* An output of that value's shape and type. */
int ech_node_out_like(ech_block *block, ech_node *node, int value);
/* An output without gradient, of the wide type or with `fixed` of that one: a table. A node may
 * have such outputs beside others; it has a B only if one of its outputs has a gradient. */
int ech_node_out_table(ech_block *block, ech_node *node, const char *name, ech_shape shape,
                       ech_type type, ech_dtype fixed);
/* A value of ECH_ROLE_SCRATCH, which nodes write one after the other (ech_node_out_in_place). */
int ech_block_scratch(ech_block *block, const char *name, ech_shape shape);
int ech_node_keep(ech_block *block, ech_node *node, const char *name, ech_shape shape);
/* The same in the run's wide type: a statistic of rows. */
int ech_node_keep_wide(ech_block *block, ech_node *node, const char *name, ech_shape shape);
void ech_node_param(ech_node *node, int param);

/* What B and W read for `value`: itself, or the value that is recomputed for them. */
static inline int ech_block_backward_value(const ech_block *block, int value)
{
    int recomputed = block->value.at[value].recomputed;
    return recomputed < 0 ? value : recomputed;
}
/* The value's memory owner (itself or its base). */
int ech_block_base(const ech_block *block, int value);
/* Which node of the graph the call is of; of copies that of whose place they take, -1: of none. */
static inline int ech_call_place(const ech_block *block, const ech_block_call *call)
{
    return call->node < 0 ? -1 : block->node.at[call->node].place;
}
/* The call's collective in lists of that purpose; NULL: the call computes, or does nothing. */
const ech_exchange *ech_call_exchange(const ech_block *block, const ech_block_call *call,
                                      ech_phase phase, ech_purpose purpose);
/* How many of a program's calls are run in lists of that purpose: all but the last ones that do
 * nothing there. */
int ech_program_calls(const ech_block *block, ech_phase phase, ech_purpose purpose);
/* Whether some layer of the block uses the parameter. */
bool ech_block_uses(const ech_block *block, int param);
/* Multiply-adds of a call of that phase's program, and of all programs: one micro-batch of
 * training. */
double ech_call_multiplies(const ech_block *block, const ech_block_call *call, ech_phase phase,
                           ech_extent extent);
double ech_block_multiplies(const ech_block *block, ech_extent extent);
/* The call's operands in lists of that purpose, one after the other: the one after `last` (NULL:
 * the first); NULL: there are no more. */
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
/* The value whose memory `operand` of that call may take over; -1: none. */
int ech_operand_overwrites(const ech_block *block, const ech_block_call *call,
                           const ech_operand *operand);

ech_dtype ech_block_value_dtype(const ech_block *block, int value, ech_types types);
size_t ech_block_value_bytes(const ech_block *block, int value, ech_extent extent, ech_types types);
/* The tensor of `value` in `data`, the memory of its base value or of the base value's gradient. */
ech_tensor ech_block_tensor(const ech_block *block, int value, ech_extent extent, ech_types types,
                            void *data);
/* ---- running ---- */

/* The arguments of a layer's functions. Ports follow the node's; data is NULL where a tensor is
 * absent or not needed in this phase. */
typedef struct ech_call {
    const ech_node *node;
    const ech_kernels *kernels;
    ech_kernel_context *context; /* its scratch has the bytes that ech_layer.scratch asked for */
    ech_extent extent;
    ech_purpose purpose;
    union {
        struct { /* in the order of ech_port */
            ech_tensor in[ECH_MAX_PORTS], out[ECH_MAX_PORTS], keep[ECH_MAX_PORTS];
            ech_tensor dout[ECH_MAX_PORTS], din[ECH_MAX_PORTS], add[ECH_MAX_PORTS];
            ech_tensor param[ECH_MAX_PORTS], dparam[ECH_MAX_PORTS];
        };
        ech_tensor port[ECH_TENSOR_PORTS][ECH_MAX_PORTS];
    };
    bool accumulate[ECH_MAX_PORTS];   /* add to dparam; otherwise overwrite it */
    uint64_t seed;                    /* of dropout, with the next two */
    const int64_t *step;              /* the training step's number, on the device */
    uint32_t layer;                   /* index of the block in the model */
    const ech_block_options *options; /* how the model is parallelized */
    ech_rows rows;                    /* the samples and positions of this rank's B x T' rows */
    ech_rows shard;                   /* likewise, of its row shard */
    int tensor_index, tensor_size;    /* coordinate along the tensor axis; size 0 or 1: alone */
    int context_index, context_size;
    double *loss_sums;   /* ECH_LOSS_SUMS in fp64, added to */
    /* The numbers of the node's report in fp64, on the device, to be added to; NULL: they do not
     * count here. */
    double *reported;
    double *loss_factor; /* of the loss's gradient: loss scale / global token count */
    /* of the gradient of a balance group's losses: loss scale / groups of the step */
    double *group_factor;
} ech_call;

/* The arguments of a scratch function. */
typedef struct ech_scratch_query {
    const ech_block *block;
    const ech_node *node;
    const ech_kernels *kernels;
    int threads;
    ech_extent extent;
    ech_phase phase;
    ech_purpose purpose;
} ech_scratch_query;

struct ech_layer {
    const char *name;
    void (*forward)(const ech_call *call);
    /* Optional: NULL where no input has a gradient, or where `passes_gradient`. */
    void (*backward_input)(const ech_call *call);
    /* Optional: NULL where there are no parameters, or where B computes their gradients. */
    void (*backward_weight)(const ech_call *call);
    size_t (*scratch)(const ech_scratch_query *query); /* optional: NULL needs none */
    /* Optional: multiply-adds of one run, for estimates of how long it takes. NULL: none worth
     * counting. */
    double (*multiplies)(const ech_block *block, const ech_node *node, ech_extent extent,
                         ech_phase phase);
    /* Inputs whose gradient B may write over them: it reads each element first. */
    unsigned overwrites;
    bool passes_gradient; /* every input's gradient is the output's; B computes nothing */
    bool fuses_add;       /* backward_input adds call->add[i], which may be din[i] itself */
    /* A node of a loop over chunks of rows: where there is a backward, B does F as well. The last
     * node of each chunk has no outputs, and turns its input 0 into the gradient of that. */
    bool joined;
    bool finishes_in_b; /* B, not W, writes the parameters' gradients */
    /* F writes partials of its parameters, which are layer states, as others write gradients; R and
     * lists other than training do not. It has no outputs and no backward. */
    bool writes_partials;
    bool cheap;    /* its one output is recomputed for B and W, by F from F's inputs, not saved */
    bool core;     /* of attention: selective recomputation makes its outputs again */
    bool looks_up; /* reads rows of its parameters and multiplies nothing */
    bool by_ids;   /* those that its input 0 names; other rows have no gradient */
    const ech_layer *inverse; /* optional: whose F makes input 0 from the output and input 1 */
    /* Of collectives: those of F and of B; the functions are NULL. */
    ech_exchange exchange, exchange_back;
    bool in_place; /* a collective's output is its input */
};

/* The samples and positions of the rows of a call's input 0, and of the output of its shape. */
static inline const ech_rows *ech_call_rows(const ech_call *call)
{
    return call->node->sharded_rows ? &call->shard : &call->rows;
}
/* The samples and positions of the B x T' rows of context rank `index`. With a ring each sample's
 * rows are two runs, one from its front and one from its back, so that causal work is balanced
 * (zig-zag); else one run. */
ech_rows ech_context_rows(const ech_block_options *options, ech_extent extent, int64_t first_sample,
                          int index);
/* The dropout of a call, with its site's random stream; off outside of training. */
ech_dropout ech_call_dropout(const ech_call *call, double p, uint32_t site);
/* NULL where the tensor is absent. */
static inline const ech_tensor *ech_optional(const ech_tensor *x)
{
    return x->data ? x : NULL;
}
/* Scratch bytes of one matmul c (M,N) = op(a) op(b), K inner. */
size_t ech_query_matmul(const ech_scratch_query *query, int64_t M, int64_t N, int64_t K,
                        bool a_transposed, bool b_transposed, bool bias, bool add);

#endif
