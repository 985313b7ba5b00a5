/* SPDX-License-Identifier: Apache-2.0
 *
 * Losses of plugins (echelon_plugin.h).
 */
#include <math.h>
#include <string.h>

#include "base/added.h"
#include "layer/plugged.h"

static const char built_in[] = "cross_entropy ";
static ech_added added = ECH_ADDED("loss");

ech_status ech_loss_plug(const char *plugin, const echelon_loss *row)
{
    ECH_TRY(ech_added_check(plugin, row->name, "forward", row->forward));
    ECH_TRY(ech_added_check(plugin, row->name, "backward", row->backward));
    return ech_added_put(&added, plugin, row->name, built_in, row);
}

const char *ech_loss_names(void)
{
    return ech_added_names(&added, built_in);
}

const echelon_loss *ech_loss_plugged(int number)
{
    return number > 0 ? added.at[number - 1] : NULL;
}

/* ---- a chunk ---- */

/* Tensors of a call. WHOLE and GRADIENT are (n,V), OWN (n,own), all in scratch. */
enum { LOGITS, TARGETS, WEIGHTS, SUMS, SCALE, LOSSES, WHOLE, GRADIENT, OWN, TENSORS };
enum { VOCABULARY, PADDED, FIRST, COLUMNS, SHARDS, TURNS };

_Static_assert((int)TENSORS <= (int)ECH_USER_TENSORS && (int)TURNS < (int)ECH_USER_NUMBERS, "fit");

static ech_dtype wide_of(ech_dtype dtype)
{
    return ech_dtype_wide(dtype);
}

static double get(const ech_tensor *x, int64_t i)
{
    return x->dtype == ECH_F64 ? ((const double *)x->data)[i] : ((const float *)x->data)[i];
}

static void put(const ech_tensor *x, int64_t i, double value)
{
    if (x->dtype == ECH_F64)
        ((double *)x->data)[i] = value;
    else
        ((float *)x->data)[i] = (float)value;
}

/* Rows of the shards become rows of the vocabulary. */
static void assemble(const ech_user_call *call, int64_t n)
{
    const ech_tensor *from = &call->tensor[LOGITS], *to = &call->tensor[WHOLE];
    int64_t V = call->number[VOCABULARY], padded = call->number[PADDED];
    size_t bytes = ech_dtype_bytes(from->dtype);
    for (int64_t s = 0; s < call->number[SHARDS]; s++) {
        int64_t first = s * padded, columns = V - first < padded ? V - first : padded;
        const char *rows = (const char *)from->data + (size_t)(s * n * padded) * bytes;
        for (int64_t r = 0; r < n && columns > 0; r++)
            memcpy((char *)to->data + (size_t)(r * V + first) * bytes,
                   rows + (size_t)(r * columns) * bytes, (size_t)columns * bytes);
    }
}

static echelon_array array_of(const ech_tensor *x, int64_t rows, int64_t columns)
{
    return (echelon_array){.data = x->data,
                           .type = x->dtype == ECH_F64 ? ECHELON_FP64 : ECHELON_FP32,
                           .dims = 2,
                           .shape = {rows, columns},
                           .count = rows * columns};
}

/* This rank's columns of the gradient, of the logits before factor and cap. */
static void turn(const ech_user_call *call, const double *limits, const float *weight, int64_t n)
{
    const ech_tensor *whole = &call->tensor[WHOLE], *gradient = &call->tensor[GRADIENT];
    const ech_tensor *own = &call->tensor[OWN];
    int64_t V = call->number[VOCABULARY], first = call->number[FIRST];
    int64_t columns = call->number[COLUMNS];
    double scale = *(const double *)call->tensor[SCALE].data * limits[0], cap = limits[1];
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < columns; c++) {
            int64_t at = r * V + first + c;
            double z = get(whole, at), slope = cap > 0 ? 1 - z / cap * (z / cap) : 1;
            double value = weight[r] == 0 ? 0 : get(gradient, at) * weight[r] * scale * slope;
            put(own, r * columns + c, value);
        }
}

static void run(const ech_user_call *call)
{
    const echelon_loss *row = call->own[0];
    const ech_logits *with = call->own[1];
    const float *weight = call->tensor[WEIGHTS].data;
    double *losses = call->tensor[LOSSES].data, *sums = call->tensor[SUMS].data;
    int64_t n = call->tensor[TARGETS].shape[0], V = call->number[VOCABULARY];
    assemble(call, n);
    echelon_loss_work work = {.rows = n,
                              .vocabulary = V,
                              .logits = array_of(&call->tensor[WHOLE], n, V),
                              .target = call->tensor[TARGETS].data,
                              .weight = weight,
                              .loss = losses,
                              .gradient = array_of(&call->tensor[GRADIENT], n, V),
                              .threads = call->threads};
    row->forward(&work);
    for (int64_t r = 0; r < n; r++) {
        if (weight[r] == 0) continue;
        sums[ECH_LOSS_SUM] += (double)weight[r] * losses[r];
        sums[ECH_LOSS_WEIGHT] += (double)weight[r];
    }
    if (!call->number[TURNS]) return;
    row->backward(&work);
    turn(call, (const double[]){with->factor, with->cap}, weight, n);
}

size_t ech_loss_plugged_scratch(ech_dtype dtype, int64_t n, int64_t V)
{
    return (size_t)n * sizeof(double) + 3 * (size_t)(n * V) * ech_dtype_bytes(wide_of(dtype));
}

void ech_loss_call_plugged(const ech_call *call, const ech_loss_chunk *chunk)
{
    int64_t n = chunk->targets.shape[0], V = chunk->vocabulary;
    ech_dtype wide = wide_of(call->kernels->dtype);
    size_t bytes = ech_dtype_bytes(wide);
    char *scratch = call->context->scratch, *numbers = scratch + (size_t)n * sizeof(double);
    ech_user_call user = {.name = chunk->row->name,
                          .run = run,
                          .own = {chunk->row, chunk->with},
                          .tensors = TENSORS,
                          .number = {[VOCABULARY] = V,
                                     [PADDED] = chunk->padded,
                                     [FIRST] = chunk->first_id,
                                     [COLUMNS] = chunk->own,
                                     [SHARDS] = chunk->shards,
                                     [TURNS] = chunk->backward}};
    user.writes = 1u << SUMS | 1u << LOSSES | 1u << WHOLE | 1u << GRADIENT | 1u << OWN;
    user.tensor[LOGITS] = chunk->logits;
    user.tensor[TARGETS] = chunk->targets;
    user.tensor[WEIGHTS] = chunk->weights;
    user.tensor[SUMS] = chunk->sums;
    if (chunk->backward) user.tensor[SCALE] = chunk->scale;
    user.tensor[LOSSES] = ech_tensor_1d(scratch, ECH_F64, n);
    user.tensor[WHOLE] = ech_tensor_1d(numbers, wide, n * V);
    user.tensor[GRADIENT] = ech_tensor_1d(numbers + (size_t)(n * V) * bytes, wide, n * V);
    user.tensor[OWN] = ech_tensor_1d(numbers + 2 * (size_t)(n * V) * bytes, wide, n * chunk->own);
    call->kernels->user(call->context, &user);
    if (!chunk->backward || chunk->own == 0) return;
    int64_t shape[] = {1, 1, n, chunk->own};
    ech_tensor from = ech_tensor_view(user.tensor[OWN].data, wide, 4, shape);
    ech_tensor to = ech_tensor_view(chunk->gradient.data, chunk->gradient.dtype, 4, shape);
    to.stride[2] = chunk->gradient.stride[0];
    to.stride[1] = to.stride[0] = n * to.stride[2];
    call->kernels->copy(call->context, &from, &to);
}

/* ---- finite differences ---- */

enum { ROWS = 3, IDS = 7 };

static double total(const echelon_loss *row, const echelon_loss_work *work)
{
    double sum = 0;
    row->forward(work);
    for (int r = 0; r < ROWS; r++) sum += work->loss[r];
    return sum;
}

bool ech_loss_plugged_derives(const echelon_loss *row, ech_text *why)
{
    double logits[ROWS * IDS], gradient[ROWS * IDS] = {0}, loss[ROWS], alone[ROWS];
    const int32_t target[ROWS] = {0, 3, IDS - 1};
    const float weight[ROWS] = {1, 1, 1};
    for (uint64_t i = 0; i < ROWS * IDS; i++)
        logits[i] = 4 * ech_random_unit(ech_random_word((ech_random_key){.seed = 11}, i)) - 2;
    ech_tensor x = ech_tensor_1d(logits, ECH_F64, ROWS * IDS), g = x;
    g.data = gradient;
    echelon_loss_work work = {ROWS,   IDS,  array_of(&x, ROWS, IDS), target,
                              weight, loss, array_of(&g, ROWS, IDS), 1};
    row->forward(&work);
    memcpy(alone, loss, sizeof alone);
    row->backward(&work);
    for (int i = 0; i < ROWS * IDS; i++) {
        const double step = 1e-5, is = logits[i];
        logits[i] = is + step;
        double up = total(row, &work);
        for (int r = 0; r < ROWS; r++)
            if (r != i / IDS && loss[r] != alone[r]) {
                ech_text_append(why, "the loss of row %d depends on the logits of row %d", r,
                                i / IDS);
                return false;
            }
        logits[i] = is - step;
        double expected = (up - total(row, &work)) / (2 * step);
        logits[i] = is;
        if (fabs(gradient[i] - expected) <= 1e-6 * (1 + fabs(expected))) continue;
        ech_text_append(why,
                        "its backward gives %.9g for a derivative by a logit (row %d, id %d), and "
                        "finite differences of its forward give %.9g",
                        gradient[i], i / IDS, i % IDS, expected);
        return false;
    }
    return true;
}
