/* SPDX-License-Identifier: Apache-2.0
 *
 * Token embedding, and learned position embedding.
 */
#include <string.h>

#include "kernel/ref/real.h"

void ECH_REF(embedding_forward)(ech_kernel_context *context, const ech_tensor *table,
                                const ech_tensor *ids, int64_t first_id, const ech_tensor *y)
{
    int64_t V = table->shape[0], C = table->shape[1], R = ids->shape[0];
    ECH_SHAPES(embedding_forward, ECH_REAL, table, ids, y);
    for (int64_t r = 0; r < R; r++) {
        int64_t id = ((const int32_t *)ids->data)[r] - first_id;
        for (int64_t c = 0; c < C; c++)
            ech_store(y, r * C + c, id >= 0 && id < V ? ech_value(table, id * C + c) : 0);
    }
}

/* The table's row for row r: by its id, or, if ids is NULL, by its position. -1: none. */
typedef struct table_rows {
    int64_t R, size; /* rows of dy and of the table */
    const ech_tensor *ids;
    int64_t first_id;
    const ech_rows *rows;
    const ech_tensor *starts;
} table_rows;

static int64_t place_of(const table_rows *at, int64_t r)
{
    if (!at->ids) return ech_row_in_document(at->rows, at->starts, r);
    int64_t id = ((const int32_t *)at->ids->data)[r] - at->first_id;
    return id >= 0 && id < at->size ? id : -1;
}

#ifdef ECH_REAL_F64
/* Sums in fp64 are not rounded when they are stored, so each row is added separately. */
static void add_to_table(const table_rows *at, const ech_tensor *dy, const ech_tensor *dtable)
{
    int64_t C = dy->shape[1];
    for (int64_t r = 0; r < at->R; r++) {
        int64_t place = place_of(at, r);
        ECH_ASSERT(place < at->size);
        for (int64_t c = 0; place >= 0 && c < C; c++)
            ((double *)dtable->data)[place * C + c] += ((const double *)dy->data)[r * C + c];
    }
}
#else
enum { COLUMNS = 128 };

/* Adds the rows of dy with the same table row as row r, the first of them; they are rounded
 * once. */
static void add_rows(const table_rows *at, int64_t r, const ech_tensor *dy,
                     const ech_tensor *dtable)
{
    int64_t C = dy->shape[1], place = place_of(at, r);
    double sum[COLUMNS];
    for (int64_t first = 0; first < C; first += COLUMNS) {
        int64_t n = C - first < COLUMNS ? C - first : COLUMNS, out = place * C + first;
        for (int64_t c = 0; c < n; c++) sum[c] = ech_value(dtable, out + c);
        for (int64_t row = r; row < at->R; row++) {
            if (place_of(at, row) != place) continue;
            for (int64_t c = 0; c < n; c++) sum[c] += ech_value(dy, row * C + first + c);
        }
        for (int64_t c = 0; c < n; c++) ech_store(dtable, out + c, sum[c]);
    }
}

static void add_to_table(const table_rows *at, const ech_tensor *dy, const ech_tensor *dtable)
{
    for (int64_t r = 0; r < at->R; r++) {
        int64_t place = place_of(at, r), before = 0;
        ECH_ASSERT(place < at->size);
        while (before < r && place_of(at, before) != place) before++;
        if (place >= 0 && before == r) add_rows(at, r, dy, dtable);
    }
}
#endif

static void table_backward(const table_rows *at, const ech_tensor *dy, bool accumulate,
                           const ech_tensor *dtable)
{
    if (!accumulate) memset(dtable->data, 0, ech_tensor_bytes(dtable));
    add_to_table(at, dy, dtable);
}

void ECH_REF(embedding_backward)(ech_kernel_context *context, const ech_tensor *dy,
                                 const ech_tensor *ids, int64_t first_id, bool accumulate,
                                 const ech_tensor *dtable)
{
    ECH_SHAPES(embedding_backward, ECH_REAL, dy, ids, dtable);
    const table_rows at = {dy->shape[0], dtable->shape[0], ids, first_id, NULL, NULL};
    table_backward(&at, dy, accumulate, dtable);
}

void ECH_REF(position_forward)(ech_kernel_context *context, const ech_tensor *x,
                               const ech_tensor *table, const ech_rows *rows,
                               const ech_tensor *starts, const ech_tensor *y)
{
    ECH_ROWS_NOW(rows);
    int64_t R = x->shape[0], C = x->shape[1], P = table->shape[0];
    ECH_SHAPES(position_forward, ECH_REAL, x, table, y);
    ECH_ROWS(rows, starts, R);
    for (int64_t r = 0; r < R; r++) {
        int64_t position = ech_row_in_document(rows, starts, r);
        ECH_ASSERT(position < P);
        for (int64_t c = 0; c < C; c++)
            ech_store(y, r * C + c, ech_value(x, r * C + c) + ech_value(table, position * C + c));
    }
}

void ECH_REF(position_backward)(ech_kernel_context *context, const ech_tensor *dy,
                                const ech_rows *rows, const ech_tensor *starts, bool accumulate,
                                const ech_tensor *dtable)
{
    ECH_ROWS_NOW(rows);
    ECH_SHAPES(position_backward, ECH_REAL, dy, dtable);
    ECH_ROWS(rows, starts, dy->shape[0]);
    const table_rows at = {dy->shape[0], dtable->shape[0], NULL, 0, rows, starts};
    table_backward(&at, dy, accumulate, dtable);
}
