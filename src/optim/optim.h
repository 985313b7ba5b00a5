/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizers, learning-rate curves, gradient compression, and loss scaling. (Gradient clipping is
 * not here: the norm and clip factor are steps of the plan, schedule/framing.h.)
 *
 * An optimizer is a file and a row of optimizers.def. It declares the states that it keeps of each
 * parameter, and the statistics of the whole gradient that it needs before its update, computed in
 * rounds. It works on a shard of a parameter, of its gradient and states, and knows nothing about
 * ranks: if an axis over which a statistic is taken is sharded, the ranks' results are folded. Nor
 * does it know about stacks: a stack of experts' parameters is handed to it one matrix at a time,
 * as parameters with their own rows, columns, blocks and norms. Filters (O,C,KH,KW) are handed to
 * it as the matrix (O, C KH KW), so that its parameters are vectors and matrices.
 */
#ifndef ECH_OPTIM_OPTIM_H
#define ECH_OPTIM_OPTIM_H

#include <stdint.h>

#include <echelon_plugin.h>

#include "config/config.h"
#include "kernel/kernel.h"
#include "layer/layer.h"

enum { ECH_MAX_STATES = 7, ECH_MAX_STATISTICS = 8, ECH_MAX_ROUNDS = 2 };

/* The owner of a state. parallel.zero shards only optimizer states. The other states belong to
 * gradient compression (ech_compression_rank) and to replicas that diverge
 * (ech_strategy_meets). */
typedef enum ech_state_role {
    ECH_STATE_OPTIMIZER,
    /* gradient that a replica has not sent yet (error feedback): the parameter's shape, with an
     * axis REPLICAS in front */
    ECH_STATE_RESIDUAL,
    /* weights at the replicas' last synchronization, in the parameter's shape; with
     * ECH_MEETING_OWN with an axis REPLICAS in front: from a synchronization to the next training
     * step, each replica's own weights */
    ECH_STATE_ANCHOR,
    ECH_STATE_OUTER_MOMENTUM, /* of the outer optimizer, in the same shape */
    /* PowerSGD's right factor of the previous step, (columns of the matrix, rank), unsharded on
     * every rank */
    ECH_STATE_BASIS
} ech_state_role;

/* Data that an optimizer keeps of a parameter between updates and in checkpoints. */
typedef struct ech_state {
    const char *name; /* "exp_avg"; in checkpoints it follows the parameter's name. Static */
    /* Some or all of the parameter's axes, in its order. The state is sharded as these axes are;
     * ranks that differ only in the shard of another axis hold equal copies. */
    ech_shape shape;
    unsigned lacks; /* bit d: it has a single number along the parameter's dimension d */
    ech_type type;
    ech_dtype fixed; /* of ECH_TYPE_FIXED */
    /* it has one number for this many numbers of the parameter's last axis; 0: one per number */
    int64_t block;
    ech_state_role role;
} ech_state;

/* How the ranks' results for their shards are combined into the statistic of the whole. */
typedef enum ech_fold_of_shards {
    ECH_SHARDS_NOTHING, /* it stays the result for the rank's shards */
    ECH_SHARDS_SUM,     /* added in the order of shards */
    ECH_SHARDS_MAXIMUM,
    ECH_SHARDS_GATHER, /* concatenated: afterwards every rank has the unsharded tensor */
    /* One of the ranks that shard the parameter (parallel.zero) computes it from gathered tensors,
     * and sends each of the others its part. */
    ECH_SHARDS_OWNER
} ech_fold_of_shards;

/* Data that an optimizer computes before its update and does not keep. */
typedef struct ech_statistic {
    ech_state is; /* without a name; its axes as a state's */
    /* the round that computes it, from gradient, parameter, states and the statistics of earlier
     * rounds */
    int round;
    /* bit d: it combines numbers along the parameter's dimension d, so shards of d are folded */
    unsigned over;
    ech_fold_of_shards fold;
} ech_statistic;

/* The states and statistics that an optimizer needs for a parameter. */
typedef struct ech_optimizer_needs {
    int states, statistics;
    ech_state state[ECH_MAX_STATES]; /* [states] */
    /* the state with the full-precision parameter (the weights are its rounded copy); -1: none */
    int master;
    ech_statistic statistic[ECH_MAX_STATISTICS]; /* [statistics] */
} ech_optimizer_needs;

/* Inputs and outputs of an optimizer call: this rank's shards (of a stack, of one matrix), and the
 * update's numbers. */
typedef struct ech_optimizer_work {
    const struct ech_optimizer *row;
    const ech_config *config;
    const ech_kernels *kernels;
    ech_kernel_context *context;
    const ech_param *of;                /* the unsharded parameter (ech_optimizer_one) */
    const ech_param *whole;             /* the model's parameter; `of` may be one of its matrices */
    const ech_tensor *param, *gradient; /* param: the master if there is one */
    const ech_tensor *rounded; /* the weights, to be set to the rounded master; NULL: no master */
    const ech_tensor *state;   /* [states] in declaration order */
    /* [statistics] in declaration order; statistics of earlier rounds are folded, of later rounds
     * not yet valid. The update is their last reader and may overwrite them. */
    const ech_tensor *statistic;
    const ech_box *box; /* [boxes] where this rank's shard is in the unsharded parameter */
    int boxes;
    /* True if the shard is updated in pieces, and more of them follow. States that lack the first
     * dimension are whole in each piece, and change in the last. */
    bool continues;
    const ech_update *update;
} ech_optimizer_work;

/* What rounds read of a parameter besides its gradient and the states with fewer numbers than
 * elements. In order: each reads less than the one before. */
typedef enum ech_rounds_read {
    ECH_ROUNDS_READ_ALL, /* ech_optimizer_work.param, and element-wise states */
    ECH_ROUNDS_READ_PARAM,
    ECH_ROUNDS_READ_GRADIENT
} ech_rounds_read;

typedef struct ech_optimizer_rule {
    const char *name;
    double rate; /* factor of the learning rate */
} ech_optimizer_rule;

/* The functions' parameters are never stacks, but one matrix of a stack (ech_optimizer_one). */
typedef struct ech_optimizer {
    const char *name;
    const char *reads; /* blank-separated keys that this optimizer uses and some others do not */
    /* What rounds read of a parameter. NULL: all. */
    ech_rounds_read (*rounds_read)(const ech_param *param);
    /* Adds the states and statistics of a parameter under this configuration. States start at
     * zero. */
    void (*declare)(const ech_config *config, const ech_param *param, ech_optimizer_needs *needs);
    /* Sets the fields of `update` that come from the configuration. */
    void (*configure)(const ech_config *config, ech_update *update);
    /* Scratch bytes of its kernels for a shard with these sizes. NULL: none. */
    size_t (*scratch)(const ech_kernels *kernels, int threads, const ech_param *param,
                      const int64_t *size);
    /* The rule that updates a parameter. NULL: always the optimizer's own. */
    ech_optimizer_rule (*rule)(const ech_config *config, const ech_param *param);
    /* FLOPs of the products in a parameter's last round; a multiply-add counts as two. NULL:
     * none. */
    double (*flops)(const ech_param *param);
    /* Computes the statistics of a round; may change states. NULL: none are declared. */
    void (*round)(const ech_optimizer_work *work, int round);
    /* Updates param and states in place, and writes `rounded`. */
    void (*update)(const ech_optimizer_work *work);
    const echelon_optimizer *plugged; /* the plugin's row; NULL: it is the program's own */
} ech_optimizer;

/* A parameter as an optimizer sees it: of a stack, one matrix; of filters, their matrix. */
ech_param ech_optimizer_one(const ech_param *param);
/* What the configuration's optimizer needs for a parameter; the only source of this information.
 * For a stack, states and statistics are stacked likewise. Element-wise states of filters have the
 * filters' shape, unless replicas have separate ones. In bf16 and fp16 a parameter of
 * ECH_TYPE_COMPUTE has a master, the last state (Micikevicius et al. 2018, section 3.1). */
ech_optimizer_needs ech_optimizer_needs_of(const ech_config *config, const ech_param *param);
/* True if a state has one number per element of its parameter, in the same places. */
static inline bool ech_state_is_element_wise(const ech_state *state)
{
    return state->lacks == 0 && state->block == 0 && state->role != ECH_STATE_RESIDUAL &&
           state->role != ECH_STATE_BASIS;
}
/* True if the first dimension of the parameter, or of a stack's matrices, is in the set `dims`. */
static inline bool ech_optimizer_first_is_in(const ech_param *param, unsigned dims)
{
    return dims >> ech_shape_is_stack(&param->shape) & 1;
}
/* parallel.zero cuts a tensor rank's shard into parts for the ranks that hold copies of it. size:
 * the shard's, in the shape that optimizers see (ech_shape_seen). Returns the unit of these cuts:
 * one element, a block of a state, or a row. */
int64_t ech_optimizer_unit(const ech_optimizer_needs *needs, const ech_param *param,
                           const int64_t *size);
/* Finds the numbers of a state that belong to such a part: n elements of the shard from `first` on,
 * in whole units. *from: the first number in the state's shard; returns their count. A state that
 * lacks the first dimension belongs completely to every part that is not empty. In a stack, the
 * states of all matrices with elements in the part do. */
int64_t ech_state_part(const ech_state *state, const ech_param *param, const int64_t *size,
                       int64_t first, int64_t n, int64_t *from);
ech_rounds_read ech_optimizer_rounds_read(const ech_optimizer *optimizer, const ech_param *param);
ech_optimizer_rule ech_optimizer_rule_of(const ech_config *config, const ech_param *param);
/* For optimizers: adds a state of the wide type with the parameter's shape without the dimensions
 * in `lacks`. */
void ech_optimizer_add_state(ech_optimizer_needs *needs, const char *name, const ech_param *param,
                             unsigned lacks);
/* The same for a statistic over the dimensions in `over`: in fp64 if it is a sum or maximum, else
 * in the wide type. */
void ech_optimizer_add_statistic(ech_optimizer_needs *needs, int round, const ech_param *param,
                                 unsigned lacks, unsigned over, ech_fold_of_shards fold);
/* Number of shards of the axes over which the parameter's statistic is taken; 1: it is not
 * folded. */
int ech_statistic_shards(const ech_statistic *statistic, const ech_param *param,
                         ech_sharding sharding);

/* Checks that no shard splits a block of a state (ech_state.block). Errors: ECH_EUSAGE, logged. */
ech_status ech_optimizer_check_shards(const ech_config *config, const ech_param *param,
                                      ech_sharding sharding);
/* Checks that a resumed run has the same states as `saved`. Errors: ECH_EUSAGE, logged. */
ech_status ech_optimizer_check_resume(const ech_config *saved, const ech_config *now,
                                      const ech_param *param);

/* Checks that a resumed run freezes the same of the n parameters as `saved`: a checkpoint has no
 * states of frozen ones. Errors: ECH_EUSAGE, logged. */
ech_status ech_optimizer_check_frozen(const ech_config *saved, const ech_config *now,
                                      const ech_param *params, size_t n);

/* Checks what a plugin's optimizer declares for a parameter; the program's own pass. Errors:
 * ECH_EUSAGE, logged: an axis that the parameter lacks, a bad name, two states of a name, too
 * many, or statistics with servers. */
ech_status ech_optimizer_check_needs(const ech_config *config, const ech_param *param);
/* Adds a plugin's row. Errors: ECH_EUSAGE, logged: its name is taken, a function is missing, or
 * `reads` has a word that is not a key. */
ech_status ech_optimizer_plug(const char *plugin, const echelon_optimizer *row);
ech_status ech_curve_plug(const char *plugin, const echelon_curve *row);

const ech_optimizer *ech_optimizer_find(const char *name); /* NULL: none of that name */
const ech_optimizer *ech_optimizer_of(const ech_config *config);
const char *ech_optimizer_names(void); /* blank-separated */

typedef struct ech_curve {
    const char *name;
    const char *reads; /* as ech_optimizer.reads */
    /* The learning rate at t in [0, 1]: 0 is the end of the warmup, 1 the end of the run, `steps`
     * training steps later. */
    double (*rate)(const ech_config *config, double t, double steps);
    const echelon_curve *plugged; /* the plugin's row; NULL: it is the program's own */
} ech_curve;

const ech_curve *ech_curve_find(const char *name);
/* The curve of optimizer.schedule. With optimizer.relative_step = true: Adafactor's curve, which
 * ech_curve_find and ech_curve_names do not know. */
const ech_curve *ech_curve_of(const ech_config *config);
const char *ech_curve_names(void);

/* ECH_EUSAGE, logged: a key is set that only other optimizers, or curves, use. */
ech_status ech_optimizer_check_keys(const ech_config *config);
ech_status ech_curve_check_keys(const ech_config *config);
/* Marks the keys that the run's curve does not read, before required keys are checked
 * (ech_config_check). */
void ech_curve_mark_keys(const ech_config *config);

/* Parameter groups with their own learning rate and weight decay. Sets `decay` and `rate` of a
 * model's n parameters by patterns on their names, and by the optimizer's rules. optimizer.no_decay
 * has blank-separated patterns, optimizer.rates blank-separated words PATTERN=FACTOR; the last
 * pattern that matches a parameter determines its factor, and 0 freezes it. In patterns *
 * stands for any characters and ? for one (fnmatch). Errors, ECH_EUSAGE: a pattern that matches
 * nothing, a missing or negative FACTOR, all parameters frozen. */
ech_status ech_optimizer_group_params(const ech_config *config, ech_param *params, size_t n);
/* The part that blocks depend on: sets `frozen`, and `rate` by optimizer.rates alone. */
ech_status ech_optimizer_freeze_params(const ech_config *config, ech_param *params, size_t n);
/* True if the configuration names any group, or its optimizer has several rules. */
bool ech_optimizer_has_groups(const ech_config *config);

/* The learning rate of update number `count` (from 1). During the warmup: learning_rate count /
 * warmup_steps. Then the curve at the number of updates done before, as in PyTorch and
 * transformers. So the first update after the warmup has the highest rate, and the last update of
 * the run is one update short of the curve's end, not at 0. */
double ech_learning_rate(const ech_config *config, const ech_curve *curve, int64_t count);

/* Number of replicas with states of their own, which have an axis REPLICAS: data x context, if
 * gradients are compressed (residuals) or replicas diverge (their optimizer states). Otherwise
 * 1. */
int64_t ech_optimizer_replicas(const ech_config *config);
/* A state as a single replica has it: without that axis. */
ech_state ech_state_of_replica(const ech_state *state);

/* ---- gradient compression (parallel.compression) ---- */

/* True for a layer's matrix or a stack of such matrices; false for vectors and for tables by token
 * or position. */
bool ech_optimizer_is_matrix(const ech_param *param);
/* True if a compressed gradient is sent for the parameter. Each rank then keeps a residual of
 * it. */
bool ech_is_compressed(const ech_config *config, const ech_param *param);
/* The rank of the factors sent for a parameter's gradient (of each matrix of a stack):
 * parallel.compression_rank, or the shorter side if that is less, which represents the matrix
 * exactly. 0: the gradient is sent uncompressed. */
int64_t ech_compression_rank(const ech_config *config, const ech_param *param);
/* Top-k compression sends the largest numbers of each line of a parameter's gradient. Returns how
 * many per line; 0: the gradient is not compressed in this way. */
int64_t ech_compression_chosen(const ech_config *config, const ech_param *param);
/* Lines of a layer's matrix, or of each matrix of a stack, are its rows. True: they are its
 * columns, because some layouts cut rows and give each tensor rank a range of columns. So no layout
 * cuts a line, and the numbers that are sent do not depend on the layout. */
bool ech_compression_by_columns(const ech_param *param);
int64_t ech_compression_line(const ech_param *param); /* numbers of a line */
/* Adds residual and basis of a parameter with compressed gradients. */
void ech_compression_declare(const ech_config *config, const ech_param *param,
                             ech_optimizer_needs *needs);

/* ---- diverging replicas (parallel.strategy) ---- */

/* If replicas diverge: adds an axis REPLICAS to the optimizer's declared states, and adds anchor
 * and outer momentum. */
void ech_outer_declare(const ech_config *config, const ech_param *param,
                       ech_optimizer_needs *needs);

/* ---- loss scaling (precision.loss_scale) ---- The gradient of the loss is multiplied by the loss
 * scale, a power of two, so that small gradients do not vanish in fp16. Norms, gradient clipping
 * and updates see gradients divided by it again, which rounds nothing. Micikevicius et al. 2018,
 * arXiv:1710.03740.
 *
 * A dynamic scale follows Megatron-LM's DynamicGradScaler. It begins at 2^16. An overflow (a
 * gradient that is not finite although the loss is) reduces the tolerance by 1. If none is left, it
 * also halves the scale, to at least 1. 2,000 steps in a row without overflow double the scale, to
 * at most 2^40, and restore the tolerance. With a hysteresis of 2 a single overflow does not change
 * the scale. */

enum { ECH_SCALER_HYSTERESIS = 2 };

/* In fp64, like the other scalars. */
typedef struct ech_scaler {
    double scale;      /* of the next step */
    double good_steps; /* steps without overflow since the last one or since the scale grew */
    /* ECH_SCALER_HYSTERESIS minus the overflows since it was restored, at least 0. At 2 the next
     * overflow leaves the scale unchanged; at 1 and at 0 it halves the scale. */
    double tolerance;
    double overflows; /* since the run began */
} ech_scaler;

bool ech_scaler_is_dynamic(const ech_config *config);
/* The scaler of a run's first step. */
void ech_scaler_begin(const ech_config *config, ech_scaler *out);
/* Advances a dynamic scale after a step. */
void ech_scaler_take(ech_scaler *scaler, bool overflow);

#endif
