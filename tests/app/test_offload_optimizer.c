/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizer states on the host (ZeRO-Offload): in steps that are withheld they have the bits of
 * those on the device; of what an update has on the host besides states no more lives at once than
 * that of 1 + memory.prefetch buckets; and a model trains in a device limit in which it does not
 * without. In all other steps the bits are probes/bits.c, and the bytes that move
 * probes/offloads.c.
 */
#include <math.h>
#include <string.h>

#include "app/fixture.h"
#include "app/verify/verify.h"
#include "base/log.h"
#include "check/check.h"
#include "schedule/traffic.h"
#include "unit.h"

enum { MOST = 8, STEPS = 4 };

typedef struct trial {
    uint64_t bits[MOST]; /* of each rank's weights and states after the last step */
    double loss[STEPS], norm[STEPS], clip[STEPS];
    int withheld; /* steps */
    bool peaks;   /* the ledger's are the plan's */
    int64_t states[MOST];
    ech_space space; /* of these */
} trial;

/* FNV-1a. */
static uint64_t hash(uint64_t h, ech_exec *exec, const ech_tensor *x)
{
    int64_t n = ech_tensor_count(x);
    ECH_FREED double *numbers = ech_calloc((size_t)n + 1, sizeof *numbers);
    ech_exec_read(exec, x, numbers);
    for (size_t i = 0; i < (size_t)n * sizeof *numbers; i++)
        h = (h ^ ((const unsigned char *)numbers)[i]) * 0x100000001b3u;
    return h;
}

static void hash_all(ech_exec *exec, const ech_plan *plan, uint64_t *bits)
{
    for (int p = 0; p < (int)plan->model->param.n; p++) {
        if (plan->param[p].bucket < 0) continue;
        ech_tensor x = ech_exec_param(exec, p);
        *bits = hash(*bits, exec, &x);
        for (int s = 0; s < plan->param[p].states; s++) {
            x = ech_exec_state(exec, p, s);
            *bits = hash(*bits, exec, &x);
        }
    }
}

static ech_status run_rank(ech_comm *comm, const ech_design *design, void *context)
{
    trial *t = context;
    int rank = ech_comm_rank(comm);
    ech_compared_run run = {.design = design};
    ECH_TRY(ech_compared_run_open(&run, comm));
    ech_exec *exec = run.session.exec;
    const ech_plan *plan = run.session.plan;
    ech_status status = ECH_OK;
    int turns = plan->list[ECH_LIST_TRAIN].turns;
    for (int step = 0; step < STEPS && status == ECH_OK; step += turns) {
        status = ech_exec_run(exec, ECH_LIST_TRAIN, step);
        for (int turn = 0; turn < turns && rank == 0; turn++) {
            const ech_readings *r = &ech_exec_readings(exec)[turn];
            t->loss[step + turn] = r->loss;
            t->norm[step + turn] = r->grad_norm;
            t->clip[step + turn] = r->clip;
            t->withheld += r->withheld;
        }
    }
    if (status == ECH_OK) status = ech_exec_run(exec, ECH_LIST_CHECK, STEPS);
    assert_false(ech_exec_readings(exec)->hash_differs);
    hash_all(exec, plan, &t->bits[rank]);
    for (size_t b = 0; b < plan->bucket.n; b++)
        for (int s = 0; s < plan->bucket.at[b].states; s++) {
            const ech_value *v = &plan->persistent.at[plan->bucket.at[b].state[s].value];
            if (rank == 0) t->space = ech_memory_space(v->kind);
            t->states[rank] += v->bytes;
        }
    if (rank == 0)
        t->peaks = fixture_peaks_are_planned(&run.session, FIXTURE_TRAINED | 1u << ECH_LIST_CHECK);
    ech_compared_run_close(&run);
    return status;
}

static void run(const char *family, int ranks, const char *words, const char *more, trial *t)
{
    char all[800];
    *t = (trial){.loss = {0}};
    snprintf(all, sizeof all,
             "training.steps=%d training.micro_batch_size=1 data.sequence_length=8 "
             "training.check_every=0 checkpoint.background=false optimizer.clip_norm=0.1 %s %s",
             STEPS, words, more);
    assert_true(fixture_runs(family, all, ranks, run_rank, t));
}

static void compare(const trial *none, const trial *away, ech_space space)
{
    assert_memory_equal(none->loss, away->loss, sizeof none->loss);
    assert_memory_equal(none->norm, away->norm, sizeof none->norm);
    assert_memory_equal(none->clip, away->clip, sizeof none->clip);
    assert_memory_equal(none->bits, away->bits, sizeof none->bits);
    assert_memory_equal(none->states, away->states, sizeof none->states);
    assert_int_equal(none->withheld, away->withheld);
    assert_true(away->peaks);
    if (away->states[0]) assert_int_equal(away->space, space);
}

/* An overflow of the gradients withholds the update: the weights that come back are those that
 * went. */
TEST(test_withheld)
{
    static const char words[] = "precision.compute=fp16 precision.gradients=compute "
                                "optimizer.learning_rate=100 training.on_nonfinite=skip";
    trial none, away;
    run("gpt2", 1, words, "", &none);
    assert_true(none.withheld > 0);
    run("gpt2", 1, words, "memory.offload_optimizer=host", &away);
    compare(&none, &away, ECH_SPACE_HOST);
    run("gpt2", 1, words, "memory.offload_optimizer=disk", &away);
    compare(&none, &away, ECH_SPACE_DISK);
}

/* ---- memory ---- */

/* What passes through the host in a step, and the largest of it that is one bucket's; arenas; bytes
 * of states. */
typedef struct sizes {
    int64_t passes, largest, arena[ECH_SPACES], states, gradients, weights;
    int64_t under_way; /* gradients on the device at once, at most */
    int64_t out, in;   /* bytes between device and host, of a step */
    int blocks;
    int64_t block[80]; /* [blocks] gradients */
} sizes;

static sizes plan_sizes_of(const char *words, int ranks)
{
    ech_config *config = fixture_config("llama", words);
    ech_design design = {0};
    ech_plan *plan;
    ech_traffic traffic[ECH_TRAFFIC_AXES];
    assert_int_equal(ech_design_create(config, fixture_tokenizer, ranks, ranks, &design), ECH_OK);
    assert_int_equal(ech_design_plan(&design, 0, false, &plan), ECH_OK);
    ech_plan_traffic(plan, traffic);
    sizes of = {.passes = plan->list[ECH_LIST_TRAIN].peak[ECH_MEMORY_OPTIMIZER_ON_HOST],
                .under_way = plan->list[ECH_LIST_TRAIN].peak[ECH_MEMORY_GRADIENTS],
                .out = ech_traffic_all(&traffic[ECH_TRAFFIC_TO_HOST]).bytes,
                .blocks = (int)plan->model->block.n,
                .in = ech_traffic_all(&traffic[ECH_TRAFFIC_FROM_HOST]).bytes};
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

/* The largest gradients of so many successive blocks; behind the first comes the last, of the next
 * micro-batch. */
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

/* What a step copies: each micro-batch's gradients out, sums in for all but the first, and weights
 * in. */
TEST(test_gradients_copied)
{
    for (int micro_batches = 1; micro_batches <= 4; micro_batches++) {
        char words[200];
        snprintf(words, sizeof words,
                 "precision.compute=bf16 precision.gradients=compute memory.offload_optimizer=host "
                 "model.tie_word_embeddings=false training.global_batch_size=%d memory.prefetch=0",
                 micro_batches);
        sizes s = plan_layers(words, 4, 1);
        int64_t old = s.out - micro_batches * s.gradients; /* weights that have no masters */
        assert_true(old >= 0 && old < s.weights / 4);
        assert_int_equal(s.in, (micro_batches - 1) * s.gradients + s.weights);
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
                                "checkpoint.background=false memory.device_limit=";
    char limited[200], with[300];
    trial t;
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
    assert_non_null(strstr(ech_last_error(), "(memory.offload_optimizer=host)"));
    ech_design_destroy(&design);
    ech_config_destroy(config);
    run("llama", 1, with, "", &t);
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
    trial none, disk;
    run("llama", 1, words, "", &none);
    run("llama", 1, words, limits, &disk);
    compare(&none, &disk, ECH_SPACE_DISK);
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
    ech_exec_set_save(exec, folder, &info, 0, -1);
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

/* ---- the checker ---- */

static ech_step *step_of(ech_plan *plan, ech_step_kind kind, int bucket)
{
    ech_list *list = &plan->list[ECH_LIST_TRAIN];
    for (size_t s = 0; s < list->step.n; s++)
        if (list->step.at[s].kind == kind && list->step.at[s].index == bucket)
            return &list->step.at[s];
    fail_msg("no %s of bucket %d", ech_step_name(kind), bucket);
    return NULL;
}

static void expect_refused(const ech_plan *plan, const char *why)
{
    assert_int_equal(ech_check_list(plan, &plan->list[ECH_LIST_TRAIN]), ECH_EINTERNAL);
    if (!strstr(ech_last_error(), why)) fail_msg("%s, not %s", ech_last_error(), why);
}

/* A step that waits for nothing. */
typedef struct seeded {
    ech_step_kind kind;
    const char *why;
} seeded;

static ech_plan *plan_of(const char *words, int ranks, ech_design *design)
{
    ech_plan *plan;
    ech_config *config = fixture_config("gpt2", words);
    assert_int_equal(ech_design_create(config, fixture_tokenizer, ranks, ranks, design), ECH_OK);
    assert_int_equal(ech_design_plan(design, 0, false, &plan), ECH_OK);
    assert_int_equal(ech_check_list(plan, &plan->list[ECH_LIST_TRAIN]), ECH_OK);
    ech_config_destroy(config);
    return plan;
}

static void expect_faults(ech_plan *plan, const seeded *faults, size_t n)
{
    const ech_list *list = &plan->list[ECH_LIST_TRAIN];
    int bucket = -1;
    for (size_t s = 0; s < list->step.n && bucket < 0; s++)
        if (list->step.at[s].kind == faults[1].kind) bucket = list->step.at[s].index;
    for (size_t i = 0; i < n; i++) {
        ech_step *step = step_of(plan, faults[i].kind, bucket), was = *step;
        step->afters = 0;
        expect_refused(plan, faults[i].why);
        *step = was;
    }
}

TEST(test_seeded_faults)
{
    static const seeded faults[] = {
        {ECH_STEP_UPDATE_ON_HOST, "does not wait for the offload of old weights"},
        {ECH_STEP_FETCH_WEIGHTS, "does not wait for the update on the host"},
        {ECH_STEP_ROOM, "does not wait for the fetch of weights"}};
    static const seeded folded[] = {
        {ECH_STEP_STATISTICS_ON_HOST, "does not wait for the offload of old weights"},
        {ECH_STEP_FETCH_STATISTICS, "does not wait for the statistics on the host"},
        {ECH_STEP_FOLD, "does not wait for the fetch of statistics"},
        {ECH_STEP_OFFLOAD_STATISTICS, "does not wait for the fold"},
        {ECH_STEP_UPDATE_ON_HOST, "does not wait for the offload of statistics"}};
    ech_design design = {0};
    ech_plan *plan = plan_of("memory.offload_optimizer=host", 1, &design);
    expect_faults(plan, faults, sizeof faults / sizeof *faults);
    int first = plan->list[ECH_LIST_TRAIN].step.n ? -1 : 0;
    for (size_t s = 0; first < 0; s++)
        if (plan->list[ECH_LIST_TRAIN].step.at[s].kind == ECH_STEP_UPDATE_ON_HOST)
            first = plan->list[ECH_LIST_TRAIN].step.at[s].index;
    ech_step *read = step_of(plan, ECH_STEP_READ_UPDATE, -1);
    read->lane = ECH_LANE_DISK; /* where the gradients' way does not lead past it */
    step_of(plan, ECH_STEP_UPDATE_ON_HOST, first)->afters--;
    expect_refused(plan, "does not wait for the turn's scalars");
    ech_plan_destroy(plan);
    ech_design_destroy(&design);

    design = (ech_design){0};
    plan = plan_of("memory.offload_optimizer=host optimizer.name=adafactor parallel.tensor=2", 2,
                   &design);
    expect_faults(plan, folded, sizeof folded / sizeof *folded);
    ech_plan_destroy(plan);
    ech_design_destroy(&design);
}

/* The n-th copy of a bucket's sum so far. */
static ech_step *copy_of(ech_plan *plan, ech_step_kind kind, int n)
{
    ech_list *list = &plan->list[ECH_LIST_TRAIN];
    for (size_t s = 0; s < list->step.n; s++)
        if (list->step.at[s].kind == kind && list->step.at[s].resource == ECH_RESOURCE_GRADIENTS &&
            n-- == 0)
            return &list->step.at[s];
    fail_msg("no such %s", ech_step_name(kind));
    return NULL;
}

static ech_access *access_of(ech_plan *plan, const ech_step *step, int i)
{
    return &plan->list[ECH_LIST_TRAIN].access.at[step->first_access + i];
}

/* The value from which what the step brings has left. */
static int find_left(ech_plan *plan, const ech_step *in)
{
    for (int n = 0;; n++) {
        const ech_step *out = copy_of(plan, ECH_STEP_OFFLOAD, n);
        if (access_of(plan, out, 1)->value == access_of(plan, in, 0)->value)
            return access_of(plan, out, 0)->value;
    }
}

static void expect_wrong_value(ech_plan *plan, ech_access *access, int value, const char *why)
{
    int was = access->value;
    access->value = value;
    expect_refused(plan, why);
    access->value = was;
}

/* Sums that leave and come back: one that another takes the place of, that is added to twice or
 * apart, or that nobody waits for. */
TEST(test_faults_of_sums)
{
    static const char *const words[] = {
        "memory.offload_optimizer=host training.micro_batch_size=1 training.global_batch_size=3 "
        "model.num_hidden_layers=4",
        "memory.offload_optimizer=host training.micro_batch_size=1 training.global_batch_size=6 "
        "model.num_hidden_layers=4 parallel.data=2 parallel.zero=2"};
    for (int i = 0; i < 2; i++) {
        ech_design design = {0};
        ech_plan *plan = plan_of(words[i], 1 + i, &design);
        /* The first of their lanes, whose waits others do not make up for. */
        ech_step *out = copy_of(plan, ECH_STEP_OFFLOAD, 0), *in = copy_of(plan, ECH_STEP_FETCH, 0);
        ech_step *next = in;
        for (int n = 1; next == in || next->index != in->index; n++)
            next = copy_of(plan, ECH_STEP_FETCH, n);
        int afters = out->afters, left = find_left(plan, in);
        out->afters = 0;
        expect_refused(plan, "does not wait for");
        out->afters = afters;
        afters = in->afters;
        in->afters = 0;
        expect_refused(plan, "does not wait for");
        in->afters = afters;
        expect_wrong_value(plan, access_of(plan, next, 0), access_of(plan, in, 0)->value,
                           "that are not their sum so far");
        expect_wrong_value(plan, access_of(plan, in, 1), left, "apart from their sum so far");
        int index = in->index;
        in->index = index ? 0 : 1;
        expect_refused(plan, "gradients of bucket");
        in->index = index;
        ech_plan_destroy(plan);
        ech_design_destroy(&design);
    }
}

ALL_TESTS(fixture_setup, fixture_teardown)
