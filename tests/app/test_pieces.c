/* SPDX-License-Identifier: Apache-2.0
 *
 * Updates on the host piece by piece. Their memory besides states and gradients depends on
 * parallel.bucket_bytes, not on the largest parameter. The bits are those of updates in one piece,
 * on the device or with buckets as large as the model. An update that is not cut has one piece. The
 * pieces must cover their bucket. probes/counters.c tests the bytes that move, and check/mutants
 * the wrong lists that the checker refuses.
 */
#include <string.h>

#include "app/fixture.h"
#include "app/verify/verify.h"
#include "base/log.h"
#include "check/check.h"
#include "schedule/operands.h"
#include "schedule/states.h"
#include "unit.h"

enum { MOST = 4, STEPS = 4 };

static const char *const homes[] = {
    "memory.offload_optimizer=host",
    "memory.offload_optimizer=disk memory.prefetch=0",
    "memory.offload_optimizer=disk memory.prefetch=2",
    "memory.offload_optimizer=disk memory.offload_delayed_from=2",
    "memory.offload_optimizer=host memory.offload_parameters=host",
    "memory.offload_optimizer=disk memory.offload_parameters=disk",
    "memory.offload_optimizer=disk memory.offload_parameters=host",
};
enum { HOMES = sizeof homes / sizeof *homes };

/* ---- plans ---- */

typedef struct sizes {
    int64_t passes, item; /* what passes through the host at most; bytes an element has there */
    int64_t fewer;        /* bytes of a bucket's states that are not element-wise, at most */
    int64_t room;         /* of INIT and HASH */
    int pieces, cut;      /* the most of a bucket; buckets that are cut */
} sizes;

static ech_plan *plan_of(const char *family, const char *words, int ranks, ech_design *design)
{
    ech_plan *plan;
    ech_config *config = fixture_config(family, words);
    assert_int_equal(ech_design_create(config, fixture_tokenizer, ranks, ranks, design), ECH_OK);
    assert_int_equal(ech_design_plan(design, 0, false, &plan), ECH_OK);
    ech_config_destroy(config);
    return plan;
}

static sizes sizes_of(const char *words, int ranks)
{
    ech_design design = {0};
    ech_plan *plan = plan_of("llama", words, ranks, &design);
    const int64_t *peak = plan->list[ECH_LIST_TRAIN].peak;
    sizes of = {.passes = peak[ECH_MEMORY_OPTIMIZER_ON_HOST]};
    static const ech_list_kind rooms[] = {ECH_LIST_INIT, ECH_LIST_CHECK};
    for (int i = 0; i < 2; i++) {
        int64_t bytes = plan->list[rooms[i]].peak[ECH_MEMORY_OPTIMIZER_ON_HOST];
        if (bytes > of.room) of.room = bytes;
    }
    if (plan->weights == ECH_SPACE_DISK) of.passes += peak[ECH_MEMORY_PARAMETERS_ON_HOST];
    for (size_t b = 0; b < plan->bucket.n; b++) {
        const ech_bucket *bucket = &plan->bucket.at[b];
        int64_t item = (int64_t)ech_dtype_bytes(bucket->weight_dtype);
        for (int s = 0; s < bucket->states; s++)
            item += (int64_t)ech_dtype_bytes(bucket->state[s].dtype);
        if (item > of.item) of.item = item;
        int64_t fewer = 0;
        for (int s = bucket->states; s < bucket->state_values; s++)
            fewer += plan->persistent.at[plan->state_value.at[bucket->first_state_value + s]].bytes;
        if (fewer > of.fewer) of.fewer = fewer;
        if (bucket->pieces > of.pieces) of.pieces = bucket->pieces;
        of.cut += bucket->pieces > 1;
    }
    ech_plan_destroy(plan);
    ech_design_destroy(&design);
    return of;
}

/* Room for the pieces of 1 + memory.prefetch updates, whatever the largest parameter; a value more
 * of each for what an element has, aligned to 4,096 bytes. */
TEST(what_passes_through_the_host_is_bounded)
{
    enum { BUCKET = 16384, ITEM = 4 };
    for (int zero = 0; zero <= 3; zero++)
        for (int prefetch = 0; prefetch <= 1; prefetch++)
            for (int weights = 0; weights <= (zero == 3); weights++) {
                int64_t before = 0;
                for (int vocabulary = 4096; vocabulary <= 4 * 4096; vocabulary *= 4) {
                    char words[500];
                    snprintf(words, sizeof words,
                             "parallel.data=2 parallel.zero=%d memory.prefetch=%d "
                             "model.vocab_size=%d model.hidden_size=32 "
                             "parallel.bucket_bytes=%d precision.compute=bf16 "
                             "memory.offload_optimizer=disk%s checkpoint.background=false",
                             zero, prefetch, vocabulary, BUCKET,
                             weights ? " memory.offload_parameters=disk" : "");
                    sizes of = sizes_of(words, 2);
                    assert_true(of.pieces >= vocabulary * 32 * ITEM / BUCKET / 2);
                    int64_t most = (1 + prefetch) * (BUCKET / ITEM * of.item + 5 * 4096);
                    if (weights) most += 2 * vocabulary * 32 * 2; /* what blocks read of weights */
                    assert_true(of.passes <= most);
                    assert_true(of.passes > 0);
                    assert_true(of.room > 0 && of.room <= 2 * BUCKET + 4096);
                    if (before && !weights) assert_int_equal(of.passes, before);
                    before = of.passes;
                }
            }
}

/* Optimizers by row or block: states with fewer numbers than elements pass whole, nothing else
 * grows with the largest parameter. */
TEST(states_with_fewer_numbers_pass_whole)
{
    enum { BUCKET = 16384, ITEM = 4 };
    static const char *const optimizers[] = {"sm3", "sm3 optimizer.momentum=0.9",
                                             "adamw8 optimizer.block=32"};
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++)
        for (int zero = 0; zero <= 3; zero++)
            for (int vocabulary = 4096; vocabulary <= 4 * 4096; vocabulary *= 4) {
                char words[500];
                snprintf(words, sizeof words,
                         "parallel.data=2 parallel.zero=%d memory.prefetch=1 model.vocab_size=%d "
                         "model.hidden_size=32 parallel.bucket_bytes=%d precision.compute=bf16 "
                         "memory.offload_optimizer=disk checkpoint.background=false "
                         "optimizer.name=%s",
                         zero, vocabulary, BUCKET, optimizers[i]);
                sizes of = sizes_of(words, 2);
                assert_true(of.pieces >= vocabulary * 32 * ITEM / BUCKET / 2);
                assert_true(of.fewer > 0 && of.fewer <= vocabulary * 2 * 4 + 4096);
                assert_true(of.passes <=
                            2 * (BUCKET / ITEM * of.item + 6 * 4096 + of.fewer + 4 * 4096));
            }
}

/* Weights that are drawn in full, of whose masters the rank has a shard. */
TEST(what_is_drawn_in_full_is_bounded)
{
    static const char words[] = "parallel.data=2 parallel.zero=1 model.vocab_size=8192 "
                                "parallel.bucket_bytes=16384 precision.compute=bf16 "
                                "memory.offload_optimizer=host memory.offload_parameters=host";
    assert_int_equal(sizes_of(words, 2).room, 16384);
}

/* What is of whole parameters, or gathered as it is kept, is not cut; nor what is small. */
TEST(what_is_not_cut)
{
    static const struct {
        const char *words;
        bool cut;
    } cases[] = {
        {"memory.offload_optimizer=host parallel.bucket_bytes=1KiB", true},
        {"memory.offload_optimizer=host parallel.bucket_bytes=1GiB", false},
        {"parallel.bucket_bytes=1KiB", false},
        {"memory.offload_optimizer=host parallel.bucket_bytes=1KiB optimizer.name=sm3", true},
        {"memory.offload_optimizer=disk parallel.bucket_bytes=4KiB optimizer.name=sm3", true},
        {"memory.offload_optimizer=host parallel.bucket_bytes=1KiB optimizer.name=adamw8 "
         "optimizer.block=16",
         true},
        /* the size of all weights comes first; only masters on the host are there */
        {"memory.offload_optimizer=host parallel.bucket_bytes=1KiB optimizer.name=adafactor",
         false},
        {"memory.offload_optimizer=disk parallel.bucket_bytes=1KiB optimizer.name=adafactor "
         "precision.compute=bf16",
         false},
        {"memory.offload_optimizer=host parallel.bucket_bytes=1KiB optimizer.name=adafactor "
         "precision.compute=bf16",
         true},
        {"memory.offload_optimizer=host memory.offload_parameters=host parallel.zero=1 "
         "parallel.bucket_bytes=1KiB",
         false},
        {"memory.offload_optimizer=host memory.offload_parameters=host parallel.zero=3 "
         "parallel.bucket_bytes=1KiB",
         true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[300];
        snprintf(words, sizeof words, "parallel.data=2 %s", cases[i].words);
        assert_int_equal(sizes_of(words, 2).cut > 0, cases[i].cut);
    }
}

/* Muon's matrices are whole; tables by token are updated by AdamW. */
TEST(matrices_of_muon_are_not_cut)
{
    ech_design design = {0};
    ech_plan *plan = plan_of("llama",
                             "memory.offload_optimizer=host parallel.bucket_bytes=1KiB "
                             "optimizer.name=muon optimizer.momentum=0.9",
                             1, &design);
    int whole = 0, cut = 0;
    for (size_t b = 0; b < plan->bucket.n; b++) {
        const ech_bucket *bucket = &plan->bucket.at[b];
        const char *why = ech_bucket_uncut(plan, bucket);
        assert_int_equal(why != NULL, bucket->rounds > 0);
        if (why) assert_non_null(strstr(why, "statistics of all of it"));
        if (why) assert_int_equal(bucket->pieces, 1);
        whole += bucket->rounds > 0;
        cut += bucket->pieces > 1;
    }
    assert_true(whole > 0 && cut > 0);
    ech_plan_destroy(plan);
    ech_design_destroy(&design);
}

/* ---- the checker ---- */

static void expect_refused(const ech_plan *plan, const char *why)
{
    ech_clear_error();
    assert_int_equal(ech_check_list(plan, &plan->list[ECH_LIST_TRAIN]), ECH_EINTERNAL);
    if (!strstr(ech_last_error(), why)) fail_msg("%s, not %s", ech_last_error(), why);
}

/* The n-th step of a piece of that kind. */
static ech_step *step_of(ech_plan *plan, ech_step_kind kind, int piece)
{
    ech_list *list = &plan->list[ECH_LIST_TRAIN];
    for (size_t s = 0; s < list->step.n; s++)
        if (list->step.at[s].kind == kind && ech_step_piece(&list->step.at[s]) == piece)
            return &list->step.at[s];
    fail_msg("no %s of piece %d", ech_step_name(kind), piece);
    return NULL;
}

TEST(pieces_cover_a_bucket_once)
{
    ech_design design = {0};
    ech_plan *plan = plan_of("gpt2",
                             "parallel.data=2 parallel.zero=1 memory.offload_optimizer=disk "
                             "parallel.bucket_bytes=4KiB model.vocab_size=600",
                             2, &design);
    assert_int_equal(ech_check_list(plan, &plan->list[ECH_LIST_TRAIN]), ECH_OK);
    ech_step *update = step_of(plan, ECH_STEP_UPDATE_ON_HOST, 2);
    ech_bucket *bucket = &plan->bucket.at[update->index], was = *bucket;
    assert_true(bucket->pieces > 2);
    static const char cover[] = "which do not make up the";
    bucket->pieces--; /* the last one is dropped */
    expect_refused(plan, cover);
    bucket->pieces += 2; /* one after the end */
    expect_refused(plan, cover);
    *bucket = was;
    bucket->piece /= 2; /* gaps at the end */
    expect_refused(plan, cover);
    *bucket = was;
    bucket->piece--; /* cuts a unit */
    expect_refused(plan, cover);
    *bucket = was;

    update->count = 1; /* one piece twice, the other not at all */
    expect_refused(plan, "is of a piece whose update has ended");
    update->count = bucket->pieces + 1;
    expect_refused(plan, "its bucket has");
    update->count = 0;
    expect_refused(plan, "comes where its bucket's");
    update->count = 2;

    ech_step *fetch = step_of(plan, ECH_STEP_FETCH_WEIGHTS, 2);
    fetch->kind = ECH_STEP_READ;
    expect_refused(plan, "comes where its bucket's fetch of weights is next");
    fetch->kind = ECH_STEP_FETCH_WEIGHTS;

    ech_step *room = step_of(plan, ECH_STEP_ROOM, 2);
    room->kind = ECH_STEP_READ; /* the gather comes within the update */
    expect_refused(plan, "comes before the updates of 1 other pieces");
    room->kind = ECH_STEP_ROOM;

    /* the update of a piece works on states of another one, which has ended */
    ech_list *list = &plan->list[ECH_LIST_TRAIN];
    ech_step *first = step_of(plan, ECH_STEP_UPDATE_ON_HOST, 1);
    ech_step *later = step_of(plan, ECH_STEP_UPDATE_ON_HOST, 4);
    int at = later->first_access, value = ech_step_uses(list, later, ECH_USE_STATE, 0);
    while (list->access.at[at].value != value) at++;
    list->access.at[at].value = ech_step_uses(list, first, ECH_USE_STATE, 0);
    expect_refused(plan, "does not work on gradients, weights and states");
    list->access.at[at].value = value;

    /* the executor would take states for weights, or find none */
    list->access.at[at].use = ECH_USE_SUM;
    expect_refused(plan, "uses a value as what it is not");
    list->access.at[at].use = ECH_USE_OTHER;
    expect_refused(plan, "values as one that it works on");
    list->access.at[at].use = ECH_USE_STATE;
    assert_int_equal(ech_check_list(plan, list), ECH_OK);
    ech_plan_destroy(plan);
    ech_design_destroy(&design);
}

/* Rounds of statistics are whole: they come before the first piece, and the update of each piece
 * waits for them. No bucket is cut whose rounds need more. */
TEST(rounds_come_before_pieces)
{
    ech_design design = {0};
    ech_plan *plan = plan_of("gpt2",
                             "parallel.data=2 parallel.zero=1 memory.offload_optimizer=host "
                             "parallel.bucket_bytes=4KiB model.vocab_size=600 optimizer.name=sm3 "
                             "precision.compute=bf16",
                             2, &design);
    ech_list *list = &plan->list[ECH_LIST_TRAIN];
    assert_int_equal(ech_check_list(plan, list), ECH_OK);
    ech_step *second = step_of(plan, ECH_STEP_UPDATE_ON_HOST, 2), *first = second;
    while (first->kind != ECH_STEP_UPDATE_ON_HOST || first->count != 1) first--;
    assert_int_equal(first->index, second->index);

    ech_step *round = first;
    while (round->kind != ECH_STEP_STATISTICS_ON_HOST) round--;
    round->kind = ECH_STEP_READ;
    expect_refused(plan, "'s statistics is next");
    round->kind = ECH_STEP_STATISTICS_ON_HOST;

    ech_step was = *first; /* the second piece comes first, and waits for nothing */
    first->count = 2;
    first->afters = 0;
    expect_refused(plan, "the last on its bucket");
    *first = was;

    ech_bucket *bucket = &plan->bucket.at[first->index];
    const ech_optimizer *optimizer = plan->optimizer;
    ech_optimizer other = *optimizer;
    plan->optimizer = &other;
    other.rounds_read = NULL;
    expect_refused(plan, "may not be cut");
    assert_true(bucket->pieces > 1);
    plan->optimizer = optimizer;
    assert_int_equal(ech_check_list(plan, list), ECH_OK);
    ech_plan_destroy(plan);
    ech_design_destroy(&design);
}

/* The first access of a step by which it uses a value as that. */
static ech_access *use_of(ech_list *list, const ech_step *step, ech_used_as use)
{
    ech_access *access = &list->access.at[step->first_access];
    while (access->use != use) access++;
    return access;
}

/* An optimizer's steps on the device use the states of their bucket, in their order, and the
 * sum of its gradients. */
TEST(steps_use_what_is_theirs)
{
    static const char wrong[] = "uses a value as what it is not";
    ech_design design = {0};
    ech_plan *plan =
        plan_of("gpt2", "optimizer.name=adamw training.micro_batch_size=1", 1, &design);
    ech_list *list = &plan->list[ECH_LIST_TRAIN];
    ech_step *update = step_of(plan, ECH_STEP_UPDATE, 0);
    ech_access *moment = use_of(list, update, ECH_USE_STATE), first = moment[0];
    moment[0].value = moment[1].value; /* the second moment as the first, and this as that */
    moment[1].value = first.value;
    expect_refused(plan, wrong);
    moment[1].value = moment[0].value;
    moment[0] = first;
    assert_int_equal(ech_check_list(plan, list), ECH_OK);
    ech_plan_destroy(plan);
    ech_design_destroy(&design);

    ech_design rounds = {0};
    plan = plan_of("gpt2", "optimizer.name=adafactor", 1, &rounds);
    list = &plan->list[ECH_LIST_TRAIN];
    ech_access *sum = use_of(list, step_of(plan, ECH_STEP_STATISTICS, 0), ECH_USE_SUM);
    sum->use = ECH_USE_OTHER;
    expect_refused(plan, "values as one that it works on");
    sum->use = ECH_USE_SUM;
    assert_int_equal(ech_check_list(plan, list), ECH_OK);
    ech_plan_destroy(plan);
    ech_design_destroy(&rounds);
}

TEST(steps_say_their_piece)
{
    ech_design design = {0};
    ech_plan *plan = plan_of(
        "gpt2", "memory.offload_optimizer=host parallel.bucket_bytes=1KiB", 1, &design);
    ech_text text = {0};
    const ech_step *step = step_of(plan, ECH_STEP_UPDATE_ON_HOST, 3);
    ech_step_print(step, &text);
    char expected[100];
    snprintf(expected, sizeof expected, "update_on_host bucket %d, piece 3", step->index);
    assert_string_equal(text.at, expected);
    ech_text_free(&text);
    ech_plan_destroy(plan);
    ech_design_destroy(&design);
}

/* ---- runs ---- */

typedef struct trial {
    uint64_t bits[MOST]; /* of each rank's weights and states after the last step */
    double norm[STEPS];
    bool peaks, cut;
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

static ech_status run_rank(ech_comm *comm, const ech_design *design, void *context)
{
    trial *t = context;
    int rank = ech_comm_rank(comm);
    ech_compared_run run = {.design = design};
    ECH_TRY(ech_compared_run_open(&run, comm));
    ech_exec *exec = run.session.exec;
    const ech_plan *plan = run.session.plan;
    ech_status status = ECH_OK;
    unsigned lists = 1u << ECH_LIST_INIT;
    for (int step = 0, turns; step < STEPS && status == ECH_OK; step += turns) {
        ech_list_kind kind = ech_schedule_list(plan->schedule, step, &turns);
        status = ech_exec_run(exec, kind, step);
        lists |= 1u << kind;
        for (int turn = 0; turn < turns && rank == 0; turn++)
            t->norm[step + turn] = ech_exec_readings(exec)[turn].grad_norm;
    }
    for (int p = 0; p < (int)plan->model->param.n; p++) {
        ech_tensor x = ech_exec_param(exec, p);
        if (plan->zero < 3) t->bits[rank] = hash(t->bits[rank], exec, &x);
        for (int s = 0; s < plan->param[p].states && plan->zero == 0; s++) {
            x = ech_exec_state(exec, p, s);
            t->bits[rank] = hash(t->bits[rank], exec, &x);
        }
    }
    for (size_t b = 0; b < plan->bucket.n && rank == 0; b++)
        t->cut |= plan->bucket.at[b].pieces > 1;
    if (rank == 0) t->peaks = fixture_peaks_are_planned(&run.session, lists);
    ech_compared_run_close(&run);
    return status;
}

static trial run(const char *family, int ranks, const char *words, const char *more)
{
    char all[900];
    trial t = {.norm = {0}};
    snprintf(all, sizeof all,
             "training.steps=%d training.micro_batch_size=1 data.sequence_length=8 "
             "training.check_every=0 checkpoint.background=false optimizer.clip_norm=0 "
             "parallel.data=%d model.vocab_size=600 %s %s",
             STEPS, ranks, words, more);
    assert_true(fixture_runs(family, all, ranks, run_rank, &t));
    assert_true(t.peaks);
    return t;
}

/* The same bits as with one bucket a block, which is not cut. */
TEST(pieces_leave_the_bits)
{
    static const char *const types[] = {"precision.compute=fp32", "precision.compute=bf16",
                                        "optimizer.name=sgd optimizer.momentum=0.9"};
    for (int home = 0; home < HOMES; home++)
        for (int zero = 0; zero <= 2; zero++) {
            if (zero == 2 && strstr(homes[home], "delayed")) continue;
            char words[400];
            int ranks = zero ? 2 : 1;
            snprintf(words, sizeof words, "parallel.zero=%d %s %s", zero,
                     types[(home + zero) % 3], homes[home]);
            trial whole = run("llama", ranks, words, "parallel.bucket_bytes=1GiB");
            trial pieces = run("llama", ranks, words, "parallel.bucket_bytes=6000");
            bool meets = zero && strstr(homes[home], "offload_parameters");
            assert_false(whole.cut);
            assert_int_equal(pieces.cut, !meets);
            assert_memory_equal(whole.bits, pieces.bits, sizeof whole.bits);
        }
}

/* Adafactor first reads all weights: in bf16 masters, which are states. */
static bool reads_from_afar(const char *optimizer, const char *home)
{
    if (!strstr(optimizer, "adafactor")) return false;
    return strstr(optimizer, "bf16") ? strstr(home, "optimizer=disk") != NULL
                                     : !strstr(home, "parameters=host");
}

/* The same for optimizers by row and by block, with stacks of experts. Adafactor in fp32 with
 * weights on the host and its momentum on disk once crashed. */
TEST(pieces_of_rows_and_blocks_leave_the_bits)
{
    static const char *const optimizers[] = {
        "sm3",
        "sm3 optimizer.momentum=0.9 precision.compute=bf16",
        "adamw8 optimizer.block=16",
        "adafactor precision.compute=bf16",
        "adafactor optimizer.momentum=0.9 precision.compute=bf16",
        "adafactor optimizer.momentum=0.9"};
    enum { OPTIMIZERS = sizeof optimizers / sizeof *optimizers };
    static const char *const families[] = {"llama", "mixtral"};
    for (int i = 0; i < HOMES * OPTIMIZERS; i++) {
        int home = i % HOMES, zero = i % 3;
        const char *optimizer = optimizers[i / HOMES], *family = families[i / 2 % 2];
        if (zero == 2 && strstr(homes[home], "delayed")) zero = 1;
        if (i / HOMES == OPTIMIZERS - 1) zero = 0; /* sums of shards depend on the buckets' ends */
        char words[400];
        snprintf(words, sizeof words, "parallel.zero=%d optimizer.name=%s %s", zero, optimizer,
                 homes[home]);
        trial whole = run(family, zero ? 2 : 1, words, "parallel.bucket_bytes=1GiB");
        trial pieces = run(family, zero ? 2 : 1, words, "parallel.bucket_bytes=6000");
        bool meets = zero && strstr(homes[home], "offload_parameters");
        bool far = reads_from_afar(optimizer, homes[home]);
        assert_false(whole.cut);
        if (pieces.cut != !(meets || far)) fail_msg("%s %s", family, words);
        assert_memory_equal(whole.bits, pieces.bits, sizeof whole.bits);
    }
}

ALL_TESTS(fixture_setup, fixture_teardown)
