/* SPDX-License-Identifier: Apache-2.0
 *
 * The checker: what must hold of a list, proved on the list alone, by other means than those that
 * made it.
 */
#include <stdio.h>
#include <stdlib.h>

#include "schedule/passes.h"

/* Prints the list with the step marked, then fails. */
static ech_status reject(const ech_list *list, int marked, const char *why)
{
    ech_text text = {0}, name = {0};
    ech_list_print(list, &text);
    int line = 0;
    for (const char *at = text.at; at && *at; line++) {
        const char *end = at;
        while (*end && *end != '\n') end++;
        if (abs(line - marked) <= 8)
            fprintf(stderr, "%s %.*s\n", line == marked ? "->" : "  ", (int)(end - at), at);
        at = *end ? end + 1 : end;
    }
    ech_step_print(&list->step.at[marked], &name);
    ech_status status =
        ech_fail_at(__FILE__, __LINE__, ECH_EINTERNAL, "schedule check of list %s: step %d (%s) %s",
                    ech_list_name(list->kind), marked, name.at, why);
    ech_text_free(&text);
    ech_text_free(&name);
    return status;
}

static ech_status check_after(const ech_list *list)
{
    for (int s = 0; s < (int)list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        for (int i = 0; i < step->afters; i++) {
            int after = list->after.at[step->first_after + i];
            if (after < 0 || after >= s)
                return reject(list, s, "waits for a step that is not before it");
        }
    }
    return ECH_OK;
}

/* Every value is written before it is read. */
static ech_status check_reads(const ech_plan *plan, const ech_list *list)
{
    bool *written = ech_calloc(list->value.n + 1, sizeof *written);
    ech_status status = ECH_OK;
    for (int s = 0; s < (int)list->step.n && status == ECH_OK; s++) {
        const ech_step *step = &list->step.at[s];
        for (int i = 0; i < step->accesses && status == ECH_OK; i++) {
            const ech_access *access = &list->access.at[step->first_access + i];
            int value = access->value - (int)plan->persistent.n;
            if (value < 0) continue;
            if (access->write)
                written[value] = true;
            else if (!written[value])
                status = reject(list, s, "reads a value that nothing has written");
        }
    }
    free(written);
    return status;
}

static bool waits_for(const ech_list *list, const ech_step *step, int other)
{
    for (int i = 0; i < step->afters; i++)
        if (list->after.at[step->first_after + i] == other) return true;
    return false;
}

/* One bucket: all writers, then one reduction that waits for them (if its group has more than one
 * member), then the norm that waits for the reduction, then one update. */
static ech_status check_bucket(const ech_plan *plan, const ech_list *list, int bucket)
{
    int value = plan->bucket.at[bucket].value, writer = -1, reduce = -1, norm = -1, update = -1;
    bool shared =
        ech_layout_group_size(plan->layout, plan->rank, plan->bucket.at[bucket].group) > 1;
    for (int s = 0; s < (int)list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        bool own = step->index == bucket;
        if (step->kind == ECH_STEP_REDUCE_GRADS && own) {
            if (reduce >= 0) return reject(list, s, "reduces a bucket a second time");
            if (!waits_for(list, step, writer))
                return reject(list, s, "does not wait for the gradients");
            reduce = s;
        } else if (step->kind == ECH_STEP_NORM && own) {
            if (shared && (reduce < 0 || !waits_for(list, step, reduce)))
                return reject(list, s, "does not wait for the reduction");
            norm = s;
        } else if (step->kind == ECH_STEP_UPDATE && own) {
            if (norm < 0 || update >= 0)
                return reject(list, s, "is not the one update after the norm");
            update = s;
        }
        for (int i = 0; i < step->accesses; i++) {
            const ech_access *access = &list->access.at[step->first_access + i];
            if (access->value != value || !access->write || step->kind == ECH_STEP_REDUCE_GRADS)
                continue;
            if (reduce >= 0 || norm >= 0)
                return reject(list, s, "writes a gradient after its reduction");
            writer = s;
        }
    }
    if (update < 0) return reject(list, (int)list->step.n - 1, "ends a list without every update");
    return ECH_OK;
}

/* Every parameter has a gradient, in one bucket. */
static ech_status check_params(const ech_plan *plan)
{
    for (size_t p = 0; p < plan->model->param.n; p++) {
        int found = 0;
        for (size_t i = 0; i < plan->bucket_param.n; i++)
            found += plan->bucket_param.at[i] == (int)p;
        if (found != 1 || plan->param[p].first_step < 0)
            ECH_FAIL(ECH_EINTERNAL,
                     "schedule check: the gradient of %s is in %d buckets, written %s",
                     plan->model->param.at[p].name, found,
                     plan->param[p].first_step < 0 ? "by nobody" : "once or more");
    }
    return ECH_OK;
}

typedef struct edge {
    int tick, value;
    bool birth;
} edge;

static int by_tick(const void *a, const void *b)
{
    const edge *x = a, *y = b;
    if (x->tick != y->tick) return x->tick < y->tick ? -1 : 1;
    if (x->birth != y->birth) return x->birth ? 1 : -1; /* deaths first: dies + 1 */
    return x->value < y->value ? -1 : x->value > y->value;
}

static ech_status fail_overlap(const ech_plan *plan, const ech_list *list, int a, int b)
{
    int first = (int)plan->persistent.n;
    ech_text one = {0}, other = {0};
    ech_value_print(plan, list, first + a, &one);
    ech_value_print(plan, list, first + b, &other);
    ech_status status = ech_fail_at(__FILE__, __LINE__, ECH_EINTERNAL,
                                    "schedule check of list %s: two values overlap in memory: "
                                    "%s; %s",
                                    ech_list_name(list->kind), one.at, other.at);
    ech_text_free(&one);
    ech_text_free(&other);
    return status;
}

static ech_status check_against_live(const ech_plan *plan, const ech_list *list, const int *live,
                                     size_t n, int value)
{
    const ech_value *v = &list->value.at[value];
    for (size_t i = 0; i < n; i++) {
        const ech_value *o = &list->value.at[live[i]];
        if (v->offset < o->offset + o->bytes && o->offset < v->offset + v->bytes)
            return fail_overlap(plan, list, value, live[i]);
    }
    return ECH_OK;
}

/* A sweep over time with the set of live values. */
static ech_status check_overlap(const ech_plan *plan, const ech_list *list)
{
    size_t n = list->value.n, alive = 0;
    edge *edges = ech_calloc(2 * n + 1, sizeof *edges);
    int *live = ech_calloc(n + 1, sizeof *live);
    ech_status status = ECH_OK;
    for (size_t i = 0; i < n; i++) {
        edges[2 * i] = (edge){list->value.at[i].born, (int)i, true};
        edges[2 * i + 1] = (edge){list->value.at[i].dies + 1, (int)i, false};
        int64_t begin = list->value.at[i].offset, end = begin + list->value.at[i].bytes;
        if (begin < plan->persistent_bytes || end > plan->arena_bytes)
            status = reject(list, 0, "begins a list with a value outside of the arena");
    }
    qsort(edges, 2 * n, sizeof *edges, by_tick);
    for (size_t e = 0; e < 2 * n && status == ECH_OK; e++) {
        if (edges[e].birth) {
            status = check_against_live(plan, list, live, alive, edges[e].value);
            live[alive++] = edges[e].value;
        } else {
            for (size_t i = 0; i < alive; i++)
                if (live[i] == edges[e].value) live[i] = live[--alive];
        }
    }
    free(edges);
    free(live);
    return status;
}

ech_status ech_list_check(const ech_plan *plan, const ech_list *list)
{
    ECH_TRY(check_after(list));
    ECH_TRY(check_reads(plan, list));
    if (list->kind == ECH_LIST_TRAIN && list->step.n) {
        ECH_TRY(check_params(plan));
        for (int b = 0; b < (int)plan->bucket.n; b++) ECH_TRY(check_bucket(plan, list, b));
    }
    return check_overlap(plan, list);
}

/* The next collective of `list` from step *s on over that kind of group; NULL at the end. */
static const ech_step *next_collective(const ech_list *list, ech_group_kind group, size_t *s)
{
    for (; *s < list->step.n; (*s)++) {
        const ech_step *step = &list->step.at[*s];
        if (step->lane == ECH_LANE_REDUCE && step->group == group) return &list->step.at[(*s)++];
    }
    return NULL;
}

static ech_status check_pair(const ech_list *a, const ech_list *b, ech_group_kind group, int rank_b)
{
    size_t i = 0, j = 0;
    for (;;) {
        const ech_step *x = next_collective(a, group, &i), *y = next_collective(b, group, &j);
        if (!x && !y) return ECH_OK;
        if (!x || !y || x->kind != y->kind || x->index != y->index || x->count != y->count ||
            x->maximum != y->maximum) {
            ech_text why = {0};
            ech_text_append(&why, "meets another collective, or none, on rank %d", rank_b);
            ech_status status = reject(a, x ? (int)(x - a->step.at) : (int)a->step.n - 1, why.at);
            ech_text_free(&why);
            return status;
        }
    }
}

ech_status ech_plans_check(const ech_plan *const *plans, int n, ech_list_kind list)
{
    int *members = ech_calloc((size_t)n, sizeof *members);
    ech_status status = ECH_OK;
    for (int rank = 0; rank < n && status == ECH_OK; rank++) {
        for (int group = 0; group < ECH_GROUPS && status == ECH_OK; group++) {
            ech_layout_members(plans[rank]->layout, rank, (ech_group_kind)group, members);
            if (members[0] == rank) continue; /* all compare with the first */
            status = check_pair(&plans[members[0]]->list[list], &plans[rank]->list[list],
                                (ech_group_kind)group, rank);
        }
    }
    free(members);
    return status;
}
