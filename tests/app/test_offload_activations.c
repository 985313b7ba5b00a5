/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.offload_activations: activations that the backward needs soon stay. For any number of
 * micro-batches the device holds those of a few blocks at most. A model above the limit is refused
 * without offload and trains with it. A disk that hangs is named. probes/bits.c tests the bits, and
 * probes/offloads.c the copies.
 */

#include <stdatomic.h>

#include "app/fixture.h"
#include "app/verify/verify.h"
#include "base/log.h"
#include "device/disk.h"
#include "schedule/traffic.h"
#include "unit.h"

enum { STEPS = 2 };

/* Bytes that the plan moves to the host in a training step, the most of activations that its device
 * has at once, and the device's arena. */
typedef struct planned {
    int64_t out, device, arena;
} planned;

static void take_plan(const ech_plan *plan, void *context)
{
    *(planned *)context =
        (planned){.out = ech_plan_traffic_along(plan, ECH_TRAFFIC_TO_HOST).bytes,
                  .device = plan->list[ECH_LIST_TRAIN].peak[ECH_MEMORY_ACTIVATIONS],
                  .arena = plan->arena_bytes[ECH_SPACE_DEVICE]};
}

static planned plan(const char *words)
{
    planned p = {0};
    fixture_each_plan("gpt2", 1, words, take_plan, &p);
    return p;
}

static ech_status run_rank(ech_comm *comm, const ech_design *design, void *context)
{
    ech_compared_run run = {.design = design};
    (void)context;
    ech_status status = ech_compared_run_open(&run, comm);
    for (int step = 0; step < STEPS && status == ECH_OK; step++)
        status = ech_exec_run(run.session.exec, ECH_LIST_TRAIN, step);
    ech_compared_run_close(&run);
    return status;
}

/* What the backward needs soon stays. */
TEST(what_is_needed_soon_stays)
{
    for (int prefetch = 1; prefetch <= 4; prefetch += 3) {
        char words[200];
        snprintf(words, sizeof words,
                 "training.micro_batch_size=12 model.num_hidden_layers=1 "
                 "memory.offload_activations=host memory.prefetch=%d",
                 prefetch);
        int64_t out = plan(words).out;
        assert_int_equal(out > 0, prefetch == 1);
    }
}

static int64_t peak_of(int micro_batches, const char *where)
{
    char words[300];
    snprintf(words, sizeof words,
             "parallel.schedule=gpipe model.num_hidden_layers=6 training.micro_batch_size=%d "
             "data.sequence_length=16 "
             "memory.offload_activations=%s",
             12 / micro_batches, where);
    return plan(words).device / (12 / micro_batches);
}

/* Of samples of 1 in 12 micro-batches and of 2 in 6 the device has as many at once; without, twice
 * as many. */
TEST(no_more_for_more_micro_batches)
{
    assert_int_equal(peak_of(12, "host"), peak_of(6, "host"));
    assert_int_equal(peak_of(12, "disk"), peak_of(12, "host"));
    assert_true(peak_of(12, "none") > peak_of(6, "none") * 3 / 2);
    assert_true(peak_of(12, "none") > 8 * peak_of(12, "host"));
}

TEST(above_the_limit)
{
    static const char model[] =
        "parallel.schedule=gpipe model.num_hidden_layers=6 training.micro_batch_size=1 "
        "data.sequence_length=48 checkpoint.every=0";
    char words[400];
    int64_t needs[2];
    for (int offloads = 0; offloads < 2; offloads++) {
        snprintf(words, sizeof words, "%s memory.offload_activations=%s", model,
                 offloads ? "disk" : "none");
        needs[offloads] = plan(words).arena;
    }
    assert_true(needs[1] < needs[0] * 3 / 4);
    snprintf(words, sizeof words, "%s memory.device_limit=%lld", model, (long long)needs[0] - 1);
    ech_config *config = fixture_config("gpt2", words);
    assert_int_not_equal(fixture_run(config, 1, run_rank, NULL), ECH_OK);
    ech_config_destroy(config);
    snprintf(words, sizeof words, "%s memory.offload_activations=disk memory.device_limit=%lld",
             model, (long long)needs[0] - 1);
    assert_true(fixture_runs("gpt2", words, 1, run_rank, NULL));
}

/* ---- a disk that stands still ---- */

static atomic_bool stands_still; /* rank 1's */

ech_status __real_ech_disk_read(const ech_disk *disk, int64_t offset, void *data, size_t bytes);
ech_status __wrap_ech_disk_read(const ech_disk *disk, int64_t offset, void *data, size_t bytes);
ech_status __wrap_ech_disk_read(const ech_disk *disk, int64_t offset, void *data, size_t bytes)
{
    bool blocks = atomic_load(&stands_still) && strstr(ech_disk_path(disk), "rank-1.");
    while (blocks) sleep(1000); /* until the process ends */
    return __real_ech_disk_read(disk, offset, data, bytes);
}

typedef struct ending {
    ech_status status[2];
    char said[2][400];
} ending;

static ech_status run_to_the_deadline(ech_comm *comm, const ech_design *design, void *context)
{
    ending *e = context;
    int rank = ech_comm_rank(comm);
    e->status[rank] = run_rank(comm, design, NULL);
    snprintf(e->said[rank], sizeof e->said[rank], "%s", ech_last_error());
    return e->status[rank];
}

/* Its rank says so at the deadline, with the file's name; the other rank ends with it. */
TEST(a_stalled_disk_is_named)
{
    static const char *const devices[] = {"cpu", "queued"};
    for (int d = 0; d < 2; d++) {
        char words[600];
        ending e = {.status = {ECH_OK}};
        snprintf(words, sizeof words,
                 "parallel.pipeline=2 parallel.schedule=gpipe training.micro_batch_size=1 "
                 "memory.offload_activations=disk parallel.deadline=1 parallel.device=%s "
                 "memory.offload_directory=%s/still-%d",
                 devices[d], fixture_folder, d);
        ech_config *config = fixture_config("gpt2", words);
        atomic_store(&stands_still, true);
        assert_int_not_equal(fixture_run(config, 2, run_to_the_deadline, &e), ECH_OK);
        atomic_store(&stands_still, false);
        ech_config_destroy(config);
        assert_int_equal(e.status[1], ECH_EIO);
        assert_non_null(strstr(e.said[1], "rank-1.offload: rank 1 has read it for 1 s"));
        assert_int_not_equal(e.status[0], ECH_OK);
    }
}

ALL_TESTS(fixture_setup, fixture_teardown)
