/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend `tcp`: one process per rank, described by the variables of torchrun, and a connection
 * between every two. It is not a row of comm.def: it moves the control of `nccl` if there is no
 * MPI.
 *
 * A connection carries messages one after the other, each with its tag and length in front.
 * Messages that arrive before their receive was started are stored in memory of their own, which is
 * meant for short messages: at most MOST_EARLY bytes per connection, whatever it sends.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/memory.h"
#include "comm/tcp_state.h"

enum { MOST_EARLY = 1 << 28 };

static ech_status open_own(int size, double deadline_seconds, ech_comm **endpoints)
{
    ech_tcp_state *state = ech_calloc(1, sizeof *state);
    *state = (ech_tcp_state){.name = ech_comm_tcp.name, .files = 2};
    ech_status st = ech_tcp_join(state, size, deadline_seconds, &endpoints[0]);
    if (st != ECH_OK) ech_tcp_leave(state);
    return st;
}

/* ---- lists ---- */

static void append(ech_tcp_message **list, ech_tcp_message *m)
{
    while (*list) list = &(*list)->next;
    m->next = NULL;
    *list = m;
}

/* Removes the oldest message with that tag; NULL: there is none. */
static ech_tcp_message *take(ech_tcp_message **list, int64_t tag)
{
    while (*list && (*list)->head.tag != tag) list = &(*list)->next;
    ech_tcp_message *m = *list;
    if (m) *list = m->next;
    return m;
}

/* ---- connections ---- */

/* Nothing was moved: checks whether nothing can be moved now. */
static ech_status check_idle(const ech_comm *comm, int peer, ssize_t moved)
{
    if (moved < 0 && (errno == EAGAIN || errno == EINTR)) return ECH_OK;
    if (ech_comm_is_over(comm)) return ECH_EABORTED;
    ECH_FAIL(ECH_ECOMM,
             "rank %d has ended its connection to rank %d%s%s: it has failed or died; its own "
             "message, or dmesg there, says why",
             peer, comm->rank, moved < 0 ? ": " : "", moved < 0 ? strerror(errno) : "");
}

static ech_status send_some(ech_comm *comm, int to)
{
    ech_tcp_state *state = comm->state;
    ech_tcp_peer *peer = &state->peer[to];
    while (peer->sends) {
        ech_tcp_message *m = peer->sends;
        size_t head = sizeof m->head, of_data = m->at > head ? m->at - head : 0;
        struct iovec parts[] = {{(char *)&m->head + m->at, m->at < head ? head - m->at : 0},
                                {m->data + of_data, m->head.bytes - of_data}};
        struct msghdr both = {.msg_iov = parts, .msg_iovlen = m->head.bytes ? 2 : 1};
        if (m->at >= head) {
            both.msg_iov = parts + 1;
            both.msg_iovlen = 1;
        }
        ssize_t n = sendmsg(peer->fd, &both, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n <= 0) return check_idle(comm, to, n);
        m->at += (size_t)n;
        if (m->at < head + m->head.bytes) continue;
        peer->sends = m->next;
        m->done = true;
    }
    return ECH_OK;
}

/* Memory for a message that no receive accepts directly. */
static ech_status make_early(const ech_comm *comm, int from, ech_tcp_message **out)
{
    const ech_tcp_state *state = comm->state;
    ech_tcp_peer *peer = &state->peer[from];
    size_t used = sizeof **out + peer->early_bytes;
    if (used > MOST_EARLY || peer->head.bytes > MOST_EARLY - used)
        ECH_FAIL(ECH_ECOMM,
                 "rank %d announces a message of %llu bytes that rank %d has not asked for; give "
                 "each job its own MASTER_PORT",
                 from, (unsigned long long)peer->head.bytes, comm->rank);
    *out = ech_calloc(1, sizeof **out);
    **out = (ech_tcp_message){
        .head = peer->head, .data = ech_calloc(1, peer->head.bytes + 1), .fits = true};
    peer->early_bytes += sizeof **out + peer->head.bytes;
    return ECH_OK;
}

/* The header has arrived: chooses the destination of the data. */
static ech_status choose_target(ech_comm *comm, int from)
{
    ech_tcp_state *state = comm->state;
    ech_tcp_peer *peer = &state->peer[from];
    ech_tcp_message *m = take(&peer->receives, peer->head.tag), *early;
    if (!m || m->head.bytes != peer->head.bytes) {
        ECH_TRY(make_early(comm, from, &early));
        if (m) {
            m->came = early; /* does not fit */
            m->fits = false;
        } else {
            append(&peer->early, early);
        }
        m = early;
    }
    peer->coming = m;
    peer->head_at = 0;
    return ECH_OK;
}

static ech_status receive_some(ech_comm *comm, int from)
{
    ech_tcp_state *state = comm->state;
    ech_tcp_peer *peer = &state->peer[from];
    while (peer->receives || peer->coming) {
        ech_tcp_message *m = peer->coming;
        char *to = m ? m->data + m->at : (char *)&peer->head + peer->head_at;
        size_t left = m ? m->head.bytes - m->at : sizeof peer->head - peer->head_at;
        ssize_t n = left > 0 ? recv(peer->fd, to, left, MSG_DONTWAIT) : 0;
        if (n < 0 || (n == 0 && left > 0)) return check_idle(comm, from, n);
        if (m)
            m->at += (size_t)n;
        else
            peer->head_at += (size_t)n;
        if (!m && peer->head_at == sizeof peer->head) ECH_TRY(choose_target(comm, from));
        if (!m || m->at < m->head.bytes) continue;
        m->done = true;
        peer->coming = NULL;
    }
    return ECH_OK;
}

/* ---- messages ---- */

static ech_status start(ech_comm *comm, ech_request *request, const void *from, void *to)
{
    ech_tcp_state *state = comm->state;
    ech_tcp_peer *peer = &state->peer[request->peer];
    ech_tcp_message *m = ech_calloc(1, sizeof *m);
    *m = (ech_tcp_message){.head = {.bytes = request->bytes, .tag = request->tag},
                           .data = request->sends ? (char *)(uintptr_t)from : to,
                           .fits = true};
    request->handle = m;
    if (request->sends) {
        append(&peer->sends, m);
        return send_some(comm, request->peer);
    }
    m->came = take(&peer->early, request->tag);
    if (m->came) {
        m->fits = m->came->head.bytes == request->bytes;
        peer->early_bytes -= sizeof *m + m->came->head.bytes;
    } else {
        append(&peer->receives, m);
    }
    return ECH_OK;
}

static void forget(ech_tcp_message *m)
{
    if (m->came) free(m->came->data);
    free(m->came);
    free(m);
}

static ech_status test(ech_comm *comm, ech_request *request)
{
    const ech_tcp_state *state = comm->state;
    ech_tcp_message *m = request->handle;
    for (int p = 0; p < state->size; p++)
        if (state->peer[p].sends) ECH_TRY(send_some(comm, p));
    /* An early message may still be arriving; then nothing else is to be read for. */
    bool waits = !request->sends && !m->done && !(m->came && m->came->done);
    if (waits) ECH_TRY(receive_some(comm, request->peer));
    if (!m->fits)
        ECH_FAIL(
            ECH_EINTERNAL,
            "rank %d sends %llu bytes to rank %d with tag %d, but the receive is for %zu bytes",
            request->peer, (unsigned long long)m->came->head.bytes, comm->rank, request->tag,
            request->bytes);
    if (m->came && m->came->done && request->bytes > 0)
        memcpy(m->data, m->came->data, request->bytes);
    request->done = m->done || (m->came && m->came->done);
    if (request->done) forget(m);
    return ECH_OK;
}

/* ---- the end ---- */

static void close_own(ech_comm *comm)
{
    ech_board_leave(comm->board, comm->local_rank);
    ech_tcp_leave(comm->state); /* the guard reads the board until then */
    ech_board_file_unmap(comm->board);
}

const ech_comm_backend ech_comm_tcp = {.name = "tcp",
                                       .open = open_own,
                                       .close = close_own,
                                       .start = start,
                                       .test = test,
                                       .withdraw = NULL, /* nothing moves outside calls */
                                       .abort = ech_tcp_abort};
