/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.offload_activations = peer: the fullest rank has less, and where nobody would hold
 * anything the run is refused. Bits are probes/bits.c, and what goes and comes back
 * probes/offloads.c.
 */

#include "app/fixture.h"
#include "app/verify/verify.h"
#include "base/log.h"
#include "unit.h"

/* Of working memory, as planned. */
static void take_most(const ech_plan *plan, void *context)
{
    int64_t *most = context, working = plan->list[ECH_LIST_TRAIN].working;
    if (working > *most) *most = working;
}

/* Of four stages the first is the fullest where all have as many layers and the others no
 * embedding. */
TEST(the_fullest_rank_has_less)
{
    static const char model[] = "parallel.pipeline=4 training.micro_batch_size=1 "
                                "model.num_hidden_layers=10 parallel.partition=[4,2,2,2] "
                                "data.sequence_length=48";
    char words[400];
    int64_t most[2] = {0};
    for (int peer = 0; peer < 2; peer++) {
        snprintf(words, sizeof words, "%s memory.offload_activations=%s", model,
                 peer ? "peer" : "none");
        fixture_each_plan("gpt2", 4, words, take_most, &most[peer]);
    }
    if (most[1] > most[0] * 5 / 6)
        fail_msg("%lld bytes, without %lld", (long long)most[1], (long long)most[0]);
}

static ech_status run_rank(ech_comm *comm, const ech_design *design, void *context)
{
    ech_compared_run run = {.design = design};
    (void)context;
    ech_status status = ech_compared_run_open(&run, comm);
    ech_compared_run_close(&run);
    return status;
}

TEST(where_nothing_is_held_it_is_refused)
{
    static const char *const refused[] = {
        "parallel.pipeline=1", "parallel.pipeline=2", "parallel.pipeline=3",
        "parallel.pipeline=4 training.micro_batch_size=4", "parallel.pipeline=4 memory.prefetch=9"};
    static const int ranks[] = {1, 2, 3, 4, 4};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char words[300];
        snprintf(words, sizeof words,
                 "training.micro_batch_size=1 memory.offload_activations=peer "
                 "model.num_hidden_layers=6 %s",
                 refused[i]);
        ech_config *config = fixture_config("gpt2", words);
        assert_int_equal(fixture_run(config, ranks[i], run_rank, NULL), ECH_EUSAGE);
        assert_non_null(strstr(ech_last_error(), "no rank would hold activations for another"));
        ech_config_destroy(config);
    }
}

ALL_TESTS(fixture_setup, fixture_teardown)
