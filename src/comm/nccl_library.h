/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the backend `nccl`: NCCL's functions, loaded on first use (device/cuda_library.h).
 * They are declared here as in nccl.h (2.7 and newer; tests/comm/nccl_header.c compares), so that
 * all builds have the backend.
 */
#ifndef ECH_COMM_NCCL_LIBRARY_H
#define ECH_COMM_NCCL_LIBRARY_H

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

/* X(name, arguments): ncclName returns a result; `stream` is a cudaStream_t, n a number of
 * elements. */
#define ECH_NCCL_CALLS(X)                                                                          \
    X(GetUniqueId, (ech_nccl_id * out))                                                            \
    X(CommInitRank, (ech_nccl_comm * out, int ranks, ech_nccl_id id, int rank))                    \
    X(CommDestroy, (ech_nccl_comm comm))                                                           \
    X(CommAbort, (ech_nccl_comm comm))                                                             \
    X(CommGetAsyncError, (ech_nccl_comm comm, int *error))                                         \
    X(GroupStart, (void))                                                                          \
    X(GroupEnd, (void))                                                                            \
    X(Send, (const void *from, size_t n, int type, int peer, ech_nccl_comm comm, void *stream))    \
    X(Recv, (void *to, size_t n, int type, int peer, ech_nccl_comm comm, void *stream))            \
    X(AllReduce, (const void *from, void *to, size_t n, int type, int operation,                   \
                  ech_nccl_comm comm, void *stream))

typedef struct ech_nccl {
#define X(name, arguments) int(*name) arguments;
    ECH_NCCL_CALLS(X)
#undef X
    const char *(*GetErrorString)(int result);
} ech_nccl;

/* Opens the library for a device, once per process: for a GPU ech_library_nccl's, or the one that
 * ECHELON_NCCL names; for other devices only the latter, a stand-in for tests that uses the
 * device's streams. Errors: ECH_EUNSUPPORTED. */
ech_status ech_nccl_open(const ech_device *device, const ech_nccl **out);

#endif
