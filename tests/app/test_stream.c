/* SPDX-License-Identifier: Apache-2.0
 *
 * The rate of memory: there is one, for as many threads as are asked for. How large it is the
 * machine alone knows.
 */
#include <math.h>

#include "app/machine.h"
#include "unit.h"

TEST(test_any_threads)
{
    for (int threads = 1; threads <= 3; threads++) {
        double rate = ech_stream_bytes(threads);
        assert_true(isfinite(rate) && rate > 0);
    }
}

TEST(test_no_threads)
{
    assert_true(fpclassify(ech_stream_bytes(0)) == FP_ZERO);
}

/* Of a device with queues: by its rows and events. */
TEST(test_queues)
{
    const ech_device *queued = ech_device_find("queued");
    double flops = ech_peak_flops_of(queued, ECH_F32, false, 64),
           bytes = ech_stream_bytes_of(queued, 1);
    assert_true(isfinite(flops) && flops > 0);
    assert_true(isfinite(bytes) && bytes > 0);
    assert_true(ech_peak_flops_of(queued, ECH_BF16, false, 64) > 0);
}
