/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts that batch norm of one replica (batch_norm.c) and of several (batch_norm_sync.c) share.
 * Private to src/layer.
 */
#ifndef ECH_LAYER_BATCH_NORM_H
#define ECH_LAYER_BATCH_NORM_H

#include "layer/layers.h"

/* Ports: of the norm, its inputs and parameters. */
enum {
    ECH_NORM_X,
    ECH_NORM_MEAN,
    ECH_NORM_VARIANCE,
    ECH_NORM_GAIN = 0,
    ECH_NORM_BIAS,
    ECH_NORM_RUNNING_MEAN,
    ECH_NORM_RUNNING_VARIANCE
};

typedef struct ech_norm_options {
    ech_layer_batch_norm_args norm;
    int64_t pixels; /* of a sample */
    int replicas;   /* whose rows have common statistics; 1: each replica has its own */
} ech_norm_options;

enum { ECH_NORM_TRAINING = 1u << ECH_TRAIN };

/* Adds a table (B,C), wide, of a group's statistic for each sample. */
int ech_norm_statistic(ech_block *block, ech_node *node, const char *name, int64_t channels);
/* Adds the inputs and parameters of a norm, and what its B reads, for `layer`. */
ech_node *ech_norm_node(ech_block *block, const ech_layer *layer, const ech_norm_options *options,
                        int x, int mean, int variance);
/* The norm's forward (ech_layer.forward). */
void ech_norm_forward(const ech_call *call);
/* ech_kernel_scratch of an operation with groups of the samples of input x, `groups` of them. */
size_t ech_norm_scratch(const ech_scratch_query *query, ech_op op, int x, int64_t groups);

/* Statistics of the micro-batches of all replicas (batch_norm_sync.c): sets mean[0] and variance[0]
 * to tables as ech_norm_statistic makes them. */
void ech_norm_sync_statistics(ech_block *block, const ech_norm_options *options, int x, int *mean,
                              int *variance);
/* The norm by these statistics. Returns its output. */
int ech_norm_sync(ech_block *block, const ech_norm_options *options, int x, int mean, int variance);

#endif
