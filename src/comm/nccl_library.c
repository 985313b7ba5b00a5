/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening NCCL.
 */
#include "comm/nccl_library.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/log.h"
#include "device/cuda_library.h"

/* Environment variable: the path of the library. */
#define NAMED "ECHELON_NCCL"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_open;
static ech_nccl table;

static char name[32] = "NCCL";

const char *ech_nccl_version(void)
{
    return name;
}

static ech_status check_version(const char *path, const char *from)
{
    int version = 0;
    struct utsname machine;
    (void)table.GetVersion(&version);
    int major = version / 10000, minor = version / 100 % 100, patch = version % 100;
    if (version < ECH_NCCL_OLDEST)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "NCCL %d.%d.%d (%s) is too old: 2.22 and newer can abort several communicators "
                 "together; install a newer one, for example with %s",
                 major, minor, patch, path, from);
    snprintf(name, sizeof name, "NCCL %d.%d.%d", major, minor, patch);
    bool is_aarch64 = uname(&machine) == 0 && strcmp(machine.machine, "aarch64") == 0;
    if (is_aarch64 && version / 100 == 228)
        ech_log_warn("NCCL 2.28.%d on aarch64 can lose messages and hang; install 2.29 or newer, "
                     "for example with %s",
                     patch, from);
    return ECH_OK;
}

static ech_status open_now(const ech_library *library)
{
    const ech_library_symbol symbols[] = {
#define X(name, arguments) {"nccl" #name, &table.name},
        ECH_NCCL_CALLS(X)
#undef X
            {"ncclGetErrorString", &table.GetErrorString},
        {"ncclGetLastError", &table.GetLastError},
    };
    const char *path;
    if (is_open) return ECH_OK;
    ECH_TRY(ech_library_open(library, symbols, sizeof symbols / sizeof *symbols, &path));
    ECH_TRY(check_version(path, library->from));
    is_open = true;
    return ECH_OK;
}

ech_status ech_nccl_open(const ech_device *device, const ech_nccl **out)
{
    const char *named = getenv(NAMED);
    ech_library library = ech_library_nccl;
    if (named && *named) library.file = named;
    if (!device->stream)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "parallel.comm = nccl sends the memory of GPUs, not of parallel.device = %s; set "
                 "parallel.comm = local, or mpi",
                 device->name);
    if (!device->count && library.file == ech_library_nccl.file)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "parallel.comm = nccl with parallel.device = %s is for tests, which name a "
                 "stand-in for the library in " NAMED "; set parallel.comm = local",
                 device->name);
    pthread_mutex_lock(&lock);
    ech_status status = open_now(&library);
    pthread_mutex_unlock(&lock);
    *out = &table;
    return status;
}

ech_status ech_nccl_share(const ech_device *device)
{
    const ech_nccl *nccl;
    int version = 0;
    ECH_TRY(ech_nccl_open(device, &nccl));
    (void)nccl->GetVersion(&version);
    if (version < ECH_NCCL_SHARES)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "parallel.share_device = true: %s allows one rank per GPU; set parallel.comm = "
                 "local, or install NCCL 2.30 or newer, for example with %s",
                 name, ech_library_nccl.from);
    /* The library reads it when it makes the first communicator. */
    (void)setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
    return ECH_OK;
}
