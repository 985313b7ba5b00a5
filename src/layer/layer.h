/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers and blocks: the differentiable parts of models.
 *
 * A LAYER is a row of layers.def, and an ech_layer of functions. It declares its outputs, what its
 * forward saves for its backward and what each phase reads. It computes forward (F), backward of
 * the input (B) and backward of the weights (W).
 *
 * A BLOCK is a small graph of layers, the unit of schedules. A model file writes its forward once,
 * and ech_block_finish derives its programs: the calls of F, B, W and R (activation recomputation),
 * in order.
 *
 *     int x = ech_block_input(block, "hidden", ech_shape_rows(ECH_AXIS_MODEL, C));
 *     int n = ech_layer_rmsnorm(block, x, weight, eps);        // layers.h: one builder per layer
 *     int y = ech_layer_linear(block, n, ...);
 *     ech_block_output(block, ech_layer_residual(block, x, y));
 *     ech_block_finish(block, params);
 *
 * Everything up to ech_call is a declaration: structs without memory for tensors, which
 * src/schedule turns into steps, lives and offsets. A layer knows nothing about ranks, schedules or
 * recomputation. Nothing here communicates or fails.
 *
 * If layers are sharded over ranks, builders see it from the names of axes (shape.h). A
 * row-parallel product, whose inner axis is sharded, makes a partial sum; a column-parallel
 * product, whose outer axis is sharded, needs its whole input. Builders insert COLLECTIVE nodes
 * between them, which compute nothing and name a group's collective (Shoeybi et al. 2019,
 * arXiv:1909.08053; Korthikanti et al. 2022, arXiv:2205.05198). Model files need not know.
 */
#ifndef ECH_LAYER_LAYER_H
#define ECH_LAYER_LAYER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"
#include "comm/collective.h"
#include "kernel/kernel.h"
#include "layer/samples.h"
#include "layer/shape.h"

enum { ECH_MAX_PORTS = 6 };

/* ---- parameters ---- */

typedef enum ech_initializer {
    ECH_INIT_ZERO,
    ECH_INIT_ONE,
    ECH_INIT_NORMAL,
    ECH_INIT_TRUNCATED, /* normals within two standard deviations (kernel.def: fill_truncated) */
    ECH_INIT_UNIFORM    /* within bounds */
} ech_initializer;

/* Parts of the adapter of a product with the weight X.weight (LoRA): X.lora_A.weight (r,in) and
 * X.lora_B.weight (out,r). */
typedef enum ech_adapter {
    ECH_ADAPTER_NONE, /* the parameter is the model's own */
    ECH_ADAPTER_A,
    ECH_ADAPTER_B
} ech_adapter;

struct ech_param;

/* The arguments of a layer state's commit: this rank's shard, after the partials of the turn's
 * micro-batches and of all ranks with other rows were summed. */
typedef struct ech_commit {
    const struct ech_param *of;
    const ech_kernels *kernels;
    ech_kernel_context *context;
    const ech_tensor *state;  /* updated in place; unchanged if the update is withheld */
    const ech_tensor *sum;    /* of the partials, fp64, of the state's shape */
    const ech_update *update; /* has `withheld`, a number on the device */
} ech_commit;

typedef struct ech_param {
    /* As on disk in Hugging Face checkpoints. In the name of a stack of experts' parameters, "%d"
     * stands for the expert's number, the first axis: on disk each expert has its own tensor. */
    const char *name;
    /* The tensor that it is a part of in a folder of weights, and its place there; NULL: it is a
     * tensor of its own. Without "%d" that tensor has all experts of a stack. */
    const char *file_name;
    ech_box_place place;
    ech_shape shape; /* unsharded, with named axes */
    ech_type type;   /* matrices are compute, gains and biases wide */
    ech_initializer initializer;
    /* of ECH_INIT_NORMAL and ECH_INIT_TRUNCATED, before truncation; ECH_INIT_UNIFORM: the bound */
    double std;
    bool decay;  /* weight decay applies: true for matrices, false for norms and biases */
    double rate; /* factor of the learning rate (optimizer.rates) */
    ech_adapter adapter; /* its part of a low-rank adapter */
    /* It keeps its value: it has no gradient, no states and no updates (ech_param_is_trained). */
    bool frozen;
    /* For a layer state, which no optimizer updates: forwards write partials of it instead of
     * gradients, and once per turn this computes the state's next version from their sum. NULL: a
     * trained parameter. */
    void (*commit)(const ech_commit *commit);
    double commit_rate; /* of the layer's own */
    /* The name of a scalar tensor in folders of weights that counts the commits, which no layer
     * reads: PyTorch's num_batches_tracked. NULL: there is none. */
    const char *counter;
    /* The axes of the device mesh along which its gradient is summed: ranks that differ only in
     * these coordinates each have a partial sum. Ranks that differ in another coordinate have
     * another shard, or the same gradient. */
    ech_mesh addends;
    int block; /* the block that declared it */
    int site;  /* index among that block's parameters; selects its random stream */
} ech_param;

/* True if the parameter has a gradient, which an optimizer applies. */
static inline bool ech_param_is_trained(const ech_param *param)
{
    return !param->commit && !param->frozen;
}

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
    ech_dtype dtype;   /* of ECH_TYPE_FIXED */
    ech_slot slot;     /* of ECH_FROM_BATCH */
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
     * input, to windows, with the table as the third input (> 0), or back (< 0). ALL_GATHER or
     * REDUCE_SCATTER of a node that goes by counts: moves windows; the second input is the table
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
    unsigned passes; /* inputs whose gradient equals the output's */
    unsigned constant; /* activations among the inputs that get no gradient from the node */
    uint32_t site;   /* index among the block's dropouts; selects its random stream */
    /* For inputs without rows, the value over whose rows they are sums: it decides whose partial
     * sums and reports are added. -1: the inputs have rows. */
    int rows_of;
    const ech_exchange *exchange; /* [2], of F and of B; NULL: the layer's */
    int report; /* the block's report to which F adds; -1: none */
    int round;  /* from 1: number of its round (ech_block_begin_round); 0: none */
    /* index among the block's nodes; copies and fused nodes have the index of the node that they
     * replace */
    int place;
    bool recompute_only;   /* not in the forward: recomputes a value for the backward */
    bool in_phase;         /* recompute_only: in R; otherwise right before the reader, in B or W */
    bool made_by_r;        /* the calls of R that B and W need recompute its outputs */
    bool sharded_rows;     /* input 0's rows are ech_call.shard, not ech_call.rows */
    /* its gradient of input 0 is a partial sum, which a collective completes */
    bool partial_gradient;
    bool back;             /* B is needed for gradients of inputs */
    bool trains;           /* some parameter has a gradient */
    bool goes_on;          /* F adds to an earlier node's outputs and saved values */
    bool is_part; /* B writes some rows of its input's gradient; other nodes write the rest */
    unsigned purposes;     /* bits 1 << purpose: lists in which F does something */
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
    unsigned fused;  /* bit 1 << row of fused.def: fused calls that the device's kernels have */
    bool reversible; /* blocks have two residual streams (RevNet) */
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

ech_block *ech_block_create(ech_pool *pool, const char *name, int index, ech_block_options options);
void ech_block_destroy(ech_block *block); /* accepts NULL */

int ech_block_input(ech_block *block, const char *name, ech_shape shape); /* of the stream's type */
/* The slot's value; samples of the block's kind (options.samples) fill the slot. */
int ech_block_batch(ech_block *block, ech_slot slot);
/* The value with the starts of documents, for layers that need positions; -1: a sample is one
 * document. */
int ech_block_starts(ech_block *block);
void ech_block_output(ech_block *block, int value);
/* True if many elements are 0 in every batch: the output of a ReLU, or of pools and dropout that
 * read one. A builder sets ech_block_value.zeros of the inputs of the next block by it. */
bool ech_block_has_zeros(const ech_block *block, int value);
/* Adds a view: columns of `value` from `first` on, as many as `shape` has, read as `shape`. A value
 * with views is read only through them, each view by one layer. */
int ech_block_view(ech_block *block, int value, int64_t first, ech_shape shape);
/* Makes the node report `numbers` numbers. Call it after its inputs, or `rows_of`, are set. */
void ech_block_report(ech_block *block, ech_node *node, const char *kind, const char *name,
                      int64_t numbers);
/* Derives the programs, the operands of their calls, and the addends of the parameters that its
 * nodes use. `params`: all of the model's (NULL: there are none). Nodes that share a parameter must
 * agree on its addends. The backward has no calls for frozen parameters, and stops where nothing
 * below is trained. */
void ech_block_finish(ech_block *block, ech_param *params);

/* The shape of values at block boundaries: (B,T',C), or under sequence parallelism this rank's
 * shard of their rows. */
ech_shape ech_block_stream(const ech_block *block, int64_t C);
/* For builders of column-parallel products: returns the unsharded value of x, and adds the
 * collective that sums the partial sums of its gradient (Megatron's f, or g of sequence
 * parallelism). kept: B also reads the value, so it is saved. */
int ech_block_whole(ech_block *block, int x, bool kept);
/* The same for a table of rows, which has no gradient. */
int ech_block_whole_table(ech_block *block, int table);
/* For builders that work on row shards: returns this tensor rank's rows of x, which is whole
 * without sequence parallelism; and all rows again, after which each rank has the full gradient.
 * Rows that are already sharded are returned unchanged. */
int ech_block_own_rows(ech_block *block, int x);
int ech_block_all_rows(ech_block *block, int y);
/* True if a node with that outer axis, which reads what ech_block_whole(x) returned, writes partial
 * sums of the gradient of x itself: without sequence parallelism, where x itself is whole. */
bool ech_block_gradient_is_partial(const ech_block *block, ech_axis axis);
/* For builders that reduce a sharded axis: makes x, a partial sum, the sum over tensor ranks. Its
 * readers make partial sums of its gradient (ech_node.partial_gradient). */
int ech_block_sum_both(ech_block *block, int x);
/* For builders of row-parallel products: returns the sum of the partial sums y (Megatron's g);
 * under sequence parallelism, this rank's rows of it. */
int ech_block_sum(ech_block *block, int y);
/* For builders of experts: exchanges row counts over the expert group; returns the argument
 * unchanged if there is no group. `counts` has a piece for each member, whose sum is the number of
 * rows that the member gets. Returns the table of what the others sent. */
int ech_block_exchange_counts(ech_block *block, int counts);
/* Nodes between these two calls form a *round*; the forward keeps nothing of it. B recomputes what
 * it reads of a round right before its calls of that round's nodes, the last round first; these
 * calls also write their parameters' gradients (ech_layer.finishes_in_b). So only one round at a
 * time needs memory. also: a value computed before the rounds and read by them, which B recomputes
 * together with the last round; -1: none. */
void ech_block_begin_round(ech_block *block);
void ech_block_end_round(ech_block *block, int also);
/* Index of a window among the `of` windows of pieces; {0, 1}: a single window with everything. */
typedef struct ech_round {
    int at, of;
} ech_round;
/* True if tables, the inputs after the first one, give the number of rows that the node's
 * collective moves. */
bool ech_node_goes_by_counts(const ech_node *node);
/* The round of such a node ({0, 1} otherwise); and the fraction of the rows' capacity that is
 * expected in its first round (1 otherwise). */
ech_round ech_node_round(const ech_node *node);
double ech_node_expected(const ech_node *node);
/* Exchanges rows between members (all-to-all with counts), and back. `packed` has the rows for each
 * member one after the other, with the counts of tables[0]; `windows` has a piece of equal size for
 * each member, with the counts of tables[1]. Both return a value of the given shape, undefined
 * after the rows in use. */
int ech_block_exchange_rows(ech_block *block, int packed, const int tables[2], ech_shape windows,
                            ech_round round);
/* into: the result of the previous round, to which this one adds its window; -1: a new value of the
 * shape `packed`. */
int ech_block_return_rows(ech_block *block, int windows, const int tables[2], ech_shape packed,
                          int into, ech_round round);
/* All-gathers windows of rows, (windows,ECH_AXIS_WINDOW,width), of all tensor ranks, one after the
 * other; and reduce-scatters such windows of partial sums. counts: the table of all whole pieces,
 * from which the round's windows follow. Rows that are not in use are not moved, and undefined.
 * Without tensor ranks both return their argument. */
int ech_block_gather_rows(ech_block *block, int rows, int counts, ech_round round, double expected);
int ech_block_scatter_rows(ech_block *block, int rows, int counts, ech_round round,
                           double expected);
/* Makes the backward read `recomputed`, which the block's last node computes right before each
 * read, instead of `value`. */
void ech_block_set_recompute(ech_block *block, int value, int recomputed);
bool ech_block_is_sharded(const ech_block *block, ech_axis axis); /* over tensor ranks */

/* The rows of fused.def with these blank-separated names: ech_block_options.fused. */
unsigned ech_fused_rows(const char *names);

/* For the builders in layer files. */
ech_node *ech_block_node(ech_block *block, const ech_layer *layer, const void *options,
                         size_t options_bytes);
/* Adds a node without options or parameters, of inputs x and y (-1: x only). B reads the inputs in
 * `reads` (bit i: input i). Returns its output, of the type of x. */
int ech_block_add(ech_block *block, const ech_layer *layer, int x, int y, unsigned reads,
                  ech_shape out);
void ech_node_in(ech_node *node, int value);
/* Adds the optional input `starts` (-1: none). Returns its bit for the masks of ech_reads. */
unsigned ech_node_starts(ech_node *node, int starts);
/* Adds an output that an earlier node made; this node works on it in place. */
void ech_node_out_in_place(ech_node *node, int value);
int ech_node_out(ech_block *block, ech_node *node, const char *name, ech_shape shape);
/* Adds an output of that value's shape and type. */
int ech_node_out_like(ech_block *block, ech_node *node, int value);
/* Adds a table: an output without gradient, of the wide type or, with ECH_TYPE_FIXED, of type
 * `fixed`. A node may have such outputs beside others; it has a B only if one of its outputs has a
 * gradient. */
int ech_node_out_table(ech_block *block, ech_node *node, const char *name, ech_shape shape,
                       ech_type type, ech_dtype fixed);
/* Adds an output that has a part of the code of a kept value, of `type` or `fixed` as above. */
int ech_node_out_code(ech_block *block, ech_node *node, ech_kept kept, ech_shape shape,
                      ech_type type, ech_dtype fixed);
/* Adds a value of ECH_ROLE_SCRATCH, which nodes write one after the other
 * (ech_node_out_in_place). */
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
/* Index of the call's node in the graph; for copies, of the node that they replace; -1: none. */
static inline int ech_call_place(const ech_block *block, const ech_block_call *call)
{
    return call->node < 0 ? -1 : block->node.at[call->node].place;
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
/* ---- running ---- */

/* The arguments of a layer's functions. Ports follow the node's; data is NULL where a tensor is
 * absent or not needed in this phase. */
typedef struct ech_call {
    const ech_node *node;
    const ech_kernels *kernels;
    ech_kernel_context *context; /* its scratch has the bytes that ech_layer.scratch returned */
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
    /* add to dparam (gradient accumulation); otherwise overwrite it */
    bool accumulate[ECH_MAX_PORTS];
    uint64_t seed;                    /* of dropout, with the next two */
    const int64_t *step;              /* the training step's number, on the device */
    uint32_t layer;                   /* index of the block in the model */
    const ech_block_options *options; /* how the model is parallelized */
    ech_rows rows;                    /* the samples and positions of this rank's B x T' rows */
    ech_rows shard;                   /* the same for its row shard */
    /* coordinate along the tensor axis; size 0 or 1: no tensor parallelism */
    int tensor_index, tensor_size;
    int context_index, context_size;
    double *loss_sums;   /* ECH_LOSS_SUMS in fp64, added to */
    double *hits;        /* ECH_HITS in fp64, added to */
    /* The numbers of the node's report in fp64, on the device; the call adds to them. NULL: it does
     * not report. */
    double *reported;
    double *loss_factor; /* of the loss's gradient: loss scale / global token count */
    /* Factor of partials that are means over a step's samples: the number of replicas that commit
     * layer states by their own samples, and 0 in micro-batches of another replica. */
    double state_share;
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
    /* Optional: NULL if no input has a gradient, or with `passes_gradient`. */
    void (*backward_input)(const ech_call *call);
    /* Optional: NULL if there are no parameters, or if B computes their gradients. */
    void (*backward_weight)(const ech_call *call);
    size_t (*scratch)(const ech_scratch_query *query); /* optional: NULL needs none */
    /* Optional: the matrix products of one run, all of one shape, for estimates of time. NULL:
     * none. */
    ech_products (*products)(const ech_block *block, const ech_node *node, ech_extent extent,
                             ech_phase phase);
    /* Inputs whose gradient B may write over them: it reads each element first. */
    unsigned overwrites;
    bool renews;          /* F may write output 0 over input 0: it reads each element first */
    bool passes_gradient; /* every input's gradient is the output's; B computes nothing */
    bool fuses_add;       /* backward_input adds call->add[i], which may be din[i] itself */
    /* A node of a loop over chunks of rows: if there is a backward, B also does F. The last node of
     * each chunk has no outputs, and turns its input 0 into its gradient. */
    bool joined;
    bool finishes_in_b; /* B, not W, writes the parameters' gradients */
    /* F writes partials of its parameters, which are layer states, as other layers write gradients;
     * R and lists other than training do not. It has no outputs and no backward. */
    bool writes_partials;
    /* The output that F makes, its first one, is not saved; B and W recompute it by F from F's
     * inputs. */
    bool cheap;
    /* What B and W need of the inputs and outputs that they read (ech_reads). */
    ech_need needs_in, needs_out;
    bool keeps_zeros; /* if many elements of input 0 are 0, so are many of the output */
    bool encodes;  /* writes the code of input 0, which is kept in its place (codes.c) */
    bool core;     /* of attention: selective recomputation recomputes its outputs */
    bool shards_inside; /* its parameters may be sharded along axes that its values lack */
    bool looks_up; /* reads rows of its parameters without products */
    bool by_ids;   /* the rows that its input 0 names; other rows have no gradient */
    /* optional: the layer whose F computes input 0 from the output and input 1 */
    const ech_layer *inverse;
    /* For collectives: the collectives of F and of B; the functions are NULL. */
    ech_exchange exchange, exchange_back;
    bool in_place; /* a collective's output is its input */
};

/* The samples and positions of the rows of a call's input 0, and of the output of its shape. */
static inline const ech_rows *ech_call_rows(const ech_call *call)
{
    return call->node->sharded_rows ? &call->shard : &call->rows;
}
/* The samples and positions of the B x T' rows of context rank `index`. With ring attention each
 * sample's rows are two runs, one from its front and one from its back, to balance causal work
 * (zig-zag); else one run. */
ech_rows ech_context_rows(const ech_block_options *options, ech_extent extent, int64_t first_sample,
                          int index);
/* The dropout of a call, with its site's random stream; off outside of training. */
ech_dropout ech_call_dropout(const ech_call *call, double p, uint32_t site);
/* NULL if the tensor is absent. */
static inline const ech_tensor *ech_optional(const ech_tensor *x)
{
    return x->data ? x : NULL;
}
/* Scratch bytes of one matmul c (M,N) = op(a) op(b), K inner. */
size_t ech_query_matmul(const ech_scratch_query *query, int64_t M, int64_t N, int64_t K,
                        bool a_transposed, bool b_transposed, bool bias, bool add);

#endif
