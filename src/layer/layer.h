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
 * Blocks (param.h, node.h, block.h, build.h) are structs without memory for tensors, which
 * src/schedule turns into steps, lives and offsets. A layer knows nothing about ranks, schedules or
 * recomputation. Nothing in these headers communicates or fails.
 *
 * If layers are sharded over ranks, builders see it from the names of axes (shape.h). A
 * row-parallel product, whose inner axis is sharded, makes a partial sum; a column-parallel
 * product, whose outer axis is sharded, needs its whole input. Builders insert COLLECTIVE nodes
 * between them, which compute nothing and name a group's collective (Shoeybi et al. 2019,
 * arXiv:1909.08053; Korthikanti et al. 2022, arXiv:2205.05198). Model files need not know.
 */
#ifndef ECH_LAYER_LAYER_H
#define ECH_LAYER_LAYER_H

#include "layer/block.h"
#include "layer/build.h"
#include "layer/param.h"

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
     * layer states by their own samples, and 0 in micro-batches of another replica. With backup
     * workers divided by the workers of an update. */
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
