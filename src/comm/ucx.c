/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend `ucx`: one process per rank, described by the variables of torchrun. UCX's tag
 * interface moves messages, in its mode for peers that may fail: between ranks of a machine through
 * memory, otherwise through what UCX finds (RDMA, TCP).
 *
 * A rank's death ends the messages with it by an error that names it, and does not affect messages
 * with others. Two ranks of a machine have a UCX worker each for this pair alone. A rank that is
 * killed in the middle of a message leaves the receiver's queue half written, which would block all
 * that send into the same queue.
 *
 * A message's tag holds the generation of the meeting, the sender, the kind and the tag. So
 * messages of a process from an earlier meeting are never received. A large message between ranks
 * of a machine is read by its receiver (ucx_read.c).
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/ucx_state.h"

/* Bits of a tag; generations and senders are above them. */
enum { KIND_BITS = 2, TAG_BITS = ECH_COMM_TAG_BITS + KIND_BITS, RANK_BITS = 12 };
static const uint64_t kind_mask = (uint64_t)((1 << KIND_BITS) - 1) << ECH_COMM_TAG_BITS;
_Static_assert(ECH_UCX_KINDS <= 1 << KIND_BITS, "a kind fits into its bits");
_Static_assert(ECH_TCP_MOST_RANKS == 1 << RANK_BITS, "so does a rank");
_Static_assert(ECH_TCP_GENERATIONS == 1 << (64 - TAG_BITS - RANK_BITS), "so does a generation");
/* Allocated in advance: only the first training step may allocate. */
enum { MESSAGES = 256 };

ech_ucx_message *ech_ucx_take(ech_ucx_state *state, ech_ucx_peer *peer)
{
    ech_ucx_message *m = state->free;
    if (m)
        state->free = m->next;
    else
        m = ech_calloc(1, sizeof *m);
    *m = (ech_ucx_message){.next = peer->open, .peer = peer, .status = UCS_OK};
    if (peer->open)
        peer->open->before = m;
    else if (state->patience > 0)
        peer->moved_at = ech_clock_now();
    peer->open = m;
    return m;
}

void ech_ucx_give(ech_ucx_state *state, ech_ucx_message *m)
{
    atomic_store(&m->open, 0);
    if (m->next) m->next->before = m->before;
    if (m->before)
        m->before->next = m->next;
    else
        m->peer->open = m->next;
    m->next = state->free;
    state->free = m;
}

static ech_status open_own(int size, double deadline_seconds, ech_comm **endpoints)
{
    ech_ucx_state *state = ech_calloc(1, sizeof *state);
    state->links = (ech_tcp_state){.name = ech_comm_ucx.name, .files = 10};
    for (int i = 0; i < MESSAGES; i++) {
        ech_ucx_message *m = ech_calloc(1, sizeof *m);
        m->next = state->free;
        state->free = m;
    }
    ech_status st = ech_ucx_join(state, size, deadline_seconds, &endpoints[0]);
    if (st != ECH_OK) ech_ucx_release(state);
    return st;
}

/* ---- messages ---- */

/* Called by UCX, either within the call that starts the message, which then returns UCX's request
 * itself, or later. */
static void end(ech_ucx_message *m, void *request, ucs_status_t status)
{
    const ech_ucx *ucx;
    m->status = status;
    m->done = true;
    if (m->request && ech_ucx_open(&ucx) == ECH_OK) ucx->ucp_request_free(request);
    m->request = NULL;
}

static void note_sent(void *request, ucs_status_t status, void *context)
{
    end(context, request, status);
}

static void note_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
                          void *context)
{
    ech_ucx_message *m = context;
    m->length = info->length;
    if (status == UCS_OK && (info->sender_tag & kind_mask) >> ECH_COMM_TAG_BITS == ECH_UCX_OFFER)
        ech_ucx_note_offer(m);
    end(m, request, status);
}

/* The message's rank is lost. */
static ech_status lose(ech_comm *comm, ech_request *request)
{
    if (ech_comm_lose(comm, request)) return ECH_OK;
    if (ech_comm_is_over(comm)) return ECH_EABORTED;
    ech_ucx_state *state = comm->state;
    int slot = request->peer - comm->rank + comm->local_rank;
    if (state->peer[request->peer].died) ech_board_note_death(comm->board, slot);
    ECH_FAIL(ECH_ECOMM,
             "rank %d has failed, died or come to a stop: its messages with rank %d have ended; "
             "its own message says why",
             request->peer, comm->rank);
}

uint64_t ech_ucx_tag(const ech_ucx_state *state, int sender, ech_ucx_kind kind, int tag)
{
    return state->generation << (TAG_BITS + RANK_BITS) | (uint64_t)sender << TAG_BITS |
           (uint64_t)kind << ECH_COMM_TAG_BITS | (uint64_t)tag;
}

void ech_ucx_post(ech_ucx_state *state, ech_ucx_message *m, const void *data, size_t bytes,
                  uint64_t tag, bool any_kind)
{
    const ech_ucx_peer *peer = m->peer;
    ucp_request_param_t how = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA, .user_data = m};
    ucs_status_ptr_t got;
    if (m->receives) {
        how.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL; /* always reports the length */
        how.cb.recv = note_received;
        got = state->ucx->ucp_tag_recv_nbx(peer->worker, (void *)(uintptr_t)data, bytes, tag,
                                           any_kind ? ~kind_mask : ~(ucp_tag_t)0, &how);
    } else {
        how.cb.send = note_sent;
        got = state->ucx->ucp_tag_send_nbx(peer->ep, data, bytes, tag, &how);
    }
    if (!UCS_PTR_IS_PTR(got))
        end(m, NULL, UCS_PTR_STATUS(got));
    else if (m->done)
        state->ucx->ucp_request_free(got);
    else
        m->request = got;
}

static ech_status start(ech_comm *comm, ech_request *request, const void *from, void *to)
{
    ech_ucx_state *state = comm->state;
    ech_ucx_peer *peer = &state->peer[request->peer];
    if (peer->loss == ECH_UCX_LOST) return lose(comm, request);
    ech_ucx_message *m = ech_ucx_take(state, peer);
    int sender = request->sends ? comm->rank : request->peer;
    bool large = request->sends && ech_ucx_is_large(peer, request->bytes);
    ech_ucx_kind kind = large ? ECH_UCX_OFFER : ECH_UCX_DATA;
    uint64_t tag = ech_ucx_tag(state, sender, kind, request->tag);
    request->handle = m;
    m->receives = !request->sends;
    m->to = to;
    m->room = request->bytes;
    if (large)
        ech_ucx_offer_data(state, m, from, request->bytes, tag);
    else
        ech_ucx_post(state, m, request->sends ? from : to, request->bytes, tag, peer->is_read);
    return ECH_OK;
}

/* UCX accepts a message that is shorter than its receive. */
static ech_status check_bytes(ech_comm *comm, ech_request *request, const ech_ucx_message *m)
{
    if (m->error && ech_comm_is_over(comm)) return ECH_EABORTED;
    if (m->error)
        ECH_FAIL(
            ECH_ECOMM,
            "rank %d cannot read a message of %zu bytes out of the memory of rank %d "
            "(process_vm_readv: %s); if that rank has died, its own message says why; otherwise "
            "allow process_vm_readv (--cap-add SYS_PTRACE, one user)",
            comm->rank, request->bytes, request->peer, strerror(m->error));
    if (m->status == UCS_OK && (request->sends || m->length == request->bytes)) return ECH_OK;
    if (m->status == UCS_OK)
        ECH_FAIL(ECH_EINTERNAL,
                 "rank %d sends %zu bytes to rank %d with tag %d, but the receive is for %zu bytes",
                 request->peer, m->length, comm->rank, request->tag, request->bytes);
    if (m->status == UCS_ERR_MESSAGE_TRUNCATED)
        ECH_FAIL(
            ECH_EINTERNAL,
            "rank %d sends more than %zu bytes to rank %d with tag %d, for which the receive is",
            request->peer, request->bytes, comm->rank, request->tag);
    return lose(comm, request);
}

static bool is_done(const ech_ucx_message *m)
{
    return m->done && !m->reads;
}

static ech_status test(ech_comm *comm, ech_request *request)
{
    ech_ucx_state *state = comm->state;
    ech_ucx_peer *peer = &state->peer[request->peer];
    ech_ucx_message *m = request->handle;
    if (!is_done(m)) ech_ucx_progress(state, peer);
    if (!is_done(m)) {
        ech_ucx_look(state);
        for (int r = 0; r < comm->size; r++)
            if (state->peer[r].open && &state->peer[r] != peer && state->peer[r].near)
                ech_ucx_progress(state, &state->peer[r]);
    }
    if (!is_done(m)) return peer->loss == ECH_UCX_LOST ? lose(comm, request) : ECH_OK;
    ech_status st = check_bytes(comm, request, m);
    if (state->patience > 0) peer->moved_at = ech_clock_now();
    ech_ucx_give(state, m);
    request->done = st == ECH_OK;
    return st;
}

/* ---- the end ---- */

/* From now on UCX is called only to end everything, and nothing moves outside calls; but other
 * ranks may read memory. */
static void withdraw(ech_comm *comm)
{
    ech_ucx_state *state = comm->state;
    for (int r = 0; r < comm->size; r++) ech_ucx_end_reads(&state->peer[r]);
}

static void close_own(ech_comm *comm)
{
    ech_board_leave(comm->board, comm->local_rank);
    ech_ucx_leave(comm->state); /* the guard reads the board until then */
    ech_board_file_unmap(comm->board);
}

static void drop(ech_comm *comm)
{
    ech_board_leave(comm->board, comm->local_rank);
    ech_ucx_drop(comm->state);
    ech_board_file_unmap(comm->board);
}

static void abort_own(ech_comm *comm, int code)
{
    ech_ucx_remove_folder();
    ech_tcp_abort(comm, code);
}

const ech_comm_backend ech_comm_ucx = {
    .name = "ucx",
    .version = ech_ucx_version,
    .launcher = NULL,
    .open = open_own,
    .close = close_own,
    .start = start,
    .test = test,
    .withdraw = withdraw,
    .drop = drop,
    .spares = true,
    .abort = abort_own,
};
