/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizers, learning-rate curves, and loss scaling.
 *
 * An optimizer is a file and a row of optimizers.def. It declares what it keeps of each parameter
 * (states), and what it must know of the whole gradient before its update (statistics, in rounds).
 * It works on a shard of a parameter, of its gradient and states, and knows nothing of ranks: where
 * an axis over which a statistic is taken is sharded, what the ranks have computed of their shards
 * is folded. Nor does it know of stacks: a parameter that is stacked of experts is as many
 * parameters, each with rows, columns, blocks and norms of its own, of which an optimizer is handed
 * one at a time.
 */
#ifndef ECH_OPTIM_OPTIM_H
#define ECH_OPTIM_OPTIM_H

#include <stdint.h>

#include "config/config.h"
#include "kernel/kernel.h"
#include "layer/layer.h"

enum { ECH_MAX_STATES = 7, ECH_MAX_STATISTICS = 8, ECH_MAX_ROUNDS = 2 };

/* Whose a state is. Only what an optimizer keeps is shared out by parallel.zero; the others are of
 * compressed gradients (ech_compression_rank), and of replicas that are apart
 * (ech_strategy_is_apart). */
typedef enum ech_state_role {
    ECH_STATE_OPTIMIZER,
    /* what a replica has not sent yet: the parameter's shape, with an axis REPLICAS before it */
    ECH_STATE_RESIDUAL,
    ECH_STATE_ANCHOR,         /* where replicas that are apart met last: of the parameter's shape */
    ECH_STATE_OUTER_MOMENTUM, /* of the outer optimizer, likewise */
    /* the right factor that comes next: a row for each of the matrix' columns, whole on every
     * rank */
    ECH_STATE_BASIS
} ech_state_role;

/* What an optimizer keeps of a parameter from update to update, and in checkpoints. */
typedef struct ech_state {
    const char *name; /* "exp_avg"; in checkpoints behind the parameter's name. Static */
    /* The parameter's axes, or some of them, in its order: it is sharded as these axes are, and
     * ranks that differ in another axis' shard hold it alike. */
    ech_shape shape;
    unsigned lacks; /* bit d: the parameter's dimension d, along which it has one number for all */
    ech_type type;
    ech_dtype fixed; /* of ECH_TYPE_FIXED */
    int64_t
        block; /* so many numbers of the parameter's last axis have one here; 0: each has its own */
    ech_state_role role;
} ech_state;

/* How what ranks have computed of their shards becomes the statistic of the whole. */
typedef enum ech_fold_of_shards {
    ECH_SHARDS_NOTHING, /* it stays what the rank has computed of its shards */
    ECH_SHARDS_SUM,     /* added in the order of shards */
    ECH_SHARDS_MAXIMUM,
    ECH_SHARDS_GATHER, /* side by side: afterwards every rank has the unsharded tensor */
    /* Made whole, from gathered ones: of ranks that share the parameter out (parallel.zero) by one,
     * whence each has its own part afterwards. */
    ECH_SHARDS_OWNER
} ech_fold_of_shards;

/* What an optimizer computes before its update and does not keep. */
typedef struct ech_statistic {
    ech_state is; /* without a name; its axes as a state's */
    /* that computes it, from gradient, parameter, states and the statistics of earlier rounds */
    int round;
    unsigned
        over; /* bit d: what is taken over dimension d of the parameter; 0: it is never folded */
    ech_fold_of_shards fold;
} ech_statistic;

/* What an optimizer needs for a parameter. */
typedef struct ech_optimizer_needs {
    int states, statistics;
    ech_state state[ECH_MAX_STATES]; /* [states] */
    /* the state that is the parameter in full, of which the weights are the rounding; -1: none */
    int master;
    ech_statistic statistic[ECH_MAX_STATISTICS]; /* [statistics] */
} ech_optimizer_needs;

/* What an optimizer works on: this rank's shards, of a stack those of one, and the update's
 * numbers. */
typedef struct ech_optimizer_work {
    const ech_kernels *kernels;
    ech_kernel_context *context;
    const ech_param *of;                /* the unsharded parameter (ech_optimizer_one) */
    const ech_tensor *param, *gradient; /* param: the master, where there is one */
    const ech_tensor *rounded; /* the weights, to be the master's rounding; NULL: no master */
    const ech_tensor *state;   /* [states] in the order in which they are declared */
    /* [statistics] likewise; of earlier rounds folded, those of later ones not yet valid. The
     * update is their last reader and may write to their memory. */
    const ech_tensor *statistic;
    const ech_box *box; /* [boxes] where this rank's shard lies in the unsharded parameter */
    int boxes;
    const ech_update *update;
} ech_optimizer_work;

typedef struct ech_optimizer_rule {
    const char *name;
    double rate; /* factor of the learning rate */
} ech_optimizer_rule;

/* Parameters that these functions take are never stacks, but one of each (ech_optimizer_one). */
typedef struct ech_optimizer {
    const char *name;
    const char *reads; /* blank-separated keys that this optimizer uses and some others do not */
    /* Adds the states and statistics of a parameter under this configuration. States start at
     * zero. */
    void (*declare)(const ech_config *config, const ech_param *param, ech_optimizer_needs *needs);
    /* Sets the fields of `update` that come from the configuration. */
    void (*configure)(const ech_config *config, ech_update *update);
    /* Scratch bytes of its kernels for a shard of such a parameter, of these sizes. NULL: none. */
    size_t (*scratch)(const ech_kernels *kernels, int threads, const ech_param *param,
                      const int64_t *size);
    /* Which rule updates a parameter. NULL: all have the optimizer's own. */
    ech_optimizer_rule (*rule)(const ech_config *config, const ech_param *param);
    /* FLOPs of the products of a parameter's last round; a multiply-add is two. NULL: none. */
    double (*flops)(const ech_param *param);
    /* Computes the statistics of a round; may change states. NULL: none are declared. */
    void (*round)(const ech_optimizer_work *work, int round);
    /* Updates param and states in place, and writes `rounded`. */
    void (*update)(const ech_optimizer_work *work);
} ech_optimizer;

/* A parameter as an optimizer sees it: of a stack one. */
ech_param ech_optimizer_one(const ech_param *param);
/* What the configuration's optimizer needs for a parameter: the one place that everybody else asks.
 * Of a stack these are states and statistics of all, stacked as it is. In bf16 and fp16 a parameter
 * of the compute type has a master, the last state (Micikevicius et al. 2018, section 3.1). */
ech_optimizer_needs ech_optimizer_needs_of(const ech_config *config, const ech_param *param);
/* Whether a state has one number for each of its parameter's elements, in their places. */
static inline bool ech_state_is_element_wise(const ech_state *state)
{
    return state->lacks == 0 && state->block == 0 && state->role != ECH_STATE_RESIDUAL &&
           state->role != ECH_STATE_BASIS;
}
/* The first dimension of the parameter, or of one of a stack: whether it is in a set of these. */
static inline bool ech_optimizer_first_is_in(const ech_param *param, unsigned dims)
{
    return dims >> ech_shape_is_stack(&param->shape) & 1;
}
/* A tensor rank's shard of a parameter, of these sizes, may be cut once more, over the ranks that
 * hold it alike (parallel.zero). Between the elements of a unit it is not: one element, a block of
 * a state, or a row. */
int64_t ech_optimizer_unit(const ech_optimizer_needs *needs, const ech_param *param,
                           const int64_t *size);
/* Which numbers of that tensor rank's shard of a state belong to n elements of the parameter's,
 * from `first` on, whole units: as many as are returned, from *from on. All of a state without the
 * first dimension do, unless n is 0; of a stack all of each one that has such elements. */
int64_t ech_state_part(const ech_state *state, const ech_param *param, const int64_t *size,
                       int64_t first, int64_t n, int64_t *from);
ech_optimizer_rule ech_optimizer_rule_of(const ech_config *config, const ech_param *param);
/* For optimizers: adds a wide state of the parameter's shape without the dimensions in `lacks`. */
void ech_optimizer_add_state(ech_optimizer_needs *needs, const char *name, const ech_param *param,
                             unsigned lacks);
/* The same of a statistic over the dimensions in `over`: in fp64 if it is a sum or maximum, else
 * wide. */
void ech_optimizer_add_statistic(ech_optimizer_needs *needs, int round, const ech_param *param,
                                 unsigned lacks, unsigned over, ech_fold_of_shards fold);
/* Into how many shards the axes are cut over which the statistic of that parameter is taken; 1: it
 * is not folded. */
int ech_statistic_shards(const ech_statistic *statistic, const ech_param *param,
                         ech_sharding sharding);

/* What only a model or a checkpoint shows. ECH_EUSAGE, logged:
 * shards that split blocks (ech_state.block); */
ech_status ech_optimizer_check_shards(const ech_config *config, const ech_param *param,
                                      ech_sharding sharding);
/* other states than those of the run that is resumed. */
ech_status ech_optimizer_check_resume(const ech_config *saved, const ech_config *now,
                                      const ech_param *param);

const ech_optimizer *ech_optimizer_find(const char *name); /* NULL: none of that name */
const ech_optimizer *ech_optimizer_of(const ech_config *config);
const char *ech_optimizer_names(void); /* blank-separated */

typedef struct ech_curve {
    const char *name;
    const char *reads; /* as an optimizer's */
    /* The learning rate at t in [0, 1]: 0 is the end of the warmup, 1 the end of the run, `steps`
     * training steps later. */
    double (*rate)(const ech_config *config, double t, double steps);
} ech_curve;

const ech_curve *ech_curve_find(const char *name);
/* That of optimizer.schedule, or with optimizer.relative_step = true one that has no name there. */
const ech_curve *ech_curve_of(const ech_config *config);
const char *ech_curve_names(void);

/* ECH_EUSAGE, logged: a key is set that only other optimizers, or curves, use. */
ech_status ech_optimizer_check_keys(const ech_config *config);
ech_status ech_curve_check_keys(const ech_config *config);
/* Marks what the run's curve does not read, before what is required is checked
 * (ech_config_check). */
void ech_curve_mark_keys(const ech_config *config);

/* Parameter groups, of one learning rate and weight decay: sets `decay` and `rate` of the n
 * parameters of a model by patterns on their names, and by the optimizer's rules.
 * optimizer.no_decay is blank-separated patterns, optimizer.rates blank-separated PATTERN=FACTOR;
 * in a pattern * stands for any characters and ? for one (fnmatch). Errors, ECH_EUSAGE: a pattern
 * that matches nothing, no FACTOR or a negative one, two factors for one parameter. */
ech_status ech_optimizer_group_params(const ech_config *config, ech_param *params, size_t n);
/* Whether the configuration names any, or its optimizer has several rules. */
bool ech_optimizer_has_groups(const ech_config *config);

/* The learning rate of update number `count` (from 1). During the warmup: learning_rate count /
 * warmup_steps. Then the curve at the number of updates done before, as in PyTorch and
 * transformers: so the first update after the warmup has the highest rate, and the last one of the
 * run is one update short of the curve's end: not 0. */
double ech_learning_rate(const ech_config *config, const ech_curve *curve, int64_t count);

/* How many have states of their own, which have an axis REPLICAS: data x context, where gradients
 * are compressed (residuals) or replicas are apart (what their optimizers keep). Otherwise 1. */
int64_t ech_optimizer_replicas(const ech_config *config);
/* A state as one of these has it: without that axis. */
ech_state ech_state_of_replica(const ech_state *state);

/* ---- compressed gradients (parallel.compression) ---- */

/* Whether it is a matrix of a layer, or of a stack each one is: no vector, and no table by token or
 * position. */
bool ech_optimizer_is_matrix(const ech_param *param);
/* Whether what is sent of its gradient is less than all of it: of such a parameter each rank keeps
 * a residual. */
bool ech_is_compressed(const ech_config *config, const ech_param *param);
/* The rank of the factors that are sent of a parameter's gradient, of a stack of each one's:
 * parallel.compression_rank, or the shorter side where that is less: two such factors are the
 * matrix itself. 0: the gradient is sent as it is. */
int64_t ech_compression_rank(const ech_config *config, const ech_param *param);
/* How many numbers are sent of each line of a parameter's gradient, of a stack of each one's; 0:
 * others. */
int64_t ech_compression_chosen(const ech_config *config, const ech_param *param);
/* Lines of a matrix of a layer, or of each one of a stack, are its rows; its columns if tensor
 * ranks share out these, under any layout. So no line is cut, and what is chosen of it is the
 * same. */
bool ech_compression_by_columns(const ech_param *param);
int64_t ech_compression_line(const ech_param *param); /* numbers of a line */
/* Adds residual, and basis, of a parameter that is compressed. */
void ech_compression_declare(const ech_config *config, const ech_param *param,
                             ech_optimizer_needs *needs);

/* ---- replicas that are apart (parallel.strategy) ---- */

/* Where replicas are: what the optimizer has declared gets an axis REPLICAS, and anchor and outer
 * momentum are added. */
void ech_outer_declare(const ech_config *config, const ech_param *param,
                       ech_optimizer_needs *needs);

/* ---- loss scaling (precision.loss_scale) ----
 *
 * The gradient of the loss is multiplied by the loss scale, a power of two, so that small gradients
 * do not vanish in fp16; norms, clipping and updates see gradients divided by it again, which
 * rounds nothing. Micikevicius et al. 2018, arXiv:1710.03740. A dynamic scale changes by the rule
 * of Megatron-LM's DynamicGradScaler: it begins at 2^16; an overflow (a gradient that is not finite
 * where the loss is) uses up tolerance, and while none is left halves the scale, to 1 at least;
 * 2,000 steps in a row without one double it, to 2^40 at most, and restore the tolerance. So with a
 * hysteresis of 2 one overflow alone changes nothing. */

enum { ECH_SCALER_HYSTERESIS = 2 };

/* In fp64, as the other scalars are. */
typedef struct ech_scaler {
    double scale;      /* of the next step */
    double good_steps; /* without overflow, since the last one or since the scale grew */
    /* the scale is halved by that overflow from now on, and by each one after it; 0: by the
     * next */
    double tolerance;
    double overflows; /* since the run began */
} ech_scaler;

bool ech_scaler_is_dynamic(const ech_config *config);
/* That of a run's first step. */
void ech_scaler_begin(const ech_config *config, ech_scaler *out);
/* After a step with a dynamic scale. */
void ech_scaler_take(ech_scaler *scaler, bool overflow);

#endif
