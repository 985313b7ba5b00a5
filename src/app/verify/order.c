/* SPDX-License-Identifier: Apache-2.0
 *
 * The order in which servers have served pushes, which the serial program follows: as a log says,
 * if there is one, and in any case one that workers can have had.
 */
#include <string.h>

#include "app/verify/verifier.h"

/* The order of a run that is to repeat a log is the log's. */
static ech_status check_log(const ech_verifier *v)
{
    const ech_serve_log *log = v->layout.design->serves;
    if (!v->result || !log) return ECH_OK;
    const ech_serve *span = ech_serve_log_span(log, v->span);
    for (int i = 0; i < log->pushes; i++)
        if (v->serves[i].worker != span[i].worker || v->serves[i].clock != span[i].clock)
            ECH_FAIL(ECH_EINTERNAL,
                     "step %lld: push %d is from worker %d and its step %lld, but in %s from "
                     "worker %d and its step %lld",
                     (long long)v->span + 1, i, v->serves[i].worker,
                     (long long)v->serves[i].clock + 1, log->path, span[i].worker,
                     (long long)span[i].clock + 1);
    return ECH_OK;
}

/* On rank 0 the pushes of the first server; all servers have the same order. */
ech_status ech_verifier_gather_serves(ech_verifier *v)
{
    int n, first = ech_layout_workers(v->layout.design->layout);
    const ech_serve *own = ech_exec_serves(v->layout.session.exec, &n);
    size_t bytes = (size_t)(v->workers * v->turns) * sizeof *own;
    ECH_TRY(ech_verifier_send(v, first, (void *)own, bytes, v->serves));
    return check_log(v);
}

/* Whether the worker's next push is of that training step. */
static bool is_next(const ech_verifier *v, const ech_serve *push)
{
    return push->worker >= 0 && push->worker < v->workers && push->clock == v->pushed[push->worker];
}

/* Each worker's pushes come in order. */
ech_status ech_verifier_check_order(ech_verifier *v)
{
    for (int i = 0; i < v->workers * v->turns; i++) {
        const ech_serve *push = &v->serves[i];
        if (!is_next(v, push))
            ECH_FAIL(ECH_EINTERNAL,
                     "servers recorded push %d after step %lld as worker %d's in its step %lld, "
                     "but that worker makes no such push then",
                     i, (long long)v->span, push->worker, (long long)push->clock);
        v->pushed[push->worker]++;
    }
    return ECH_OK;
}

/* Whether a push may stand where it does: where clock `now` is summed, whose weights are there
 * since so many pushes. */
static bool is_in_order(const ech_verifier *v, const ech_serve *push, int64_t now, int sent)
{
    if (!is_next(v, push) || push->clock > now) return false;
    return push->dropped ? push->clock < now : push->clock == now && push->read >= sent;
}

/* Likewise; the first ones of a clock, with the weights of the update before, are in its update,
 * and the others, after it, dropped. */
ech_status ech_verifier_check_sum_order(ech_verifier *v)
{
    int summed = 0, sent = 0, summands;
    summands = ech_serving_summands(v->layout.design->schedule, v->layout.design->layout);
    int64_t now = v->span;
    for (int i = 0; i < v->workers * v->turns; i++) {
        const ech_serve *push = &v->serves[i];
        if (!is_in_order(v, push, now, sent))
            ECH_FAIL(ECH_EINTERNAL,
                     "servers recorded that push %d after step %lld, from worker %d in its step "
                     "%lld, is %s while step %lld is summed",
                     i, (long long)v->span, push->worker, (long long)push->clock,
                     push->dropped ? "dropped" : "served", (long long)now);
        v->pushed[push->worker]++;
        if (push->dropped || ++summed < summands) continue;
        now++;
        summed = 0;
        sent = i + 1;
    }
    return ECH_OK;
}
