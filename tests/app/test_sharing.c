/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks of a machine and its devices: how many share one, and when that is refused.
 */
#include <string.h>

#include "app/fixture.h"
#include "base/log.h"
#include "unit.h"

static int two(void)
{
    return 2;
}

static ech_device pair = {.name = "pair", .count = two};

TEST(test_sharers)
{
    const ech_device *cpu = ech_device_find("cpu");
    const int of_two[] = {0, 1, 1, 2, 2, 3};
    for (int ranks = 1; ranks <= 5; ranks++) {
        assert_int_equal(ech_device_sharers(&pair, ranks), of_two[ranks]);
        assert_int_equal(ech_device_sharers(cpu, ranks), ranks);
    }
}

TEST(test_more_ranks_than_devices)
{
    ech_config *config = fixture_config("llama", ""),
               *shares = fixture_config("llama", "parallel.share_device=true");
    for (int ranks = 1; ranks <= 4; ranks++) {
        ech_status expected = ranks <= 2 ? ECH_OK : ECH_EUSAGE;
        assert_int_equal(ech_setup_check_sharing(config, &pair, ranks), expected);
        assert_int_equal(ech_setup_check_sharing(shares, &pair, ranks), ECH_OK);
        assert_int_equal(ech_setup_check_sharing(config, ech_device_find("cpu"), ranks), ECH_OK);
    }
    assert_non_null(strstr(ech_last_error(),
                           "parallel.share_device = false (default): this machine "
                           "has 2 of the device pair for 4 ranks; start at most 2, or"));
    ech_config_destroy(config);
    ech_config_destroy(shares);
}

ALL_TESTS(fixture_setup, fixture_teardown)
