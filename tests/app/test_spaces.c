/* SPDX-License-Identifier: Apache-2.0
 *
 * Device and host memory: an arena each, of the plan's bytes, taken before the first list; what
 * lives there is what the plan says, kind by kind, on every device of the processor.
 */

#include <sys/stat.h>

#include "app/fixture.h"
#include "base/log.h"
#include "unit.h"

enum { RANKS = 2 };

typedef struct taken {
    int calls;
    int64_t bytes;
} taken;
static _Thread_local taken of[ECH_SPACES]; /* by a rank's own thread */
static const ech_device *under;

static ech_status take(ech_space space, ech_status (*alloc)(size_t bytes, void **out), size_t bytes,
                       void **out)
{
    of[space].calls++;
    of[space].bytes += (int64_t)bytes;
    return alloc(bytes, out);
}

static ech_status take_device(size_t bytes, void **out)
{
    return take(ECH_SPACE_DEVICE, under->alloc, bytes, out);
}

static ech_status take_host(size_t bytes, void **out)
{
    return take(ECH_SPACE_HOST, under->alloc_host, bytes, out);
}

/* The most of each kind over the lists that are run. */
static void compare_peaks(const ech_session *s)
{
    int64_t measured[ECH_MEMORY_KINDS], bytes[ECH_SPACES] = {0};
    assert_true(fixture_peaks_are_planned(s, FIXTURE_TRAINED | 1u << ECH_LIST_CHECK));
    ech_exec_peaks(s->exec, measured);
    for (int kind = 0; kind < ECH_MEMORY_KINDS; kind++)
        bytes[ech_memory_space((ech_memory_kind)kind)] += measured[kind];
    assert_true(bytes[ECH_SPACE_DEVICE] > 0 && measured[ECH_MEMORY_SNAPSHOT] > 0);
    assert_true(measured[ECH_MEMORY_STAGING] > ECH_BOUNCE_BYTES);
}

static ech_status run_lists(const ech_session *s)
{
    ECH_TRY(ech_exec_run(s->exec, ECH_LIST_INIT, 0));
    for (int64_t step = 0; step < 3; step++) {
        ECH_TRY(ech_exec_run(s->exec, ECH_LIST_TRAIN, step));
        ECH_TRY(ech_exec_run(s->exec, ECH_LIST_CHECK, step));
    }
    compare_peaks(s);
    return ECH_OK;
}

static int64_t disk_bytes;
static const char *offload_folder; /* below the fixture's */

/* 0: there is none. */
static int64_t file_bytes(int rank)
{
    struct stat info;
    char path[400];
    snprintf(path, sizeof path, "%s/%s/rank-%d.offload", fixture_folder, offload_folder, rank);
    return stat(path, &info) == 0 ? info.st_size : 0;
}

static ech_status run_rank(ech_comm *comm, const ech_design *design, void *context)
{
    (void)context;
    ech_device counting = *under;
    counting.alloc = take_device;
    counting.alloc_host = take_host;
    ech_session s = {0};
    ech_corpus *corpus = NULL;
    ech_loader *loader = NULL;
    for (int space = 0; space < ECH_SPACES; space++) of[space] = (taken){0};
    ECH_TRY(ech_design_plan(design, ech_comm_rank(comm), false, &s.plan));
    s.plan->arena_bytes[ECH_SPACE_DISK] = disk_bytes; /* as if something were there */
    ech_exec_setup setup = {
        .config = design->config, .plan = s.plan, .device = &counting, .comm = comm};
    ech_status status = ech_exec_create(&setup, &s.exec);
    if (status == ECH_OK) status = ech_design_open_data(design, ECH_SPLIT_TRAIN, &corpus);
    if (status == ECH_OK)
        status = ech_session_read(&s, design, corpus, ECH_TRAIN, 0, INT64_MAX, &loader);
    if (status == ECH_OK) status = run_lists(&s);
    for (int space = ECH_SPACE_DEVICE; space <= ECH_SPACE_HOST; space++) {
        assert_int_equal(of[space].calls, 1);
        assert_int_equal(of[space].bytes, s.plan->arena_bytes[space]);
    }
    assert_int_equal(file_bytes(ech_comm_rank(comm)), disk_bytes);
    ech_session_destroy(&s);
    assert_int_equal(file_bytes(ech_comm_rank(comm)), 0);
    ech_loader_destroy(loader);
    ech_corpus_close(corpus);
    return status;
}

static ech_status refuse_rank(ech_comm *comm, const ech_design *design, void *context)
{
    (void)context;
    ech_session s = {0};
    ECH_TRY(ech_design_plan(design, ech_comm_rank(comm), false, &s.plan));
    s.plan->arena_bytes[ECH_SPACE_DISK] = disk_bytes;
    ech_exec_setup setup = {
        .config = design->config, .plan = s.plan, .device = under, .comm = comm};
    ech_status status = ech_exec_create(&setup, &s.exec);
    bool named = strstr(ech_last_error(), "memory.offload_directory");
    ech_plan_destroy(s.plan);
    return named ? status : ECH_EINTERNAL;
}

TEST(test_arenas)
{
    static const char *const devices[] = {"cpu", "walled", "queued"};
    static const char *const cases[] = {
        "parallel.pipeline=2 training.micro_batch_size=1 memory.sequence_chunks=3",
        "parallel.tensor=2 optimizer.name=adafactor precision.compute=bf16 data.document_mask=true",
    };
    for (int d = 0; d < 3; d++)
        for (int c = 0; c < 2; c++) {
            char words[300];
            snprintf(words, sizeof words,
                     "%s model.vocab_size=264 training.steps=6 checkpoint.every=2 "
                     "parallel.device=%s",
                     cases[c], devices[d]);
            under = ech_device_find(devices[d]);
            disk_bytes = d * 3 * 4096;
            offload_folder = "run/offload";
            assert_true(fixture_runs("llama", words, RANKS, run_rank, NULL));
        }
}

/* What is wrong with the folder ends the run before its first list. */
TEST(test_offload_directory)
{
    char words[600];
    under = ech_device_find("cpu");
    disk_bytes = 4096;
    offload_folder = "elsewhere/deep";
    for (int wrong = 0; wrong < 2; wrong++) {
        snprintf(words, sizeof words,
                 "model.vocab_size=264 training.steps=6 checkpoint.every=2 "
                 "memory.offload_directory=%s/%s",
                 fixture_folder, wrong ? "train.bin" : offload_folder);
        ech_config *config = fixture_config("gpt2", words);
        ech_status status = fixture_run(config, 1, wrong ? refuse_rank : run_rank, NULL);
        ech_config_destroy(config);
        assert_int_equal(status, wrong ? ECH_EIO : ECH_OK);
    }
}

ALL_TESTS(fixture_setup, fixture_teardown)
