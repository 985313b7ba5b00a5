/* SPDX-License-Identifier: Apache-2.0
 *
 * What cut layers keep under 1F1B depends on the pipeline's depth, not on the number of
 * micro-batches: whatever is received or exchanged dies when it has been used.
 */

#include "schedule/fixture.h"
#include "schedule/peaks.h"
#include "unit.h"

static const char *const cuts[] = {"", "parallel.sequence=true", "parallel.sequence=keep"};

static void take_peaks(int micro_batches, int context, int tensor, const char *more, int64_t *peaks)
{
    fixture f = fixture_pipeline((fixture_shape){.schedule = "1f1b",
                                                 .stages = 2,
                                                 .context = context,
                                                 .tensor = tensor,
                                                 .micro_batches = micro_batches,
                                                 .layers = 4,
                                                 .more = more});
    for (int rank = 0; rank < f.ranks; rank++) {
        int64_t peak[ECH_MEMORY_KINDS];
        ech_plan_peaks(f.plan[rank], peak);
        peaks[2 * rank] = peak[ECH_MEMORY_ACTIVATIONS];
        peaks[2 * rank + 1] = peak[ECH_MEMORY_ACTIVATION_GRADIENTS];
    }
    fixture_free(&f);
}

TEST(test_micro_batches)
{
    for (int grid = 0; grid < 4; grid++)
        for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
            int context = grid & 1 ? 2 : 1, tensor = grid & 2 ? 2 : 1;
            int64_t few[2 * FIXTURE_MOST_RANKS] = {0}, many[2 * FIXTURE_MOST_RANKS] = {0};
            take_peaks(4, context, tensor, cuts[i], few);
            take_peaks(24, context, tensor, cuts[i], many);
            for (int k = 0; k < 4 * context * tensor; k++) {
                assert_true(few[k] > 0);
                assert_int_equal(few[k], many[k]);
            }
        }
}
