/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers of plugins (echelon_plugin.h): rows of x become rows of y.
 *
 * With equal weights on all tensor ranks, a layer works on the rows that a rank has, like a norm.
 * With shards of weights it needs whole rows of x, and its outputs are partial sums, like a
 * column-parallel product that a row-parallel one follows.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/added.h"
#include "layer/layers.h"

static ech_added added = ECH_ADDED("layer");

ech_status ech_layer_plug(const char *plugin, const echelon_layer *row)
{
    ECH_TRY(ech_added_check(plugin, row->name, "declare", row->declare));
    ECH_TRY(ech_added_check(plugin, row->name, "forward", row->forward));
    ECH_TRY(ech_added_check(plugin, row->name, "backward", row->backward));
    return ech_added_put(&added, plugin, row->name, "", row);
}

const echelon_layer *ech_layer_find_plugged(const char *name)
{
    return ech_added_find(&added, name);
}

const char *ech_layer_plugged_names(void)
{
    return ech_added_names(&added, "");
}

/* ---- declarations ---- */

echelon_layer_needs ech_layer_plugged_needs(const echelon_layer *row, const echelon_sizes *sizes)
{
    echelon_layer_needs needs = {0};
    row->declare(sizes, &needs);
    return needs;
}

/* Reads the axes of a weight. Returns their number; 0: one is unknown, or there are too many. */
static int read_axes(const echelon_layer_needs *needs, const char *axes, ech_axis out[2])
{
    int n = 0;
    for (ECH_FREED_WORDS word = ech_words_in(axes); ech_words_next(&word);) {
        if (n == 2) return 0;
        bool is_ffn = strcmp(word.at, "FFN") == 0, is_other = strcmp(word.at, "OTHER") == 0;
        if (!is_ffn && !is_other && strcmp(word.at, "MODEL") != 0) return 0;
        out[n++] = is_ffn && needs->sharded ? ECH_AXIS_FFN
                   : is_ffn || is_other     ? ECH_AXIS_HEAD_DIM
                                            : ECH_AXIS_MODEL;
    }
    return n;
}

ech_shape ech_layer_plugged_shape(const echelon_layer_needs *needs, int weight)
{
    ech_axis axis[2];
    const echelon_weight *w = &needs->weight[weight];
    int n = read_axes(needs, w->axes, axis);
    return n == 1 ? ech_shape_1d(axis[0], w->shape[0])
                  : ech_shape_2d(axis[0], w->shape[0], axis[1], w->shape[1]);
}

static bool is_tensor_name(const char *name)
{
    const char *letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    return name && *name && strlen(name) <= 100 && !name[strspn(name, letters)];
}

static bool weight_fits(const echelon_layer_needs *needs, int i, const echelon_sizes *sizes,
                        int tensor, ech_text *why)
{
    ech_axis axis[2];
    const echelon_weight *w = &needs->weight[i];
    int n = read_axes(needs, w->axes, axis);
    bool has_ffn = false;
    if (!is_tensor_name(w->name)) {
        ech_text_append(why, "declares a weight \"%.40s\": use letters, digits, - _ and .",
                        w->name ? w->name : "");
        return false;
    }
    ech_text_append(why, "declares the weight %s: ", w->name);
    if (n == 0) {
        ech_text_append(why, "its axes are \"%.40s\"; use one or two of MODEL, FFN and OTHER",
                        w->axes ? w->axes : "");
        return false;
    }
    for (int d = 0; d < n; d++) {
        has_ffn |= axis[d] == ECH_AXIS_FFN;
        if (w->shape[d] < 1 || w->shape[d] > 10000000 ||
            (axis[d] == ECH_AXIS_MODEL && w->shape[d] != sizes->hidden_size)) {
            ech_text_append(why, "its size %lld along axis %d fits no such axis",
                            (long long)w->shape[d], d);
            return false;
        }
        if (axis[d] != ECH_AXIS_FFN || w->shape[d] % tensor == 0) continue;
        ech_text_append(why,
                        "%d tensor ranks do not divide its size %lld along FFN; use another "
                        "parallel.tensor",
                        tensor, (long long)w->shape[d]);
        return false;
    }
    if (needs->sharded && !has_ffn)
        ech_text_append(why, "it has no axis FFN, but the layer is sharded");
    else if (w->initializer != ECHELON_INIT_NORMAL && w->initializer != ECHELON_INIT_ZERO &&
             w->initializer != ECHELON_INIT_ONE)
        ech_text_append(why, "it has no known initializer");
    else if (!(w->std >= 0 && w->std <= 10))
        ech_text_append(why, "its std is not between 0 and 10");
    else
        why->n = 0;
    return why->n == 0;
}

bool ech_layer_plugged_fits(const echelon_layer *row, const echelon_sizes *sizes, int tensor,
                            ech_text *why)
{
    echelon_layer_needs needs = ech_layer_plugged_needs(row, sizes);
    if (needs.weights < 0 || needs.weights > ECHELON_MOST_WEIGHTS || needs.kept < 0 ||
        needs.kept > ECHELON_MOST_KEPT) {
        ech_text_append(why,
                        "declares %d weights and %d kept tensors; at most %d and %d are "
                        "possible",
                        needs.weights, needs.kept, ECHELON_MOST_WEIGHTS, ECHELON_MOST_KEPT);
        return false;
    }
    if (needs.weights && !row->backward_weights) {
        ech_text_append(why, "has weights, but the function backward_weights is missing (NULL)");
        return false;
    }
    for (int i = 0; i < needs.kept; i++)
        if (needs.kept_width[i] < 1 || needs.kept_width[i] > 10000000) {
            ech_text_append(why, "keeps %lld numbers per row; use 1 or more",
                            (long long)needs.kept_width[i]);
            return false;
        }
    for (int i = 0; i < needs.weights; i++)
        if (!weight_fits(&needs, i, sizes, tensor, why)) return false;
    return true;
}

/* ---- the node ---- */

typedef struct plugged_options {
    const echelon_layer *row;
    echelon_sizes sizes;
    echelon_layer_needs needs;
} plugged_options;

/* Tensors of a call. */
enum { X, Y, DY, DX, KEPT, WEIGHT = KEPT + ECHELON_MOST_KEPT };
enum { GRADIENT = WEIGHT + ECHELON_MOST_WEIGHTS, TENSORS = GRADIENT + ECHELON_MOST_WEIGHTS };
enum { FORWARD, BACKWARD, BACKWARD_WEIGHTS };

_Static_assert((int)TENSORS <= (int)ECH_USER_TENSORS, "they fit");
_Static_assert((int)ECHELON_MOST_WEIGHTS <= (int)ECH_MAX_PORTS, "and so do a node's");

echelon_array ech_plugged_array(const ech_tensor *x)
{
    echelon_array a = {.data = x->data, .dims = x->dims, .count = ech_tensor_count(x)};
    a.type = x->dtype == ECH_F64    ? ECHELON_FP64
             : x->dtype == ECH_BF16 ? ECHELON_BF16
             : x->dtype == ECH_F16  ? ECHELON_FP16
                                    : ECHELON_FP32;
    memcpy(a.shape, x->shape, (size_t)x->dims * sizeof *a.shape);
    return a;
}

static void run(const ech_user_call *call)
{
    const plugged_options *options = call->own[0];
    echelon_array array[TENSORS];
    for (int i = 0; i < TENSORS; i++) {
        array[i] = (echelon_array){0};
        if (call->tensor[i].data) array[i] = ech_plugged_array(&call->tensor[i]);
    }
    echelon_layer_work work = {.sizes = &options->sizes,
                               .rows = array[X].shape[0],
                               .x = array[X],
                               .y = array[Y],
                               .dy = array[DY],
                               .dx = array[DX],
                               .kept = &array[KEPT],
                               .weight = &array[WEIGHT],
                               .gradient = &array[GRADIENT],
                               .threads = call->threads};
    if (call->number[0] == FORWARD)
        options->row->forward(&work);
    else if (call->number[0] == BACKWARD)
        options->row->backward(&work);
    else
        options->row->backward_weights(&work);
}

static ech_tensor matrix_of(const ech_tensor *x)
{
    return x->data ? ech_tensor_matrix(x) : (ech_tensor){0};
}

static void call_plugin(const ech_call *call, int what)
{
    const plugged_options *options = call->node->options;
    const echelon_layer_needs *needs = &options->needs;
    ech_user_call user = {.name = options->row->name,
                          .run = run,
                          .own = {options},
                          .tensors = TENSORS,
                          .number = {what}};
    user.tensor[X] = matrix_of(&call->in[0]);
    if (what == FORWARD) user.tensor[Y] = matrix_of(&call->out[0]);
    if (what != FORWARD) user.tensor[DY] = matrix_of(&call->dout[0]);
    if (what == BACKWARD) user.tensor[DX] = matrix_of(&call->din[0]);
    for (int i = 0; i < needs->kept; i++) user.tensor[KEPT + i] = matrix_of(&call->keep[i]);
    for (int i = 0; i < needs->weights; i++) user.tensor[WEIGHT + i] = call->param[i];
    user.writes = what == FORWARD    ? 1u << Y | ((1u << needs->kept) - 1) << KEPT
                  : what == BACKWARD ? 1u << DX
                                     : ((1u << needs->weights) - 1) << GRADIENT;
    for (int i = 0; i < needs->weights && what == BACKWARD_WEIGHTS; i++) {
        user.tensor[GRADIENT + i] = call->dparam[i];
        if (!call->accumulate[i]) call->kernels->fill(call->context, &call->dparam[i], 0);
    }
    call->kernels->user(call->context, &user);
}

static void forward(const ech_call *call)
{
    call_plugin(call, FORWARD);
}

static void backward(const ech_call *call)
{
    call_plugin(call, BACKWARD);
}

static void backward_weight(const ech_call *call)
{
    call_plugin(call, BACKWARD_WEIGHTS);
}

/* As one product of the same number of multiplications. */
static ech_products products(const ech_block *block, const ech_node *node, ech_extent extent,
                             ech_phase phase)
{
    const plugged_options *o = node->options;
    const ech_shape *x = &block->value.at[node->in[0]].shape;
    double rows = (double)ech_shape_count(x, extent) / (double)o->sizes.hidden_size;
    double each = o->needs.multiplications / (o->needs.sharded ? extent.sharding.tensor : 1);
    (void)phase;
    return (ech_products){rows, each, 1, each > 0 ? 1 : 0};
}

static const ech_layer replicated = {.name = "plugged",
                                     .forward = forward,
                                     .backward_input = backward,
                                     .backward_weight = backward_weight,
                                     .products = products};
static const ech_layer sharded = {.name = "plugged_sharded",
                                  .forward = forward,
                                  .backward_input = backward,
                                  .backward_weight = backward_weight,
                                  .products = products,
                                  .shards_inside = true};

/* The shape of rows with `width` numbers each. */
static ech_shape rows_with(const ech_shape *x, int64_t width)
{
    ech_shape shape = *x;
    shape.axis[x->dims - 1] = ECH_AXIS_HEAD_DIM;
    shape.size[x->dims - 1] = width;
    return shape;
}

int ech_layer_plugged(ech_block *block, int x, const echelon_layer *row, const echelon_sizes *sizes,
                      const int *weight)
{
    plugged_options options = {row, *sizes, ech_layer_plugged_needs(row, sizes)};
    const echelon_layer_needs *needs = &options.needs;
    bool is_sharded = needs->sharded && ech_block_is_sharded(block, ECH_AXIS_FFN);
    if (is_sharded) x = ech_block_whole(block, x, true);
    ech_shape shape = block->value.at[x].shape;
    ech_node *node =
        ech_block_node(block, needs->sharded ? &sharded : &replicated, &options, sizeof options);
    ech_node_in(node, x);
    for (int i = 0; i < needs->weights; i++) ech_node_param(node, weight[i]);
    for (int i = 0; i < needs->kept; i++)
        ech_node_keep_wide(block, node, "kept", rows_with(&shape, needs->kept_width[i]));
    node->b =
        (ech_reads){.in = 1, .keep = (1u << needs->kept) - 1, .param = (1u << needs->weights) - 1};
    node->w = node->b;
    node->partial_gradient = ech_block_gradient_is_partial(block, ECH_AXIS_FFN) && is_sharded;
    int y = ech_node_out(block, node, "out", shape);
    return is_sharded ? ech_block_sum(block, y) : y;
}

/* ---- finite differences ---- */

enum { ROWS = 3, TRIED = 12 };

/* A layer with small sizes, in fp64. */
typedef struct trial {
    const echelon_layer *row;
    plugged_options options;
    ech_tensor tensor[TENSORS];
    double *dy; /* [ROWS C] */
} trial;

static double *make(ech_tensor *x, int64_t rows, int64_t columns, int dims, uint64_t seed)
{
    double *at = ech_calloc((size_t)(rows * columns), sizeof *at);
    for (int64_t i = 0; i < rows * columns && seed; i++)
        at[i] =
            2 * ech_random_unit(ech_random_word((ech_random_key){.seed = seed}, (uint64_t)i)) - 1;
    *x = dims == 1 ? ech_tensor_1d(at, ECH_F64, rows) : ech_tensor_2d(at, ECH_F64, rows, columns);
    return at;
}

static void compute(const trial *t, int what)
{
    ech_user_call call = {.run = run, .own = {&t->options}, .number = {what}, .threads = 1};
    call.tensors = TENSORS;
    memcpy(call.tensor, t->tensor, sizeof t->tensor);
    run(&call);
}

/* The sum of y times dy, over which derivatives are tried. */
static double value_of(const trial *t)
{
    const ech_tensor *y = &t->tensor[Y];
    double sum = 0;
    compute(t, FORWARD);
    for (int64_t i = 0; i < ech_tensor_count(y); i++) sum += ((double *)y->data)[i] * t->dy[i];
    return sum;
}

/* A kink of the function may be within one step, but hardly within three of them. */
static bool agrees(const trial *t, double *x, double derivative, double *found)
{
    const double is = *x, steps[] = {1e-5, 1e-4, 1e-6};
    for (int i = 0; i < 3; i++) {
        *x = is + steps[i];
        double up = value_of(t);
        *x = is - steps[i];
        double down = value_of(t);
        *x = is;
        *found = (up - down) / (2 * steps[i]);
        if (fabs(*found - derivative) <= 1e-5 * (1 + fabs(*found))) return true;
    }
    return false;
}

/* Tries some numbers of a tensor, whose derivatives are in `of`. */
static bool derives(const trial *t, const ech_tensor *x, const ech_tensor *of, const char *what,
                    ech_text *why)
{
    int64_t n = ech_tensor_count(x), step = n / TRIED + 1;
    for (int64_t i = 0; i < n; i += step) {
        double found = 0, derivative = ((const double *)of->data)[i];
        if (agrees(t, (double *)x->data + i, derivative, &found)) continue;
        ech_text_append(why,
                        "the gradient of %s is %.9g at number %lld, and finite differences of its "
                        "forward give %.9g",
                        what, derivative, (long long)i, found);
        return false;
    }
    return true;
}

/* Row 0 of y, before and after another row of x is changed. */
static bool is_by_rows(const trial *t, ech_text *why)
{
    const int64_t C = t->options.sizes.hidden_size;
    double *x = t->tensor[X].data;
    const double *y = t->tensor[Y].data;
    ECH_FREED double *before = ech_calloc((size_t)C, sizeof *before);
    compute(t, FORWARD);
    memcpy(before, y, (size_t)C * sizeof *before);
    for (int64_t c = 0; c < C; c++) x[C + c] += 0.5;
    compute(t, FORWARD);
    for (int64_t c = 0; c < C; c++) x[C + c] -= 0.5;
    if (memcmp(before, y, (size_t)C * sizeof *before) == 0) return true;
    ech_text_append(why,
                    "row 0 of y depends on row 1 of x, but a layer computes each row by itself");
    return false;
}

static void free_trial(trial *t)
{
    for (int i = 0; i < TENSORS; i++) free(t->tensor[i].data);
}

bool ech_layer_plugged_derives(const echelon_layer *row, ech_text *why)
{
    const echelon_sizes sizes = {16, 24, 4, 2, 4, 2, 0};
    trial t = {.row = row, .options = {row, sizes, {0}}};
    if (!ech_layer_plugged_fits(row, &sizes, 1, why)) return false;
    t.options.needs = ech_layer_plugged_needs(row, &sizes);
    const echelon_layer_needs *needs = &t.options.needs;
    int64_t C = sizes.hidden_size;
    make(&t.tensor[X], ROWS, C, 2, 1);
    make(&t.tensor[Y], ROWS, C, 2, 0);
    t.dy = make(&t.tensor[DY], ROWS, C, 2, 2);
    make(&t.tensor[DX], ROWS, C, 2, 0);
    for (int i = 0; i < needs->kept; i++)
        make(&t.tensor[KEPT + i], ROWS, needs->kept_width[i], 2, 0);
    for (int i = 0; i < needs->weights; i++) {
        ech_shape shape = ech_layer_plugged_shape(needs, i);
        int64_t columns = shape.dims == 2 ? shape.size[1] : 1;
        make(&t.tensor[WEIGHT + i], shape.size[0], columns, shape.dims, 3 + (uint64_t)i);
        make(&t.tensor[GRADIENT + i], shape.size[0], columns, shape.dims, 0);
    }
    bool good = is_by_rows(&t, why);
    compute(&t, FORWARD);
    compute(&t, BACKWARD);
    if (needs->weights) compute(&t, BACKWARD_WEIGHTS);
    if (good) good = derives(&t, &t.tensor[X], &t.tensor[DX], "x", why);
    for (int i = 0; i < needs->weights && good; i++)
        good =
            derives(&t, &t.tensor[WEIGHT + i], &t.tensor[GRADIENT + i], needs->weight[i].name, why);
    free_trial(&t);
    return good;
}
