/* SPDX-License-Identifier: Apache-2.0
 *
 * Descriptors of processes below a launcher.
 */
#include "app/job/newcomer.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "app/job/descendant.h"
#include "comm/life.h"

static bool is_seen(const ech_newcomers *list, pid_t process)
{
    for (size_t i = 0; i < list->seen.n; i++)
        if (list->seen.at[i].process == process) return true;
    return false;
}

/* One that cannot be followed now may be the next time. */
static void add(ech_newcomers *list, pid_t process)
{
    int life = -1;
    if (is_seen(list, process)) return;
    if (ech_life_open(process, ech_life_space(), &life) != ECH_LIFE_SHOWN) return;
    ECH_PUSH(list->seen, (ech_newcomer){process, life});
}

void ech_newcomers_find(ech_newcomers *list)
{
    ech_processes found = {0};
    if (!list->launcher) return;
    ech_descendant_list(list->launcher, &found);
    for (size_t i = 0; i < found.n; i++) add(list, found.at[i]);
    free(found.at);
}

static bool has_ended(const ech_newcomer *newcomer)
{
    return poll(&(struct pollfd){.fd = newcomer->life, .events = POLLIN}, 1, 0) > 0;
}

pid_t ech_newcomers_next_end(ech_newcomers *list)
{
    for (size_t i = 0; i < list->seen.n; i++) {
        ech_newcomer ended = list->seen.at[i];
        if (!has_ended(&ended)) continue;
        close(ended.life);
        list->seen.at[i] = list->seen.at[--list->seen.n];
        return ended.process;
    }
    return 0;
}

void ech_newcomers_kill(const ech_newcomers *list)
{
    for (size_t i = 0; i < list->seen.n; i++)
        syscall(SYS_pidfd_send_signal, list->seen.at[i].life, SIGKILL, NULL, 0);
}

void ech_newcomers_forget(ech_newcomers *list)
{
    for (size_t i = 0; i < list->seen.n; i++) close(list->seen.at[i].life);
    free(list->seen.at);
    memset(&list->seen, 0, sizeof list->seen);
}
