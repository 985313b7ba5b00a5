/* SPDX-License-Identifier: Apache-2.0
 *
 * Large messages between ranks of a machine. UCX would copy them twice, through 8 KiB pieces of
 * shared memory, since its single-copy methods do not tolerate peers that fail. So the sender sends
 * an offer with the message's address, the receiver reads the message from the sender's memory
 * (process_vm_readv), and answers; then the sender's buffer is free.
 *
 * A reader may be late: it was suspended, and the sender has given up. Therefore each read ends
 * with a word of the sender's memory that is valid only while the sender waits; otherwise the data
 * read is not a message, and is discarded. The word also detects another process with the id of one
 * that died. A rank that cannot read waits as for any silent rank: until the watchdog or the
 * deadline declares it lost.
 */
#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "comm/ucx_state.h"

/* The size from which a read is faster than copies through shared memory. And the most that one
 * call reads, so that a rank's other threads get their turn. */
enum { LARGE = 1 << 16, MOST_READ = 8 << 20 };

static uint64_t address_of(const volatile void *at)
{
    return (uint64_t)(uintptr_t)at;
}

/* Reads `bytes` bytes, and then the word, which must be `value`. Returns 0; ESRCH if the word
 * differs or the process does not exist; otherwise the error of the read. */
static int read_from(pid_t process, uint64_t at, char *to, size_t bytes, uint64_t word_at,
                     uint64_t value)
{
    uint64_t word = ~value;
    const struct iovec here[] = {{to, bytes}, {&word, sizeof word}},
                       there[] = {{(void *)(uintptr_t)at, bytes},
                                  {(void *)(uintptr_t)word_at, sizeof word}};
    ssize_t n = process_vm_readv(process, here, 2, there, 2, 0);
    if (n == (ssize_t)(bytes + sizeof word)) return word == value ? 0 : ESRCH;
    return n < 0 ? errno : EFAULT;
}

bool ech_ucx_may_read(pid_t process, uint64_t at, uint64_t value, int *error)
{
    *error = read_from(process, at, NULL, 0, at, value);
    return *error == 0;
}

void ech_ucx_let_read(bool may)
{
#ifdef PR_SET_PTRACER
    (void)prctl(PR_SET_PTRACER, may ? PR_SET_PTRACER_ANY : 0, 0, 0, 0);
#else
    (void)may;
#endif
}

bool ech_ucx_is_large(const ech_ucx_peer *peer, size_t bytes)
{
    return peer->reads_ours && bytes >= LARGE;
}

/* ---- the sender ---- */

/* Sends a message without a request: m->offer's first bytes. */
static void send_alone(ech_ucx_state *state, ech_ucx_message *m, size_t bytes, uint64_t tag)
{
    m->alone = true;
    ech_ucx_post(state, m, &m->offer, bytes, tag, false);
    if (m->done)
        ech_ucx_give(state, m);
    else
        m->peer->alone++;
}

void ech_ucx_offer_data(ech_ucx_state *state, ech_ucx_message *m, const void *data, size_t bytes,
                        uint64_t tag)
{
    int number = (int)(++state->offers % (1u << ECH_COMM_TAG_BITS));
    uint64_t open = ech_ucx_tag(state, state->links.rank, ECH_UCX_ANSWER, number);
    ech_ucx_message *offer = ech_ucx_take(state, m->peer);
    atomic_store(&m->open, open);
    offer->offer = (ech_ucx_offer){
        .at = address_of(data), .bytes = bytes, .open_at = address_of(&m->open), .open = open};
    send_alone(state, offer, sizeof offer->offer, tag);
    m->receives = true;
    ech_ucx_post(state, m, NULL, 0, open, false);
}

/* ---- the receiver ---- */

/* The offer is stored at its message's destination. */
void ech_ucx_note_offer(ech_ucx_message *m)
{
    ech_ucx_message **last = &m->peer->offered;
    memcpy(&m->offer, m->to, sizeof m->offer);
    m->length = m->offer.bytes;
    if (m->length != m->room) return; /* reported as an error when it is tested */
    m->reads = true;
    while (*last) last = &(*last)->next_offered;
    *last = m;
}

static void answer(ech_ucx_state *state, const ech_ucx_message *m)
{
    send_alone(state, ech_ucx_take(state, m->peer), 0, m->offer.open);
}

/* Reads at most *left bytes of the oldest offer's message, and subtracts them. */
static void read_some(ech_ucx_state *state, ech_ucx_peer *peer, size_t *left)
{
    ech_ucx_message *m = peer->offered;
    const ech_ucx_offer *of = &m->offer;
    size_t n = m->room - m->at < *left ? m->room - m->at : *left;
    int again,
        error = read_from(peer->process, of->at + m->at, m->to + m->at, n, of->open_at, of->open);
    /* The memory may be gone because the sender gave up the message. */
    if (error == EFAULT && !ech_ucx_may_read(peer->process, of->open_at, of->open, &again))
        error = ESRCH;
    *left -= n;
    m->at += n;
    if (error == 0 && m->at < m->room) return;
    peer->offered = m->next_offered;
    if (error == ESRCH) return;
    m->error = error;
    m->reads = false;
    if (error == 0) answer(state, m);
}

static void end_alone(ech_ucx_state *state, ech_ucx_peer *peer)
{
    ech_ucx_message *next;
    for (ech_ucx_message *m = peer->open; m && peer->alone > 0; m = next) {
        next = m->next;
        if (!m->alone || !m->done) continue;
        peer->alone--;
        ech_ucx_give(state, m);
    }
}

void ech_ucx_read(ech_ucx_state *state, ech_ucx_peer *peer)
{
    for (size_t left = MOST_READ; peer->offered && left > 0;) read_some(state, peer, &left);
    if (peer->alone > 0) end_alone(state, peer);
    if (peer->offered && state->patience > 0) peer->moved_at = ech_clock_now();
}

void ech_ucx_end_reads(ech_ucx_peer *peer)
{
    for (ech_ucx_message *m = peer->open; m; m = m->next) atomic_store(&m->open, 0);
    peer->offered = NULL;
}
