/* SPDX-License-Identifier: Apache-2.0
 *
 * Which losses are spikes.
 */

#include <math.h>

#include "app/train/spikes.h"
#include "base/random.h"
#include "unit.h"

/* n losses about `level`, uneven by `spread` of it. */
static void feed(ech_spikes *spikes, int n, double level, double spread)
{
    for (int i = 0; i < n; i++) {
        bool begins;
        ech_random_key key = {.seed = 3, .step = (uint32_t)spikes->seen};
        double noise = 2 * ech_random_unit(ech_random_word(key, 0)) - 1;
        assert_true(ech_spikes_take(spikes, level * (1 + spread * noise), &begins) == 0);
        assert_false(begins);
    }
}

TEST(a_spike_is_named_once)
{
    ech_spikes spikes = {0};
    bool begins;
    feed(&spikes, 60, 3, 0.05);
    double factor = ech_spikes_take(&spikes, 6, &begins);
    assert_true(begins && fabs(factor - 2) < 0.05);
    factor = ech_spikes_take(&spikes, 9, &begins);
    assert_true(!begins && fabs(factor - 3) < 0.1);
    feed(&spikes, 5, 3, 0.05);
    assert_true(ech_spikes_take(&spikes, 4.7, &begins) > 1.5 && begins);
    assert_int_equal(spikes.count, 2);
}

TEST(what_is_none)
{
    ech_spikes spikes = {0};
    bool begins;
    feed(&spikes, 19, 3, 0.05);
    assert_true(ech_spikes_take(&spikes, 30, &begins) == 0); /* too few before it */
    spikes = (ech_spikes){0};
    for (int i = 0; i < 200; i++) /* a start: from 11 to 3 */
        assert_true(ech_spikes_take(&spikes, 3 + 8 * exp(-i / 30.0), &begins) == 0);
    feed(&spikes, 60, 3, 0.05);
    assert_true(ech_spikes_take(&spikes, 4.4, &begins) == 0);         /* below 1.5 times */
    assert_true(ech_spikes_take(&spikes, (double)NAN, &begins) == 0); /* a skipped step */
    ech_spikes uneven = {0};
    feed(&uneven, 60, 0.02, 0.7);
    assert_true(ech_spikes_take(&uneven, 0.04, &begins) == 0);
    assert_true(ech_spikes_take(&uneven, 1, &begins) > 40);
    assert_int_equal(spikes.count, 0);
}

/* What stays high is no spike any more. */
TEST(a_new_level_is_learned)
{
    ech_spikes spikes = {0};
    bool begins;
    int high = 0;
    feed(&spikes, 60, 3, 0.05);
    for (int i = 0; i < 100; i++) high += ech_spikes_take(&spikes, 6, &begins) > 0;
    assert_in_range(high, 10, ECH_SPIKES_MOST);
    assert_int_equal(spikes.count, 1);
}
