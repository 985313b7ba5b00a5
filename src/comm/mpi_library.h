/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the backend `mpi`: MPI's functions, loaded on first use, so that one binary runs on
 * machines with and without MPI. They are declared here with the binary interface of Open MPI, as
 * in its mpi.h (3.0 and newer; tests/comm/mpi_header.c compares), so that all builds have the
 * backend. The library of another MPI is refused.
 */
#ifndef ECH_COMM_MPI_LIBRARY_H
#define ECH_COMM_MPI_LIBRARY_H

#include <stddef.h>

#include "base/status.h"

enum { ECH_MPI_SUCCESS = 0, ECH_MPI_ERR_TRUNCATE = 15, ECH_MPI_ERR_OTHER = 16 };
enum { ECH_MPI_THREAD_SERIALIZED = 2, ECH_MPI_THREAD_MULTIPLE = 3 };
enum { ECH_MPI_TAG_UB = 0, ECH_MPI_COMM_TYPE_SHARED = 0 };
/* Bytes of texts that the library writes. */
enum { ECH_MPI_ERROR_BYTES = 256, ECH_MPI_VERSION_BYTES = 256 };
#define ECH_MPI_IN_PLACE      ((void *)1)
#define ECH_MPI_STATUS_IGNORE ((ech_mpi_status *)0)

typedef struct ompi_communicator_t *ech_mpi_comm; /* MPI_Comm */
typedef struct ompi_datatype_t *ech_mpi_datatype;
typedef struct ompi_errhandler_t *ech_mpi_errhandler;
typedef struct ompi_group_t *ech_mpi_group;
typedef struct ompi_info_t *ech_mpi_info;
typedef struct ompi_op_t *ech_mpi_op;
typedef struct ompi_request_t *ech_mpi_request;
#ifndef MPI_VERSION /* otherwise mpi.h has defined it */
struct ompi_status_public_t {
    int source, tag, error, is_cancelled;
    size_t bytes;
};
#endif
typedef struct ompi_status_public_t ech_mpi_status;

/* X(name, arguments): MPI_name returns an error code. */
#define ECH_MPI_CALLS(X)                                                                           \
    X(Get_library_version, (char *text, int *n))                                                   \
    X(Error_string, (int code, char *text, int *n))                                                \
    X(Error_class, (int code, int *out))                                                           \
    X(Init_thread, (int *argc, char ***argv, int wanted, int *level))                              \
    X(Initialized, (int *out))                                                                     \
    X(Query_thread, (int *level))                                                                  \
    X(Finalize, (void))                                                                            \
    X(Finalized, (int *out))                                                                       \
    X(Abort, (ech_mpi_comm comm, int code))                                                        \
    X(Comm_set_errhandler, (ech_mpi_comm comm, ech_mpi_errhandler handler))                        \
    X(Comm_get_attr, (ech_mpi_comm comm, int key, void *value, int *is_found))                     \
    X(Comm_rank, (ech_mpi_comm comm, int *out))                                                    \
    X(Comm_size, (ech_mpi_comm comm, int *out))                                                    \
    X(Comm_dup, (ech_mpi_comm comm, ech_mpi_comm * out))                                           \
    X(Comm_split, (ech_mpi_comm comm, int color, int key, ech_mpi_comm *out))                      \
    X(Comm_split_type,                                                                             \
      (ech_mpi_comm comm, int type, int key, ech_mpi_info info, ech_mpi_comm *out))                \
    X(Comm_group, (ech_mpi_comm comm, ech_mpi_group * out))                                        \
    X(Comm_create_group, (ech_mpi_comm comm, ech_mpi_group group, int tag, ech_mpi_comm *out))     \
    X(Comm_free, (ech_mpi_comm * comm))                                                            \
    X(Group_incl, (ech_mpi_group group, int n, const int ranks[], ech_mpi_group *out))             \
    X(Group_free, (ech_mpi_group * group))                                                         \
    X(Isend, (const void *from, int n, ech_mpi_datatype type, int to, int tag, ech_mpi_comm comm,  \
              ech_mpi_request *out))                                                               \
    X(Issend, (const void *from, int n, ech_mpi_datatype type, int to, int tag, ech_mpi_comm comm, \
               ech_mpi_request *out))                                                              \
    X(Irecv, (void *to, int n, ech_mpi_datatype type, int from, int tag, ech_mpi_comm comm,        \
              ech_mpi_request *out))                                                               \
    X(Test, (ech_mpi_request * request, int *is_done, ech_mpi_status *status))                     \
    X(Get_count, (const ech_mpi_status *status, ech_mpi_datatype type, int *out))                  \
    X(Cancel, (ech_mpi_request * request))                                                         \
    X(Request_free, (ech_mpi_request * request))                                                   \
    X(Bcast, (void *data, int n, ech_mpi_datatype type, int root, ech_mpi_comm comm))              \
    X(Allreduce, (const void *from, void *to, int n, ech_mpi_datatype type, ech_mpi_op operation,  \
                  ech_mpi_comm comm))                                                              \
    X(Iallreduce, (const void *from, void *to, int n, ech_mpi_datatype type, ech_mpi_op operation, \
                   ech_mpi_comm comm, ech_mpi_request *out))                                       \
    X(Ireduce_scatter_block, (const void *from, void *to, int n, ech_mpi_datatype type,            \
                              ech_mpi_op operation, ech_mpi_comm comm, ech_mpi_request *out))      \
    X(Iallgather, (const void *from, int n, ech_mpi_datatype type, void *to, int each,             \
                   ech_mpi_datatype type_to, ech_mpi_comm comm, ech_mpi_request *out))             \
    X(Ibarrier, (ech_mpi_comm comm, ech_mpi_request * out))

/* X(type, name, symbol): a handle is the address of an object of the library. */
#define ECH_MPI_HANDLES(X)                                                                         \
    X(ech_mpi_comm, COMM_WORLD, ompi_mpi_comm_world)                                               \
    X(ech_mpi_comm, COMM_NULL, ompi_mpi_comm_null)                                                 \
    X(ech_mpi_request, REQUEST_NULL, ompi_request_null)                                            \
    X(ech_mpi_info, INFO_NULL, ompi_mpi_info_null)                                                 \
    X(ech_mpi_errhandler, ERRORS_RETURN, ompi_mpi_errors_return)                                   \
    X(ech_mpi_datatype, BYTE, ompi_mpi_byte)                                                       \
    X(ech_mpi_datatype, CHAR, ompi_mpi_char)                                                       \
    X(ech_mpi_datatype, INT, ompi_mpi_int)                                                         \
    X(ech_mpi_datatype, FLOAT, ompi_mpi_float)                                                     \
    X(ech_mpi_datatype, DOUBLE, ompi_mpi_double)                                                   \
    X(ech_mpi_op, MIN, ompi_mpi_op_min)                                                            \
    X(ech_mpi_op, SUM, ompi_mpi_op_sum)

typedef struct ech_mpi_table {
#define X(name, arguments) int(*name) arguments;
    ECH_MPI_CALLS(X)
#undef X
#define X(type, name, symbol) type name;
    ECH_MPI_HANDLES(X)
#undef X
} ech_mpi_table;
/* Written by ech_mpi_open, and constant afterwards. */
extern ech_mpi_table ech_mpi;

/* Opens the library, once per process: libmpi.so.40 or the one that ECHELON_MPI names. Errors:
 * ECH_EUNSUPPORTED, there is none, or it belongs to another MPI. */
ech_status ech_mpi_open(void);
/* Why ech_mpi_open fails: a text of this thread; NULL: it succeeds. Logs nothing. */
const char *ech_mpi_lacks(void);
/* "Open MPI 4.1.4", once the library is open. Static. */
const char *ech_mpi_version(void);

#endif
