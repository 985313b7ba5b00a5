/* SPDX-License-Identifier: Apache-2.0
 *
 * The send and receive lanes: messages between stages, which begin in order and end in any order.
 * One thread serves both: it begins every message whose step may begin, progresses the messages in
 * flight, and sleeps in between. So messages progress during compute.
 */
#include <sched.h>

#include "base/clock.h"
#include "exec/state.h"
#include "schedule/operands.h"

/* While the compute lane waits for a message: seconds without progress until the thread yields, and
 * until it naps. During compute this thread must not take its core, so it polls rarely. It is woken
 * when a step ends that one of its own waits for, and naps long where it hears of messages. */
static const double spin_seconds = 10e-6, yield_seconds = 100e-6, report_seconds = 10e-3;
enum { FIRST_NAP_NS = 5000, LONGEST_NAP_NS = 50000, IDLE_NAP_NS = 500000 };

/* Messages across one boundary in one direction keep their order; all others have different
 * tags. */
static int tag_of(const ech_step *step, int port)
{
    return (ech_step_boundary(step) * ECH_MAX_PORTS + port) * ECH_MESSAGES +
           (int)ech_step_kind_message(step->kind);
}

static void add_transfer(ech_message *message, const ech_step *step, ech_request request)
{
    ech_comm_count *count = &message->exec->counts.messages[ech_step_kind_message(step->kind)];
    request.on = &message->exec->on[ech_step_queue(step)];
    request.peer = step->peer;
    request.sends = ech_step_sends(step);
    message->request[message->requests++] = request;
    if (!request.sends) return;
    count->messages++;
    count->bytes += (int64_t)request.bytes;
}

static void add_port(ech_message *message, const ech_step *step, int port, int local)
{
    ech_exec *exec = message->exec;
    const ech_block *block = exec->plan->model->block.at[step->block];
    int value = ech_list_value_of(exec->plan, exec->list, block, local, step->micro,
                                  ech_step_instance(step));
    void *data = ech_exec_address(exec, step, value);
    int64_t first;
    size_t bytes = (size_t)ech_plan_message_shard(exec->plan, exec->list, block, local, &first);
    add_transfer(
        message, step,
        (ech_request){.data = (char *)data + first, .tag = tag_of(step, port), .bytes = bytes});
}

/* The values that a step touches: held values, as many as a block keeps, or the ring token.
 * Messages of these keep their order, too. */
static void add_touched(ech_message *message, const ech_step *step)
{
    ech_exec *exec = message->exec;
    for (int i = 0; i < step->accesses; i++) {
        int value = exec->list->access.at[step->first_access + i].value;
        add_transfer(
            message, step,
            (ech_request){.data = ech_exec_address(exec, step, value),
                          .tag = tag_of(step, 0),
                          .bytes = (size_t)ech_plan_value(exec->plan, exec->list, value)->bytes});
    }
}

/* A message is one transfer per tensor, begun here and ended by the loop. */
static ech_status post(ech_exec *exec, const ech_step *step)
{
    bool of_block = ech_step_kind_is_of_blocks(step->kind);
    const int *ports;
    size_t n =
        of_block ? ech_step_ports(step, exec->plan->model->block.at[step->block], &ports) : 0;
    ech_message message = {.exec = exec,
                           .step = (int)(step - exec->list->step.at),
                           .request = exec->request + exec->requested};
    ECH_ASSERT(n <= ECH_MAX_PORTS);
    if (ech_step_sends(step)) exec->counts.messages[ech_step_kind_message(step->kind)].calls++;
    if (!of_block) add_touched(&message, step);
    for (size_t i = 0; i < n; i++)
        if (ports[i] >= 0) add_port(&message, step, (int)i, ports[i]);
    exec->requested += (size_t)message.requests;
    ECH_TRY(ech_comm_put(exec->comm, message.request, message.requests));
    ECH_PUSH(exec->posted, message);
    return ECH_OK;
}

ECH_HANDLE_BY(SEND_ACT, post)
ECH_HANDLE_BY(RECV_ACT, post)
ECH_HANDLE_BY(SEND_GRAD, post)
ECH_HANDLE_BY(RECV_GRAD, post)
ECH_HANDLE_BY(SEND_KEPT, post)
ECH_HANDLE_BY(RECV_KEPT, post)
ECH_HANDLE_BY(SEND_BACK, post)
ECH_HANDLE_BY(RECV_BACK, post)
ECH_HANDLE_BY(SEND_RING_TOKEN, post)
ECH_HANDLE_BY(RECV_RING_TOKEN, post)

/* ---- the loop ---- */

/* Messages begin in the order of their lane. With queues they begin in the order of their queue,
 * each after the previous one, since a wait of a queue delays all later work on it. */
typedef struct link {
    ech_exec *exec;
    int *next; /* [cursors] the first step of each lane or queue that has not begun, or -1 */
    int cursors;
    double progress_at, looked_at; /* time of the last progress, and of the last poll */
    int awaited;                   /* by the compute lane, and since when */
    double awaited_at;
    long nap_ns;
} link;

static bool is_message(const ech_step *step)
{
    return step->lane == ECH_LANE_SEND || step->lane == ECH_LANE_RECEIVE;
}

static int cursor_of(const ech_exec *exec, const ech_step *step)
{
    return exec->device->is_immediate ? step->lane == ECH_LANE_RECEIVE
                                      : ech_step_queue(step) - (int)ECH_LANES;
}

static void find_first(link *l)
{
    const ech_list *list = l->exec->list;
    for (int c = 0; c < l->cursors; c++) l->next[c] = -1;
    for (int s = (int)list->step.n - 1; s >= 0; s--)
        if (is_message(&list->step.at[s])) l->next[cursor_of(l->exec, &list->step.at[s])] = s;
}

static int find_next(const link *l, int cursor)
{
    const ech_list *list = l->exec->list;
    for (int s = l->next[cursor] + 1; s < (int)list->step.n; s++)
        if (is_message(&list->step.at[s]) && cursor_of(l->exec, &list->step.at[s]) == cursor)
            return s;
    return -1;
}

/* True if a message is in flight that must end before the cursor's next one begins. */
static bool is_busy(const link *l, int cursor)
{
    const ech_exec *exec = l->exec;
    for (size_t i = 0; i < exec->posted.n && !exec->device->is_immediate; i++)
        if (cursor_of(exec, &exec->list->step.at[exec->posted.at[i].step]) == cursor) return true;
    return false;
}

static ech_status post_what_may(link *l, bool *progress)
{
    for (int c = 0; c < l->cursors; c++) {
        while (l->next[c] >= 0 && !is_busy(l, c)) {
            const ech_step *step = &l->exec->list->step.at[l->next[c]];
            if (!ech_exec_may_begin(l->exec, step) || ech_exec_has_failed(l->exec)) break;
            ech_queue_await(l->exec, step);
            ech_exec_begin(l->exec, l->next[c]);
            ECH_TRY(ech_exec_handle(l->exec, step));
            l->next[c] = find_next(l, c);
            *progress = true;
        }
    }
    return ECH_OK;
}

static bool is_done(const link *l)
{
    for (int c = 0; c < l->cursors; c++)
        if (l->next[c] >= 0) return false;
    return l->exec->posted.n == 0;
}

static ech_status test_message(ech_exec *exec, ech_message *message, bool *done)
{
    *done = true;
    for (int i = 0; i < message->requests; i++) {
        bool one = message->request[i].done;
        if (!one) ECH_TRY(ech_comm_test(exec->comm, &message->request[i], &one));
        *done &= one;
    }
    return ECH_OK;
}

static ech_status test_posted(link *l, bool *progress)
{
    ech_exec *exec = l->exec;
    size_t left = 0;
    for (size_t i = 0; i < exec->posted.n; i++) {
        bool done;
        ECH_TRY(test_message(exec, &exec->posted.at[i], &done));
        if (done) {
            ech_exec_complete(exec, exec->posted.at[i].step);
            *progress = true;
        } else {
            exec->posted.at[left++] = exec->posted.at[i];
        }
    }
    exec->posted.n = left;
    return ECH_OK;
}

/* The message that the compute lane waits for, if it is in flight. */
static const ech_message *find_awaited(const ech_exec *exec)
{
    int awaited = atomic_load(&exec->awaited);
    for (size_t i = 0; i < exec->posted.n; i++)
        if (exec->posted.at[i].step == awaited || awaited == ECH_AWAITS_ALL)
            return &exec->posted.at[i];
    return NULL;
}

/* Shows on the board which rank is waited for, and fails at the deadline. A message that the
 * compute lane does not wait for began early and has no deadline. */
static ech_status look_at_awaited(link *l)
{
    ech_exec *exec = l->exec;
    const ech_message *awaited = find_awaited(exec);
    double now = ech_clock_now();
    if (!awaited) return ECH_OK;
    if (awaited->step != l->awaited) {
        l->awaited = awaited->step;
        l->awaited_at = now;
    }
    double since = l->awaited_at > l->progress_at ? l->awaited_at : l->progress_at;
    ech_comm_set_wait(exec->comm, awaited->request[0].peer);
    for (int i = 0; i < awaited->requests; i++)
        if (!awaited->request[i].done)
            ECH_TRY(ech_comm_overdue(exec->comm, &awaited->request[i], now - since));
    return ECH_OK;
}

/* `heard`: before the last look. */
static void nap(const link *l, unsigned heard, long ns)
{
    ech_exec *exec = l->exec;
    for (int c = 0; c < l->cursors; c++) exec->link_wanted[c] = is_busy(l, c) ? -1 : l->next[c];
    ech_exec_nap(exec, exec->link_wanted, l->cursors, heard,
                 ech_comm_rings(exec->comm) ? ECH_COMM_LONG_NAP_NS : ns);
}

/* Without progress: yields for longer and longer times. */
static ech_status rest(link *l, unsigned heard)
{
    double now = ech_clock_now(), gap = ech_clock_take_gap(&l->looked_at, now);
    l->progress_at += gap;
    l->awaited_at += gap;
    double idle = now - l->progress_at;
    if (atomic_load(&l->exec->awaited) < 0) {
        nap(l, heard, IDLE_NAP_NS);
        return ECH_OK;
    }
    if (idle < spin_seconds) return ECH_OK;
    if (idle < yield_seconds) {
        sched_yield();
        return ECH_OK;
    }
    if (idle > report_seconds) ECH_TRY(look_at_awaited(l));
    nap(l, heard, l->nap_ns);
    l->nap_ns = l->nap_ns * 2 < LONGEST_NAP_NS ? l->nap_ns * 2 : LONGEST_NAP_NS;
    return ECH_OK;
}

static void note_progress(link *l)
{
    double now = ech_clock_now();
    if (now - l->progress_at > report_seconds) ech_comm_set_wait(l->exec->comm, -1);
    l->progress_at = l->looked_at = now;
    l->nap_ns = FIRST_NAP_NS;
}

ech_status ech_link_run(ech_exec *exec)
{
    link l = {.exec = exec, .next = exec->link_next, .cursors = exec->link_cursors, .awaited = -1};
    find_first(&l);
    note_progress(&l);
    while (!is_done(&l)) {
        bool progress = false;
        unsigned heard = ech_comm_heard(exec->comm);
        ECH_TRY(post_what_may(&l, &progress));
        ECH_TRY(test_posted(&l, &progress));
        if (ech_exec_has_failed(exec) && exec->posted.n == 0) return ECH_OK;
        if (progress) {
            note_progress(&l);
        } else if (exec->posted.n > 0) {
            ECH_TRY(rest(&l, heard));
        } else {
            ech_exec_wait_for_any(exec, l.next, l.cursors);
            note_progress(&l);
        }
    }
    return ECH_OK;
}
