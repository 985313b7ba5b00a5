/* SPDX-License-Identifier: Apache-2.0
 *
 * ZeRO stage 3: weights that are kept in shards, and gathered for the blocks that use them. The bits of stage 0 with one
 * micro-batch, numbers that differ by roundings with several; the bytes of a rank by the formula; at most one gathered block
 * and one ahead; what is sent, with and without parallel.zero_keep. And each fault that is put into a plan is found.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "app/fixture.h"
#include "app/verify/verify.h"
#include "check/check.h"
#include "schedule/peaks.h"
#include "schedule/traffic.h"
#include "share.h"

enum { MOST = 8, STEPS = 3, BLOCKS = 16 };

enum { COPIES = 4 };
static const struct {
    ech_traffic_axis axis;
    ech_space from, to;
} copies[COPIES] = {
    {ECH_TRAFFIC_FROM_HOST, ECH_SPACE_HOST, ECH_SPACE_DEVICE},
    {ECH_TRAFFIC_TO_HOST, ECH_SPACE_DEVICE, ECH_SPACE_HOST},
    {ECH_TRAFFIC_FROM_DISK, ECH_SPACE_DISK, ECH_SPACE_HOST},
    {ECH_TRAFFIC_TO_DISK, ECH_SPACE_HOST, ECH_SPACE_DISK},
};

typedef struct trial {
    double loss[STEPS], norm[STEPS], clip[STEPS], validation;
    uint64_t bits[MOST]; /* of what each rank updates of the weights, after the last step */
    int64_t sent[MOST], planned[MOST]; /* bytes of gradients and weights in a step */
    int64_t
        rounds[MOST]
              [BLOCKS]; /* what gathering all of a block once sends; of those that are gathered */
    int64_t scatters
        [MOST]; /* what summing all buckets once sends each member its shard, and sharing the rest */
    int64_t kept[MOST],
        planned_kept
            [MOST]; /* bytes of weights, states and sums of gradients: by the formula, planned */
    int64_t weights[MOST],
        together[MOST]; /* the most bytes of weights; of shards and of two blocks' buckets */
    int64_t all[MOST];  /* bytes of shards and of all buckets */
    int64_t copied[MOST][COPIES], planned_copied[MOST][COPIES]; /* bytes in a step, by direction */
    int micro_batches;                                          /* of rank 0 in a step */
    bool peaks;                                                 /* the ledger's are the plan's */
    bool differs[MOST];                                         /* what ranks hold alike */
} trial;

static bool some_differs(const trial *t)
{
    bool some = false;
    for (int rank = 0; rank < MOST; rank++) some |= t->differs[rank];
    return some;
}

static int64_t align(int64_t bytes)
{
    return ech_align(bytes, 64);
}

static void count_block(const ech_plan *plan, int rank, int block, trial *t, int64_t largest[2])
{
    int64_t gathered = 0;
    for (size_t b = 0; b < plan->bucket.n; b++) {
        const ech_bucket *bucket = &plan->bucket.at[b];
        if (!bucket->gathered || bucket->block != block) continue;
        int64_t bytes = bucket->elements * (int64_t)ech_dtype_bytes(bucket->weight_dtype);
        int N = ech_layout_group_size(plan->layout, plan->model, rank, bucket->group);
        gathered += align(bytes);
        t->rounds[rank][block] += bytes / N * (N - 1);
    }
    t->all[rank] += gathered;
    for (int i = 0; i < 2; i++) {
        int64_t was = largest[i];
        if (gathered <= was) continue;
        largest[i] = gathered;
        gathered = was;
    }
}

/* Of each element its weight, its gradient's sum and its states, an N-th of what N ranks have alike. */
static void count_bucket(const ech_plan *plan, int rank, const ech_bucket *bucket, trial *t)
{
    int N = ech_layout_group_size(plan->layout, plan->model, rank, bucket->group);
    int64_t item = (int64_t)ech_dtype_bytes(bucket->weight_dtype);
    int64_t elements = bucket->sharded ? bucket->elements / N : bucket->elements;
    t->kept[rank] += align((bucket->gathered ? elements : bucket->elements) * item);
    t->all[rank] += align((bucket->gathered ? elements : bucket->elements) * item);
    for (int s = 0; s < bucket->states; s++)
        t->kept[rank] += align(elements * (int64_t)ech_dtype_bytes(bucket->state[s].dtype));
    t->scatters[rank] += bucket->elements / N * (N - 1) * (int64_t)ech_dtype_bytes(bucket->wire);
}

static void count_plan(const ech_plan *plan, int rank, trial *t)
{
    int64_t largest[2] = {0};
    const ech_list *list = &plan->list[ECH_LIST_TRAIN];
    if (rank == 0) t->micro_batches = list->numbering.micro_batches;
    t->planned[rank] = ech_plan_traffic_along(plan, ECH_TRAFFIC_DATA).bytes;
    for (int i = 0; i < COPIES; i++)
        t->planned_copied[rank][i] = ech_plan_traffic_along(plan, copies[i].axis).bytes;
    for (size_t b = 0; b < plan->bucket.n; b++) count_bucket(plan, rank, &plan->bucket.at[b], t);
    t->together[rank] = t->all[rank];
    for (int block = 0; block < (int)plan->model->block.n; block++)
        count_block(plan, rank, block, t, largest);
    t->together[rank] += largest[0] + largest[1];
    for (size_t b = 0; b < plan->bucket.n; b++) {
        const ech_bucket *bucket = &plan->bucket.at[b];
        const ech_value *weights = &plan->persistent.at[bucket->weights];
        t->planned_kept[rank] += align(weights->bytes);
        if (weights->kind == ECH_MEMORY_PARAMETERS) t->weights[rank] += align(weights->bytes);
        for (int s = 0; s < bucket->states; s++)
            t->planned_kept[rank] += align(plan->persistent.at[bucket->state[s].value].bytes);
    }
    t->weights[rank] += list->peak[ECH_MEMORY_PARAMETERS];
}

/* FNV-1a, of what this rank updates. */
static uint64_t hash_own(ech_exec *exec, const ech_plan *plan)
{
    uint64_t h = 0;
    for (int p = 0; p < (int)plan->model->param.n; p++) {
        int64_t first = 0, n = plan->param[p].bucket < 0 ? 0 : ech_plan_own(plan, p, &first);
        if (!n) continue;
        ech_tensor x = ech_exec_param(exec, p);
        ECH_FREED double *own = ech_calloc((size_t)plan->param[p].elements, sizeof *own);
        ech_exec_read(exec, &x, own);
        if (plan->bucket.at[plan->param[p].bucket].gathered) first = 0;
        const unsigned char *at = (const unsigned char *)(own + first);
        for (size_t i = 0; i < (size_t)n * sizeof *own; i++) h = (h ^ at[i]) * 0x100000001b3u;
    }
    return h;
}

static ech_status train(ech_compared_run *run, int rank, trial *t)
{
    ech_exec *exec = run->session.exec;
    for (int step = 0; step < STEPS; step++) {
        int64_t before = ech_exec_reduce_count(exec).bytes;
        for (int i = 0; i < COPIES; i++)
            t->copied[rank][i] = -ech_exec_copied(exec, copies[i].from, copies[i].to);
        ECH_TRY(ech_exec_run(exec, ECH_LIST_TRAIN, step));
        t->sent[rank] = ech_exec_reduce_count(exec).bytes - before;
        for (int i = 0; i < COPIES; i++)
            t->copied[rank][i] += ech_exec_copied(exec, copies[i].from, copies[i].to);
        if (rank > 0) continue;
        t->loss[step] = ech_exec_readings(exec)->loss;
        t->norm[step] = ech_exec_readings(exec)->grad_norm;
        t->clip[step] = ech_exec_readings(exec)->clip;
    }
    ECH_TRY(ech_exec_run(exec, ECH_LIST_CHECK, STEPS));
    t->differs[rank] = ech_exec_readings(exec)->hash_differs;
    bool validates;
    double loss;
    ECH_TRY(ech_compared_run_validate(run, &validates, &loss));
    ECH_ASSERT(validates);
    if (rank == 0) t->validation = loss;
    return ECH_OK;
}

static ech_status run_rank(ech_comm *comm, const ech_design *design, void *context)
{
    trial *t = context;
    int rank = ech_comm_rank(comm);
    ech_compared_run run = {.design = design};
    ECH_TRY(ech_compared_run_open(&run, comm));
    ech_status status = train(&run, rank, t);
    count_plan(run.session.plan, rank, t);
    t->bits[rank] = hash_own(run.session.exec, run.session.plan);
    if (rank == 0) t->peaks = fixture_peaks_are_planned(&run.session, ~0u);
    ech_compared_run_close(&run);
    return status;
}

static void run(const char *family, int ranks, const char *words, const char *zero, trial *t)
{
    char more[700];
    *t = (trial){.loss = {0}};
    snprintf(more, sizeof more,
             "%s %s training.steps=%d training.micro_batch_size=1 data.sequence_length=8 "
             "checkpoint.background=false optimizer.clip_norm=0.1",
             words, zero, STEPS);
    assert_true(fixture_runs(family, more, ranks, run_rank, t));
}

/* ---- the same numbers ---- */

static const struct {
    const char *family;
    int ranks;
    const char *words;
} cases[] = {
    {"gpt2", 2, "parallel.data=2 training.global_batch_size=2 model.num_hidden_layers=4"},
    {"llama", 3,
     "parallel.data=3 training.global_batch_size=3 precision.compute=bf16 parallel.bucket_bytes=1"},
    {"llama", 8,
     "parallel.data=2 parallel.tensor=4 model.num_key_value_heads=2 precision.compute=bf16 "
     "precision.gradients=compute training.global_batch_size=2"},
    {"gpt2", 2,
     "parallel.data=2 training.global_batch_size=2 model.tie_word_embeddings=true "
     "optimizer.name=adamw8 memory.prefetch=0"},
    {"llama", 2,
     "parallel.data=2 training.global_batch_size=2 memory.offload_optimizer=host "
     "precision.compute=bf16"},
    {"gpt2", 2, "parallel.data=2 training.global_batch_size=4 optimizer.name=adafactor"},
    {"gpt2", 3, "parallel.data=3 training.global_batch_size=9 parallel.reduction=ring"},
    {"gpt2", 4,
     "parallel.data=2 parallel.tensor=2 parallel.sequence=keep training.global_batch_size=6 "
     "optimizer.name=sgd optimizer.momentum=0.9 memory.recompute=selective"},
    {"llama", 2,
     "parallel.data=2 training.global_batch_size=6 memory.sequence_chunks=2 "
     "memory.recompute=full memory.recompute_blocks=2 model.num_hidden_layers=4"},
    {"llama", 2,
     "parallel.data=2 training.global_batch_size=6 model.reversible=true memory.invert=true"},
    {"gpt2", 4,
     "parallel.pipeline=2 parallel.data=2 training.global_batch_size=8 "
     "model.tie_word_embeddings=true precision.compute=bf16"},
    {"gpt2", 4,
     "parallel.pipeline=2 parallel.data=2 training.global_batch_size=8 "
     "parallel.schedule=zero-bubble parallel.bucket_bytes=1 memory.prefetch=2"},
    {"llama", 4,
     "parallel.pipeline=2 parallel.context=2 training.global_batch_size=4 "
     "parallel.schedule=interleaved parallel.virtual_stages=2 model.num_hidden_layers=4"},
    {"gpt2", 6,
     "parallel.stage_replicas=[2,1] parallel.context=2 model.tie_word_embeddings=true "
     "training.global_batch_size=4"},
};

static void compare(const char *words, int ranks, const trial *whole, const trial *shared)
{
    bool half = strstr(words, "bf16") != NULL;
    assert_memory_equal(whole->loss, shared->loss, sizeof *whole->loss);
    assert_true(shared->peaks && !some_differs(shared));
    assert_true(whole->loss[0] != whole->loss[STEPS - 1]);
    for (int s = 0; s < STEPS; s++) {
        double tolerance = half ? 2e-2 : 1e-4;
        assert_true(whole->clip[s] < 1);
        assert_true(fabs(whole->loss[s] - shared->loss[s]) <= tolerance * whole->loss[s]);
        assert_true(fabs(whole->norm[s] - shared->norm[s]) <= tolerance * whole->norm[s]);
    }
    assert_true(fabs(whole->validation - shared->validation) <= 2e-2 * whole->validation);
    for (int rank = 0; rank < ranks; rank++) {
        if (!strstr(words, "adafactor")) /* whose statistics are folded over the same axis */
            assert_int_equal(shared->sent[rank], shared->planned[rank]);
        assert_int_equal(shared->kept[rank], shared->planned_kept[rank]);
    }
    if (shared->micro_batches > 1) return;
    assert_memory_equal(whole->loss, shared->loss, sizeof whole->loss);
    assert_memory_equal(whole->norm, shared->norm, sizeof whole->norm);
    assert_memory_equal(whole->bits, shared->bits, sizeof whole->bits);
    assert_true(whole->validation == shared->validation);
}

static void test_same_numbers(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        trial whole, shared, kept;
        if (!share_takes()) continue;
        run(cases[c].family, cases[c].ranks, cases[c].words, "parallel.zero=0", &whole);
        run(cases[c].family, cases[c].ranks, cases[c].words, "parallel.zero=3", &shared);
        run(cases[c].family, cases[c].ranks, cases[c].words,
            "parallel.zero=3 parallel.zero_keep=true", &kept);
        compare(cases[c].words, cases[c].ranks, &whole, &shared);
        compare(cases[c].words, cases[c].ranks, &whole, &kept);
        assert_memory_equal(shared.loss, kept.loss, sizeof kept.loss);
        assert_memory_equal(shared.bits, kept.bits, sizeof kept.bits);
    }
}

/* ---- what is sent, and what is kept ---- */

enum { LAYERS = 5 };

/* How often a block is gathered in m micro-batches: for F, and of layers once more for R and B. The head's F and B are one
 * use, the embedding has no other than F: what is used before and behind these stays with one use ahead. */
static int64_t gathers_of(int block, int m, int prefetch)
{
    if (block == 0 || block == LAYERS + 1) return m;
    int stays = block == LAYERS ? m : block == 1 ? m - 1 : 0;
    return 2 * m - (prefetch ? stays : 0);
}

static void check_sent(int ranks, const char *words, int prefetch)
{
    char zero[100];
    trial one, keeps;
    snprintf(zero, sizeof zero, "parallel.zero=3 memory.prefetch=%d", prefetch);
    run("gpt2", ranks, words, zero, &one);
    run("gpt2", ranks, words, "parallel.zero=3 parallel.zero_keep=true", &keeps);
    for (int rank = 0; rank < ranks; rank++) {
        int64_t once = 0, sent = 0, m = one.micro_batches;
        for (int block = 0; block < LAYERS + 2; block++) {
            assert_true(one.rounds[rank][block] > 0);
            once += one.rounds[rank][block];
            sent += gathers_of(block, (int)m, prefetch) * one.rounds[rank][block];
        }
        assert_int_equal(one.sent[rank], sent + m * one.scatters[rank]);
        assert_int_equal(keeps.sent[rank], once + m * keeps.scatters[rank]);
        assert_true(one.sent[rank] <= 2 * m * once + m * one.scatters[rank]);
        assert_true(one.weights[rank] <= one.together[rank]);
        assert_true(one.together[rank] < keeps.weights[rank]);
        assert_int_equal(keeps.weights[rank], keeps.all[rank]);
    }
}

static void test_sent(void **state)
{
    (void)state;
    const char *untied = "model.tie_word_embeddings=false model.num_hidden_layers=5";
    char words[300];
    for (int m = 1; m <= 3; m += 2) {
        snprintf(words, sizeof words, "%s parallel.data=2 training.global_batch_size=%d", untied,
                 2 * m);
        check_sent(2, words, 1);
        check_sent(2, words, 0);
    }
    snprintf(words, sizeof words,
             "%s parallel.data=3 training.global_batch_size=6 parallel.reduction=ring "
             "precision.compute=bf16 memory.recompute=full",
             untied);
    check_sent(3, words, 1);
    snprintf(words, sizeof words,
             "%s parallel.context=2 parallel.tensor=2 parallel.sequence=true "
             "training.global_batch_size=2",
             untied);
    check_sent(4, words, 1);
}

/* ---- weights on the host ---- */

/* With the bits of weights on the device, whose place two blocks' take, and no other; what is fetched is what was planned. */
static void test_fetched(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        const char *words, *zero;
    } runs[] = {
        {1, "training.global_batch_size=3 model.num_hidden_layers=5", "parallel.zero=0"},
        {2, "parallel.data=2 precision.compute=bf16 model.num_hidden_layers=5", "parallel.zero=3"},
        {2, "parallel.data=2 parallel.device=walled", "parallel.zero=0"},
        {4,
         "parallel.pipeline=2 parallel.data=2 model.tie_word_embeddings=true "
         "parallel.device=queued memory.recompute=full training.global_batch_size=8",
         "parallel.zero=3 parallel.zero_keep=true"},
        {2, "parallel.tensor=2 memory.offload_activations=host memory.prefetch=0",
         "parallel.zero=0"},
        {2, "parallel.data=2 parallel.device=walled precision.compute=bf16", "parallel.zero=1"},
        {3, "parallel.data=3 training.global_batch_size=6 parallel.bucket_bytes=1",
         "parallel.zero=2"},
        {4,
         "parallel.pipeline=2 parallel.data=2 model.tie_word_embeddings=true "
         "parallel.device=queued precision.compute=bf16 optimizer.name=adafactor",
         "parallel.zero=2"},
    };
    static const char *const spaces[][2] = {{"host", "host"}, {"host", "disk"}, {"disk", "disk"}};
    for (size_t i = 0; i < 3 * sizeof runs / sizeof *runs; i++) {
        size_t r = i / 3;
        trial here, there;
        char words[400], zero[300];
        if (!share_takes()) continue;
        snprintf(words, sizeof words, "model.tie_word_embeddings=false %s", runs[r].words);
        snprintf(zero, sizeof zero, "%s memory.offload_optimizer=%s memory.offload_parameters=%s",
                 runs[r].zero, spaces[i % 3][0], spaces[i % 3][1]);
        run("gpt2", runs[r].ranks, words, runs[r].zero, &here);
        run("gpt2", runs[r].ranks, words, zero, &there);
        assert_memory_equal(here.loss, there.loss, sizeof here.loss);
        assert_memory_equal(here.norm, there.norm, sizeof here.norm);
        assert_memory_equal(here.bits, there.bits, sizeof here.bits);
        assert_true(here.validation == there.validation && there.peaks && !some_differs(&there));
        for (int rank = 0; rank < runs[r].ranks; rank++) {
            assert_true(there.copied[rank][0] > 0);
            assert_true((there.copied[rank][2] > 0) == (i % 3 > 0));
            assert_memory_equal(there.copied[rank], there.planned_copied[rank],
                                sizeof there.copied[rank]);
            assert_true(r > 1 || there.weights[rank] < here.weights[rank]);
        }
    }
}

static ech_status poison(ech_comm *comm, const ech_design *design, void *context)
{
    ech_compared_run run = {.design = design};
    ECH_TRY(ech_compared_run_open(&run, comm));
    ech_exec *exec = run.session.exec;
    ech_tensor weights = ech_exec_param(exec, 0);
    weights = ech_tensor_1d((float *)weights.data + 7, ECH_F32, 1);
    ech_exec_write(exec, &weights, &(double){INFINITY});
    ech_status status = ech_exec_find_nonfinite(exec, 0, context);
    ech_compared_run_close(&run);
    return status;
}

/* Where weights are on disk the search after one that is not finite reads them there. */
static void test_names_weights_on_disk(void **state)
{
    (void)state;
    ech_finding finding = {.rank = -1};
    ech_config *config = fixture_config(
        "gpt2", "training.steps=2 training.micro_batch_size=1 data.sequence_length=8 "
                "memory.offload_optimizer=host memory.offload_parameters=disk");
    assert_int_equal(fixture_run(config, 1, poison, &finding), ECH_OK);
    ech_config_destroy(config);
    assert_int_equal(finding.rank, 0);
    assert_non_null(strstr(finding.what, "parameter"));
    assert_non_null(strstr(finding.what, "element 7 is inf"));
}

/* ---- the checker ---- */

static int first_gather(const ech_list *list, int from)
{
    int s = from;
    while (s < (int)list->step.n && !ech_step_brings_weights(&list->step.at[s])) s++;
    assert_true(s < (int)list->step.n);
    return s;
}

static void expect_refused(const ech_plan *plan, ech_list_kind list, const char *why)
{
    assert_int_equal(ech_check_list(plan, &plan->list[list]), ECH_EINTERNAL);
    if (!strstr(ech_last_error(), why)) fail_msg("%s", ech_last_error());
}

/* In a sound plan, each fault is taken back. */
static void seed_faults(ech_plan *plan, ech_list_kind kind)
{
    ech_list *list = &plan->list[kind];
    int at = first_gather(list, first_gather(list, 0) + 1);
    ech_step *gather = &list->step.at[at], was = *gather, *reader = gather;
    ech_value *value =
        &list->value.at[list->access.at[was.first_access + 1].value - (int)plan->persistent.n];
    assert_int_equal(ech_check_list(plan, list), ECH_OK);
    while (reader->lane != ECH_LANE_COMPUTE || reader->block != was.block) reader++;
    int afters = reader->afters;
    reader->afters = 0;
    expect_refused(plan, kind, "does not wait for step 0, which writes parameters");
    reader->afters = afters;
    reader->accesses -= 1;
    reader->first_access += 1;
    expect_refused(plan, kind, "does not access the weights of bucket");
    reader->accesses += 1;
    reader->first_access -= 1;
    gather->block++;
    expect_refused(plan, kind, "accesses weights that are not an instance of its own");
    *gather = was;
    list->access.at[was.first_access + 1].write = false;
    expect_refused(plan, kind, "accesses weights that are not an instance of its own");
    list->access.at[was.first_access + 1].write = true;
    value->block++;
    expect_refused(plan, kind, "accesses weights that are not an instance of its own");
    value->block--;
    plan->prefetch = 0;
    expect_refused(plan, kind, "weights of 2 blocks are there");
    plan->prefetch = 1;
}

static ech_status find_faults(ech_comm *comm, const ech_design *design, void *context)
{
    (void)context;
    ech_compared_run run = {.design = design};
    ECH_TRY(ech_compared_run_open(&run, comm));
    ech_plan *plan = (ech_plan *)run.session.plan;
    if (ech_comm_rank(comm) == 0) {
        seed_faults(plan, ECH_LIST_TRAIN);
        seed_faults(plan, ECH_LIST_VALIDATE);
        ech_list *list = &plan->list[ECH_LIST_TRAIN];
        list->step.at[first_gather(list, 0)].version++;
        expect_refused(plan, ECH_LIST_TRAIN, "makes version 1 whole; the newest is 0");
        list->step.at[first_gather(list, 0)].version--;
    }
    ech_compared_run_close(&run);
    return ECH_OK;
}

static void test_seeded_faults(void **state)
{
    (void)state;
    ech_config *config =
        fixture_config("gpt2", "parallel.data=2 parallel.zero=3 training.micro_batch_size=1 "
                               "training.global_batch_size=4 data.sequence_length=8 "
                               "training.steps=1 model.tie_word_embeddings=false");
    ech_status status = fixture_run(config, 2, find_faults, NULL);
    ech_config_destroy(config);
    assert_int_equal(status, ECH_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_numbers),  cmocka_unit_test(test_sent),
        cmocka_unit_test(test_fetched),       cmocka_unit_test(test_names_weights_on_disk),
        cmocka_unit_test(test_seeded_faults),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
