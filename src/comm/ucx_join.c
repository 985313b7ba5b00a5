/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend `ucx`: how a process joins and leaves. The ranks meet over TCP (tcp_join.c); the
 * connections of the meeting carry UCX's addresses, and stay open: they show that a rank has ended.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/last_words.h"
#include "base/log.h"
#include "comm/life.h"
#include "comm/ucx_address.h"
#include "comm/ucx_state.h"

/* Bytes of an address that another rank sends; hosts with many interfaces have some kilobytes. */
enum { MOST_ADDRESS = 1 << 20 };
enum { NAP_NS = 100000 };

/* ---- contexts and workers ---- */

typedef struct setting {
    const char *name, *value;
} setting;

/* Ranks on this machine: memory, which must tolerate peers that fail. UCX's own check for dead
 * ranks is off, since ours is faster (ucx_watch.c). An interval of 0 would make it check every few
 * calls. */
static const setting of_near[] = {{"TLS", "posix"}, {"KEEPALIVE_INTERVAL", "inf"}, {NULL, NULL}};
/* Other ranks: everything but memory, unless the user sets it. */
static const setting of_far[] = {{"KEEPALIVE_INTERVAL", "inf"}, {NULL, NULL}};
static const setting of_far_alone[] = {
    {"TLS", "^shm,self"}, {"KEEPALIVE_INTERVAL", "inf"}, {NULL, NULL}};

static ech_status make_context(const ech_ucx *ucx, const setting *settings, ucp_context_h *out)
{
    const ucp_params_t params = {.field_mask =
                                     UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED,
                                 .features = UCP_FEATURE_TAG};
    ucp_config_t *config;
    ECH_TRY(ech_ucx_check(ucx, ucx->ucp_config_read(NULL, NULL, &config), "ucp_config_read"));
    ech_status st = ECH_OK;
    for (const setting *s = settings; s->name && st == ECH_OK; s++)
        st = ech_ucx_check(ucx, ucx->ucp_config_modify(config, s->name, s->value), s->name);
    ucs_status_t made =
        st == ECH_OK ? ucx->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, out)
                     : UCS_OK;
    ucx->ucp_config_release(config);
    ECH_TRY(st);
    return ech_ucx_check(ucx, made,
                         made == UCS_ERR_NO_DEVICE
                             ? "ucp_init: is an interface up (ip link), and one that "
                               "UCX_NET_DEVICES and UCX_TLS allow?"
                             : "ucp_init");
}

static ech_status make_worker(const ech_ucx *ucx, ucp_context_h in, ucp_worker_h *out)
{
    const ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                        .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    return ech_ucx_check(
        ucx, ucx->ucp_worker_create(in, &params, out),
        "ucp_worker_create (between ranks of a machine it takes 1 MiB of /dev/shm, "
        "2 a pair)");
}

/* Finds ranks for which UCX has a separate worker: ranks of one machine whose process ids are in
 * one namespace, through which they access each other's memory. */
static void find_near(ech_ucx_state *state, const ech_tcp_meeting *met)
{
    const ech_tcp_card *own = &met->cards[state->links.rank];
    for (int r = met->first; r < met->first + met->near; r++)
        state->peer[r].near = own->space != 0 && met->cards[r].space == own->space;
}

static ech_status make_workers(ech_ucx_state *state)
{
    const ech_ucx *ucx = state->ucx;
    bool any_near = false, any_far = false;
    for (int r = 0; r < state->links.size; r++) {
        if (r == state->links.rank) continue;
        any_near |= state->peer[r].near;
        any_far |= !state->peer[r].near;
    }
    if (any_near) ECH_TRY(ech_ucx_make_folder());
    bool checks = !any_near && !any_far && ech_ucx_has_settings();
    if (any_near || checks) ECH_TRY(make_context(ucx, of_near, &state->near));
    if (any_far) ECH_TRY(make_context(ucx, getenv("UCX_TLS") ? of_far : of_far_alone, &state->far));
    if (any_near || any_far || checks) ECH_TRY(ech_ucx_check_settings(ucx));
    if (any_far) ECH_TRY(make_worker(ucx, state->far, &state->far_worker));
    for (int r = 0; r < state->links.size; r++) {
        ech_ucx_peer *peer = &state->peer[r];
        if (r == state->links.rank) continue;
        if (peer->near)
            ECH_TRY(make_worker(ucx, state->near, &peer->worker));
        else
            peer->worker = state->far_worker;
    }
    return ECH_OK;
}

/* ---- addresses ---- */

/* Other ranks read it to find out whether they may; it is valid as long as the endpoint. */
static uint64_t probe;

static ech_status tell_address(ech_ucx_state *state, int rank)
{
    const ech_ucx *ucx = state->ucx;
    ucp_worker_h worker = state->peer[rank].worker;
    ucp_address_t *address;
    size_t bytes;
    int fd = state->links.peer[rank].fd;
    ECH_TRY(ech_ucx_check(ucx, ucx->ucp_worker_get_address(worker, &address, &bytes),
                          "ucp_worker_get_address"));
    const ech_ucx_told word = {.length = bytes,
                               .seal = ech_ucx_seal(address, bytes),
                               .probe_at = (uint64_t)(uintptr_t)&probe,
                               .probe = probe};
    ech_status st = ech_tcp_write(fd, &word, sizeof word);
    if (st == ECH_OK) st = ech_tcp_write(fd, address, bytes);
    ucx->ucp_worker_release_address(worker, address);
    return st;
}

static void note_failure(void *context, ucp_ep_h ep, ucs_status_t status)
{
    ech_ucx_peer *peer = context;
    (void)ep;
    (void)status;
    peer->failed = true;
}

static ech_status make_endpoint(const ech_ucx *ucx, ech_ucx_peer *peer, int rank,
                                const char *address)
{
    const ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                                  UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                                  UCP_EP_PARAM_FIELD_ERR_HANDLER,
                                    .address = (const void *)address,
                                    .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                                    .err_handler = {.cb = note_failure, .arg = peer}};
    ECH_FREED_TEXT words = {0};
    ech_text_append(&words,
                    "UCX cannot read the address of rank %d and ends the process: is that rank of "
                    "this job? See MASTER_ADDR and MASTER_PORT",
                    rank);
    const char *before = ech_last_words_set(words.at);
    ucs_status_t made = ucx->ucp_ep_create(peer->worker, &params, &peer->ep);
    ech_last_words_set(before);
    return ech_ucx_check(ucx, made,
                         peer->near ? "an endpoint in memory"
                                    : "an endpoint of the network; see UCX_TLS, UCX_NET_DEVICES");
}

/* *error: why the memory of a rank on this machine cannot be read; 0: it can. */
static ech_status hear_address(ech_ucx_state *state, int rank, int *error)
{
    ech_ucx_peer *peer = &state->peer[rank];
    ech_ucx_told word;
    ECH_TRY(ech_tcp_read(state->links.peer[rank].fd, &word, sizeof word));
    bool can_be = word.length > 0 && word.length <= MOST_ADDRESS;
    ECH_FREED char *address = ech_calloc(1, can_be ? word.length : 1);
    if (can_be) ECH_TRY(ech_tcp_read(state->links.peer[rank].fd, address, word.length));
    if (!can_be || ech_ucx_seal(address, word.length) != word.seal)
        ECH_FAIL(ECH_ECOMM,
                 "rank %d sent an invalid address; does that rank belong to this job? See "
                 "MASTER_ADDR and MASTER_PORT",
                 rank);
    *error = 0;
    if (peer->near)
        peer->is_read = ech_ucx_may_read(peer->process, word.probe_at, word.probe, error);
    return make_endpoint(state->ucx, peer, rank, address);
}

/* Tells all whether this rank may read their memory, and receives the same from them. No rank
 * continues, and perhaps ends, before all have all endpoints. */
static ech_status await_all(ech_ucx_state *state)
{
    char word;
    for (int r = 0; r < state->links.size; r++) {
        word = state->peer[r].is_read;
        if (r != state->links.rank) ECH_TRY(ech_tcp_write(state->links.peer[r].fd, &word, 1));
    }
    for (int r = 0; r < state->links.size; r++) {
        if (r == state->links.rank) continue;
        ECH_TRY(ech_tcp_read(state->links.peer[r].fd, &word, 1));
        state->peer[r].reads_ours = word != 0;
    }
    return ECH_OK;
}

/* Once: reported by the lower rank of the first pair. */
static void say_slow(const ech_ucx_state *state, int rank, int error)
{
    if (rank < state->links.rank) return;
    ech_log_warn(
        "rank %d may not read the memory of rank %d on the same machine (process_vm_readv: "
        "%s): their large messages go through /dev/shm instead, at half the rate or less; "
        "see docs/running.md",
        state->links.rank, rank, strerror(error));
}

/* The first message is short enough for the connections' buffers. */
static ech_status connect_all(ech_ucx_state *state)
{
    bool all_read = true;
    probe = ech_ucx_tag(state, state->links.rank, ECH_UCX_ANSWER, 0);
    for (int r = 0; r < state->links.size; r++)
        if (r != state->links.rank) ECH_TRY(tell_address(state, r));
    for (int r = 0; r < state->links.size; r++) {
        int error = 0;
        if (r != state->links.rank) ECH_TRY(hear_address(state, r, &error));
        if (error && all_read) say_slow(state, r, error);
        all_read &= error == 0;
    }
    return await_all(state);
}

/* Watches the signs of life of the others. */
static void watch(ech_ucx_state *state, const ech_tcp_meeting *met)
{
    for (int r = 0; r < state->links.size; r++) {
        const ech_tcp_card *card = &met->cards[r];
        ech_ucx_peer *peer = &state->peer[r];
        bool near = peer->near && r != state->links.rank;
        peer->process = card->process;
        if (near) (void)ech_life_open(card->process, card->space, &peer->life);
        state->polled[2 * r] = (struct pollfd){.fd = state->links.peer[r].fd, .events = POLLIN};
        state->polled[2 * r + 1] = (struct pollfd){.fd = peer->life, .events = POLLIN};
    }
}

static ech_status join_all(ech_ucx_state *state, int wanted, double deadline_seconds,
                           ech_tcp_meeting *met)
{
    ECH_TRY(ech_tcp_meet(&state->links, wanted, deadline_seconds, met));
    size_t size = (size_t)state->links.size;
    state->generation = met->cards[0].generation;
    state->patience = met->outlives ? deadline_seconds : 0;
    state->peer = ech_calloc(size, sizeof *state->peer);
    state->polled = ech_calloc(2 * size, sizeof *state->polled);
    for (size_t r = 0; r < size; r++) state->peer[r].life = -1;
    find_near(state, met);
    watch(state, met);
    ech_ucx_let_read(true);
    ECH_TRY(make_workers(state));
    return connect_all(state);
}

/* A process that was not started as one of several is the only rank. */
static void set_alone(void)
{
    if (getenv("RANK") || getenv("WORLD_SIZE")) return;
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "1", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
}

ech_status ech_ucx_join(ech_ucx_state *state, int wanted, double deadline_seconds, ech_comm **out)
{
    ech_tcp_meeting met = {0};
    set_alone();
    ECH_TRY(ech_ucx_open(&state->ucx));
    ECH_TRY(ech_guard_start(deadline_seconds, &state->guard));
    ech_guard_enter(state->guard, "the meeting of the ranks over TCP");
    ech_status st = join_all(state, wanted, deadline_seconds, &met);
    ech_guard_leave(state->guard);
    free(met.cards);
    if (st != ECH_OK) {
        ech_board_file_unmap(met.board);
        return st;
    }
    *out = ech_comm_make(&ech_comm_ucx, state->links.rank, state->links.size,
                         state->links.rank - met.first, met.near, deadline_seconds, met.board);
    (*out)->state = state;
    state->looked_at = ech_clock_now();
    if (!met.outlives) ech_guard_watch(state->guard, met.board, (*out)->local_rank);
    return ECH_OK;
}

/* ---- leaving ---- */

/* True if all other living ranks have announced that they leave. */
static bool have_left(const ech_ucx_state *state)
{
    for (int r = 0; r < state->links.size; r++) {
        const ech_ucx_peer *peer = &state->peer[r];
        if (r != state->links.rank && !peer->left && peer->loss != ECH_UCX_LOST) return false;
    }
    return true;
}

static void progress_all(ech_ucx_state *state)
{
    for (int r = 0; r < state->links.size; r++)
        if (r != state->links.rank) ech_ucx_progress(state, &state->peer[r]);
}

/* Completes what was sent. */
static void flush(ech_ucx_state *state, ucp_worker_h worker)
{
    const ucp_request_param_t plain = {0};
    ucs_status_ptr_t flushing = state->ucx->ucp_worker_flush_nbx(worker, &plain);
    if (!UCS_PTR_IS_PTR(flushing)) return;
    while (state->ucx->ucp_request_check_status(flushing) == UCS_INPROGRESS) progress_all(state);
    state->ucx->ucp_request_free(flushing);
}

void ech_ucx_leave(ech_ucx_state *state)
{
    ech_guard_enter(state->guard, "the end of the ranks' messages");
    state->leaves = true;
    for (int r = 0; r < state->links.size; r++)
        if (state->peer[r].ep && state->peer[r].near && state->peer[r].loss == ECH_UCX_LIVES)
            flush(state, state->peer[r].worker);
    if (state->far_worker) flush(state, state->far_worker);
    for (int r = 0; r < state->links.size; r++)
        if (r != state->links.rank)
            (void)send(state->links.peer[r].fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (!have_left(state)) {
        progress_all(state);
        ech_ucx_look(state);
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
    ech_ucx_release(state);
}

static void close_endpoint(const ech_ucx_state *state, ech_ucx_peer *peer)
{
    const ucp_request_param_t now = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                     .flags = UCP_EP_CLOSE_FLAG_FORCE};
    if (!peer->ep) return;
    ucs_status_ptr_t closing = state->ucx->ucp_ep_close_nbx(peer->ep, &now);
    if (!UCS_PTR_IS_PTR(closing)) return;
    while (state->ucx->ucp_request_check_status(closing) == UCS_INPROGRESS)
        state->ucx->ucp_worker_progress(peer->worker);
    state->ucx->ucp_request_free(closing);
}

void ech_ucx_drop(ech_ucx_state *state)
{
    for (int r = 0; r < state->links.size; r++) {
        ech_ucx_peer *peer = &state->peer[r];
        if (peer->worker) ech_ucx_cancel_receives(state, peer);
    }
    ech_ucx_release(state);
}

static void free_messages(ech_ucx_message *m)
{
    for (ech_ucx_message *next; m; m = next) {
        next = m->next;
        free(m);
    }
}

void ech_ucx_release(ech_ucx_state *state)
{
    const ech_ucx *ucx = state->ucx;
    ech_ucx_let_read(false);
    for (int r = 0; r < state->links.size && state->peer; r++) {
        ech_ucx_peer *peer = &state->peer[r];
        /* Nothing of a lost rank is written into buffers that may be free by now. */
        if (peer->near && peer->loss == ECH_UCX_LOST) ech_ucx_cancel_receives(state, peer);
        close_endpoint(state, peer);
        if (peer->worker && peer->worker != state->far_worker)
            ucx->ucp_worker_destroy(peer->worker);
        if (peer->life >= 0) close(peer->life);
    }
    if (state->far_worker) ucx->ucp_worker_destroy(state->far_worker);
    for (int r = 0; r < state->links.size && state->peer; r++) free_messages(state->peer[r].open);
    if (state->near) ucx->ucp_cleanup(state->near);
    if (state->far) ucx->ucp_cleanup(state->far);
    free_messages(state->free);
    ech_guard_stop(state->guard);
    ech_ucx_remove_folder();
    ech_tcp_close(&state->links);
    free(state->peer);
    free(state->polled);
    free(state);
}
