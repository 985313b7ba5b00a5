/* SPDX-License-Identifier: Apache-2.0
 *
 * The fold of a few fp64 values: member 0 gathers, folds in member order, and the result goes back
 * down the tree of broadcast, so all have the same bits.
 */
#include <math.h>

#include "comm/group.h"

static double fold_two(ech_fold fold, double a, double b)
{
    if (fold == ECH_FOLD_SUM) return a + b;
    if (isnan(a) || isnan(b)) return (double)NAN;
    return a > b ? a : b;
}

static ech_status gather(ech_group *group, double *values, int n)
{
    ech_batch *batch = &group->batch[0];
    size_t bytes = (size_t)n * sizeof *values;
    if (group->index == 0)
        for (int i = 1; i < group->size; i++)
            ECH_TRY(ech_batch_receive(group, batch, i, group->folds + i * ECH_FOLD_VALUES, bytes));
    else
        ECH_TRY(ech_batch_send(group, batch, 0, values, bytes));
    return ech_batch_wait(group, batch);
}

static ech_status fold_some(ech_group *group, ech_fold fold, double *values, int n)
{
    ECH_TRY(gather(group, values, n));
    if (group->index == 0)
        for (int i = 1; i < group->size; i++)
            for (int v = 0; v < n; v++)
                values[v] = fold_two(fold, values[v], group->folds[i * ECH_FOLD_VALUES + v]);
    return ech_group_spread(group, 0, values, (size_t)n * sizeof *values);
}

ech_status ech_group_fold(ech_group *group, ech_fold fold, double *values, int n)
{
    ech_group_begin(group, ECH_CALL_FOLD);
    for (int at = 0; at < n; at += ECH_FOLD_VALUES) {
        int some = n - at < ECH_FOLD_VALUES ? n - at : ECH_FOLD_VALUES;
        ECH_TRY(fold_some(group, fold, values + at, some));
    }
    return ECH_OK;
}
