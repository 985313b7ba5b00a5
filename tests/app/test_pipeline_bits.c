/* SPDX-License-Identifier: Apache-2.0
 *
 * A pipeline changes no bit: in fp32 with two replicas against two without a pipeline. For one
 * replica the lattice tests it with every schedule and depth, in fp64 and bf16.
 */

#include "app/runs.h"
#include "share.h"
#include "unit.h"

TEST(test_depth_with_replicas)
{
    static const char *const layouts[] = {
        "parallel.data=2 parallel.pipeline=2",
        "parallel.data=2 parallel.pipeline=3",
        "parallel.data=2 parallel.pipeline=3 parallel.schedule=gpipe parallel.bucket_bytes=1",
        "parallel.data=2 parallel.pipeline=2 parallel.schedule=naive",
        "parallel.data=2 parallel.pipeline=3 parallel.schedule=zero-bubble",
        "parallel.data=2 parallel.pipeline=4 parallel.schedule=zero-bubble",
        "parallel.pipeline=3 parallel.schedule=interleaved parallel.virtual_stages=2",
        "parallel.stage_replicas=[2,2,2] parallel.partition=[0,1,3]",
    };
    static const int ranks[] = {4, 6, 6, 4, 6, 8, 6, 6};
    static const char rest[] = "training.steps=5 training.global_batch_size=12 "
                               "training.micro_batch_size=2 model.num_hidden_layers=4";
    for (int a = 0; a < 2; a++) {
        const char *architecture = a ? "gpt2" : "llama";
        char more[400];
        runs_train(architecture, "flat", 2, rest);
        for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
            if (!share_takes()) continue;
            snprintf(more, sizeof more, "%s %s", layouts[i], rest);
            runs_train(architecture, "deep", ranks[i], more);
            if (!runs_same("flat", "deep", 5)) fail_msg("%s with %s", architecture, layouts[i]);
            runs_remove("deep");
        }
        /* Another number of replicas is another order of sums. */
        snprintf(more, sizeof more, "parallel.data=3 parallel.pipeline=2 %s", rest);
        runs_train(architecture, "deep", 6, more);
        assert_false(runs_same_file("flat", "deep", 5, runs_model));
        runs_remove("deep");
        runs_remove("flat");
    }
}

ALL_TESTS(fixture_setup, fixture_teardown)
