/* SPDX-License-Identifier: Apache-2.0
 *
 * The watchdog thread for communicators of NCCL.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "comm/nccl_state.h"

/* Interval of checks; and how long it waits for calls to return before it aborts the
 * communicators. */
enum { LOOKS_MS = 20, RETURNS_MS = 1000 };
/* Deadlines until it ends a job: the thread that waits for the device knows more, and reports first
 * unless it hangs, too. */
static const double patience = 1.5;

static void nap(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL);
}

/* Aborts all communicators in one group, once no call is in progress: calls that wait see that the
 * job is over. A call that hangs all the same ends by the abort. */
static void abort_all(const ech_nccl_state *state)
{
    bool any = false;
    for (ech_communicator *in = state->watched; in; in = in->next_watched) any |= in->at != NULL;
    if (!any) return;
    for (int ms = 0; ms < RETURNS_MS && atomic_load(&state->users) > 0; ms++) nap(1);
    (void)state->nccl->GroupStart();
    for (ech_communicator *in = state->watched; in; in = in->next_watched) {
        if (in->at) (void)state->nccl->CommAbort(in->at);
        in->at = NULL;
    }
    (void)state->nccl->GroupEnd();
}

/* True if a call of it is in progress. A fault on the device is reported by the thread that waits
 * for it. */
static bool is_busy(ech_communicator *in)
{
    bool ended = true;
    if (atomic_load(&in->users) > 0) return true;
    return in->device->query(in->ended, &ended) == ECH_OK && !ended;
}

/* A number that changes with any progress. */
static uint64_t find_pulse(const ech_nccl_state *state)
{
    const ech_board_slot *slot = &state->comm->board->slot[state->comm->local_rank];
    uint64_t pulse = (uint64_t)atomic_load(&slot->step);
    for (size_t i = 0; i < sizeof slot->text / sizeof *slot->text; i++)
        pulse = pulse * 31 + atomic_load(&slot->text[i]);
    for (ech_communicator *in = state->watched; in; in = in->next_watched)
        pulse = pulse * 31 + 2 * atomic_load(&in->calls) + is_busy(in);
    return pulse;
}

/* Shows which peers of calls in progress the rank waits for, and ends the job past the deadline. */
static ech_status show_stalled(const ech_nccl_state *state, double seconds)
{
    ECH_LIST(int) peers = {0};
    for (ech_communicator *in = state->watched; in; in = in->next_watched)
        for (int i = 0; i < in->size && is_busy(in); i++)
            if (in->ranks[i] != state->comm->rank) ECH_PUSH(peers, in->ranks[i]);
    ech_status status =
        peers.n ? ech_comm_stalled(state->comm, peers.at, (int)peers.n, seconds) : ECH_OK;
    free(peers.at);
    return status;
}

static ech_status check_progress(ech_nccl_state *state)
{
    double now = ech_clock_now();
    uint64_t pulse = find_pulse(state);
    state->since += ech_clock_take_gap(&state->looked, now);
    double seconds = now - state->since;
    if (pulse == state->seen)
        return seconds > state->comm->deadline ? show_stalled(state, seconds / patience) : ECH_OK;
    if (seconds > state->comm->deadline) ech_comm_set_wait(state->comm, -1);
    state->seen = pulse;
    state->since = now;
    return ECH_OK;
}

/* The thread of a call in progress asks for its errors itself. */
static ech_status check_errors(const ech_nccl_state *state)
{
    for (ech_communicator *in = state->watched; in; in = in->next_watched) {
        int error = ECH_NCCL_SUCCESS;
        if (pthread_mutex_trylock(&in->calling) != 0) continue;
        int result = state->nccl->CommGetAsyncError(in->at, &error);
        pthread_mutex_unlock(&in->calling);
        ECH_TRY(ech_nccl_check(state, result == ECH_NCCL_SUCCESS ? error : result, "its state",
                               in->name));
    }
    return ECH_OK;
}

static void look(ech_nccl_state *state)
{
    bool over = ech_comm_is_over(state->comm);
    if (!over && (check_errors(state) != ECH_OK || check_progress(state) != ECH_OK)) {
        ech_comm_raise(state->comm);
        over = true;
    }
    if (!over) return;
    abort_all(state);
    pthread_cond_broadcast(&state->changed);
}

static void *run(void *argument)
{
    ech_nccl_state *state = argument;
    ech_log_set_rank(state->comm->size > 1 ? state->comm->rank : -1);
    pthread_mutex_lock(&state->lock);
    while (!state->quit) {
        struct timespec until;
        look(state);
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOOKS_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&state->changed, &state->lock, &until);
    }
    pthread_mutex_unlock(&state->lock);
    return NULL;
}

void ech_nccl_watch(ech_nccl_state *state, ech_communicator *in)
{
    pthread_mutex_lock(&state->lock);
    in->next_watched = state->watched;
    state->watched = in;
    pthread_mutex_unlock(&state->lock);
}

void ech_nccl_unwatch(ech_nccl_state *state, const ech_communicator *in)
{
    pthread_mutex_lock(&state->lock);
    while (in->at && ech_comm_is_over(state->comm))
        pthread_cond_wait(&state->changed, &state->lock);
    ech_communicator **at = &state->watched;
    while (*at != in) at = &(*at)->next_watched;
    *at = in->next_watched;
    pthread_mutex_unlock(&state->lock);
}

static ech_status start_threads(ech_nccl_state *state)
{
    int error = ech_thread_start(&state->watcher, run, state);
    if (!error) return ECH_OK;
    ECH_FAIL(ECH_EIO, "cannot start another thread (%s): " ECH_NO_THREAD, strerror(error));
}

ech_status ech_nccl_start(ech_comm *comm, const ech_device *device)
{
    const ech_nccl *nccl;
    if (comm->joined) return ECH_OK;
    ECH_TRY(ech_nccl_open(device, &nccl));
    ech_nccl_state *state = ech_calloc(1, sizeof *state);
    *state = (ech_nccl_state){
        .comm = comm, .nccl = nccl, .since = ech_clock_now(), .looked = ech_clock_now()};
    pthread_mutex_init(&state->lock, NULL);
    pthread_cond_init(&state->changed, NULL);
    comm->joined = state;
    ech_status status = start_threads(state);
    if (status == ECH_OK) return ECH_OK;
    comm->joined = NULL;
    pthread_mutex_destroy(&state->lock);
    pthread_cond_destroy(&state->changed);
    free(state);
    return status;
}

void ech_nccl_stop(ech_comm *comm)
{
    ech_nccl_state *state = comm->joined;
    pthread_mutex_lock(&state->lock);
    state->quit = true;
    pthread_cond_signal(&state->changed);
    pthread_mutex_unlock(&state->lock);
    pthread_join(state->watcher, NULL);
    pthread_mutex_destroy(&state->lock);
    pthread_cond_destroy(&state->changed);
    free(state);
    comm->joined = NULL;
}
