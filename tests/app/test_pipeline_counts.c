/* SPDX-License-Identifier: Apache-2.0
 *
 * What a plan promises of memory and messages is what happens, on every rank, under every schedule;
 * and messages are what the papers count: activations and gradients once across every boundary.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "app/fixture.h"
#include "app/verify/verify.h"
#include "schedule/peaks.h"
#include "schedule/traffic.h"
#include "share.h"

enum { RANKS = 12, RUNS = 2 };

/* Of one rank; messages and reductions of one run of the train list. */
typedef struct rank_count {
    int64_t planned_peak[ECH_MEMORY_KINDS], peak[ECH_MEMORY_KINDS];
    int64_t planned_working, working;
    int64_t planned_messages, planned_bytes, planned_reduced;
    ech_comm_count sent, reduced; /* of RUNS runs */
} rank_count;

typedef struct counted {
    const ech_config *config;
    int turns;
    int64_t boundary_bytes; /* of one micro-batch */
    rank_count rank[RANKS];
} counted;

static ech_status run_lists(const ech_compared_run *c, ech_comm *comm, rank_count *n)
{
    ech_exec *exec = c->session.exec;
    ech_loader *loader;
    for (int run = 0; run < RUNS; run++)
        ECH_TRY(ech_exec_run(exec, ECH_LIST_TRAIN, run * c->design->schedule->turns));
    n->sent = ech_exec_message_count(exec);
    n->reduced = ech_exec_reduce_count(exec);
    ech_loader_options options = ech_design_reads(c->design, ech_comm_rank(comm), false, 50);
    ECH_TRY(ech_loader_create(c->data, &options, 0, &loader));
    ech_exec_set_loader(exec, ECH_EVALUATE, loader);
    ech_status status = ech_exec_run(exec, ECH_LIST_VALIDATE, 0);
    ech_loader_destroy(loader);
    ECH_TRY(status);
    return ech_exec_run(exec, ECH_LIST_CHECK, 0);
}

static ech_status count_rank(ech_comm *comm, const ech_design *design, void *context)
{
    counted *all = context;
    rank_count *n = &all->rank[ech_comm_rank(comm)];
    ech_compared_run c = {.design = design};
    ECH_TRY(ech_compared_run_open(&c, comm));
    ech_status status = run_lists(&c, comm, n);
    ech_plan_peaks(c.session.plan, n->planned_peak);
    ech_exec_peaks(c.session.exec, n->peak);
    n->planned_working = ech_plan_working(c.session.plan).bytes;
    n->working = ech_exec_working(c.session.exec);
    ech_flow sent = ech_plan_traffic_along(c.session.plan, ECH_TRAFFIC_PIPELINE);
    n->planned_bytes = sent.bytes;
    n->planned_messages = sent.calls;
    n->planned_reduced = ech_plan_traffic_along(c.session.plan, ECH_TRAFFIC_DATA).bytes;
    if (ech_comm_rank(comm) == 0) {
        all->turns = c.design->schedule->turns;
        all->boundary_bytes = c.design->layout->micro_batch * design->config->data.sequence_length *
                              design->config->model.hidden_size * (int64_t)sizeof(float);
    }
    ech_compared_run_close(&c);
    return status;
}

typedef struct shape {
    int ranks, boundaries; /* between virtual stages of different ranks */
    int micro_batches;     /* of a step, over all replicas */
    const char *more;
} shape;

static void check_rank(const rank_count *n, int rank, const char *more)
{
    for (int kind = 0; kind < ECH_MEMORY_KINDS; kind++)
        if (n->peak[kind] != n->planned_peak[kind])
            fail_msg("rank %d with %s: %s: %lld bytes, planned %lld", rank, more,
                     ech_memory_name((ech_memory_kind)kind), (long long)n->peak[kind],
                     (long long)n->planned_peak[kind]);
    if (n->working != n->planned_working)
        fail_msg("rank %d with %s: %lld bytes of working memory, planned %lld", rank, more,
                 (long long)n->working, (long long)n->planned_working);
    assert_int_equal(n->sent.bytes, RUNS * n->planned_bytes);
    assert_int_equal(n->sent.calls, RUNS * n->planned_messages);
    assert_true(n->sent.messages >= n->sent.calls);
    assert_int_equal(n->reduced.bytes, RUNS * n->planned_reduced);
}

static counted check(const char *architecture, const shape *s)
{
    char more[600];
    snprintf(more, sizeof more,
             "training.micro_batch_size=2 training.global_batch_size=%d training.steps=8 "
             "training.check_every=0 model.num_hidden_layers=6 parallel.bucket_bytes=4KiB %s %s",
             2 * s->micro_batches, strstr(s->more, "tie_") ? "" : "model.tie_word_embeddings=false",
             s->more);
    counted all = {.config = fixture_config(architecture, more)};
    assert_true(s->ranks <= RANKS);
    assert_int_equal(fixture_run(all.config, s->ranks, count_rank, &all), ECH_OK);
    ech_config_destroy((ech_config *)all.config);
    int64_t messages = 0, bytes = 0;
    for (int r = 0; r < s->ranks; r++) {
        check_rank(&all.rank[r], r, more);
        messages += all.rank[r].planned_messages;
        bytes += all.rank[r].planned_bytes;
    }
    assert_int_equal(messages, 2 * s->boundaries * s->micro_batches * all.turns);
    assert_int_equal(bytes, messages * all.boundary_bytes);
    return all;
}

static void test_synchronous(void **state)
{
    (void)state;
    static const shape shapes[] = {
        {1, 0, 4, "parallel.schedule=1f1b"},
        {2, 1, 4, "parallel.pipeline=2 parallel.schedule=1f1b"},
        {3, 2, 5, "parallel.pipeline=3 parallel.schedule=1f1b"},
        {4, 3, 8, "parallel.pipeline=4 parallel.schedule=gpipe"},
        {4, 3, 2, "parallel.pipeline=4 parallel.schedule=gpipe parallel.partition=[0,2,4,0]"},
        {3, 2, 6, "parallel.pipeline=3 parallel.schedule=zero-bubble"},
        {4, 3, 3, "parallel.pipeline=4 parallel.schedule=zero-bubble"},
        {3, 2, 4, "parallel.pipeline=3 parallel.schedule=naive"},
        {2, 2, 4, "parallel.pipeline=2 parallel.schedule=zero-bubble-v"},
        {3, 4, 7, "parallel.pipeline=3 parallel.schedule=zero-bubble-v data.document_mask=true"},
        {2, 3, 4, "parallel.pipeline=2 parallel.schedule=interleaved parallel.virtual_stages=2"},
        {2, 5, 6, "parallel.pipeline=2 parallel.schedule=interleaved parallel.virtual_stages=3"},
        {4, 7, 8, "parallel.pipeline=4 parallel.schedule=interleaved parallel.virtual_stages=2"},
        {4, 1, 6, "parallel.pipeline=2 parallel.data=2 model.tie_word_embeddings=true"},
        {6, 2, 6, "parallel.pipeline=3 parallel.data=2 parallel.reduction=ring"},
        {6, 3, 12,
         "parallel.pipeline=2 parallel.data=3 parallel.schedule=interleaved "
         "parallel.virtual_stages=2 parallel.reduction=naive model.tie_word_embeddings=true"},
        {4, 1, 5, "parallel.stage_replicas=[3,1]"},
        {4, 1, 7, "parallel.stage_replicas=[1,3] parallel.schedule=gpipe"},
        {5, 2, 5, "parallel.stage_replicas=[2,1,2] parallel.schedule=naive"},
        {5, 2, 7, "parallel.stage_replicas=[2,1,2] model.tie_word_embeddings=true"},
        {4, 3, 6, "parallel.pipeline=4 parallel.schedule=zero-bubble data.document_mask=true"},
        {2, 3, 4,
         "parallel.pipeline=2 parallel.schedule=interleaved parallel.virtual_stages=2 "
         "data.document_mask=true"},
        {4, 1, 7, "parallel.stage_replicas=[1,3] data.document_mask=true"},
        {1, 0, 4, "memory.sequence_chunks=3 data.document_mask=true"},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        if (!share_takes_of(i, sizeof shapes / sizeof *shapes)) continue;
        check("gpt2", &shapes[i]);
        check("llama", &shapes[i]);
    }
}

static void test_asynchronous(void **state)
{
    (void)state;
    static const shape shapes[] = {
        {2, 1, 2, "parallel.pipeline=2 parallel.schedule=pipedream"},
        {4, 3, 1, "parallel.pipeline=4 parallel.schedule=pipedream parallel.flush_every=4"},
        {3, 2, 3, "parallel.pipeline=3 parallel.schedule=pipedream parallel.vertical_sync=true"},
        {3, 2, 3, "parallel.pipeline=3 parallel.schedule=pipedream data.document_mask=true"},
        {3, 2, 1, "parallel.pipeline=3 parallel.schedule=pipedream parallel.weight_stashing=false"},
        {3, 1, 4, "parallel.stage_replicas=[2,1] parallel.schedule=pipedream"},
        {2, 1, 2, "parallel.pipeline=2 parallel.schedule=pipedream-2bw parallel.flush_every=2"},
        {6, 2, 8, "parallel.pipeline=3 parallel.data=2 parallel.schedule=pipedream-2bw"},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        if (!share_takes_of(i, sizeof shapes / sizeof *shapes)) continue;
        check("gpt2", &shapes[i]);
        check("llama", &shapes[i]);
    }
}

/* What the schedules are there for: activations of gpipe grow with the micro-batches, those of 1f1b
 * with the stages behind; another stage's are fewer; and 2bw keeps two versions of the weights. */
static void test_memory_has_the_right_order(void **state)
{
    (void)state;
    int64_t kept[2][2][4];
    static const char *const schedules[] = {"gpipe", "1f1b"};
    for (int s = 0; s < 2; s++)
        for (int m = 0; m < 2; m++) {
            char more[200];
            snprintf(more, sizeof more,
                     "parallel.pipeline=4 parallel.partition=[1,2,2,1] parallel.schedule=%s",
                     schedules[s]);
            counted n = check("llama", &(shape){4, 3, m ? 8 : 4, more});
            for (int r = 0; r < 4; r++) kept[s][m][r] = n.rank[r].peak[ECH_MEMORY_ACTIVATIONS];
        }
    assert_true(kept[0][1][1] > kept[0][0][1] * 3 / 2);
    assert_int_equal(kept[1][1][1], kept[1][0][1]);
    assert_true(kept[1][1][1] > kept[1][1][2] && kept[0][1][1] == kept[0][1][2]);

    counted one = check("llama", &(shape){2, 1, 2, "parallel.pipeline=2"});
    counted two =
        check("llama", &(shape){2, 1, 2, "parallel.pipeline=2 parallel.schedule=pipedream-2bw"});
    for (int r = 0; r < 2; r++)
        assert_int_equal(two.rank[r].peak[ECH_MEMORY_PARAMETERS],
                         2 * one.rank[r].peak[ECH_MEMORY_PARAMETERS]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_synchronous),
        cmocka_unit_test(test_asynchronous),
        cmocka_unit_test(test_memory_has_the_right_order),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
