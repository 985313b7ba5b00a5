/* SPDX-License-Identifier: Apache-2.0
 *
 * Plugins: optimizers, learning-rate curves, schedule orders, losses and layers of your own,
 * without a fork.
 * docs/plugins.md explains them; examples/plugins/ has one of each.
 *
 *     static const echelon_optimizer *const optimizers[] = {&lion, NULL};
 *     const echelon_plugin echelon_plugin_table = {
 *         .size = sizeof(echelon_plugin), .version = ECHELON_PLUGIN_VERSION, .name = "lion",
 *         .optimizers = optimizers};
 *
 *     cc -shared -fPIC -O2 -I include lion.c -o lion.so
 *
 * A run names the file, `training.plugins: ./lion.so`, and then the rows, `optimizer.name: lion`. A
 * program may instead call echelon_plugin_register (echelon.h) before it uses a run.
 *
 * Structs that the plugin fills begin with their size, which the plugin sets to sizeof the struct.
 * Fields that a plugin's older header lacks are 0. A struct with fields that this library does not
 * know is refused, unless they are 0. Rows, names and texts stay valid and unchanged until the
 * process ends.
 *
 * Functions must be deterministic: equal arguments give equal bits on every rank. Several threads
 * may call a function at the same time, for different tensors. Pointers in arguments are valid
 * until the function returns. A function must not call the library, and writes only what its
 * comment names. parallel.device=walled ends the process where a function accesses memory
 * outside of its tensors. Functions report no errors: a number that they cannot compute is NaN,
 * which ends the run as training.on_nonfinite says.
 */
#ifndef ECHELON_PLUGIN_H
#define ECHELON_PLUGIN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { ECHELON_PLUGIN_VERSION = 1, ECHELON_MOST_DIMS = 4 };

typedef enum echelon_type { ECHELON_FP32, ECHELON_FP64, ECHELON_BF16, ECHELON_FP16 } echelon_type;

/* A contiguous tensor, the last axis fastest. */
typedef struct echelon_array {
    void *data; /* NULL: the tensor is absent */
    echelon_type type;
    int dims;
    int64_t shape[ECHELON_MOST_DIMS];
    int64_t count; /* of all numbers */
} echelon_array;

/* Number i of an array of any type. Loops over many numbers are faster on a pointer of the type. */
static inline double echelon_get(const echelon_array *x, int64_t i)
{
    if (x->type == ECHELON_FP64) return ((const double *)x->data)[i];
    if (x->type == ECHELON_FP32) return ((const float *)x->data)[i];
    uint16_t half = ((const uint16_t *)x->data)[i];
    uint32_t bits = (uint32_t)half << 16;
    float value;
    if (x->type == ECHELON_FP16) { /* the exponent of fp32 is 112 larger; subnormals are exact */
        bits = (uint32_t)(half & 0x7fff) << 13;
        memcpy(&value, &bits, sizeof value);
        value *= (half & 0x7c00) == 0x7c00 ? 1 : 0x1p112F;
        memcpy(&bits, &value, sizeof bits);
        if ((half & 0x7c00) == 0x7c00) bits |= 0x7f800000;
        bits |= (uint32_t)(half & 0x8000) << 16;
    }
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Stores a number, rounded to nearest, ties to even. Narrow types round it to fp32 first. */
static inline void echelon_set(const echelon_array *x, int64_t i, double value)
{
    float narrow = (float)value, large, small;
    uint32_t bits, sign;
    if (x->type == ECHELON_FP64) {
        ((double *)x->data)[i] = value;
        return;
    }
    if (x->type == ECHELON_FP32) {
        ((float *)x->data)[i] = narrow;
        return;
    }
    memcpy(&bits, &narrow, sizeof bits);
    sign = bits & 0x80000000;
    bits &= 0x7fffffff;
    if (x->type == ECHELON_BF16) {
        bits = bits > 0x7f800000 ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    } else if (bits >= 0x47800000) { /* infinite, NaN, or at least 65536 */
        bits = bits > 0x7f800000 ? 0x7e00 : 0x7c00;
    } else if (bits < 0x38800000) { /* subnormal: an addition rounds to multiples of 2^-24 */
        memcpy(&small, &bits, sizeof small);
        large = small + 0.5F;
        memcpy(&bits, &large, sizeof bits);
        bits -= 0x3f000000;
    } else {
        bits = (bits - 0x38000000 + 0xfff + (bits >> 13 & 1)) >> 13;
    }
    ((uint16_t *)x->data)[i] = (uint16_t)(bits | sign >> 16);
}

/* Numbers of the run file. */
typedef struct echelon_numbers {
    double learning_rate, min_learning_rate, weight_decay; /* of the section optimizer */
    double beta1, beta2, eps, momentum;
    int nesterov;
    int64_t steps, warmup_steps, decay_steps; /* training.steps; optimizer.warmup_steps ... */
} echelon_numbers;

/* ---- optimizers ---- */

/* A trained parameter, whole. Of a stack of experts' parameters it is one expert's. Filters of a
 * convolution are the matrix (out, in x height x width), with the axes CHANNELS and PATCH. */
typedef struct echelon_param {
    const char *name; /* "model.layers.0.mlp.up_proj.weight"; of experts with %d for the number */
    int dims;         /* 1: a gain or bias; 2: a matrix */
    int64_t shape[ECHELON_MOST_DIMS];
    const char *axis[ECHELON_MOST_DIMS]; /* names of src/layer/axes.def: "FFN", "MODEL" */
} echelon_param;

/* An optimizer state: fp32 (fp64 in fp64 runs), zero before the first update, sharded as its axes
 * are, and saved in checkpoints. */
typedef struct echelon_state {
    const char *name; /* "exp_avg": lower-case letters, digits and _ */
    /* Names of the parameter's axes that the state has, separated by blanks; "": a single number.
     * NULL: all axes. With less than all axes, ranks that share those keep equal copies, so the
     * update must compute them from statistics. */
    const char *axes;
} echelon_state;

typedef enum echelon_fold { ECHELON_FOLD_SUM, ECHELON_FOLD_MAXIMUM } echelon_fold;

/* A number for each place of its axes, which combines the numbers of the parameter's other axes
 * over all ranks that have shards of these. fp64. */
typedef struct echelon_statistic {
    const char *axes; /* as echelon_state.axes, but not NULL and not all axes */
    echelon_fold fold;
    int round; /* 0 or 1: round 1 may read statistics of round 0 */
} echelon_statistic;

enum { ECHELON_MOST_STATES = 4, ECHELON_MOST_STATISTICS = 4 };

typedef struct echelon_needs {
    int states, statistics;
    echelon_state state[ECHELON_MOST_STATES];
    echelon_statistic statistic[ECHELON_MOST_STATISTICS];
} echelon_needs;

/* The work of a rank: it updates shards of one parameter and of its states. If all states have all
 * axes, and statistics all or none of them, the shards are any range of the parameter's numbers, as
 * ZeRO divides them; otherwise they are whole rows of a tensor rank's shard. */
typedef struct echelon_optimizer_work {
    const echelon_param *param;
    echelon_array weights;  /* fp32, or fp64 in fp64 runs; of narrower runs the master weights */
    echelon_array gradient; /* of the same shape, of any type; multiply it by gradient_scale */
    const echelon_array *state;     /* [states], as declared */
    const echelon_array *statistic; /* [statistics] */
    double gradient_scale;          /* undoes the loss scale, and clips */
    double learning_rate;           /* of this update, for this parameter */
    double weight_decay;            /* 0 for parameters without it */
    int64_t update;                 /* the update's number, from 1 */
    const echelon_numbers *numbers;
    int threads; /* that the function may use */
} echelon_optimizer_work;

typedef struct echelon_optimizer {
    size_t size;
    const char *name; /* optimizer.name */
    /* Keys that it reads and other optimizers need not, separated by blanks: "optimizer.beta1" */
    const char *reads;
    /* Fills *needs, which is 0. Called often, on any thread. */
    void (*declare)(const echelon_param *param, const echelon_numbers *numbers,
                    echelon_needs *needs);
    /* Writes this rank's part of the round's statistics, from the weights, the gradient, states and
     * earlier statistics. NULL: no statistics are declared. */
    void (*statistics)(const echelon_optimizer_work *work, int round);
    /* Writes the weights and states. Not called if the update is withheld. */
    void (*update)(const echelon_optimizer_work *work);
} echelon_optimizer;

/* ---- learning-rate curves ---- */

typedef struct echelon_curve {
    size_t size;
    const char *name;  /* optimizer.schedule */
    const char *reads; /* as echelon_optimizer.reads: "optimizer.min_learning_rate" */
    /* The learning rate at t, from 0 after the warmup to 1 at the end of the run, `steps` training
     * steps later. Called on the host. */
    double (*rate)(const echelon_numbers *numbers, double t, double steps);
} echelon_curve;

/* ---- schedule orders ---- */

/* The pipeline that an order is for. */
typedef struct echelon_pipe {
    int stages;        /* pipeline degree p */
    int chunks;        /* virtual stages per rank v; chunk c of stage s is virtual stage c p + s */
    int micro_batches; /* of a training step, on each rank */
} echelon_pipe;

typedef struct echelon_order {
    size_t size;
    const char *name; /* parallel.schedule: without a dot or a slash */
    /* Calls put(to, text) with the order, in as many pieces as it likes: a line per stage of words
     * F<chunk>.<micro>, B<chunk>.<micro> and W<chunk>.<micro>, as in a schedule file
     * (docs/formats.md). It puts nothing if it has no order for such a pipeline. */
    void (*write)(const echelon_pipe *pipe, void (*put)(void *to, const char *text), void *to);
} echelon_order;

/* ---- losses ---- */

/* A chunk of rows of whole logits. */
typedef struct echelon_loss_work {
    int64_t rows, vocabulary;
    echelon_array logits;   /* (rows, vocabulary), fp32, or fp64 in fp64 runs; only read */
    const int32_t *target;  /* [rows] the id of the next token; undefined if the weight is 0 */
    const float *weight;    /* [rows] 0: the row does not count */
    double *loss;           /* [rows] */
    echelon_array gradient; /* of the shape and type of logits */
    int threads;            /* that the function may use */
} echelon_loss_work;

/* The loss of a training step is the mean over its rows, by their weights. */
typedef struct echelon_loss {
    size_t size;
    const char *name; /* training.loss */
    /* Writes loss[r] of each row with a weight. The result depends on this row alone. */
    void (*forward)(const echelon_loss_work *work);
    /* Writes gradient[r][v], the derivative of loss[r] by logits[r][v], of each row with a
     * weight. */
    void (*backward)(const echelon_loss_work *work);
} echelon_loss;

/* ---- layers ---- */

/* Sizes of the model section. */
typedef struct echelon_sizes {
    int64_t hidden_size, intermediate_size, num_attention_heads, num_key_value_heads, head_dim;
    int64_t num_hidden_layers;
    int64_t layer; /* the number of this layer of the model, from 0 */
} echelon_sizes;

typedef enum echelon_initializer {
    ECHELON_INIT_NORMAL,
    ECHELON_INIT_ZERO,
    ECHELON_INIT_ONE
} echelon_initializer;

/* A parameter of a layer. With two axes it is a matrix in the compute type, with weight decay; with
 * one axis a vector in fp32 (fp64 in fp64 runs), without. */
typedef struct echelon_weight {
    const char *name; /* "mlp.up_proj.weight"; follows the layer's own, "model.layers.0" */
    /* One or two of MODEL (hidden_size), FFN and OTHER, separated by blanks. In a layer that is
     * sharded, FFN is divided among tensor ranks. */
    const char *axes;
    int64_t shape[2];
    echelon_initializer initializer;
    double std; /* of ECHELON_INIT_NORMAL; 0: model.initializer_range */
} echelon_weight;

enum { ECHELON_MOST_WEIGHTS = 4, ECHELON_MOST_KEPT = 2 };

typedef struct echelon_layer_needs {
    int weights, kept;
    echelon_weight weight[ECHELON_MOST_WEIGHTS];
    /* Numbers per row that the forward writes for the backward, fp32 (fp64 in fp64 runs). */
    int64_t kept_width[ECHELON_MOST_KEPT];
    /* 0: every tensor rank has all weights and computes the same. 1: each has its shards of FFN,
     * and y is the sum over tensor ranks of what each computes. Every weight then has FFN. */
    int sharded;
    /* Multiplications per row of the forward, whole, for estimates of time; 0: few. */
    double multiplications;
} echelon_layer_needs;

/* Rows of tokens. x, y and their gradients are (rows, hidden_size) in the run's types. */
typedef struct echelon_layer_work {
    const echelon_sizes *sizes; /* whole; shapes of weights are this rank's */
    int64_t rows;
    echelon_array x, y, dy, dx;
    const echelon_array *weight, *gradient; /* [weights] */
    const echelon_array *kept;              /* [kept] (rows, kept_width) */
    int threads;                            /* that the function may use */
} echelon_layer_work;

/* A layer that computes each row of y from the same row of x, where an attention or a feed-forward
 * layer would be. A mapping file names it (docs/mapping.md, `layers`). The functions may allocate
 * memory that they free. */
typedef struct echelon_layer {
    size_t size;
    const char *name;
    /* Fills *needs, which is 0. Called often, on any thread. */
    void (*declare)(const echelon_sizes *sizes, echelon_layer_needs *needs);
    void (*forward)(const echelon_layer_work *work); /* reads x; writes y and kept */
    /* Reads x, dy and kept, and writes dx. y is absent. */
    void (*backward)(const echelon_layer_work *work);
    /* Reads x, dy and kept, and adds to the weights' gradients. NULL: there are no weights. */
    void (*backward_weights)(const echelon_layer_work *work);
} echelon_layer;

/* ---- the plugin ---- */

/* Arrays end with NULL; an array that is NULL is empty. A name that another row of the program or
 * of another plugin has is refused. */
typedef struct echelon_plugin {
    size_t size;
    int version;      /* ECHELON_PLUGIN_VERSION */
    const char *name; /* of the plugin: letters, digits, - and _ */
    const echelon_optimizer *const *optimizers;
    const echelon_curve *const *curves;
    const echelon_order *const *orders;
    const echelon_loss *const *losses;
    const echelon_layer *const *layers;
} echelon_plugin;

/* The one symbol that a plugin's file defines. */
extern
#if defined(__GNUC__)
    __attribute__((visibility("default")))
#endif
    const echelon_plugin echelon_plugin_table;

#ifdef __cplusplus
}
#endif
#endif
