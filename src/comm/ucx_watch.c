/* SPDX-License-Identifier: Apache-2.0
 *
 * The watchdog for ranks that end without notice. A rank of this machine is watched through its
 * pidfd, whether its parent has waited for it or not; other ranks through the connection over which
 * the ranks met, which their system then ends. A machine that is switched off, or a suspended
 * process, is detected only by the deadline of waits.
 *
 * A rank on this machine has a worker of its own. Once the rank is lost, UCX is no longer called
 * for that worker: half-written memory cannot block other ranks, and nothing moves outside calls.
 * For the worker of all others UCX cancels receives without a message, which it would otherwise
 * keep forever, and ends the rest as it closes the endpoint.
 */
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "comm/ucx_state.h"

/* Pieces of large messages that one call moves, so that a wait that naps finds its queue full and
 * leaves it empty. */
enum { MOST_MOVES = 1000 };
/* Seconds between checks; and from a sign of a death until it is an error here: the guard and the
 * job monitor, which know more, report first (comm/guard.h). */
static const double look_seconds = 0.01, settle_seconds = 0.15;
/* Seconds for UCX to end the messages with a lost rank. */
static const double drain_seconds = 2;

static void move_all(const ech_ucx_state *state, ucp_worker_h worker)
{
    for (int i = 0; i < MOST_MOVES && state->ucx->ucp_worker_progress(worker); i++) continue;
}

void ech_ucx_progress(ech_ucx_state *state, ech_ucx_peer *peer)
{
    if (peer->near && peer->loss != ECH_UCX_LOST) {
        move_all(state, peer->worker);
        ech_ucx_read(state, peer);
    }
    if (state->far_worker) move_all(state, state->far_worker);
}

/* A rank may announce that it leaves (ech_ucx_leave). It ends once all others have left, or once it
 * has given them up: so if it ends before this rank leaves, it considers this one lost. */
static bool has_ended(ech_ucx_state *state, int rank)
{
    char word;
    ech_ucx_peer *peer = &state->peer[rank];
    const struct pollfd *link = &state->polled[2 * rank], *life = link + 1;
    peer->died |= life->revents != 0;
    if (link->revents) {
        ssize_t n = recv(link->fd, &word, 1, MSG_DONTWAIT);
        if (n == 1) peer->left = true;
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return true;
    }
    return life->revents != 0;
}

void ech_ucx_look(ech_ucx_state *state)
{
    double now = ech_clock_now();
    if (now - state->looked_at < look_seconds) return;
    double gap =
        ech_clock_take_gap(&state->looked_at, now); /* while this rank itself was suspended */
    if (poll(state->polled, 2 * (nfds_t)state->links.size, 0) < 0) return;
    for (int r = 0; r < state->links.size; r++) {
        ech_ucx_peer *peer = &state->peer[r];
        if (r == state->links.rank || peer->loss == ECH_UCX_LOST) continue;
        peer->moved_at += gap;
        bool ended = has_ended(state, r) || peer->failed;
        if (peer->left && state->leaves) continue;
        if (ended && peer->loss == ECH_UCX_LIVES) {
            peer->loss = ECH_UCX_SUSPECTED;
            peer->suspected_at = now;
        }
        if (peer->open && state->patience > 0 && now - peer->moved_at > state->patience)
            ech_ucx_lose(state, r);
        if (peer->loss == ECH_UCX_SUSPECTED && now - peer->suspected_at > settle_seconds)
            ech_ucx_lose(state, r);
    }
}

void ech_ucx_cancel_receives(const ech_ucx_state *state, const ech_ucx_peer *peer)
{
    ech_ucx_message *next;
    for (ech_ucx_message *m = peer->open; m; m = next) {
        next = m->next; /* the call may end the message, but does not change the list */
        if (m->receives && m->request) state->ucx->ucp_request_cancel(peer->worker, m->request);
    }
}

static bool has_open(const ech_ucx_peer *peer)
{
    for (const ech_ucx_message *m = peer->open; m; m = m->next)
        if (!m->done) return true;
    return false;
}

void ech_ucx_lose(ech_ucx_state *state, int rank)
{
    const ech_ucx *ucx = state->ucx;
    ech_ucx_peer *peer = &state->peer[rank];
    if (peer->loss == ECH_UCX_LOST || rank == state->links.rank) return;
    peer->loss = ECH_UCX_LOST;
    ech_ucx_end_reads(peer);
    if (peer->near) return;
    const ucp_request_param_t now = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                     .flags = UCP_EP_CLOSE_FLAG_FORCE};
    ech_ucx_cancel_receives(state, peer);
    ucs_status_ptr_t closing = ucx->ucp_ep_close_nbx(peer->ep, &now);
    peer->ep = NULL;
    double until = ech_clock_now() + drain_seconds;
    while ((has_open(peer) || (UCS_PTR_IS_PTR(closing) &&
                               ucx->ucp_request_check_status(closing) == UCS_INPROGRESS)) &&
           ech_clock_now() < until)
        ucx->ucp_worker_progress(peer->worker);
    if (UCS_PTR_IS_PTR(closing)) ucx->ucp_request_free(closing);
}
