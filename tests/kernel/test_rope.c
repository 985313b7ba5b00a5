/* SPDX-License-Identifier: Apache-2.0
 *
 * Frequencies of rotary positions: recorded from _compute_llama3_parameters of Hugging Face
 * transformers 5.23.0 (fp32, so to 1e-6), and what must hold of them whatever the numbers.
 */
#include <math.h>

#include "kernel/rope.h"
#include "unit.h"

#define LLAMA3(base, by, low, high, original)                                                      \
    {                                                                                              \
        .theta = base, .scaling = ECH_ROPE_LLAMA3, .factor = by, .low_freq_factor = low,           \
        .high_freq_factor = high, .original_positions = original                                   \
    }

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
    check(&(ech_rope)LLAMA3(500000, 8, 1, 4, 8192), 64, llama31);
    check(&(ech_rope)LLAMA3(10000, 3, 0.5, 6, 100), 16, other);
}

/* Of transformers 5.24.0, ROPE_INIT_FUNCTIONS. */
TEST(scalings_as_transformers)
{
    const double linear[] = {0.333333343,   0.105409257,   0.0333333351,   0.0105409259,
                             0.00333333318, 0.00105409266, 0.000333333359, 0.000105409265};
    check(&(ech_rope){.theta = 10000, .scaling = ECH_ROPE_LINEAR, .factor = 3}, 16, linear);
    ech_rope dynamic = {.theta = 10000,
                        .scaling = ECH_ROPE_DYNAMIC,
                        .factor = 3,
                        .original_positions = 100,
                        .positions = 250};
    const double longer[] = {1,
                             0.247875661,
                             0.0614423491,
                             0.0152300633,
                             0.00377516216,
                             0.000935770862,
                             0.000231954808,
                             5.74959558e-05};
    const double whole[] = {1,
                            0.316227764,
                            0.100000001,
                            0.0316227786,
                            0.00999999978,
                            0.00316227786,
                            0.00100000005,
                            0.000316227786};
    check(&dynamic, 16, longer);
    dynamic.positions = 80;
    check(&dynamic, 16, whole);
    const ech_rope yarn = {.theta = 10000,
                           .scaling = ECH_ROPE_YARN,
                           .factor = 4,
                           .original_positions = 100,
                           .beta_fast = 32,
                           .beta_slow = 1,
                           .truncate = true};
    const double by_yarn[] = {1,
                              0.237170815,
                              0.049999997,
                              0.00790569466,
                              0.00249999994,
                              0.000790569466,
                              0.000250000012,
                              7.90569466e-05};
    check(&yarn, 16, by_yarn);
    assert_true(fabs(ech_rope_factor(&yarn) - 1.1386294361119891) < 1e-14);
    const ech_rope mscaled = {.theta = 10000,
                              .scaling = ECH_ROPE_YARN,
                              .factor = 40,
                              .original_positions = 4096,
                              .beta_fast = 20,
                              .beta_slow = 2,
                              .mscale = 0.9,
                              .mscale_all_dim = 0.6};
    const double by_mscaled[] = {1,
                                 0.316227764,
                                 0.100000001,
                                 0.0316227786,
                                 0.00525321346,
                                 0.000119601602,
                                 2.49999994e-05,
                                 7.90569447e-06};
    check(&mscaled, 16, by_mscaled);
    assert_true(fabs(ech_rope_factor(&mscaled) - 1.0906111639605687) < 1e-14);
    double divisors[8];
    for (int i = 0; i < 8; i++) divisors[i] = 1 + 0.7 * i;
    ech_rope longrope = {.theta = 10000,
                         .scaling = ECH_ROPE_LONGROPE,
                         .factor = 4,
                         .original_positions = 100,
                         .divisors = divisors};
    const double by_longrope[] = {1,
                                  0.186016336,
                                  0.0416666679,
                                  0.0102008963,
                                  0.00263157906,
                                  0.000702728401,
                                  0.000192307692,
                                  5.3597927e-05};
    check(&longrope, 16, by_longrope);
    assert_true(fabs(ech_rope_factor(&longrope) - 1.1406270186454384) < 1e-14);
    longrope.attention_factor = 1.25;
    assert_true(ech_rope_factor(&longrope) == 1.25);
    assert_true(ech_rope_factor(&dynamic) == 1);
}

TEST(between_whole_and_divided)
{
    const ech_rope plain = {.theta = 10000}, scaled = LLAMA3(10000, 4, 1, 8, 500);
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
