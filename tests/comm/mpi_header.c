/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/mpi_library.h has the types and numbers of Open MPI's mpi.h. Compiled where that header is.
 */
#include <mpi.h>

#include "comm/mpi_library.h"

#define X(name, arguments)                                                                         \
    _Static_assert(                                                                                \
        __builtin_types_compatible_p(__typeof__(&MPI_##name), __typeof__(ech_mpi.name)),           \
        "MPI_" #name);
ECH_MPI_CALLS(X)
#undef X
#define X(type, name, symbol)                                                                      \
    _Static_assert(__builtin_types_compatible_p(__typeof__(MPI_##name), type) &&                   \
                       sizeof(&symbol) > 0,                                                        \
                   "MPI_" #name);
ECH_MPI_HANDLES(X)
#undef X

struct status {
    int source, tag, error, is_cancelled;
    size_t bytes;
};
_Static_assert(sizeof(MPI_Status) == sizeof(struct status) &&
                   _Alignof(MPI_Status) == _Alignof(struct status),
               "a status");
_Static_assert(MPI_SUCCESS == ECH_MPI_SUCCESS && MPI_ERR_TRUNCATE == ECH_MPI_ERR_TRUNCATE &&
                   MPI_ERR_OTHER == ECH_MPI_ERR_OTHER,
               "error codes");
_Static_assert((int)MPI_THREAD_SERIALIZED == ECH_MPI_THREAD_SERIALIZED &&
                   (int)MPI_THREAD_MULTIPLE == ECH_MPI_THREAD_MULTIPLE,
               "thread levels");
_Static_assert((int)MPI_TAG_UB == ECH_MPI_TAG_UB &&
                   (int)MPI_COMM_TYPE_SHARED == ECH_MPI_COMM_TYPE_SHARED,
               "keys");
_Static_assert(MPI_MAX_ERROR_STRING <= ECH_MPI_ERROR_BYTES &&
                   MPI_MAX_LIBRARY_VERSION_STRING <= ECH_MPI_VERSION_BYTES,
               "bytes of texts");
