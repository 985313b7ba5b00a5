/* SPDX-License-Identifier: Apache-2.0
 *
 * A BUCKET: parameters whose gradients are reduced together and which are updated together, and
 * what this rank stores of them where. Gradient accumulation over micro-batches, ZeRO's shards and
 * offloading are properties of a bucket.
 */
#ifndef ECH_SCHEDULE_BUCKET_H
#define ECH_SCHEDULE_BUCKET_H

#include "layout/layout.h"
#include "optim/optim.h"
#include "schedule/values.h"

/* The ranks over which a bucket's statistics are folded: first its group (each member computed them
 * of its own shard), then the tensor ranks. */
typedef enum ech_fold_over { ECH_FOLD_SHARDS, ECH_FOLD_TENSOR, ECH_FOLDS } ech_fold_over;

/* Distribution of a bucket's tensor: each member of the group stores all of it (ALL), or its own
 * shard (SHARD); or each server stores a shard, and workers store nothing or copies (SERVERS). */
typedef enum ech_whose { ECH_WHOSE_ALL, ECH_WHOSE_SHARD, ECH_WHOSE_SERVERS } ech_whose;

/* Where a tensor of a bucket is stored between steps, and how it is distributed. */
typedef struct ech_keeping {
    ech_space where;
    ech_whose whose;
} ech_keeping;

/* The rows of a table that a turn reads and changes. In a turn's gradients, and from the first PULL
 * on in this rank's weights, row k of the table is the list's row k: these rows lie together. The
 * table's other rows are in shared memory alone until the span ends. */
typedef struct ech_listed {
    int64_t ids;  /* ids in a turn's batch; each names a row */
    int64_t most; /* capacity of a list; 0: steps work on all rows */
    /* persistent value: the list of even turns, followed by the list of odd turns (a batch is
     * loaded one turn ahead); -1: none. Each has `most` rows, and then for each id, in the order of
     * micro-batches and sequence chunks, its row's index in the list; -1: the table has no such
     * row */
    int value;
} ech_listed;

/* Parameters of one block whose gradients are reduced together, in the model's order. Their
 * element-wise data is contiguous. */
typedef struct ech_bucket {
    int block;               /* first block that uses the parameters (ech_param.block) */
    int first_param, params; /* range in plan.bucket_param */
    /* elements of this rank's parameter shards with padding; a multiple of `shard` */
    int64_t elements;
    int64_t padding; /* padding elements among these */
    int64_t unit;    /* alignment of parameters and shards in elements */
    /* Elements per shard: the bucket is cut into equal shards, one per member of `group`, and each
     * member counts its own shard in norms. These are not the tensor ranks' shards of parameters;
     * they begin anywhere in those, at multiples of plan.part in any type. */
    int64_t shard;
    int64_t own; /* first element of this rank's shard */
    /* The parameters are layer states (ech_param.commit), equal on all members. The gradients are
     * their partials. Each turn has a value of its own, since forwards of the next turn may write
     * before this turn's update. */
    bool commits;
    /* The parameters are frozen: there are only weights, which are gathered or fetched like others.
     * No step writes, reduces or updates the bucket. */
    bool frozen;
    int versions; /* of the weights: 1 if they are frozen, otherwise plan.versions */
    /* Location and distribution of this rank's weights, gradient sum and optimizer states. States
     * are updated where they are stored, by the ranks that store them. A worker's shard is empty
     * and begins at the bucket's end. */
    ech_keeping of_weights, of_gradients, of_states;
    /* Gradients are sent compressed (ech_is_compressed), once per turn, as one value of the wide
     * type, which is also the gradients' type. It holds factors (all left factors, then all right
     * factors, both summed over ranks) or selections (one per member of `group`; in it parameter by
     * parameter, numbers before their places). */
    bool compressed;
    /* ranks over which factors are summed; includes tensor ranks that hold shards of the
     * matrices */
    ech_layout_group factored;
    int64_t left, right; /* elements of the left and of the right factors */
    int64_t chosen;      /* elements of a selection; 0: gradients are not sent as selections */
    int factors;         /* access pass: value with the current turn's factors or selections */
    /* one member computes the optimizer's products of a parameter for all (ECH_SHARDS_OWNER) */
    bool owned;
    /* If steps use row lists, the bucket's only parameter is a table. A turn reads and changes only
     * the rows that its batch names. The gradients are zero at the beginning of a turn. */
    ech_listed rows;
    ech_dtype weight_dtype; /* type of the weights */
    ech_dtype dtype;        /* type of the gradients */
    ech_dtype wire;         /* type in which gradients are reduced (ech_group_reduce) */
    ech_layout_group group; /* group over which gradients are reduced */
    /* persistent value of slot 0; slot i is weights + i (versions); a shard if `gathered` */
    int weights;
    int states; /* number of element-wise states; all its parameters have them */
    struct ech_flat_state {
        const char *name; /* ech_state.name */
        ech_dtype dtype;
        int value;           /* persistent value */
    } state[ECH_MAX_STATES]; /* [states] */
    /* All its states in plan.state_value: element-wise states first, then the states of single
     * parameters. Empty in plans without training. */
    int first_state_value, state_values;
    /* The optimizer's statistics, all rounds in one value. The numbers that ranks fold after one
     * round are contiguous. */
    int rounds;
    int64_t statistics_bytes;
    struct ech_folded {
        int64_t at, bytes; /* bytes from the value's beginning; bytes 0: nothing is folded */
        /* GATHER, OWNER: the numbers have the wide type and are laid out like the bucket, so one
         * collective folds all shards. Otherwise each statistic is folded separately. */
        ech_fold_of_shards flat;
    } folded[ECH_MAX_ROUNDS][ECH_FOLDS];
    int statistics;         /* access pass: the current turn's statistics, on the device */
    int statistics_on_host; /* access pass: the current turn's statistics, on the host */
    /* The number of pieces of `piece` elements each in which the host updates and copies the
     * bucket; the last may be shorter. 1: the bucket is not cut. Of its states only element-wise
     * ones are cut; the others are on the host, whole, from the first piece to the last. */
    int pieces;
    int64_t piece;
    int sum_on_host; /* access pass: value with the current gradient sum on the host */
    /* Values with complete gradients of even and of odd turns: an update may run during the next
     * turn. */
    int complete[2];
} ech_bucket;

/* The slot of a weight version: of a number of slots, by its number. */
static inline int ech_bucket_slot(const ech_bucket *bucket, int64_t version)
{
    int slot = (int)(version % bucket->versions);
    return slot < 0 ? slot + bucket->versions : slot;
}

/* Bytes of a row list. */
static inline int64_t ech_bucket_rows_bytes(const ech_bucket *bucket)
{
    return (bucket->rows.most + bucket->rows.ids) * (int64_t)sizeof(int32_t);
}

/* The value with a turn's row list. */
static inline int ech_bucket_rows(const ech_bucket *bucket, int turn)
{
    return bucket->rows.value + turn % 2;
}

/* True if steps use row lists for the gradients and weights. */
static inline bool ech_bucket_is_listed(const ech_bucket *bucket)
{
    return bucket->rows.most > 0;
}

/* True if this rank updates, and keeps states of, only a part of the bucket or nothing. */
static inline bool ech_bucket_is_sharded(const ech_bucket *bucket)
{
    return bucket->of_states.whose != ECH_WHOSE_ALL;
}

/* True if gradients are scattered per micro-batch (ZeRO 2): each micro-batch's gradients are an
 * instance that dies once it is scattered, and a value of this rank's shard accumulates the sum.
 * Otherwise there is one instance per turn, which is itself the sum. */
static inline bool ech_bucket_scatters_each(const ech_bucket *bucket)
{
    return bucket->of_gradients.whose == ECH_WHOSE_SHARD;
}

/* True if blocks read weights that are gathered for them (ZeRO 3, weight gathering). */
static inline bool ech_bucket_is_gathered(const ech_bucket *bucket)
{
    return bucket->of_weights.whose == ECH_WHOSE_SHARD;
}

/* The type in which the bucket is summed over the group. Differences between replicas have no loss
 * scale, and what a narrower type lost of them would be lost for good. */
static inline ech_dtype ech_bucket_wire(const ech_bucket *bucket, ech_layout_group group)
{
    return group == ECH_GROUP_REPLICAS ? bucket->dtype : bucket->wire;
}

/* True if this rank is a server. */
static inline bool ech_bucket_serves(const ech_bucket *bucket)
{
    return bucket->of_weights.whose == ECH_WHOSE_SERVERS;
}

/* True if the weights are in shared memory, which all ranks read. If several ranks write it, each
 * writes its own shard. */
static inline bool ech_bucket_is_in_shared(const ech_bucket *bucket)
{
    return bucket->of_weights.where == ECH_SPACE_SHARED;
}

/* True if the weights are stored on the host or on disk. Blocks read instances that are fetched,
 * and gathered if they are sharded as well. */
static inline bool ech_bucket_is_fetched(const ech_bucket *bucket)
{
    return bucket->of_weights.where == ECH_SPACE_HOST || bucket->of_weights.where == ECH_SPACE_DISK;
}

/* True if gradients leave the device: the sum is on the host while no step writes it, and complete
 * gradients stay there for the update (schedule/frame_gradients.c). */
static inline bool ech_bucket_leaves(const ech_bucket *bucket)
{
    return bucket->of_gradients.where != ECH_SPACE_DEVICE;
}

/* True if blocks read gathered or fetched copies instead of the stored weights. */
static inline bool ech_bucket_is_brought(const ech_bucket *bucket)
{
    return ech_bucket_is_gathered(bucket) || ech_bucket_is_fetched(bucket);
}

/* True if this rank stores only its own shard of the weights. */
static inline bool ech_bucket_keeps_shard(const ech_bucket *bucket)
{
    return bucket->of_weights.whose != ECH_WHOSE_ALL;
}

/* True if this rank is responsible only for its own shard of the weights (ech_plan_held), even if
 * it stores all of them. */
static inline bool ech_bucket_holds_shard(const ech_bucket *bucket)
{
    return ech_bucket_keeps_shard(bucket) ||
           (ech_bucket_is_in_shared(bucket) && ech_bucket_is_sharded(bucket));
}

/* True if this rank sums only its own shard of the gradients. */
static inline bool ech_bucket_sums_shard(const ech_bucket *bucket)
{
    return bucket->of_gradients.whose != ECH_WHOSE_ALL;
}

/* Elements of this rank's gradient sum. */
static inline int64_t ech_bucket_summed(const ech_bucket *bucket)
{
    return ech_bucket_sums_shard(bucket) ? bucket->shard : bucket->elements;
}

/* Elements of the weights that this rank stores. */
static inline int64_t ech_bucket_kept(const ech_bucket *bucket)
{
    return ech_bucket_keeps_shard(bucket) ? bucket->shard : bucket->elements;
}

/* The first element of the weights that this rank stores. */
static inline int64_t ech_bucket_first_kept(const ech_bucket *bucket)
{
    return ech_bucket_keeps_shard(bucket) ? bucket->own : 0;
}

/* True if servers update it and this rank is not a server. */
static inline bool ech_bucket_is_served(const ech_bucket *bucket)
{
    return bucket->of_states.whose == ECH_WHOSE_SERVERS && !ech_bucket_serves(bucket);
}

/* True if the weights are stored whole on the host or on disk, but each member updates a shard: the
 * shards are gathered on the device. */
static inline bool ech_bucket_meets(const ech_bucket *bucket)
{
    return ech_bucket_is_fetched(bucket) && ech_bucket_is_sharded(bucket) &&
           !ech_bucket_is_gathered(bucket);
}

/* Returns how many elements of the bucket this rank updates and keeps states of. *first: the first
 * of them. */
static inline int64_t ech_bucket_updated(const ech_bucket *bucket, int64_t *first)
{
    *first = ech_bucket_is_sharded(bucket) ? bucket->own : 0;
    if (ech_bucket_is_served(bucket)) return 0;
    return ech_bucket_is_sharded(bucket) ? bucket->shard : bucket->elements;
}

/* Returns the elements of a piece (from 1), or of all that this rank updates (piece 0). *first: the
 * piece's offset in the updated elements. */
static inline int64_t ech_bucket_piece(const ech_bucket *bucket, int piece, int64_t *first)
{
    int64_t begin, all = ech_bucket_updated(bucket, &begin);
    *first = piece ? (piece - 1) * bucket->piece : 0;
    int64_t rest = all - *first;
    return piece && rest > bucket->piece ? bucket->piece : rest;
}

#endif
