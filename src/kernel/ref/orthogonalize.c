/* SPDX-License-Identifier: Apache-2.0
 *
 * Orthonormal columns, by Householder's reflections (Golub and Van Loan 2013, section 5.2:
 * factored, then formed in place) or by modified Gram-Schmidt, each column twice. Columns are
 * copied, so that each is contiguous.
 */
#include <math.h>

#include "kernel/ref/real.h"

/* Columns of R numbers, each followed by the data of its reflection. */
typedef struct columns {
    double *data;
    int64_t R, K, stride;
} columns;

/* FACTOR of the reflection; SIGN of the resulting column; EMPTY: 1 if the column counts as 0. */
enum { FACTOR, SIGN, EMPTY };

static double *column_of(const columns *c, int64_t k)
{
    return c->data + k * c->stride;
}

enum { LANES = 8 }; /* independent sums */

/* From row `first` on. */
static double product(const columns *c, const double *a, const double *b, int64_t first)
{
    double lane[LANES] = {0}, sum = 0;
    int64_t r = first;
    for (; r + LANES <= c->R; r += LANES)
        for (int l = 0; l < LANES; l++) lane[l] += a[r + l] * b[r + l];
    for (; r < c->R; r++) sum += a[r] * b[r];
    for (int l = 0; l < LANES; l++) sum += lane[l];
    return sum;
}

/* ---- Householder ---- */

/* Applies I - factor v vT, v = (1, the part below row k of column k), to another column. */
static void reflect(const columns *c, int64_t k, double *other)
{
    const double *v = column_of(c, k);
    double by = v[c->R + FACTOR] * (other[k] + product(c, v, other, k + 1));
    other[k] -= by;
    for (int64_t r = k + 1; r < c->R; r++) other[r] -= by * v[r];
}

/* The reflection that maps a column to a multiple of the unit vector k. There is none if the column
 * from row k on has at most the length `least`, which counts as 0, or if the part below row k is
 * zero, unless row k is NaN. */
static void find_reflection(const columns *c, int64_t k, double least)
{
    double *v = column_of(c, k), top = v[k], below = product(c, v, v, k + 1);
    double norm = sqrt(top * top + below), to = top > 0 ? -norm : norm, *about = v + c->R;
    about[EMPTY] = norm <= least;
    about[FACTOR] = below == 0 ? top - top : (to - top) / to;
    about[SIGN] = below == 0 ? (top < 0 ? -1 : 1) : (to < 0 ? -1 : 1);
    if (norm <= least) {
        about[FACTOR] = 0;
        about[SIGN] = 1;
        for (int64_t r = k; r < c->R; r++) v[r] = 0;
    }
    for (int64_t r = k + 1; r < c->R && about[FACTOR] != 0; r++) v[r] /= top - to;
}

/* The product of all reflections, last column first: a column's own memory is free when later ones
 * have been reflected. */
static void form(const columns *c, int64_t k)
{
    double *v = column_of(c, k), factor = v[c->R + FACTOR];
    for (int64_t j = k + 1; j < c->K; j++) reflect(c, k, column_of(c, j));
    for (int64_t r = 0; r < k; r++) v[r] = 0;
    v[k] = 1 - factor;
    for (int64_t r = k + 1; r < c->R; r++) v[r] *= -factor;
}

static double longest_of(const columns *c)
{
    double most = 0;
    for (int64_t k = 0; k < c->K; k++)
        most = fmax(most, sqrt(product(c, column_of(c, k), column_of(c, k), 0)));
    return most;
}

static void orthogonalize_by_reflections(const columns *c, double least)
{
    for (int64_t k = 0; k < c->K; k++) {
        find_reflection(c, k, least);
        for (int64_t j = k + 1; j < c->K; j++) reflect(c, k, column_of(c, j));
    }
    for (int64_t k = c->K - 1; k >= 0; k--) form(c, k);
    for (int64_t k = 0; k < c->K; k++) {
        double *v = column_of(c, k);
        for (int64_t r = 0; r < c->R; r++) v[r] *= v[c->R + SIGN];
    }
}

/* ---- Gram-Schmidt ---- */

static double largest_of(const columns *c)
{
    double most = 0;
    for (int64_t k = 0; k < c->K; k++)
        for (int64_t r = 0; r < c->R; r++) most = fmax(most, fabs(column_of(c, k)[r]));
    return most;
}

static void orthogonalize_by_projections(const columns *c)
{
    double most = largest_of(c), add = most > 0 ? ECH_ORTHOGONAL_EPSILON * most : 1;
    for (int64_t k = 0; k < c->K; k++) {
        double *a = column_of(c, k);
        a[k] += add;
        for (int64_t j = 0; j < 2 * k; j++) {
            const double *before = column_of(c, j % k);
            double by = product(c, before, a, 0);
            for (int64_t r = 0; r < c->R; r++) a[r] -= by * before[r];
        }
        double norm = sqrt(product(c, a, a, 0));
        for (int64_t r = 0; r < c->R; r++) a[r] /= norm;
    }
}

/* ---- rows of p ---- */

static bool is_empty(const ech_tensor *p, int64_t r)
{
    bool empty = true;
    for (int64_t k = 0; k < p->shape[1]; k++)
        if (ech_value(p, r * p->shape[1] + k) != 0) empty = false;
    return empty;
}

/* Rows below the last column stay 0 without stores. */
static void store_row(const columns *c, int64_t r, bool householder, const ech_tensor *p)
{
    bool stays = householder && r < c->K && is_empty(p, r);
    for (int64_t k = 0; k < c->K; k++) {
        const double *a = column_of(c, k);
        ech_store(p, r * c->K + k, stays && a[c->R + EMPTY] == 0 ? 0 : a[r]);
    }
}

static int64_t most_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

void ECH_REF(orthogonalize)(ech_kernel_context *context, const ech_tensor *p, int64_t terms,
                            bool householder, const ech_tensor *work)
{
    ECH_SHAPES(orthogonalize, ECH_REAL, p, work);
    columns c = {work->data, p->shape[0], p->shape[1], work->shape[1]};
    ECH_ASSERT(c.K <= c.R && c.stride >= c.R + ECH_ORTHOGONAL_ROOM);
    for (int64_t k = 0; k < c.K; k++)
        for (int64_t r = 0; r < c.R; r++) column_of(&c, k)[r] = ech_value(p, r * c.K + k);
    double least = ech_rounding_error(p->dtype, most_of(terms, c.R), longest_of(&c));
    if (householder)
        orthogonalize_by_reflections(&c, least);
    else
        orthogonalize_by_projections(&c);
    for (int64_t r = 0; r < c.R; r++) store_row(&c, r, householder, p);
}

/* ---- columns of x ---- */

static double length_of(const ech_tensor *x, int64_t k)
{
    double sum = 0;
    for (int64_t r = 0; r < x->shape[0]; r++) sum += pow(ech_value(x, r * x->shape[1] + k), 2);
    return sqrt(sum);
}

static double least_of(const ech_tensor *x, int64_t terms)
{
    double longest = 0;
    for (int64_t k = 0; k < x->shape[1]; k++) longest = fmax(longest, length_of(x, k));
    return ech_rounding_error(x->dtype, most_of(terms, x->shape[0]), longest);
}

void ECH_REF(clear_columns)(ech_kernel_context *context, const ech_tensor *x, int64_t terms)
{
    ECH_SHAPES(clear_columns, ECH_REAL, x);
    int64_t R = x->shape[0], K = x->shape[1];
    double least = least_of(x, terms);
    for (int64_t k = 0; k < K; k++) {
        if (!(length_of(x, k) <= least)) continue;
        for (int64_t r = 0; r < R; r++) ech_store(x, r * K + k, 0);
    }
}

void ECH_REF(count_columns)(ech_kernel_context *context, const ech_tensor *x, int64_t terms,
                            const ech_tensor *sums)
{
    ECH_SHAPES(count_columns, ECH_REAL, x, sums);
    double *sum = sums->data, least = least_of(x, terms), found = 0;
    for (int64_t k = 0; k < x->shape[1]; k++) found += !(length_of(x, k) <= least);
    sum[ECH_RANK_COLUMNS] += found;
    sum[ECH_RANK_SHORT] += found < (double)x->shape[1];
    sum[ECH_RANK_MATRICES] += 1;
}
