/* SPDX-License-Identifier: Apache-2.0
 *
 * A BUCKET: parameters that are reduced and updated together, which of them this rank keeps, and
 * where.
 */
#ifndef ECH_SCHEDULE_BUCKET_H
#define ECH_SCHEDULE_BUCKET_H

#include "layout/layout.h"
#include "optim/optim.h"
#include "schedule/values.h"

/* Over whom statistics of a bucket are folded: first over its group, whose members have computed
 * them of their shards of it, then over tensor ranks. */
typedef enum ech_fold_over { ECH_FOLD_SHARDS, ECH_FOLD_TENSOR, ECH_FOLDS } ech_fold_over;

/* Whose a tensor of a bucket is: every member of its group has all of it; each has its own shard;
 * or each server has its shard, and workers have none of it, or copies. */
typedef enum ech_whose { ECH_WHOSE_ALL, ECH_WHOSE_SHARD, ECH_WHOSE_SERVERS } ech_whose;

/* Where a tensor of a bucket lies between the steps that work on it, and whose it is. */
typedef struct ech_keeping {
    ech_space where;
    ech_whose whose;
} ech_keeping;

/* The rows of a table that a turn reads and changes. */
typedef struct ech_listed {
    int64_t ids;  /* of a turn's batch: each names a row */
    int64_t most; /* that a list has room for; 0: steps work on all rows */
    /* persistent value: the list of even turns, and after it that of odd ones, since a batch is
     * there a turn ahead; -1: none */
    int value;
} ech_listed;

/* Parameters of one block whose gradients are reduced together, in the model's order; what is kept
 * of them element by element is contiguous. */
typedef struct ech_bucket {
    int block;               /* the first that uses its parameters (ech_param.block) */
    int first_param, params; /* its parameters are a range of plan.bucket_param */
    int64_t elements; /* of this rank's shards of parameters, padded; a multiple of `shard` */
    int64_t padding;  /* of these */
    int64_t unit;     /* parameters and shards begin at multiples of so many elements */
    /* The elements are cut into equal shards, one for each member of `group`, which counts its own
     * in norms. Shards are no tensor ranks' shards of parameters; they begin anywhere in them, at
     * multiples of plan.part in any type. */
    int64_t shard;
    int64_t own; /* where this rank's begins */
    /* Its parameters are layer states (ech_param.commit), alike on all members: its gradients are
     * their partials, one value for each turn, since forwards of the next turn may write before
     * this one's update. */
    bool commits;
    /* Of this rank: its weights, the sum of its gradients, and its optimizer's states, which are
     * updated where they lie, and by those whose they are. A worker's shard begins at the end: it
     * is empty. */
    ech_keeping of_weights, of_gradients, of_states;
    /* What is sent of its gradients (ech_is_compressed) lies in one value, in the wide type, which
     * its gradients have: once a turn, and of all of them. Factors: first the left ones of all its
     * matrices, then the right ones, which are summed. Or numbers that are chosen: the selection of
     * each member of `group`, with those of one parameter after the other, values and then
     * places. */
    bool compressed;
    /* over which factors are summed: where tensor ranks have shards of its matrices these,
     * too */
    ech_layout_group factored;
    int64_t left, right; /* elements of factors */
    int64_t chosen;      /* elements of a selection; 0: its gradients are not sent as selections */
    int factors; /* value of the turn whose steps the access pass is at: factors, or selections */
    /* and what its optimizer makes of a parameter one member makes for all (ECH_SHARDS_OWNER) */
    bool owned;
    /* Where steps go by a list of rows, its one parameter is a table of which a turn reads, and
     * changes, those rows alone that its batch names. Its gradients are zero where a turn
     * begins. */
    ech_listed rows;
    ech_dtype weight_dtype; /* of all its weights */
    ech_dtype dtype;        /* of all its gradients */
    ech_dtype wire;         /* in which they are reduced (ech_group_reduce) */
    ech_layout_group group; /* over which it is reduced */
    /* persistent value of slot 0; slot i is weights + i (plan.versions). `gathered`: a shard */
    int weights;
    int states; /* that are element-wise; each of its parameters has them */
    struct ech_flat_state {
        const char *name; /* ech_state.name */
        ech_dtype dtype;
        int value;           /* persistent value */
    } state[ECH_MAX_STATES]; /* [states] */
    /* Values of all its states, in plan.state_value: the element-wise ones, and then those of
     * parameters. None in plans of forwards alone. */
    int first_state_value, state_values;
    /* Statistics of its optimizer, of all rounds in one value. What ranks fold after a round lies
     * side by side. */
    int rounds;
    int64_t statistics_bytes;
    struct ech_folded {
        int64_t at, bytes; /* in that value; bytes 0: nothing is folded */
        /* GATHER, OWNER: they are of the wide type and lie like the bucket, so its shards meet by
         * one collective. Otherwise each is folded by itself. */
        ech_fold_of_shards flat;
    } folded[ECH_MAX_ROUNDS][ECH_FOLDS];
    int statistics; /* value of the turn whose steps the access pass is at, on the device */
    int statistics_on_host; /* the same on the host */
    /* The update on the host, and what it has copied, goes piece by piece: of what this rank
     * updates so many, of `piece` elements each, the last of the rest. 1: it is not cut. */
    int pieces;
    int64_t piece;
    int sum_on_host; /* value with the sum so far of the gradients that the access pass is at */
    /* Values with complete gradients, of even turns and of odd ones: an update may run under the
     * next turn. */
    int complete[2];
} ech_bucket;

/* The list of rows of a turn. */
static inline int ech_bucket_rows(const ech_bucket *bucket, int turn)
{
    return bucket->rows.value + turn % 2;
}

/* Whether what is done with its gradients and weights goes by a list of rows. */
static inline bool ech_bucket_is_listed(const ech_bucket *bucket)
{
    return bucket->rows.most > 0;
}

/* Whether this rank updates a part of it alone, and keeps the states of that part; or none. */
static inline bool ech_bucket_is_sharded(const ech_bucket *bucket)
{
    return bucket->of_states.whose != ECH_WHOSE_ALL;
}

/* Whether each micro-batch's gradients are an instance, a value that dies when it is scattered; the
 * sums add up in a value of this rank's shard. Otherwise an instance is of a turn, and is what is
 * summed. */
static inline bool ech_bucket_scatters_each(const ech_bucket *bucket)
{
    return bucket->of_gradients.whose == ECH_WHOSE_SHARD;
}

/* Whether steps of blocks read instances of its weights that are gathered for them. */
static inline bool ech_bucket_is_gathered(const ech_bucket *bucket)
{
    return bucket->of_weights.whose == ECH_WHOSE_SHARD;
}

/* Whether this rank is a server. */
static inline bool ech_bucket_serves(const ech_bucket *bucket)
{
    return bucket->of_weights.whose == ECH_WHOSE_SERVERS;
}

/* Whether its weights are in a window, where all ranks read them, and each of several writes its
 * own shard. */
static inline bool ech_bucket_is_in_window(const ech_bucket *bucket)
{
    return bucket->of_weights.where == ECH_SPACE_WINDOW;
}

/* Whether its weights lie on the host or on disk: steps of blocks read instances that are fetched,
 * or then gathered. */
static inline bool ech_bucket_is_fetched(const ech_bucket *bucket)
{
    return bucket->of_weights.where == ECH_SPACE_HOST || bucket->of_weights.where == ECH_SPACE_DISK;
}

/* Whether its gradients leave the device: while no step writes them their sum is on the host, and
 * complete ones stay there for the update (schedule/frame_gradients.c). */
static inline bool ech_bucket_leaves(const ech_bucket *bucket)
{
    return bucket->of_gradients.where != ECH_SPACE_DEVICE;
}

/* Whether steps of blocks read instances of its weights, not what the rank keeps. */
static inline bool ech_bucket_is_brought(const ech_bucket *bucket)
{
    return ech_bucket_is_gathered(bucket) || ech_bucket_is_fetched(bucket);
}

/* Whether this rank keeps of its weights its own shard alone. */
static inline bool ech_bucket_keeps_shard(const ech_bucket *bucket)
{
    return bucket->of_weights.whose != ECH_WHOSE_ALL;
}

/* Whether of its weights its own shard alone is what this rank holds (ech_plan_held), as one that
 * keeps all of them may. */
static inline bool ech_bucket_holds_shard(const ech_bucket *bucket)
{
    return ech_bucket_keeps_shard(bucket) ||
           (ech_bucket_is_in_window(bucket) && ech_bucket_is_sharded(bucket));
}

/* Whether this rank keeps of its gradients' sum its own shard alone. */
static inline bool ech_bucket_sums_shard(const ech_bucket *bucket)
{
    return bucket->of_gradients.whose != ECH_WHOSE_ALL;
}

/* Elements of that sum. */
static inline int64_t ech_bucket_summed(const ech_bucket *bucket)
{
    return ech_bucket_sums_shard(bucket) ? bucket->shard : bucket->elements;
}

/* Elements of its weights that this rank keeps. */
static inline int64_t ech_bucket_kept(const ech_bucket *bucket)
{
    return ech_bucket_keeps_shard(bucket) ? bucket->shard : bucket->elements;
}

/* Whether servers update it, and this rank is none of them. */
static inline bool ech_bucket_is_served(const ech_bucket *bucket)
{
    return bucket->of_states.whose == ECH_WHOSE_SERVERS && !ech_bucket_serves(bucket);
}

/* Whether of weights that are kept whole, elsewhere, members update shards: these meet on the
 * device. */
static inline bool ech_bucket_meets(const ech_bucket *bucket)
{
    return ech_bucket_is_fetched(bucket) && ech_bucket_is_sharded(bucket) &&
           !ech_bucket_is_gathered(bucket);
}

/* Elements of the bucket that this rank updates, and keeps states of. *first: where they begin. */
static inline int64_t ech_bucket_updated(const ech_bucket *bucket, int64_t *first)
{
    *first = ech_bucket_is_sharded(bucket) ? bucket->own : 0;
    if (ech_bucket_is_served(bucket)) return 0;
    return ech_bucket_is_sharded(bucket) ? bucket->shard : bucket->elements;
}

/* Those of a piece, from 1 on, or of all of them: 0. *first: where it begins among them. */
static inline int64_t ech_bucket_piece(const ech_bucket *bucket, int piece, int64_t *first)
{
    int64_t begin, all = ech_bucket_updated(bucket, &begin);
    *first = piece ? (piece - 1) * bucket->piece : 0;
    int64_t rest = all - *first;
    return piece && rest > bucket->piece ? bucket->piece : rest;
}

#endif
