/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameters: a model's weights, and states that layers update themselves.
 */
#ifndef ECH_LAYER_PARAM_H
#define ECH_LAYER_PARAM_H

#include <stdbool.h>

#include "kernel/kernel.h"
#include "layer/shape.h"

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
    bool decay;          /* weight decay applies: true for matrices, false for norms and biases */
    double rate;         /* factor of the learning rate (optimizer.rates) */
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

#endif
