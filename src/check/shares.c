/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks, of all ranks' plans, that what the members of a bucket's group each do to a part of it makes up the whole: each element is
 * counted in the norm once, and is updated once, or by each member for itself.
 */
#include <stdlib.h>

#include "base/log.h"
#include "check/promise.h"

typedef struct members {
    const ech_plan *const *plans;
    int n, *rank; /* of the group, ascending */
} members;

/* The same bucket of another rank, which may have another number there; NULL: it has none. */
static const ech_bucket *bucket_of(const ech_plan *plan, const ech_bucket *bucket, const ech_plan *other)
{
    int b = other->param[plan->bucket_param.at[bucket->first_param]].bucket;
    return b < 0 || b >= (int)other->bucket.n ? NULL : &other->bucket.at[b];
}

/* What a member updates of the bucket; or what it counts. */
static ech_interval interval_of(const ech_bucket *bucket, bool counts)
{
    ech_interval of = {.n = ech_bucket_updated(bucket, &of.first)};
    if (counts) of = (ech_interval){bucket->own, bucket->shard};
    if (of.first >= bucket->elements) of.n = 0;
    if (of.n > bucket->elements - of.first) of.n = bucket->elements - of.first;
    return of;
}

/* The members' parts follow each other, and end with the bucket. */
static ech_status check_bucket(const members *m, int index, bool counts)
{
    const ech_plan *first = m->plans[m->rank[0]];
    const ech_bucket *bucket = &first->bucket.at[index];
    bool each = !counts; /* does all of it for itself */
    int wrong = -1;
    int64_t end = 0;
    for (int i = 0; i < m->n; i++) {
        const ech_bucket *other = bucket_of(first, bucket, m->plans[m->rank[i]]);
        if (!other || other->elements != bucket->elements)
            ECH_FAIL(ECH_EINTERNAL,
                     "schedule check, rank %d: bucket %d is summed with rank %d, whose bucket has "
                     "other elements",
                     first->rank, index, m->rank[i]);
        ech_interval of = interval_of(other, counts);
        each &= of.n == bucket->elements;
        if (of.n && of.first != end && wrong < 0) wrong = m->rank[i];
        end += of.n;
    }
    if (each || (wrong < 0 && end == bucket->elements)) return ECH_OK;
    ECH_FAIL(ECH_EINTERNAL,
             "schedule check, rank %d: not each element of bucket %d of rank %d is %s once by its "
             "group",
             wrong < 0 ? first->rank : wrong, index, first->rank, counts ? "counted" : "updated");
}

/* The first member speaks for its group. */
static ech_status check_rank(members *m, const ech_plan *plan)
{
    for (int group = 0; group < ECH_GROUPS; group++) {
        ech_membership at = ech_layout_membership(plan->layout, plan->model, plan->rank,
                                                  (ech_layout_group)group);
        bool listed = false;
        for (int b = 0; b < (int)plan->bucket.n && at.size && at.index == 0; b++) {
            if ((int)plan->bucket.at[b].group != group) continue;
            if (!listed)
                m->n = ech_layout_members(plan->layout, plan->model, plan->rank,
                                          (ech_layout_group)group, m->rank);
            listed = true;
            ECH_TRY(check_bucket(m, b, false));
            ECH_TRY(check_bucket(m, b, true));
        }
    }
    return ECH_OK;
}

ech_status ech_check_shares(const ech_plan *const *plans, int n)
{
    ECH_FREED int *rank = ech_calloc((size_t)n + 1, sizeof *rank);
    members m = {.plans = plans, .rank = rank};
    for (int r = 0; r < n; r++) ECH_TRY(check_rank(&m, plans[r]));
    return ECH_OK;
}
