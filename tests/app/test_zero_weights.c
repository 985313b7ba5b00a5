/* SPDX-License-Identifier: Apache-2.0
 *
 * ZeRO stage 3, in plans: at most one gathered block and one ahead, and what is sent, with and
 * without parallel.zero_keep. That gathering
 * changes no bit is probes/bits.c, the bytes of a rank are probes/shards.c.
 */
#include <math.h>
#include <string.h>

#include "app/fixture.h"
#include "app/verify/verify.h"
#include "check/check.h"
#include "schedule/traffic.h"
#include "unit.h"

enum { MOST = 8, BLOCKS = 16 };

/* Of one rank's plan. */
typedef struct trial {
    int64_t sent; /* bytes of gradients and weights in a step */
    int64_t
        rounds[BLOCKS]; /* what gathering all of a block once sends; of those that are gathered */
    int64_t scatters;   /* what summing all buckets once sends each member its shard */
    int64_t weights;    /* the most bytes of weights */
    int64_t together;   /* of shards and of two blocks' buckets */
    int64_t all;        /* of shards and of all buckets */
    int micro_batches;  /* in a step */
} trial;

static int64_t align(int64_t bytes)
{
    return ech_align(bytes, 64);
}

static void count_block(const ech_plan *plan, int block, trial *t, int64_t largest[2])
{
    int64_t gathered = 0;
    for (size_t b = 0; b < plan->bucket.n; b++) {
        const ech_bucket *bucket = &plan->bucket.at[b];
        if (!ech_bucket_is_gathered(bucket) || bucket->block != block) continue;
        int64_t bytes = bucket->elements * (int64_t)ech_dtype_bytes(bucket->weight_dtype);
        int N = ech_layout_group_size(plan->layout, plan->model, plan->rank, bucket->group);
        gathered += align(bytes);
        t->rounds[block] += bytes / N * (N - 1);
    }
    t->all += gathered;
    for (int i = 0; i < 2; i++) {
        int64_t was = largest[i];
        if (gathered <= was) continue;
        largest[i] = gathered;
        gathered = was;
    }
}

static void count_bucket(const ech_plan *plan, const ech_bucket *bucket, trial *t)
{
    int N = ech_layout_group_size(plan->layout, plan->model, plan->rank, bucket->group);
    int64_t item = (int64_t)ech_dtype_bytes(bucket->weight_dtype);
    t->all +=
        align((ech_bucket_is_gathered(bucket) ? bucket->elements / N : bucket->elements) * item);
    t->scatters += bucket->elements / N * (N - 1) * (int64_t)ech_dtype_bytes(bucket->wire);
}

/* trials: [ranks] */
static void count_plan(const ech_plan *plan, void *trials)
{
    trial *t = &((trial *)trials)[plan->rank];
    *t = (trial){0};
    int64_t largest[2] = {0};
    const ech_list *list = &plan->list[ECH_LIST_TRAIN];
    t->micro_batches = list->numbering.micro_batches;
    t->sent = ech_plan_traffic_along(plan, ECH_TRAFFIC_DATA).bytes;
    for (size_t b = 0; b < plan->bucket.n; b++) count_bucket(plan, &plan->bucket.at[b], t);
    t->together = t->all;
    for (int block = 0; block < (int)plan->model->block.n; block++)
        count_block(plan, block, t, largest);
    t->together += largest[0] + largest[1];
    for (size_t b = 0; b < plan->bucket.n; b++) {
        const ech_value *weights = &plan->persistent.at[plan->bucket.at[b].weights];
        if (weights->kind == ECH_MEMORY_PARAMETERS) t->weights += align(weights->bytes);
    }
    t->weights += list->peak[ECH_MEMORY_PARAMETERS];
}

static void plan_all(const char *family, int ranks, const char *words, const char *zero, trial *t)
{
    char more[700];
    snprintf(more, sizeof more,
             "%s %s training.steps=3 training.micro_batch_size=1 data.sequence_length=8 "
             "checkpoint.background=false",
             words, zero);
    fixture_each_plan(family, ranks, more, count_plan, t);
}

/* ---- what is sent, and what is kept ---- */

enum { LAYERS = 5 };

/* Returns how often a block is gathered in m micro-batches: for F, and a layer once more for R and
 * B. The head's F and B are one use, and the embedding is used only for F. So with prefetch the
 * layers next to these stay gathered between two uses. */
static int64_t gathers_of(int block, int m, int prefetch)
{
    if (block == 0 || block == LAYERS + 1) return m;
    int stays = block == LAYERS ? m : block == 1 ? m - 1 : 0;
    return 2 * m - (prefetch ? stays : 0);
}

static void check_sent(int ranks, const char *words, int prefetch)
{
    char zero[100];
    trial ones[MOST], keeping[MOST];
    snprintf(zero, sizeof zero, "parallel.zero=3 memory.prefetch=%d", prefetch);
    plan_all("gpt2", ranks, words, zero, ones);
    plan_all("gpt2", ranks, words, "parallel.zero=3 parallel.zero_keep=true", keeping);
    for (int rank = 0; rank < ranks; rank++) {
        const trial *one = &ones[rank], *keeps = &keeping[rank];
        int64_t once = 0, sent = 0, m = one->micro_batches;
        for (int block = 0; block < LAYERS + 2; block++) {
            assert_true(one->rounds[block] > 0);
            once += one->rounds[block];
            sent += gathers_of(block, (int)m, prefetch) * one->rounds[block];
        }
        assert_int_equal(one->sent, sent + m * one->scatters);
        assert_int_equal(keeps->sent, once + m * keeps->scatters);
        assert_true(one->sent <= 2 * m * once + m * one->scatters);
        assert_true(one->weights <= one->together);
        assert_true(one->together < keeps->weights);
        assert_int_equal(keeps->weights, keeps->all);
    }
}

TEST(test_sent)
{
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

/* ---- weights on the host and on disk ---- */

/* Their place on the device two blocks' take, and no other. */
TEST(test_fetched_weights_take_less)
{
    static const struct {
        int ranks;
        const char *words, *zero;
    } cases[] = {
        {1, "training.global_batch_size=3 model.num_hidden_layers=5", "parallel.zero=0"},
        {2, "parallel.data=2 precision.compute=bf16 model.num_hidden_layers=5", "parallel.zero=3"},
    };
    static const char *const spaces[][2] = {{"host", "host"}, {"host", "disk"}, {"disk", "disk"}};
    for (int i = 0; i < 6; i++) {
        trial here[MOST], there[MOST];
        char zero[200];
        snprintf(zero, sizeof zero, "%s memory.offload_optimizer=%s memory.offload_parameters=%s",
                 cases[i % 2].zero, spaces[i / 2][0], spaces[i / 2][1]);
        plan_all("gpt2", cases[i % 2].ranks, cases[i % 2].words, cases[i % 2].zero, here);
        plan_all("gpt2", cases[i % 2].ranks, cases[i % 2].words, zero, there);
        for (int rank = 0; rank < cases[i % 2].ranks; rank++)
            assert_true(there[rank].weights < here[rank].weights);
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
TEST(test_names_weights_on_disk)
{
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

/* Where no block may be gathered ahead the plan of one that is is refused; so are others that
 * gather what is not theirs, or too late (check/test_mutants.c). */
static void allow_none_ahead(const ech_plan *plan, void *context)
{
    ech_plan less = *plan;
    (void)context;
    less.prefetch = 0;
    assert_int_equal(ech_check_list(&less, &less.list[ECH_LIST_TRAIN]), ECH_EINTERNAL);
    assert_non_null(strstr(ech_last_error(), "weights of 2 blocks are there"));
}

TEST(test_blocks_at_once)
{
    fixture_each_plan("gpt2", 2, "parallel.data=2 parallel.zero=3", allow_none_ahead, NULL);
}

ALL_TESTS(fixture_setup, fixture_teardown)
