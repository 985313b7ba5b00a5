/* SPDX-License-Identifier: Apache-2.0
 *
 * Comparing times: cmocka's own comparison is for floats.
 */
#ifndef ECH_TESTS_SCHEDULE_NEAR_H
#define ECH_TESTS_SCHEDULE_NEAR_H

#include <math.h>

#include "unit.h"

#define assert_near(value, wanted, tolerance)                                                      \
    do {                                                                                           \
        double value_ = (value), wanted_ = (wanted);                                               \
        if (!(fabs(value_ - wanted_) <= (tolerance)))                                              \
            fail_msg("%s is %.15g, wanted %.15g", #value, value_, wanted_);                        \
    } while (0)

#endif
