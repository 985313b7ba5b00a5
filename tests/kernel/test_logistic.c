/* SPDX-License-Identifier: Apache-2.0
 *
 * Logistic regression: fast against definition, positions without weight, and samples worked out by
 * hand.
 */
#include "kernel/trial.h"

#define VALUES(R, K)                                                                               \
    {                                                                                              \
        .role = TRIAL_IN, TRIAL_2D(R, K), .low = -2, .high = 2, .type = TRIAL_FIXED,               \
        .dtype = ECH_F32                                                                           \
    }
#define TARGETS(R, K)                                                                              \
    {                                                                                              \
        .role = TRIAL_IN, TRIAL_2D(R, K), .high = 2, .type = TRIAL_FIXED, .dtype = ECH_I32         \
    }
#define WEIGHTS(R, K)                                                                              \
    {                                                                                              \
        .role = TRIAL_IN, TRIAL_2D(R, K), .high = 2, .type = TRIAL_FIXED, .dtype = ECH_F32         \
    }
#define LOGITS(R)                                                                                  \
    {                                                                                              \
        .role = TRIAL_IN, TRIAL_1D(R), .low = -4, .high = 4, .type = TRIAL_WIDE                    \
    }

TRIAL_CALL(sparse_logits, t[0], t[1], t[2], t[3])
TRIAL_CALL(sparse_logits_backward, t[0], t[1], *(const bool *)options, t[2], t[3])
TRIAL_CALL(logistic_loss, t[0], t[1], t[2], t[3])
TRIAL_CALL(logistic_loss_backward, t[0], t[1], t[2], t[3], t[4])

static void check_logits(int64_t R, int64_t K)
{
    trial t = {.name = "sparse logits",
               .op = ECH_OP_sparse_logits,
               .call = call_sparse_logits,
               .tolerance = 2e-6,
               .halves = true,
               .spreads = true,
               .tensor = {TRIAL_INPUT(TRIAL_2D(R, K), .type = TRIAL_EITHER), VALUES(R, K),
                          TRIAL_INPUT(TRIAL_1D(1), .type = TRIAL_WIDE),
                          TRIAL_RESULT(TRIAL_1D(R), .type = TRIAL_WIDE)}};
    trial_check(&t);
}

static void check_logits_backward(int64_t R, int64_t K, bool accumulate)
{
    trial t = {.name = "sparse logits, backward",
               .op = ECH_OP_sparse_logits_backward,
               .call = call_sparse_logits_backward,
               .options = &accumulate,
               .tolerance = 1e-6,
               .halves = true,
               .tensor = {LOGITS(R), VALUES(R, K),
                          TRIAL_RESULT(TRIAL_2D(R, K), .type = TRIAL_EITHER),
                          TRIAL_RESULT(TRIAL_1D(1), .type = TRIAL_EITHER)}};
    if (accumulate) t.tensor[3] = (trial_tensor)TRIAL_CHANGED(TRIAL_1D(1), .type = TRIAL_EITHER);
    trial_check(&t);
}

static void check_loss(int64_t R, int64_t K)
{
    trial t = {.name = "logistic loss",
               .op = ECH_OP_logistic_loss,
               .call = call_logistic_loss,
               .tolerance = 1e-6,
               .halves = true,
               .tensor = {LOGITS(R),
                          TARGETS(R, K),
                          WEIGHTS(R, K),
                          {.role = TRIAL_IN_OUT,
                           TRIAL_1D(ECH_LOSS_SUMS),
                           .high = 9,
                           .type = TRIAL_FIXED,
                           .dtype = ECH_F64}}};
    trial_check(&t);
}

static void check_loss_backward(int64_t R, int64_t K, bool in_place)
{
    trial t = {.name = "logistic loss, backward",
               .op = ECH_OP_logistic_loss_backward,
               .call = call_logistic_loss_backward,
               .tolerance = 1e-6,
               .halves = true,
               .tensor = {LOGITS(R),
                          TARGETS(R, K),
                          WEIGHTS(R, K),
                          {.role = TRIAL_IN,
                           TRIAL_1D(1),
                           .low = 1,
                           .high = 2,
                           .type = TRIAL_FIXED,
                           .dtype = ECH_F64},
                          TRIAL_RESULT(TRIAL_1D(R), .type = TRIAL_WIDE)}};
    if (in_place) {
        t.tensor[0].role = TRIAL_IN_OUT;
        t.tensor[4] = t.tensor[0];
        t.tensor[4].alias = 1;
    }
    trial_check(&t);
}

TEST(fast_agrees_with_the_definition)
{
    static const int64_t sizes[][2] = {{1, 1}, {3, 5}, {65, 17}, {300, 80}, {2, 2500}};
    for (size_t i = 0; i < TRIAL_COUNT(sizes); i++) {
        int64_t R = sizes[i][0], K = sizes[i][1];
        check_logits(R, K);
        check_loss(R, K);
        for (int way = 0; way < 2; way++) {
            check_logits_backward(R, K, way);
            check_loss_backward(R, K, way);
        }
    }
}

/* Two samples of two features: logits 0.25 + 2 x 1.5 - 1 = 2.25, and 0.25. */
TEST(worked_by_hand)
{
    double memory[] = {2, -1, 7, 9}, bias = 0.25, z[2], dz[2], dx[4], dbias = 3, scale = 0.5;
    double sums[ECH_LOSS_SUMS] = {10, 20};
    float values[] = {1.5F, 1, 0, 0}, weights[] = {0, 1, 2, 0};
    int32_t targets[] = {5, 1, 0, 9};
    const ech_kernels *kernels = ech_kernels_ref(ECH_F64);
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
    const ech_tensor x = ech_tensor_2d(memory, ECH_F64, 2, 2),
                     v = ech_tensor_2d(values, ECH_F32, 2, 2),
                     w = ech_tensor_2d(weights, ECH_F32, 2, 2),
                     t = ech_tensor_2d(targets, ECH_I32, 2, 2),
                     b = ech_tensor_1d(&bias, ECH_F64, 1), db = ech_tensor_1d(&dbias, ECH_F64, 1),
                     logits = ech_tensor_1d(z, ECH_F64, 2), dlogits = ech_tensor_1d(dz, ECH_F64, 2),
                     d = ech_tensor_2d(dx, ECH_F64, 2, 2),
                     factor = ech_tensor_1d(&scale, ECH_F64, 1),
                     s = ech_tensor_1d(sums, ECH_F64, ECH_LOSS_SUMS);
    kernels->sparse_logits(context, &x, &v, &b, &logits);
    assert_true(z[0] == 2.25 && z[1] == 0.25);
    kernels->logistic_loss(context, &logits, &t, &w, &s);
    double expected = 10 + log(1 + exp(-2.25)) + 2 * log(1 + exp(0.25));
    assert_true(fabs(sums[ECH_LOSS_SUM] - expected) < 1e-14 && sums[ECH_LOSS_WEIGHT] == 23);
    kernels->logistic_loss_backward(context, &logits, &t, &w, &factor, &dlogits);
    assert_true(fabs(dz[0] + 0.5 / (1 + exp(2.25))) < 1e-16);
    assert_true(fabs(dz[1] - 1 / (1 + exp(-0.25))) < 1e-16);
    kernels->sparse_logits_backward(context, &dlogits, &v, true, &d, &db);
    assert_true(dx[0] == 1.5 * dz[0] && dx[1] == dz[0] && dx[2] == 0 && dx[3] == 0);
    assert_true(dbias == 3 + dz[0] + dz[1]);
    ech_kernel_context_destroy(context);
}

/* Where exp overflows, or a logit is NaN at positions without weight. */
TEST(far_and_unseen)
{
    for (int dtype = 0; dtype < 2; dtype++) {
        const ech_kernels *kernels = dtype ? ech_kernels_fast(ECH_F32) : ech_kernels_ref(ECH_F32);
        float z[] = {2000, -2000, NAN}, dz[3];
        float weights[] = {1, 1, 0};
        int32_t targets[] = {0, 1, 1};
        double sums[ECH_LOSS_SUMS] = {0}, scale = 1;
        ech_kernel_context *context;
        assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
        const ech_tensor logits = ech_tensor_1d(z, ECH_F32, 3), d = ech_tensor_1d(dz, ECH_F32, 3),
                         t = ech_tensor_2d(targets, ECH_I32, 3, 1),
                         w = ech_tensor_2d(weights, ECH_F32, 3, 1),
                         s = ech_tensor_1d(sums, ECH_F64, ECH_LOSS_SUMS),
                         factor = ech_tensor_1d(&scale, ECH_F64, 1);
        kernels->logistic_loss(context, &logits, &t, &w, &s);
        kernels->logistic_loss_backward(context, &logits, &t, &w, &factor, &d);
        assert_true(sums[ECH_LOSS_SUM] == 4000 && sums[ECH_LOSS_WEIGHT] == 2);
        assert_true(dz[0] == 1 && dz[1] == -1 && dz[2] == 0);
        ech_kernel_context_destroy(context);
    }
}
