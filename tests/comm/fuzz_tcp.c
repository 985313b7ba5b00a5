/* SPDX-License-Identifier: Apache-2.0
 *
 * Arbitrary bytes as what a joined peer sends. First the receives: their number, and of each tag
 * and length; then the connection's bytes. A receive that is done has the oldest message of its
 * tag; where all messages that are there fit, all receives are done.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "comm/tcp_state.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { MOST = 8, TAGS = 4, LONGEST = 32, PEER = 1, MOST_INPUT = 65536 };

typedef struct receive {
    ech_request request;
    unsigned char data[LONGEST];
} receive;

/* The k-th message with that tag; NULL: it does not come whole. */
static const uint8_t *message(const uint8_t *at, size_t left, int64_t tag, int k, uint64_t *length)
{
    ech_tcp_head head;
    while (left >= sizeof head) {
        memcpy(&head, at, sizeof head);
        at += sizeof head;
        left -= sizeof head;
        if (head.bytes > left) return NULL;
        *length = head.bytes;
        if (head.tag == tag && k-- == 0) return at;
        at += head.bytes;
        left -= (size_t)head.bytes;
    }
    return NULL;
}

static ech_comm *open_comm(int fd)
{
    ech_tcp_state *state = ech_calloc(1, sizeof *state);
    *state = (ech_tcp_state){.size = 2, .peer = ech_calloc(2, sizeof *state->peer)};
    state->peer[0].fd = -1;
    state->peer[PEER].fd = fd;
    ech_transient file;
    ech_board *board;
    if (ech_board_file_create(1, &file, &board) != ECH_OK) abort();
    ech_transient_remove(&file);
    ech_comm *comm = ech_comm_make(&ech_comm_tcp, 0, 2, 0, 1, 60, board);
    comm->state = state;
    return comm;
}

static void forget(const receive *r)
{
    ech_tcp_message *m = r->request.handle;
    if (r->request.done || !m) return;
    if (m->came) free(m->came->data);
    free(m->came);
    free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    receive all[MOST] = {0};
    int fd[2], count = n ? bytes[0] % (MOST + 1) : 0, came[TAGS] = {0};
    size_t head = 1 + 2 * (size_t)count;
    bool all_fit = true;
    if (n < head || n > MOST_INPUT) return 0;
    ech_log_set_quiet(true);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd) != 0) abort();
    if (send(fd[1], bytes + head, n - head, 0) != (ssize_t)(n - head)) abort();
    close(fd[1]);
    ech_comm *comm = open_comm(fd[0]);
    ech_status status = ECH_OK;
    for (int i = 0; i < count; i++) {
        all[i].request = (ech_request){.peer = PEER,
                                       .tag = bytes[1 + 2 * i] % TAGS,
                                       .bytes = bytes[2 + 2 * i] % (LONGEST + 1)};
        if (ech_comm_tcp.start(comm, &all[i].request, NULL, all[i].data) != ECH_OK) abort();
        for (int test = 0; test < 1 + i % 2 && status == ECH_OK && !all[i].request.done; test++)
            status = ech_comm_tcp.test(comm, &all[i].request);
    }
    for (int i = 0; i < count; i++) {
        uint64_t length = 0;
        const ech_request *r = &all[i].request;
        const uint8_t *is = message(bytes + head, n - head, r->tag, came[r->tag]++, &length);
        while (status == ECH_OK && !r->done) status = ech_comm_tcp.test(comm, &all[i].request);
        all_fit = all_fit && is && length == r->bytes;
        if (r->done && (!is || length != r->bytes || memcmp(is, all[i].data, r->bytes) != 0))
            abort();
    }
    if (all_fit && status != ECH_OK) abort();
    for (int i = 0; i < count; i++) forget(&all[i]);
    ech_comm_close(comm);
    return 0;
}
