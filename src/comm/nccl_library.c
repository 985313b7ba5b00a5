/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening NCCL.
 */
#include "comm/nccl_library.h"

#include <pthread.h>
#include <stdlib.h>

#include "device/cuda_library.h"

/* Environment variable: the path of the library. */
#define NAMED "ECHELON_NCCL"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_open;
static ech_nccl table;

static ech_status open_now(const ech_library *library)
{
    const ech_library_symbol symbols[] = {
#define X(name, arguments) {"nccl" #name, &table.name},
        ECH_NCCL_CALLS(X)
#undef X
            {"ncclGetErrorString", &table.GetErrorString},
    };
    const char *path;
    if (is_open) return ECH_OK;
    ECH_TRY(ech_library_open(library, symbols, sizeof symbols / sizeof *symbols, &path));
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
