/* SPDX-License-Identifier: Apache-2.0
 *
 * How a dynamic loss scale follows from steps with and without overflow.
 */

#include "optim/optim.h"
#include "unit.h"

static ech_scaler begin(const char *words)
{
    ech_scaler scaler;
    ech_config *config;
    assert_int_equal(ech_config_create(NULL, 0, &config), ECH_OK);
    assert_int_equal(ech_config_set(config, words), ECH_OK);
    ech_scaler_begin(config, &scaler);
    ech_config_destroy(config);
    return scaler;
}

static void take(ech_scaler *s, bool overflow, int times)
{
    for (int i = 0; i < times; i++) ech_scaler_take(s, overflow);
}

TEST(it_begins)
{
    assert_true(begin("precision.loss_scale=auto").scale == 0x1p16);
    assert_true(begin("precision.loss_scale=1024").scale == 1024);
}

/* One overflow is borne; each one after it halves, until the scale has grown again. */
TEST(hysteresis)
{
    ech_scaler s = begin("precision.loss_scale=auto");
    take(&s, true, 1);
    assert_true(s.scale == 0x1p16 && s.overflows == 1);
    take(&s, false, 1999);
    take(&s, true, 1);
    assert_true(s.scale == 0x1p15 && s.overflows == 2 && s.good_steps == 0);
    take(&s, false, 1000);
    take(&s, true, 2);
    assert_true(s.scale == 0x1p13);
    take(&s, false, 1999);
    assert_true(s.scale == 0x1p13);
    take(&s, false, 1);
    assert_true(s.scale == 0x1p14 && s.good_steps == 0);
    take(&s, true, 1);
    assert_true(s.scale == 0x1p14);
    take(&s, true, 1);
    assert_true(s.scale == 0x1p13);
}

TEST(bounds)
{
    ech_scaler s = begin("precision.loss_scale=auto");
    take(&s, true, 100);
    assert_true(s.scale == 1 && s.overflows == 100);
    for (int doublings = 1; doublings <= 45; doublings++) {
        take(&s, false, 2000);
        assert_true(s.scale == (doublings < 40 ? (double)(INT64_C(1) << doublings) : 0x1p40));
    }
}
