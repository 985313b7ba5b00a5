/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages of plans are what the papers count, under every schedule: activations and gradients once
 * across every boundary; and memory has the order that schedules are there for. That runs send and
 * keep what plans say is probes/counters.c and probes/peaks.c.
 */

#include "app/fixture.h"
#include "schedule/peaks.h"
#include "schedule/traffic.h"
#include "unit.h"

enum { RANKS = 12 };

typedef struct shape {
    int ranks, boundaries; /* between virtual stages of different ranks */
    int micro_batches;     /* of a step, over all replicas */
    const char *more;
} shape;

/* Of all ranks' plans: memory of each kind on each rank. */
typedef struct counted {
    int64_t peak[RANKS][ECH_MEMORY_KINDS];
} counted;

static counted check(const char *architecture, const shape *s)
{
    char more[600];
    counted all = {0};
    int64_t messages = 0, bytes = 0;
    snprintf(more, sizeof more,
             "training.micro_batch_size=2 training.global_batch_size=%d training.steps=8 "
             "training.check_every=0 model.num_hidden_layers=6 parallel.bucket_bytes=4KiB %s %s",
             2 * s->micro_batches, strstr(s->more, "tie_") ? "" : "model.tie_word_embeddings=false",
             s->more);
    ech_config *config = fixture_config(architecture, more);
    ech_design design;
    assert_int_equal(ech_design_create(config, fixture_tokenizer, s->ranks, s->ranks, &design),
                     ECH_OK);
    for (int r = 0; r < s->ranks; r++) {
        ech_plan *plan;
        assert_int_equal(ech_design_plan(&design, r, false, &plan), ECH_OK);
        ech_flow sent = ech_plan_traffic_along(plan, ECH_TRAFFIC_PIPELINE);
        ech_plan_peaks(plan, all.peak[r]);
        messages += sent.calls;
        bytes += sent.bytes;
        ech_plan_destroy(plan);
    }
    int64_t boundary_bytes = design.layout->micro_batch * config->data.sequence_length *
                             config->model.hidden_size * (int64_t)sizeof(float);
    assert_int_equal(messages, 2 * s->boundaries * s->micro_batches * design.schedule->turns);
    assert_int_equal(bytes, messages * boundary_bytes);
    ech_design_destroy(&design);
    ech_config_destroy(config);
    return all;
}

/* Of all schedules, depths, chunks and counts of micro-batches: schedule/test_pipeline.c. */
TEST(test_messages)
{
    static const shape shapes[] = {
        {4, 3, 2, "parallel.pipeline=4 parallel.schedule=gpipe parallel.partition=[0,2,4,0]"},
        {3, 4, 7, "parallel.pipeline=3 parallel.schedule=zero-bubble-v data.document_mask=true"},
        {6, 3, 12,
         "parallel.pipeline=2 parallel.data=3 parallel.schedule=interleaved "
         "parallel.virtual_stages=2 parallel.reduction=naive model.tie_word_embeddings=true"},
        {4, 1, 5, "parallel.stage_replicas=[3,1]"},
        {4, 1, 7, "parallel.stage_replicas=[1,3] parallel.schedule=gpipe"},
        {5, 2, 5, "parallel.stage_replicas=[2,1,2] parallel.schedule=naive"},
        {5, 2, 7, "parallel.stage_replicas=[2,1,2] model.tie_word_embeddings=true"},
        {4, 1, 7, "parallel.stage_replicas=[1,3] data.document_mask=true"},
        {1, 0, 4, "memory.sequence_chunks=3 data.document_mask=true"},
        {3, 2, 3, "parallel.pipeline=3 parallel.schedule=pipedream data.document_mask=true"},
        {3, 1, 4, "parallel.stage_replicas=[2,1] parallel.schedule=pipedream"},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        check("gpt2", &shapes[i]);
        check("llama", &shapes[i]);
    }
}

/* The purpose of the schedules: activations of gpipe grow with the micro-batches, those of 1f1b
 * with the later stages, so a later stage has fewer. 2bw keeps two versions of the weights. */
TEST(test_memory_has_the_right_order)
{
    int64_t kept[2][2][4];
    static const char *const schedules[] = {"gpipe", "1f1b"};
    for (int s = 0; s < 2; s++)
        for (int m = 0; m < 2; m++) {
            char more[200];
            snprintf(more, sizeof more,
                     "parallel.pipeline=4 parallel.partition=[1,2,2,1] parallel.schedule=%s",
                     schedules[s]);
            counted n = check("llama", &(shape){4, 3, m ? 8 : 4, more});
            for (int r = 0; r < 4; r++) kept[s][m][r] = n.peak[r][ECH_MEMORY_ACTIVATIONS];
        }
    assert_true(kept[0][1][1] > kept[0][0][1] * 3 / 2);
    assert_int_equal(kept[1][1][1], kept[1][0][1]);
    assert_true(kept[1][1][1] > kept[1][1][2] && kept[0][1][1] == kept[0][1][2]);

    counted one = check("llama", &(shape){2, 1, 2, "parallel.pipeline=2"});
    counted two =
        check("llama", &(shape){2, 1, 2, "parallel.pipeline=2 parallel.schedule=pipedream-2bw"});
    for (int r = 0; r < 2; r++)
        assert_int_equal(two.peak[r][ECH_MEMORY_PARAMETERS],
                         2 * one.peak[r][ECH_MEMORY_PARAMETERS]);
}

ALL_TESTS(fixture_setup, fixture_teardown)
