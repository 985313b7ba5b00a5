/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/nccl_library.h has NCCL's numbers. Compiled where its header is.
 */
#include <nccl.h>

#include "comm/nccl_library.h"

_Static_assert(sizeof(ncclUniqueId) == sizeof(ech_nccl_id), "an id");
_Static_assert(sizeof(ncclComm_t) == sizeof(ech_nccl_comm), "a communicator");
_Static_assert(sizeof(ncclResult_t) == sizeof(int) && sizeof(ncclDataType_t) == sizeof(int) &&
                   sizeof(ncclRedOp_t) == sizeof(int),
               "enumerations");
_Static_assert((int)ncclSuccess == ECH_NCCL_SUCCESS && (int)ncclInProgress == ECH_NCCL_IN_PROGRESS,
               "results");
_Static_assert((int)ncclInt8 == ECH_NCCL_BYTE && (int)ncclFloat32 == ECH_NCCL_FLOAT32 &&
                   (int)ncclFloat64 == ECH_NCCL_FLOAT64 && (int)ncclSum == ECH_NCCL_SUM,
               "types and operations");
