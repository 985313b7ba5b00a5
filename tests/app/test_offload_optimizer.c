/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizer states on the host (ZeRO-Offload): of what an update has there besides states no more
 * lives at once than that of 1 + memory.prefetch buckets; and a model trains in a device limit in
 * which it does not without. Bits are probes/bits.c, withheld steps probes/withheld.c, and the
 * bytes that move probes/offloads.c.
 */
#include <string.h>

#include "app/fixture.h"
#include "app/verify/verify.h"
#include "base/log.h"
#include "unit.h"

enum { STEPS = 4 };

static ech_status run_rank(ech_comm *comm, const ech_design *design, void *context)
{
    ech_compared_run run = {.design = design};
    (void)context;
    ECH_TRY(ech_compared_run_open(&run, comm));
    ech_status status = ECH_OK;
    for (int step = 0; step < STEPS && status == ECH_OK; step++)
        status = ech_exec_run(run.session.exec, ECH_LIST_TRAIN, step);
    ech_compared_run_close(&run);
    return status;
}

static void run(const char *words)
{
    char all[800];
    snprintf(all, sizeof all,
             "training.steps=%d training.micro_batch_size=1 data.sequence_length=8 "
             "training.check_every=0 checkpoint.background=false %s",
             STEPS, words);
    assert_true(fixture_runs("llama", all, 1, run_rank, NULL));
}

/* ---- memory ---- */

/* What passes through the host in a step, and the largest of it that is one bucket's; arenas; bytes
 * of states. */
typedef struct sizes {
    int64_t passes, largest, arena[ECH_SPACES], states, gradients, weights;
    int64_t under_way; /* gradients on the device at once, at most */
    int blocks;
    int64_t block[80]; /* [blocks] gradients */
} sizes;

static sizes plan_sizes_of(const char *words, int ranks)
{
    ech_config *config = fixture_config("llama", words);
    ech_design design = {0};
    ech_plan *plan;
    assert_int_equal(ech_design_create(config, fixture_tokenizer, ranks, ranks, &design), ECH_OK);
    assert_int_equal(ech_design_plan(&design, 0, false, &plan), ECH_OK);
    sizes of = {.passes = plan->list[ECH_LIST_TRAIN].peak[ECH_MEMORY_OPTIMIZER_ON_HOST],
                .under_way = plan->list[ECH_LIST_TRAIN].peak[ECH_MEMORY_GRADIENTS],
                .blocks = (int)plan->model->block.n};
    memcpy(of.arena, plan->arena_bytes, sizeof of.arena);
    for (size_t b = 0; b < plan->bucket.n; b++) {
        const ech_bucket *bucket = &plan->bucket.at[b];
        size_t item = ech_dtype_bytes(bucket->dtype) + ech_dtype_bytes(bucket->weight_dtype);
        for (int i = 0; i < bucket->states; i++) {
            size_t each = ech_dtype_bytes(bucket->state[i].dtype);
            of.states += bucket->elements * (int64_t)each;
            if (plan->states == ECH_SPACE_DISK) item += each;
        }
        int64_t bytes = bucket->elements * (int64_t)item;
        of.gradients += bucket->elements * (int64_t)ech_dtype_bytes(bucket->dtype);
        of.weights += bucket->elements * (int64_t)ech_dtype_bytes(bucket->weight_dtype);
        of.block[bucket->block] += bucket->elements * (int64_t)ech_dtype_bytes(bucket->dtype);
        if (bytes > of.largest) of.largest = bytes;
    }
    ech_plan_destroy(plan);
    ech_design_destroy(&design);
    ech_config_destroy(config);
    return of;
}

static sizes plan_sizes(const char *words)
{
    return plan_sizes_of(words, 1);
}

/* Aligned to 4,096 bytes, five values, at most. */
enum { GAPS = 5 * 4096 };

TEST(test_passes_through_two_buffers)
{
    static const char *const spaces[] = {"host", "disk"};
    for (int disk = 0; disk < 2; disk++) {
        sizes of[2][3]; /* prefetch, layers */
        for (int prefetch = 0; prefetch < 2; prefetch++)
            for (int i = 0; i < 3; i++) {
                char words[300];
                snprintf(words, sizeof words,
                         "memory.offload_optimizer=%s memory.prefetch=%d "
                         "model.num_hidden_layers=%d model.hidden_size=32 precision.compute=bf16 "
                         "precision.gradients=compute checkpoint.background=false",
                         spaces[disk], prefetch, 4 << i);
                sizes *now = &of[prefetch][i], *before = now - 1;
                *now = plan_sizes(words);
                assert_int_equal(now->passes, of[prefetch][0].passes);
                assert_true(now->passes <= (prefetch + 1) * (now->largest + GAPS));
                if (!i) continue;
                assert_true(now->arena[ECH_SPACE_DEVICE] > before->arena[ECH_SPACE_DEVICE]);
                int64_t more = now->arena[ECH_SPACE_HOST] - before->arena[ECH_SPACE_HOST];
                int64_t gradients = now->gradients - before->gradients;
                assert_true(more >= gradients);
                assert_true(disk ? more - gradients < now->states / 64 : more > now->states / 4);
                assert_true(!disk || now->arena[ECH_SPACE_DISK] >= now->states);
            }
        assert_true(of[0][0].passes < of[1][0].passes);
    }
}

static sizes plan_layers(const char *words, int layers, int ranks)
{
    char all[700];
    snprintf(all, sizeof all,
             "model.num_hidden_layers=%d model.hidden_size=32 checkpoint.background=false "
             "training.micro_batch_size=1 data.sequence_length=8 %s",
             layers, words);
    return plan_sizes_of(all, ranks);
}

/* Returns the most bytes of gradients of so many successive blocks. The last block of the next
 * micro-batch follows the first one. */
static int64_t largest_of(const sizes *s, int blocks)
{
    int64_t most = 0;
    for (int b = 0; b < s->blocks; b++) {
        int64_t bytes = 0;
        for (int i = 0; i < blocks; i++) bytes += s->block[(b + i) % s->blocks];
        if (bytes > most) most = bytes;
    }
    return most;
}

/* The device has the gradients of 2 (1 + memory.prefetch) blocks, and where they are summed over
 * ranks of one more, however many layers and micro-batches there are: 2 bytes a parameter remain in
 * bf16 (Ren et al. 2021, section 3). */
TEST(test_gradients_leave)
{
    static const char half[] = "precision.compute=bf16 memory.recompute=full";
    static const struct {
        const char *words;
        int ranks;
    } cases[] = {
        {"training.global_batch_size=1", 1},
        {"training.global_batch_size=3", 1},
        {"training.global_batch_size=2 memory.prefetch=0", 1},
        {"training.global_batch_size=2 memory.prefetch=2", 1},
        {"training.global_batch_size=2 memory.sequence_chunks=2", 1},
        {"parallel.data=2 training.global_batch_size=6", 2},
        {"parallel.data=2 training.global_batch_size=6 parallel.zero=1", 2},
        {"parallel.data=2 training.global_batch_size=6 parallel.zero=2", 2},
        {"parallel.data=2 training.global_batch_size=6 parallel.zero=2 memory.prefetch=0", 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int disk = 0; disk < 2; disk++) {
            char words[400];
            snprintf(words, sizeof words, "%s %s memory.offload_optimizer=%s", half, cases[i].words,
                     disk ? "disk" : "host");
            sizes few = plan_layers(words, 12, cases[i].ranks);
            sizes many = plan_layers(words, 24, cases[i].ranks);
            int prefetch = strstr(words, "prefetch=0") ? 0 : strstr(words, "prefetch=2") ? 2 : 1;
            int blocks = 2 * (1 + prefetch) + (cases[i].ranks > 1);
            assert_int_equal(few.under_way, many.under_way);
            assert_true(many.under_way <= largest_of(&many, blocks));
            int64_t more = many.arena[ECH_SPACE_DEVICE] - few.arena[ECH_SPACE_DEVICE];
            int64_t weights = many.weights - few.weights,
                    gradients = many.gradients - few.gradients;
            /* Full recomputation keeps an input of each block. */
            assert_true(more >= weights && more - weights < gradients / 8);
        }
}

/* GeePS: with everything elsewhere the device has a few blocks' weights, activations and gradients,
 * of 64 layers as of 8. */
TEST(test_layers_pass_through)
{
    static const char words[] = "memory.offload_optimizer=disk memory.offload_parameters=disk "
                                "memory.offload_activations=disk training.global_batch_size=1";
    sizes few = plan_layers(words, 8, 1), many = plan_layers(words, 64, 1);
    assert_true(many.gradients > 6 * few.gradients);
    assert_int_equal(few.under_way, many.under_way);
    int64_t more = many.arena[ECH_SPACE_DEVICE] - few.arena[ECH_SPACE_DEVICE];
    assert_true(more < many.gradients / 64);
}

/* Below what states on the device need. */
TEST(test_limit)
{
    static const char words[] = "model.num_hidden_layers=6 precision.compute=bf16 "
                                "training.micro_batch_size=1 data.sequence_length=8 "
                                "checkpoint.background=false memory.device_limit=";
    char limited[300], with[400];
    sizes host = plan_sizes("model.num_hidden_layers=6 precision.compute=bf16 "
                            "checkpoint.background=false memory.offload_optimizer=host "
                            "training.micro_batch_size=1 data.sequence_length=8");
    snprintf(limited, sizeof limited, "%s%lld", words, (long long)host.arena[ECH_SPACE_DEVICE]);
    snprintf(with, sizeof with, "%s memory.offload_optimizer=host", limited);
    ech_design design = {0};
    ech_plan *plan;
    ech_config *config = fixture_config("llama", limited);
    assert_int_equal(ech_design_create(config, fixture_tokenizer, 1, 1, &design), ECH_OK);
    assert_int_not_equal(ech_design_plan(&design, 0, false, &plan), ECH_OK);
    assert_non_null(strstr(ech_last_error(), "memory.device_limit"));
    if (!strstr(ech_last_error(), "memory.offload_optimizer=host"))
        fail_msg("%s", ech_last_error());
    ech_design_destroy(&design);
    ech_config_destroy(config);
    run(with);
}

/* A small twin of GPT-2 1.5B on 24 GiB: states of more than 40 MiB pass through a host arena that
 * is little larger than the gradients. */
TEST(test_twin)
{
    static const char words[] =
        "model.hidden_size=160 model.num_hidden_layers=12 precision.compute=bf16 "
        "precision.gradients=compute memory.recompute=full training.global_batch_size=2";
    static const char limits[] = "memory.offload_optimizer=disk memory.device_limit=24MiB "
                                 "memory.host_limit=11MiB";
    char all[400];
    snprintf(all, sizeof all, "%s %s checkpoint.background=false", words, limits);
    sizes of = plan_sizes(all);
    assert_true(of.states > 40 << 20 && of.arena[ECH_SPACE_DISK] >= of.states);
    assert_true(of.arena[ECH_SPACE_HOST] <= of.gradients + (4 << 20));
    run(all);
}

/* ---- the file ---- */

typedef struct fault {
    void (*harm)(const char *path); /* the file of rank 1, after a step and a checkpoint */
    bool ends;                      /* the next step fails */
    ech_status of_rank[2];
} fault;

static void truncate_file(const char *path)
{
    assert_int_equal(truncate(path, 4096), 0);
}

static void remove_file(const char *path)
{
    assert_int_equal(unlink(path), 0);
}

static ech_status save(ech_exec *exec, const char *folder)
{
    char yaml[] = "none", json[] = "{}";
    ech_checkpoint_info info = {.step = 1,
                                .optimizer_count = ech_exec_updates(exec),
                                .ranks = 2,
                                .run_yaml = yaml,
                                .text[ECH_FILE_CONFIG] = {json, strlen(json)}};
    ech_exec_set_save(exec, folder, &info, 0, 0, -1);
    return ech_exec_run(exec, ECH_LIST_SAVE, 1);
}

static ech_status be_harmed(ech_comm *comm, const ech_design *design, void *context)
{
    fault *f = context;
    int rank = ech_comm_rank(comm);
    char path[400], folder[400];
    snprintf(path, sizeof path, "%s/away/rank-1.offload", fixture_folder);
    snprintf(folder, sizeof folder, "%s/saved", fixture_folder);
    ech_compared_run run = {.design = design};
    ECH_TRY(ech_compared_run_open(&run, comm));
    ech_exec *exec = run.session.exec;
    ech_status status = ech_exec_run(exec, ECH_LIST_TRAIN, 0);
    if (status == ECH_OK) status = save(exec, folder);
    assert_int_equal(status, ECH_OK);
    ECH_TRY(ech_group_barrier(ech_exec_world(exec)));
    if (rank == 1) f->harm(path);
    for (int step = 1; step < STEPS && status == ECH_OK; step++)
        status = ech_exec_run(exec, ECH_LIST_TRAIN, step);
    f->of_rank[rank] = status;
    ech_compared_run_close(&run);
    return status;
}

/* One that is truncated ends the run on all ranks; one that is removed is there until the run ends.
 * */
TEST(test_harmed_files)
{
    fault faults[] = {{.harm = truncate_file, .ends = true}, {.harm = remove_file}};
    char words[600], path[400];
    snprintf(words, sizeof words,
             "parallel.data=2 parallel.zero=1 memory.offload_optimizer=disk "
             "memory.offload_directory=%s/away training.micro_batch_size=1 "
             "checkpoint.background=false data.sequence_length=8 training.check_every=0",
             fixture_folder);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        fault *f = &faults[i];
        ech_config *config = fixture_config("gpt2", words);
        ech_status status = fixture_run(config, 2, be_harmed, f);
        ech_config_destroy(config);
        assert_int_equal(status != ECH_OK, f->ends);
        for (int rank = 0; rank < 2; rank++) assert_int_equal(f->of_rank[rank] != ECH_OK, f->ends);
        if (f->ends) assert_int_equal(f->of_rank[1], ECH_EINPUT);
        ech_checkpoint *checkpoint;
        snprintf(path, sizeof path, "%s/saved/step-00000001", fixture_folder);
        assert_int_equal(ech_checkpoint_open(path, true, &checkpoint), ECH_OK);
        ech_checkpoint_close(checkpoint);
        snprintf(path, sizeof path, "%s/saved", fixture_folder);
        assert_int_equal(ech_file_remove_all(path), ECH_OK);
        snprintf(path, sizeof path, "%s/away/rank-1.offload", fixture_folder);
        assert_int_not_equal(access(path, F_OK), 0);
    }
}

ALL_TESTS(fixture_setup, fixture_teardown)
