/* SPDX-License-Identifier: Apache-2.0
 *
 * Building blocks (layer.h). Model files and the builders of layers.h call these functions. An int
 * that a function returns is a value of the block unless stated.
 */
#ifndef ECH_LAYER_BUILD_H
#define ECH_LAYER_BUILD_H

#include "layer/block.h"
#include "layer/param.h"

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
 * unchanged if there is no group. `counts` has a split for each member, whose sum is the number of
 * rows that the member gets. Returns the table of what the others sent. */
int ech_block_exchange_counts(ech_block *block, int counts);
/* Nodes between these two calls form a *round*; the forward keeps nothing of it. B recomputes what
 * it reads of a round right before its calls of that round's nodes, the last round first; these
 * calls also write their parameters' gradients (ech_layer.finishes_in_b). So only one round at a
 * time needs memory. also: a value computed before the rounds and read by them, which B recomputes
 * together with the last round; -1: none. */
void ech_block_begin_round(ech_block *block);
void ech_block_end_round(ech_block *block, int also);
/* Index of a slice among the `of` slices of splits; {0, 1}: a single slice with everything. */
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
 * member one after the other, with the counts of tables[0]; `slices` has a split of equal size for
 * each member, with the counts of tables[1]. Both return a value of the given shape, undefined
 * after the rows in use. */
int ech_block_exchange_rows(ech_block *block, int packed, const int tables[2], ech_shape slices,
                            ech_round round);
/* into: the result of the previous round, to which this one adds its slice; -1: a new value of the
 * shape `packed`. */
int ech_block_return_rows(ech_block *block, int slices, const int tables[2], ech_shape packed,
                          int into, ech_round round);
/* All-gathers slices of rows, (slices,ECH_AXIS_SLICE,width), of all tensor ranks, one after the
 * other; and reduce-scatters such slices of partial sums. counts: the table of all whole splits,
 * from which the round's slices follow. Rows that are not in use are not moved, and undefined.
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
/* Adds the parameters of a product, which B reads; bias: it is added to the result; -1: none. */
void ech_node_weights(ech_node *node, int weight, int bias);

/* Each adds a node that encodes the value and one that decodes the code right before each reader in
 * B and W (codes.c). */
void ech_block_encode_bits(ech_block *block, int value);
/* Room for non-zeros: block->options.encode_density. */
void ech_block_encode_sparse(ech_block *block, int value);
void ech_block_encode_places(ech_block *block, int value); /* a table of numbers below 16 */
void ech_block_encode_narrow(ech_block *block, int value, int bits); /* 16, 10 or 8 */

#endif
