/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.offload_activations: runs leave the bits that they leave without; what blocks keep goes out once and comes back once,
 * as counters and plans say; what lives is what is planned, in every space, and on the device no more than a few blocks' for
 * any number of micro-batches; and a model above the limit is refused without and trains with it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdatomic.h>

#include "app/kept_run.h"
#include "base/log.h"
#include "device/disk.h"

enum { MOST_RANKS = 4, STEPS = 2 };

typedef struct trial {
    uint64_t digest[MOST_RANKS];
    int64_t copied[ECH_SPACES][ECH_SPACES]; /* by all ranks, planned and counted alike */
    int64_t device[MOST_RANKS];             /* planned peak of activations there */
} trial;

/* What copies move of each block and sequence chunk is as much on each way, and moved once. */
static void count_copies(const ech_session *s, trial *t)
{
    const ech_list *list = &s->plan->list[ECH_LIST_TRAIN];
    int64_t planned[ECH_SPACES][ECH_SPACES] = {{0}};
    size_t n = s->plan->model->block.n * (size_t)list->micro_batches;
    int(*moved)[ECH_SPACES][ECH_SPACES] = ech_calloc(n, sizeof *moved);
    for (size_t i = 0; i < list->step.n; i++) {
        const ech_step *step = &list->step.at[i];
        if (step->kind != ECH_STEP_OFFLOAD && step->kind != ECH_STEP_FETCH) continue;
        int64_t bytes = 0;
        for (int a = 0; a < step->accesses; a += 2)
            bytes +=
                ech_plan_value(s->plan, list, list->access.at[step->first_access + a].value)->bytes;
        assert_true(bytes > 0);
        assert_int_equal(bytes, step->bytes);
        planned[step->from][step->to] += bytes;
        size_t which = (size_t)(step->block * list->micro_batches + step->micro);
        moved[which][step->from][step->to]++;
    }
    for (size_t i = 0; i < n; i++)
        for (int from = 0; from < ECH_SPACES; from++)
            for (int to = 0; to < ECH_SPACES; to++) {
                assert_true(moved[i][from][to] <= 1);
                assert_int_equal(moved[i][from][to], moved[i][to][from]);
            }
    free(moved);
    for (int from = 0; from < ECH_SPACES; from++)
        for (int to = 0; to < ECH_SPACES; to++) {
            int64_t counted = ech_exec_copied(s->exec, (ech_space)from, (ech_space)to);
            assert_int_equal(counted, STEPS * planned[from][to]);
            assert_int_equal(planned[from][to], planned[to][from]);
            __atomic_fetch_add(&t->copied[from][to], counted, __ATOMIC_RELAXED);
        }
}

static ech_status run_rank(ech_comm *comm, const ech_design *design, void *context)
{
    trial *t = context;
    int rank = ech_comm_rank(comm);
    ech_compared_run run = {.design = design};
    ech_status status = kept_run_train(&run, comm, STEPS);
    if (status == ECH_OK) {
        const ech_session *s = &run.session;
        t->digest[rank] = kept_run_digest(s, design->config);
        t->device[rank] = s->plan->list[ECH_LIST_TRAIN].peak[ECH_MEMORY_ACTIVATIONS];
        assert_true(fixture_peaks_are_planned(s, FIXTURE_TRAINED));
        count_copies(s, t);
    }
    ech_compared_run_close(&run);
    return status;
}

static trial run(const char *words, int ranks)
{
    trial t = {.digest = {0}};
    assert_true(fixture_runs("gpt2", words, ranks, run_rank, &t));
    return t;
}

static const struct {
    const char *words;
    int ranks;
} cases[] = {
    {"parallel.schedule=gpipe training.micro_batch_size=3 model.num_hidden_layers=4", 1},
    {"parallel.pipeline=2 training.micro_batch_size=2 precision.compute=bf16 "
     "model.num_hidden_layers=4 memory.recompute=selective",
     2},
    {"parallel.pipeline=2 parallel.tensor=2 parallel.sequence=true training.micro_batch_size=1 "
     "parallel.schedule=gpipe memory.recompute=full memory.recompute_blocks=2 "
     "model.num_hidden_layers=4 "
     "model.vocab_size=264 data.sequence_length=8",
     4},
    {"parallel.schedule=zero-bubble parallel.pipeline=2 training.micro_batch_size=1 "
     "precision.compute=fp64 memory.sequence_chunks=3 model.num_hidden_layers=4",
     2},
    {"model.reversible=true memory.recompute_blocks=1 parallel.schedule=gpipe "
     "training.micro_batch_size=2 model.num_hidden_layers=4",
     1}};

/* Where it is meanwhile, and how; all of it for the first case, for each other one some. */
static const char *const ways[] = {
    " memory.offload_activations=host", " memory.offload_activations=disk",
    " memory.offload_activations=disk memory.prefetch=0 parallel.device=walled",
    " memory.offload_activations=disk memory.prefetch=2 parallel.device=queued",
    " memory.offload_activations=host parallel.device=queued"};
enum { WAYS = sizeof ways / sizeof *ways };

static void compare_way(size_t c, size_t w, const trial *plain)
{
    char words[500];
    snprintf(words, sizeof words, "%s%s", cases[c].words, ways[w]);
    trial t = run(words, cases[c].ranks);
    assert_memory_equal(t.digest, plain->digest, sizeof t.digest);
    int64_t out = t.copied[ECH_SPACE_DEVICE][ECH_SPACE_HOST];
    assert_true(out > 0);
    assert_int_equal(t.copied[ECH_SPACE_HOST][ECH_SPACE_DISK], strstr(ways[w], "=disk") ? out : 0);
    if (t.device[0] >= plain->device[0])
        fail_msg("%s: activations take %lld bytes of the device, %lld without", words,
                 (long long)t.device[0], (long long)plain->device[0]);
}

static void bits_are_those_without(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        trial plain = run(cases[c].words, cases[c].ranks);
        assert_true(plain.digest[0] != 0);
        for (size_t w = 0; w < WAYS; w++)
            if (c == 0 || (c + w) % 3 == 0) compare_way(c, w, &plain);
    }
}

/* What the backward needs soon stays. */
static void what_is_needed_soon_stays(void **state)
{
    (void)state;
    for (int prefetch = 1; prefetch <= 4; prefetch += 3) {
        char words[200];
        snprintf(words, sizeof words,
                 "training.micro_batch_size=12 model.num_hidden_layers=1 "
                 "memory.offload_activations=host memory.prefetch=%d",
                 prefetch);
        int64_t out = run(words, 1).copied[ECH_SPACE_DEVICE][ECH_SPACE_HOST];
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
    return run(words, 1).device[0] / (12 / micro_batches);
}

/* Of samples of 1 in 12 micro-batches and of 2 in 6 the device has as many at once; without, twice as many. */
static void no_more_for_more_micro_batches(void **state)
{
    (void)state;
    assert_int_equal(peak_of(12, "host"), peak_of(6, "host"));
    assert_int_equal(peak_of(12, "disk"), peak_of(12, "host"));
    assert_true(peak_of(12, "none") > peak_of(6, "none") * 3 / 2);
    assert_true(peak_of(12, "none") > 8 * peak_of(12, "host"));
}

static ech_status plan_rank(ech_comm *comm, const ech_design *design, void *context)
{
    ech_plan *plan;
    int64_t *bytes = context;
    ECH_TRY(ech_design_plan(design, ech_comm_rank(comm), false, &plan));
    *bytes = plan->arena_bytes[ECH_SPACE_DEVICE];
    ech_plan_destroy(plan);
    return ECH_OK;
}

static void above_the_limit(void **state)
{
    (void)state;
    static const char model[] =
        "parallel.schedule=gpipe model.num_hidden_layers=6 training.micro_batch_size=1 "
        "data.sequence_length=48 checkpoint.every=0";
    char words[400];
    int64_t needs[2];
    for (int offloads = 0; offloads < 2; offloads++) {
        snprintf(words, sizeof words, "%s memory.offload_activations=%s", model,
                 offloads ? "disk" : "none");
        assert_true(fixture_runs("gpt2", words, 1, plan_rank, &needs[offloads]));
    }
    assert_true(needs[1] < needs[0] * 3 / 4);
    snprintf(words, sizeof words, "%s memory.device_limit=%lld", model, (long long)needs[0] - 1);
    ech_config *config = fixture_config("gpt2", words);
    trial t = {.digest = {0}};
    bool quiet = ech_log_set_quiet(true);
    assert_int_not_equal(fixture_run(config, 1, run_rank, &t), ECH_OK);
    ech_log_set_quiet(quiet);
    ech_config_destroy(config);
    snprintf(words, sizeof words, "%s memory.offload_activations=disk memory.device_limit=%lld",
             model, (long long)needs[0] - 1);
    run(words, 1);
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
    trial t = {.digest = {0}};
    int rank = ech_comm_rank(comm);
    e->status[rank] = run_rank(comm, design, &t);
    snprintf(e->said[rank], sizeof e->said[rank], "%s", ech_last_error());
    return e->status[rank];
}

/* Its rank says so at the deadline, with the file's name; the other rank ends with it. */
static void a_stalled_disk_is_named(void **state)
{
    (void)state;
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
        bool quiet = ech_log_set_quiet(true);
        atomic_store(&stands_still, true);
        assert_int_not_equal(fixture_run(config, 2, run_to_the_deadline, &e), ECH_OK);
        atomic_store(&stands_still, false);
        ech_log_set_quiet(quiet);
        ech_config_destroy(config);
        assert_int_equal(e.status[1], ECH_EIO);
        assert_non_null(strstr(e.said[1], "rank-1.offload: rank 1 has read it for 1 s"));
        assert_int_not_equal(e.status[0], ECH_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_those_without), cmocka_unit_test(what_is_needed_soon_stays),
        cmocka_unit_test(no_more_for_more_micro_batches), cmocka_unit_test(above_the_limit),
        cmocka_unit_test(a_stalled_disk_is_named)};
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
