/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared memory. There is one copy of the memory that all ranks share: the first rank that maps
 * it allocates it, and the last one that unmaps it frees it. A rank reads what another one
 * wrote before a message between them. Ranks that are processes share none.
 */

#include <string.h>

#include "comm/backend.h"
#include "comm/ranks.h"
#include "unit.h"

enum { RANKS = 4, NUMBERS = 1000, TIMES = 3 };
static const double deadline = 60;
static const ech_device *under;
static atomic_int allocated, released;

static ech_status count_alloc(size_t bytes, void **out)
{
    atomic_fetch_add(&allocated, 1);
    return under->alloc(bytes, out);
}

static void count_release(void *memory, size_t bytes)
{
    atomic_fetch_add(&released, 1);
    under->release(memory, bytes);
}

static ech_status lack_memory(size_t bytes, void **out)
{
    (void)out;
    ECH_FAIL(ECH_ENOMEM, "no %zu bytes", bytes);
}

static ech_device counting(void)
{
    ech_device device = *(under = ech_device_find("cpu"));
    device.alloc = count_alloc;
    device.release = count_release;
    allocated = released = 0;
    return device;
}

/* Each rank writes its own numbers, and reads the next rank's after a barrier. */
static ech_status share(ech_comm *comm, const ech_device *device, ech_group *all, int time)
{
    int rank = ech_comm_rank(comm), next = (rank + 1) % RANKS;
    size_t bytes = (size_t)(time + 1) * RANKS * NUMBERS * sizeof(int);
    void *memory;
    ECH_TRY(ech_comm_map_shared(comm, device, bytes, &memory));
    int *numbers = memory;
    for (int i = 0; i < NUMBERS; i++) {
        RANKS_CHECK(numbers[rank * NUMBERS + i] == 0);
        numbers[rank * NUMBERS + i] = rank + time;
    }
    ECH_TRY(ech_group_barrier(all));
    for (int i = 0; i < NUMBERS; i++) RANKS_CHECK(numbers[next * NUMBERS + i] == next + time);
    ECH_TRY(ech_group_barrier(all));
    ech_comm_unmap_shared(comm);
    return ech_group_barrier(all);
}

static ech_status share_often(ech_comm *comm, void *context)
{
    ech_group *all;
    int ranks[RANKS];
    for (int r = 0; r < RANKS; r++) ranks[r] = r;
    ECH_TRY(ech_group_create(comm, "all", ranks, RANKS, &all));
    ech_status status = ECH_OK;
    for (int time = 0; time < TIMES && status == ECH_OK; time++)
        status = share(comm, context, all, time);
    ech_group_destroy(all);
    return status;
}

TEST(all_share_one_copy)
{
    ech_device device = counting();
    assert_int_equal(ranks_run(RANKS, deadline, share_often, &device, NULL), ECH_OK);
    assert_int_equal(allocated, TIMES);
    assert_int_equal(released, TIMES);
}

static ech_status take_none(ech_comm *comm, void *context)
{
    void *memory;
    RANKS_CHECK(ech_comm_map_shared(comm, context, 8, &memory) == ECH_ENOMEM);
    return ECH_OK;
}

TEST(memory_may_be_lacking)
{
    ech_device device = counting();
    device.alloc = lack_memory;
    assert_int_equal(ranks_run(2, deadline, take_none, &device, NULL), ECH_OK);
    assert_int_equal(released, 0);
}

static ech_status ask_processes(ech_comm *comm, void *context)
{
    void *memory;
    const ech_comm_backend *opened = comm->opened, processes = {.name = "mpi"};
    comm->opened = &processes;
    ech_status status = ech_comm_map_shared(comm, context, 8, &memory);
    comm->opened = opened;
    RANKS_CHECK(status == ECH_EUNSUPPORTED);
    RANKS_CHECK(strstr(ech_last_error(), "set parallel.comm = local"));
    return ECH_OK;
}

TEST(processes_have_none)
{
    assert_int_equal(ranks_run(1, deadline, ask_processes, (void *)ech_device_find("cpu"), NULL),
                     ECH_OK);
}
