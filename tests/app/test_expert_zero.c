/* SPDX-License-Identifier: Apache-2.0
 *
 * ZeRO with experts, by formulae: an expert's weights, gradients and states are shared out over the
 * ranks that have the same experts, all other parameters over data x context; what ranks send and
 * keep follows, and is what was planned.
 */
#include <string.h>

#include "app/grid_run.h"
#include "schedule/traffic.h"
#include "unit.h"

/* Elements begin at multiples of UNIT: 64 bytes of the narrowest type. */
enum { MOST = 8, STEPS = 2, ITEM = 4, UNIT = 32, STATES = 2 };

static const struct {
    const char *words;
    int ranks, expert; /* all ranks add to gradients of what is no expert's */
} cases[] = {
    {"parallel.data=4 parallel.expert=2", 4, 2},
    {"parallel.data=4", 4, 1},
    {"parallel.data=4 parallel.expert=4", 4, 4},
    {"parallel.context=2 parallel.data=2 parallel.expert=2", 4, 2},
    {"parallel.context=4 parallel.data=2 parallel.expert=2 parallel.reduction=ring", 8, 2},
    {"parallel.context=2 parallel.data=4 parallel.expert=4", 8, 4},
};

static int64_t bytes_of(const ech_plan *plan, ech_memory_kind kind)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < plan->persistent.n; i++)
        if (plan->persistent.at[i].kind == kind) bytes += plan->persistent.at[i].bytes;
    return bytes;
}

/* A bucket is a parameter. Summing a micro-batch's gradients, and gathering the weights, each sends
 * the shards of all other members, or as many of one's own. */
TEST(test_formulae)
{
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int zero = 0; zero <= 3; zero++) {
            enum { MICRO_BATCHES = 2 };
            char words[600];
            int64_t sent = 0, states = 0, weights = 0;
            const char *data = strstr(cases[c].words, "parallel.data=");
            int replicas = atoi(data + strlen("parallel.data="));
            snprintf(words, sizeof words,
                     "model.num_key_value_heads=2 model.num_local_experts=4 precision.compute=fp32 "
                     "training.micro_batch_size=1 training.global_batch_size=%d "
                     "checkpoint.background=false parallel.bucket_bytes=1 parallel.zero=%d %s",
                     MICRO_BATCHES * replicas, zero, cases[c].words);
            grid_plans g = grid_plan("mixtral", words);
            for (size_t p = 0; p < g.design.model->param.n; p++) {
                const ech_param *param = &g.design.model->param.at[p];
                bool expert = strstr(param->name, "experts.%d") != NULL;
                int64_t N = expert ? cases[c].ranks / cases[c].expert : cases[c].ranks;
                int64_t own = ech_shape_whole(&param->shape) / (expert ? cases[c].expert : 1);
                int64_t shard = (own + N * UNIT - 1) / (N * UNIT) * UNIT * ITEM;
                int64_t sums = zero > 1 && N > 1 ? MICRO_BATCHES : 1;
                sent += (sums + 1) * (N - 1) * shard;
                states += STATES * (zero ? shard : N * shard);
                weights += zero > 2 ? shard : N * shard;
            }
            for (int rank = 0; rank < cases[c].ranks; rank++) {
                const ech_plan *plan = g.plan[rank];
                int64_t sends = ech_plan_traffic_along(plan, ECH_TRAFFIC_DATA).bytes;
                if (zero < 3) assert_int_equal(sends, sent); /* then by what blocks read */
                assert_int_equal(bytes_of(plan, ECH_MEMORY_OPTIMIZER), states);
                assert_int_equal(bytes_of(plan, ECH_MEMORY_PARAMETERS), weights);
            }
            grid_plans_free(&g);
        }
}

ALL_TESTS(grid_setup, fixture_teardown)
