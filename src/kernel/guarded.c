/* SPDX-License-Identifier: Apache-2.0
 *
 * Guard pages around a plugin's tensors.
 */
#include "kernel/guarded.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/last_words.h"

enum { PAGE = 4096, CANARY = 0xA5 };

/* One call at a time: the last words are the process's. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Pages of a copy: one that cannot be accessed, the copy at the end of its pages, and another one
 * that cannot be accessed. */
typedef struct guarded {
    char *pages, *at;
    size_t room, bytes; /* of the pages between the guards; of the tensor */
} guarded;

static _Noreturn void refuse(const ech_user_call *call, const char *what, int tensor)
{
    ech_fail_at(__FILE__, __LINE__, ECH_EUSAGE, "the plugin's %s %s (tensor %d of its call)",
                call->name, what, tensor);
    _exit(1);
}

/* The copy's last number ends at the guard, so numbers are aligned for their type. */
static guarded guard(const ech_tensor *x)
{
    guarded g = {.bytes = ech_tensor_bytes(x)};
    g.room = (g.bytes + 2 * PAGE - 1) / PAGE * PAGE;
    g.pages = mmap(NULL, g.room + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ECH_ASSERT(g.pages != MAP_FAILED);
    int failed = mprotect(g.pages + PAGE, g.room, PROT_READ | PROT_WRITE);
    ECH_ASSERT(!failed);
    memset(g.pages + PAGE, CANARY, g.room - g.bytes);
    g.at = g.pages + PAGE + g.room - g.bytes;
    if (g.bytes) memcpy(g.at, x->data, g.bytes);
    return g;
}

static void release(const ech_user_call *call, int i, const guarded *g)
{
    const ech_tensor *x = &call->tensor[i];
    bool may_write = call->writes >> i & 1;
    for (const char *c = g->pages + PAGE; c < g->at; c++)
        if ((unsigned char)*c != CANARY) refuse(call, "wrote before the beginning of a tensor", i);
    if (!may_write && memcmp(g->at, x->data, g->bytes) != 0)
        refuse(call, "wrote a tensor that it may only read", i);
    if (may_write && g->bytes) memcpy(x->data, g->at, g->bytes);
    munmap(g->pages, g->room + 2 * PAGE);
}

void ech_guarded_run(const ech_user_call *call)
{
    ech_user_call copy = *call;
    guarded g[ECH_USER_TENSORS];
    for (int i = 0; i < call->tensors; i++) {
        if (!call->tensor[i].data) continue;
        g[i] = guard(&call->tensor[i]);
        copy.tensor[i].data = g[i].at;
    }
    char message[256];
    snprintf(message, sizeof message,
             "the plugin's %s accessed memory outside of its tensors, or received another signal",
             call->name);
    pthread_mutex_lock(&lock);
    const char *words = ech_last_words_set(message);
    copy.run(&copy);
    ech_last_words_set(words);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < call->tensors; i++)
        if (call->tensor[i].data) release(call, i, &g[i]);
}
