/* SPDX-License-Identifier: Apache-2.0
 *
 * The handles that callers have. A call with a handle that is closed, of another kind, or in use by
 * another thread is an error instead of a crash, and so is a call in a process that has no ranks.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "library/library.h"

typedef struct entry {
    const void *handle;
    ech_handle_kind kind;
    pid_t process; /* that opened it */
    int calls;     /* of `thread`, nested; 0: nobody uses it */
    pthread_t thread;
} entry;

static const char *const names[] = {[ECH_HANDLE_RUN] = "run",
                                    [ECH_HANDLE_PLAN] = "plan",
                                    [ECH_HANDLE_SEARCH] = "search",
                                    [ECH_HANDLE_TRAINING] = "training",
                                    [ECH_HANDLE_VERIFICATION] = "verification",
                                    [ECH_HANDLE_CHECKPOINTS] = "list of checkpoints"};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of all below */
static ECH_LIST(entry) open_handles;

/* A process that is forked gets the list as it is between two calls. */
static void lock(void)
{
    pthread_mutex_lock(&mutex);
}

static void unlock(void)
{
    pthread_mutex_unlock(&mutex);
}

static void guard_forks(void)
{
    pthread_atfork(lock, unlock, unlock);
}

static entry *find(const void *handle)
{
    for (size_t i = 0; i < open_handles.n; i++)
        if (open_handles.at[i].handle == handle) return &open_handles.at[i];
    return NULL;
}

void *ech_handle_create(size_t bytes, ech_handle_kind kind)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, guard_forks);
    const entry e = {.handle = ech_calloc(1, bytes), .kind = kind, .process = getpid()};
    lock();
    ECH_PUSH(open_handles, e);
    unlock();
    return (void *)(uintptr_t)e.handle;
}

void ech_handle_destroy(void *handle)
{
    lock();
    entry *e = find(handle);
    *e = open_handles.at[--open_handles.n];
    if (open_handles.n == 0) {
        free(open_handles.at);
        memset(&open_handles, 0, sizeof open_handles);
    }
    unlock();
    free(handle);
}

static bool is_elsewhere(const entry *e)
{
    return e->kind == ECH_HANDLE_TRAINING && e->process != getpid();
}

static bool is_used(const entry *e)
{
    return e->calls > 0 && e->process == getpid() && !pthread_equal(e->thread, pthread_self());
}

/* Says why the handle cannot be used. The mutex is not locked, since the log may call a function of
 * the user. */
static ech_status refuse(const entry *e, ech_handle_kind kind, const char *function)
{
    const char *name = names[kind];
    if (ech_log_is_in_sink())
        ECH_FAIL(ECH_EUSAGE,
                 "%s: the function of echelon_set_log cannot use a %s: it would wait "
                 "for itself",
                 function, name);
    if (!e->handle)
        ECH_FAIL(ECH_EUSAGE, "%s: there is no such %s: it was closed, or never opened", function,
                 name);
    if (e->kind != kind)
        ECH_FAIL(ECH_EUSAGE, "%s: a %s was passed in place of a %s", function, names[e->kind],
                 name);
    if (is_elsewhere(e))
        ECH_FAIL(ECH_EUSAGE,
                 "%s: this training belongs to process %d, from which this one was forked; "
                 "start a training of its own here",
                 function, (int)e->process);
    ECH_FAIL(ECH_EUSAGE,
             "%s: another thread is using this %s; wait until that thread's call has returned",
             function, name);
}

ech_handle_use ech_handle_enter(const void *handle, ech_handle_kind kind, const char *function)
{
    ech_handle_use use = {handle, ECH_OK};
    entry is = {0};
    lock();
    entry *e = find(handle);
    if (e) is = *e;
    bool may = e && !ech_log_is_in_sink() && is.kind == kind && !is_elsewhere(&is) && !is_used(&is);
    if (may) {
        /* in a forked process, calls of the other one do not count */
        e->calls = is.process == getpid() ? is.calls + 1 : 1;
        e->process = getpid();
        e->thread = pthread_self();
    }
    unlock();
    if (!may) use.status = refuse(&is, kind, function);
    return use;
}

void ech_handle_leave(ech_handle_use *use)
{
    if (use->status != ECH_OK) return;
    lock();
    entry *e = find(use->handle); /* none: the call has closed it */
    if (e && e->calls > 0 && pthread_equal(e->thread, pthread_self())) e->calls--;
    unlock();
}
