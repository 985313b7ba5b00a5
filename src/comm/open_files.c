/* SPDX-License-Identifier: Apache-2.0
 *
 * RLIMIT_NOFILE.
 */
#include "comm/backend.h"

#include <sys/resource.h>

ech_status ech_open_files_check(const char *by, int needed)
{
    struct rlimit limit;
    rlim_t wanted = (rlim_t)needed;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return ECH_OK;
    if (limit.rlim_max >= wanted) {
        limit.rlim_cur = wanted;
        if (setrlimit(RLIMIT_NOFILE, &limit) == 0) return ECH_OK;
    }
    ECH_FAIL(
        ECH_EUSAGE,
        "parallel.comm = %s: the limit on open files is %llu, and a rank needs about %d; raise "
        "it (ulimit -n)",
        by, (unsigned long long)limit.rlim_max, needed);
}
