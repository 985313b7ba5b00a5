/* SPDX-License-Identifier: Apache-2.0
 *
 * Arbitrary bytes as a profile: refused, or read with all numbers in bounds.
 */
#include <math.h>
#include <stdint.h>

#include "base/log.h"
#include "layout/profile.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    ech_log_set_quiet(true);
    ech_profile *profile = NULL;
    if (ech_profile_parse((const char *)bytes, n, "fuzz", &profile) != ECH_OK) {
        ECH_ASSERT(!profile);
        return 0;
    }
    ECH_ASSERT(profile->model && profile->blocks > 0);
    ECH_ASSERT(isfinite(profile->bandwidth) && profile->bandwidth >= 0);
    ECH_ASSERT(isfinite(profile->latency) && profile->latency >= 0);
    ECH_ASSERT(isfinite(profile->update_seconds) && profile->update_seconds >= 0);
    ECH_ASSERT(isfinite(profile->other_seconds) && profile->other_seconds >= 0);
    ECH_ASSERT(isfinite(profile->spread) && profile->spread >= 0);
    ECH_ASSERT(profile->processor_share >= 0 && profile->processor_share <= 1);
    int64_t sum = 0;
    for (int i = 0; i < profile->blocks; i++) {
        const ech_profile_block *cost = &profile->block[i];
        for (int p = 0; p < ECH_PROFILE_PHASES; p++)
            ECH_ASSERT(cost->low[p] >= 0 && cost->seconds[p] >= cost->low[p] &&
                       cost->high[p] >= cost->seconds[p] && isfinite(cost->high[p]));
        ECH_ASSERT(cost->activation_bytes >= 0 && cost->boundary_bytes >= 0 &&
                   cost->param_bytes >= 0);
        /* Sums over all blocks are safe; the sanitizer watches. */
        sum += cost->activation_bytes + cost->boundary_bytes + cost->param_bytes;
    }
    ECH_ASSERT(sum >= 0);
    ech_profile_destroy(profile);
    return 0;
}
