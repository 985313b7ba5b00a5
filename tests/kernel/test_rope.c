/* SPDX-License-Identifier: Apache-2.0
 *
 * Frequencies of rotary positions: recorded from _compute_llama3_parameters of Hugging Face
 * transformers 5.23.0 (fp32, so to 1e-6), and what must hold of them whatever the numbers.
 */
#include <math.h>

#include "kernel/rope.h"
#include "unit.h"

static void check(const ech_rope *rope, int64_t D, const double *recorded)
{
    double frequency[64];
    ech_rope_frequencies(rope, D, frequency);
    for (int64_t i = 0; i < D / 2; i++)
        assert_true(fabs(frequency[i] - recorded[i]) <= 1e-6 * recorded[i]);
}

TEST(as_transformers)
{
    const double llama31[] = {1,
                              0.663601279,
                              0.440366626,
                              0.292227834,
                              0.193922758,
                              0.128687382,
                              0.0853971019,
                              0.0566696189,
                              0.0376060307,
                              0.0249554086,
                              0.0165604409,
                              0.0109895291,
                              0.00729266508,
                              0.00483942125,
                              0.00321144611,
                              0.00137189368,
                              0.000524846022,
                              0.000178507791,
                              7.78465546e-05,
                              5.16590699e-05,
                              3.42810235e-05,
                              2.2748929e-05,
                              1.50962178e-05,
                              1.00178686e-05,
                              6.64786967e-06,
                              4.41153452e-06,
                              2.92749974e-06,
                              1.94269251e-06,
                              1.28917316e-06,
                              8.55496921e-07,
                              5.6770881e-07,
                              3.7673226e-07};
    const double other[] = {1,
                            0.279159009,
                            0.0465642363,
                            0.0105535453,
                            0.00333333318,
                            0.00105409266,
                            0.000333333359,
                            0.000105409265};
    check(&(ech_rope){500000, true, 8, 1, 4, 8192}, 64, llama31);
    check(&(ech_rope){10000, true, 3, 0.5, 6, 100}, 16, other);
}

TEST(between_whole_and_divided)
{
    const ech_rope plain = {.theta = 10000}, scaled = {10000, true, 4, 1, 8, 500};
    double whole[32], slow[32];
    int same = 0, divided = 0;
    ech_rope_frequencies(&plain, 64, whole);
    ech_rope_frequencies(&scaled, 64, slow);
    for (int i = 0; i < 32; i++) {
        assert_true(fabs(whole[i] - pow(10000, -i / 32.0)) < 1e-15);
        assert_true(slow[i] <= whole[i] && slow[i] >= whole[i] / 4);
        assert_true(i == 0 || slow[i] < slow[i - 1]);
        same += slow[i] == whole[i];
        divided += slow[i] == whole[i] / 4;
    }
    assert_true(same > 4 && divided > 4 && same + divided < 32);
}
