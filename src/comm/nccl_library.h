/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the backend `nccl`: NCCL's functions, loaded on first use (device/cuda_library.h).
 * They are declared here as in nccl.h (2.22 and newer; tests/comm/nccl_header.c compares), so that
 * all builds have the backend.
 */
#ifndef ECH_COMM_NCCL_LIBRARY_H
#define ECH_COMM_NCCL_LIBRARY_H

#include <limits.h>
#include <stddef.h>

#include "base/status.h"
#include "device/device.h"

/* ncclResult_t and ncclRedOp_t; ncclDataType_t: transfers use the type of bytes. */
enum { ECH_NCCL_SUCCESS = 0, ECH_NCCL_IN_PROGRESS = 7, ECH_NCCL_SUM = 0 };
enum { ECH_NCCL_BYTE = 0, ECH_NCCL_FLOAT32 = 7, ECH_NCCL_FLOAT64 = 8 };
enum { ECH_NCCL_ID_BYTES = 128 };

typedef struct ech_nccl_id {
    char bytes[ECH_NCCL_ID_BYTES];
} ech_nccl_id;
typedef void *ech_nccl_comm; /* ncclComm_t */

/* NCCL_VERSION_CODE of the oldest library that is used: since 2.22 a group can abort several
 * communicators. */
enum { ECH_NCCL_OLDEST = 22203 };
/* Of the oldest library that puts several ranks on one GPU. */
enum { ECH_NCCL_SHARES = 23003 };
/* The beginning of ncclConfig_t, as of ECH_NCCL_OLDEST: the library takes what `size` covers. */
typedef struct ech_nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cluster_size, least_blocks, most_blocks; /* thread blocks of a kernel: CTAs */
    const char *net_name;
    int split_share;
} ech_nccl_config;
/* NCCL_CONFIG_INITIALIZER, for calls that do not block. */
#define ECH_NCCL_CONFIG                                                                            \
    {                                                                                              \
        .size = sizeof(ech_nccl_config), .magic = 0xcafebeef, .version = ECH_NCCL_OLDEST,          \
        .blocking = 0, .cluster_size = INT_MIN, .least_blocks = INT_MIN, .most_blocks = INT_MIN,   \
        .split_share = INT_MIN                                                                     \
    }

/* X(name, arguments): ncclName returns a result; `stream` is a cudaStream_t, n a number of
 * elements. */
#define ECH_NCCL_CALLS(X)                                                                          \
    X(GetVersion, (int *out))                                                                      \
    X(GetUniqueId, (ech_nccl_id * out))                                                            \
    X(CommInitRankConfig,                                                                          \
      (ech_nccl_comm * out, int ranks, ech_nccl_id id, int rank, ech_nccl_config *config))         \
    X(CommFinalize, (ech_nccl_comm comm))                                                          \
    X(CommDestroy, (ech_nccl_comm comm))                                                           \
    X(CommAbort, (ech_nccl_comm comm))                                                             \
    X(CommGetAsyncError, (ech_nccl_comm comm, int *error))                                         \
    X(GroupStart, (void))                                                                          \
    X(GroupEnd, (void))                                                                            \
    X(Send, (const void *from, size_t n, int type, int peer, ech_nccl_comm comm, void *stream))    \
    X(Recv, (void *to, size_t n, int type, int peer, ech_nccl_comm comm, void *stream))            \
    X(AllReduce, (const void *from, void *to, size_t n, int type, int operation,                   \
                  ech_nccl_comm comm, void *stream))                                               \
    X(ReduceScatter, (const void *from, void *to, size_t n, int type, int operation,               \
                      ech_nccl_comm comm, void *stream))                                           \
    X(AllGather, (const void *from, void *to, size_t n, int type, ech_nccl_comm comm, void *stream))

typedef struct ech_nccl {
#define X(name, arguments) int(*name) arguments;
    ECH_NCCL_CALLS(X)
#undef X
    const char *(*GetErrorString)(int result);
    const char *(*GetLastError)(ech_nccl_comm comm); /* of any communicator; comm is not read */
} ech_nccl;

/* Opens the library for a device, once per process: for a GPU ech_library_nccl's, or the one that
 * ECHELON_NCCL names; for other devices only the latter, a stand-in for tests that uses the
 * device's streams. Errors: ECH_EUNSUPPORTED, also for a library older than ECH_NCCL_OLDEST. */
ech_status ech_nccl_open(const ech_device *device, const ech_nccl **out);
/* Opens the library and allows several ranks of a communicator on one GPU. Errors: as
 * ech_nccl_open; ECH_EUNSUPPORTED: the library is older than ECH_NCCL_SHARES. */
ech_status ech_nccl_share(const ech_device *device);
/* "NCCL 2.30.7"; "NCCL" before the library is open. */
const char *ech_nccl_version(void);

#endif
