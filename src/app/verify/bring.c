/* SPDX-License-Identifier: Apache-2.0
 *
 * From the ranks to rank 0.
 */
#include "app/verify/bring.h"

#include <stdlib.h>
#include <string.h>

enum { TAG = (1 << 20) - 1 }; /* of tensors on their way to rank 0 */

void ech_verifier_take(const ech_tensor *x, double *to)
{
    int64_t n = ech_tensor_count(x);
    for (int64_t i = 0; i < n; i++)
        to[i] = x->dtype == ECH_F64 ? ((const double *)x->data)[i]
                                    : (double)((const float *)x->data)[i];
}

void ech_verifier_give(const ech_tensor *x, const double *from)
{
    int64_t n = ech_tensor_count(x);
    for (int64_t i = 0; i < n; i++)
        if (x->dtype == ECH_F64)
            ((double *)x->data)[i] = from[i];
        else
            ((float *)x->data)[i] = (float)from[i];
}

/* What `rank` has in `x` (n numbers) is in `to` on rank 0 afterwards. */
static ech_status bring(ech_verifier *v, int rank, double *x, int64_t n, double *to)
{
    size_t bytes = (size_t)n * sizeof *x;
    int me = ech_comm_rank(v->comm);
    ech_request request;
    if (rank == 0) {
        if (me == 0) memmove(to, x, bytes);
        return ECH_OK;
    }
    if (me == rank)
        ECH_TRY(ech_comm_send_start(v->comm, 0, TAG, x, bytes, &request));
    else if (me == 0)
        ECH_TRY(ech_comm_receive_start(v->comm, rank, TAG, to, bytes, &request));
    else
        return ECH_OK;
    return ech_comm_wait(v->comm, &request, 1);
}

/* What tensor rank `index` has of a parameter, to its place in the whole. */
static void put_slices(const ech_verifier *v, int param, int index, const double *from,
                       double *whole)
{
    const ech_shape *shape = &v->layout.design->model->param.at[param].shape;
    ech_cut cut = v->layout.design->layout->cut;
    ech_slice slices[ECH_MOST_SLICES];
    int n = ech_shape_slices(shape, cut, index, slices);
    for (int i = 0; i < n; i++) {
        ech_slice_runs r = ech_slice_split(shape, cut, &slices[i]);
        for (int64_t run = 0; run < r.runs; run++)
            memcpy(whole + r.whole + run * r.whole_step, from + r.local + run * r.local_step,
                   (size_t)r.length * sizeof *whole);
    }
}

/* The tensor ranks whose slices make up the parameter: all, or of an uncut one the first. */
static int holders_of(const ech_verifier *v, int param)
{
    int shares;
    const ech_layout *layout = v->layout.design->layout;
    return ech_shape_is_cut(&v->layout.design->model->param.at[param].shape, layout->cut, &shares)
               ? layout->tensor
               : 1;
}

ech_status ech_verifier_bring(ech_verifier *v, const ech_copy *copy, double *mine, double *whole)
{
    const ech_layout *layout = v->layout.design->layout;
    const ech_shape *shape = &v->layout.design->model->param.at[copy->param].shape;
    int64_t n = ech_shape_count(shape, ech_extent_of_params(layout->cut));
    ECH_FREED double *slice = v->result ? ech_calloc((size_t)n, sizeof *slice) : NULL;
    ech_status status = ECH_OK;
    for (int k = 0; k < holders_of(v, copy->param) && status == ECH_OK; k++) {
        status = bring(v, ech_layout_rank_at(layout, copy->stage, 0, 0, k), mine, n, slice);
        if (status == ECH_OK && v->result) put_slices(v, copy->param, k, slice, whole);
    }
    return status;
}
