/* SPDX-License-Identifier: Apache-2.0
 *
 * pidfd_open, and what its errors mean.
 */
#include "comm/life.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

uint64_t ech_life_space(void)
{
    struct stat info;
    return stat("/proc/self/ns/pid", &info) == 0 ? (uint64_t)info.st_ino : 0;
}

ech_life ech_life_open(pid_t process, uint64_t space, int *fd)
{
    if (space != ech_life_space()) return ECH_LIFE_HIDDEN;
    int life = (int)syscall(SYS_pidfd_open, process, 0);
    if (life >= 0) {
        *fd = life;
        return ECH_LIFE_SHOWN;
    }
    if (errno == ESRCH) return ECH_LIFE_OVER;
    /* EPERM: a container's filter */
    return errno == ENOSYS || errno == EPERM ? ECH_LIFE_HIDDEN : ECH_LIFE_LATER;
}
