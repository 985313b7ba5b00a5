/* SPDX-License-Identifier: Apache-2.0
 *
 * A stand-in for NCCL: a shared object with its functions (comm/nccl_library.h), for ranks that are
 * threads of one process and streams that are queues of a device whose functions run on the
 * processor. It moves bytes by NCCL's rules:
 *   - a communicator's calls run in the order of its stream; a group's run together, begin when the
 *     stream gets there, and
 *     hold the stream until they have all ended;
 *   - the n-th send of one member to another meets its n-th receive, with as many elements of the
 *     same type;
 *   - communicators do not block: a start, a first message between two members and a finalization
 *     are in progress until ncclCommGetAsyncError says that they are done. A first send is done
 *     when the other side's receive has been called, and the other way around;
 *   - only aborting ends what waits for a member that does not come.
 * It counts and reports violations, which NCCL forbids or which can make GPUs wait for each other:
 *   - calls of two threads on a communicator at once, also a question for its errors before the
 *     other's call is done; calls on two streams, or after its end;
 *   - its end with calls under way;
 *   - sizes or types that do not match; messages to oneself;
 *   - a kernel that is loaded, a start, a first message, a first collective of a kind or an end
 *     while another communicator's kernels run on the GPU, or an abort outside of the group that
 *     aborts that communicator, too;
 *   - kernels in flight with more thread blocks than a GPU has multiprocessors.
 */
#ifndef ECH_TESTS_COMM_NCCL_STANDIN_H
#define ECH_TESTS_COMM_NCCL_STANDIN_H

#include "device/device.h"

typedef struct nccl_standin_counts {
    int made, destroyed, aborted; /* communicators' members */
    int groups, sends, receives, sums, gathers;
    long long bytes; /* sent */
    int violations;
} nccl_standin_counts;

/* Exported, besides NCCL's. Sets all counts to 0. The device whose queues the streams are, and the
 * number of the calling thread's GPU; NULL: as before. */
void nccl_standin_use(const ech_device *device, int (*gpu)(void));
nccl_standin_counts nccl_standin_count(void);
/* The calling thread's GPU loads a kernel. */
void nccl_standin_load(const char *what);

#endif
