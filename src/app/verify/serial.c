/* SPDX-License-Identifier: Apache-2.0
 *
 * Interprets serial programs (schedule/protocol/serial.h). All ranks run the operations that are
 * collective; rank 0 compares, and runs the others on the twin and the single rank.
 */
#include "app/verify/verifier.h"

static ech_status run_block(ech_verifier *v, const ech_serial_step *at);

/* ---- loops ---- */

static ech_status each_step(ech_verifier *v, const ech_serial_step *body)
{
    for (v->turn = 0; v->turn < v->turns; v->turn++) {
        v->step = v->clock = v->updates = v->span + v->turn;
        v->single.loss = v->twin.loss = (ech_tokens_loss){0};
        ECH_TRY(run_block(v, body));
    }
    v->turn = v->turns - 1;
    return ECH_OK;
}

static ech_status each_worker(ech_verifier *v, const ech_serial_step *body)
{
    for (v->worker = 0; v->worker < v->workers; v->worker++) ECH_TRY(run_block(v, body));
    v->worker = 0;
    return ECH_OK;
}

/* Push number i of the span, on rank 0. */
static ech_status run_push(ech_verifier *v, int i, const ech_serial_step *body)
{
    v->worker = v->serves[i].worker;
    v->clock = v->serves[i].clock;
    if (ech_verifier_clocks(v)) v->updates = v->span * v->workers + i;
    return run_block(v, body);
}

static ech_status each_push(ech_verifier *v, const ech_serial_step *body)
{
    int first = v->turn * v->workers;
    for (int i = first; v->result && i < first + v->workers; i++) ECH_TRY(run_push(v, i, body));
    return ECH_OK;
}

static ech_status each_summand(ech_verifier *v, const ech_serial_step *body)
{
    for (int i = 0; v->result && i < v->workers * v->turns; i++)
        if (v->serves[i].clock == v->step && !v->serves[i].dropped) ECH_TRY(run_push(v, i, body));
    return ECH_OK;
}

/* ---- what the layout has done ---- */

static ech_status check(ech_verifier *v)
{
    int64_t done = v->span + v->turns;
    ECH_TRY(ech_exec_run(v->layout.session.exec, ECH_LIST_CHECK, done));
    if (ech_exec_readings(v->layout.session.exec)->hash_differs)
        ECH_FAIL(ECH_EINTERNAL, "step %lld: parameters differ between ranks", (long long)done);
    return ECH_OK;
}

/* ---- the single rank and its twin ---- */

static double *copy_of(ech_follower *f, ech_serial_copy copy)
{
    return ech_follower_copy(f, copy, copy == ECH_COPY_OWN ? f->of->worker : 0);
}

/* What a span begins with all have read. */
static ech_status load(ech_follower *f, ech_serial_copy copy)
{
    bool begun = copy == ECH_COPY_READ && f->of->turn == 0;
    ech_follower_load(f, copy_of(f, begun ? ECH_COPY_BEGUN : copy), copy != ECH_COPY_READ);
    return ECH_OK;
}

static ech_status store(ech_follower *f, ech_serial_copy copy)
{
    ech_follower_store(f, copy_of(f, copy), true);
    return ECH_OK;
}

static ech_status load_states(ech_follower *f, ech_serial_copy copy)
{
    ech_follower_load_states(f, copy_of(f, copy));
    return ECH_OK;
}

/* ---- programs ---- */

/* Each operation is one of these. */
static const struct operation {
    ech_status (*loop)(ech_verifier *v, const ech_serial_step *body);
    ech_status (*all)(ech_verifier *v);   /* collective */
    ech_status (*check)(ech_verifier *v); /* on rank 0, like those that follow */
    void (*once)(ech_verifier *v);
    void (*each)(ech_follower *f); /* for the twin, then for the single rank */
    ech_status (*with)(ech_follower *f, ech_serial_copy copy);
} operations[ECH_DOES] = {
    [ECH_DO_EACH_STEP] = {.loop = each_step},
    [ECH_DO_EACH_WORKER] = {.loop = each_worker},
    [ECH_DO_EACH_PUSH] = {.loop = each_push},
    [ECH_DO_EACH_SUMMAND] = {.loop = each_summand},
    [ECH_DO_CHECK] = {.all = check},
    [ECH_DO_SERVES] = {.all = ech_verifier_gather_serves},
    [ECH_DO_GATHER] = {.all = ech_verifier_gather_gradients},
    [ECH_DO_READ] = {.all = ech_verifier_gather_read},
    [ECH_DO_COMPARE] = {.all = ech_verifier_exchange_weights},
    [ECH_DO_ORDER] = {.check = ech_verifier_check_order},
    [ECH_DO_SUM_ORDER] = {.check = ech_verifier_check_sum_order},
    [ECH_DO_GRADIENTS] = {.once = ech_verifier_compare_gradients},
    [ECH_DO_LOSS] = {.once = ech_verifier_compare_loss},
    [ECH_DO_REPORTS] = {.once = ech_verifier_compare_reports},
    [ECH_DO_CHANGE] = {.once = ech_follower_change},
    [ECH_DO_LOAD] = {.with = load},
    [ECH_DO_STORE] = {.with = store},
    [ECH_DO_STATES] = {.with = load_states},
    [ECH_DO_RUN] = {.with = ech_follower_run},
    [ECH_DO_CLEAR] = {.each = ech_follower_clear},
    [ECH_DO_ADD] = {.each = ech_follower_add},
    [ECH_DO_MEAN] = {.each = ech_follower_mean},
    [ECH_DO_MOVE] = {.each = ech_follower_move},
    [ECH_DO_RING_TOKEN] = {.each = ech_follower_ring_token},
    [ECH_DO_MEET] = {.each = ech_follower_meet},
};

static ech_status run_operation(ech_verifier *v, const ech_serial_step *at)
{
    const struct operation *o = &operations[at->op];
    ech_follower *f[] = {&v->twin, &v->single};
    v->operand = at->copy;
    v->equation = at->equation;
    v->equation_states = at->equation_states;
    if (o->all) return o->all(v);
    if (!v->result) return ECH_OK;
    if (o->check) return o->check(v);
    if (o->once) o->once(v);
    for (int i = 0; i < 2; i++) {
        if (o->each) o->each(f[i]);
        if (o->with) ECH_TRY(o->with(f[i], at->copy));
    }
    return ECH_OK;
}

/* The END of the block that begins there. */
static const ech_serial_step *end_of(const ech_serial_step *at)
{
    for (; at->op != ECH_DO_END; at++)
        if (operations[at->op].loop) at = end_of(at + 1);
    return at;
}

static ech_status run_block(ech_verifier *v, const ech_serial_step *at)
{
    for (; at->op != ECH_DO_END; at++) {
        if (!operations[at->op].loop) {
            ECH_TRY(run_operation(v, at));
            continue;
        }
        ECH_TRY(operations[at->op].loop(v, at + 1));
        at = end_of(at + 1);
    }
    return ECH_OK;
}

ech_status ech_verifier_interpret(ech_verifier *v, const ech_serial_step *program)
{
    v->turn = v->worker = 0;
    return program ? run_block(v, program) : ECH_OK;
}
