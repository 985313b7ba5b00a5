/* SPDX-License-Identifier: Apache-2.0
 *
 * Cluster files: what they say, what they may not say, and costs that can be worked out by hand.
 */
#include <math.h>
#include <string.h>

#include "layout/cost.h"
#include "unit.h"

#define DEVICE                                                                                     \
    "device: {memory: 80 GiB, reserved: 1 GiB, bandwidth: 2 TB/s}\n"                               \
    "flops: {bf16: 300 TFLOP/s}\n"                                                                 \
    "products: {share: 0.5, half_m: 100, half_n: 200, half_k: 300}\n"                              \
    "attention: {share: 0.25}\n"                                                                   \
    "kernels: {share: 0.5, launch: 2 us}\n"
#define LEVELS                                                                                     \
    "levels:\n"                                                                                    \
    "  - {ranks: 8, bandwidth: 300 GB/s, latency: 5 us, share: 0.5}\n"                             \
    "  - {bandwidth: 20 GB/s, latency: 10 us}\n"

static ech_cluster read_text(const char *text)
{
    ech_cluster cluster;
    ech_status status = ech_cluster_parse(text, strlen(text), "c.yaml", &cluster);
    if (status != ECH_OK) fail_msg("%s", ech_last_error());
    return cluster;
}

static void assert_close(double a, double b)
{
    if (fabs(a - b) > 1e-12 * fabs(b)) fail_msg("%.17g is not %.17g", a, b);
}

TEST(test_reads)
{
    ech_cluster c = read_text("name: mine\n" DEVICE LEVELS "step: {factor: 1.25, spread: 0.06}\n");
    assert_string_equal(c.name, "mine");
    assert_close(c.device_memory, 80 * 0x1p30);
    assert_close(c.device_bandwidth, 2e12);
    assert_close(c.flops[ECH_BF16], 300e12);
    assert_true(c.flops[ECH_F32] <= 0);
    assert_close(c.kernels_launch, 2e-6);
    assert_close(c.step_factor, 1.25);
    assert_int_equal(c.levels, 2);
    assert_int_equal(c.level[0].ranks, 8);
    assert_close(c.level[0].bandwidth, 300e9);
    assert_close(c.level[1].share, 1);
}

TEST(test_refuses)
{
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"device: {memry: 1 GiB}\n", "c.yaml:1:10: device.memry: no such key; the keys of device "
                                     "are memory reserved bandwidth host"},
        {"devices: {memory: 1 GiB}\n", "c.yaml:1:1: devices: no such section; a cluster file has "},
        {"device: {memory: 80 GFLOP/s}\n", "c.yaml:1:10: memory: \"80 GFLOP/s\" is no number of B"},
        {"device: {memory: 80 Gigs}\n", "is no number of B; prefixes are k M G T P, Ki"},
        {"products: {share: 1.5}\n", "c.yaml:1:12: share: 1.5 is not between 0.001 and 1"},
        {"products: {share: [1]}\n", "c.yaml:1:12: share: must be one number"},
        {"flops: {bf17: 1 TFLOP/s}\n", "c.yaml:1:9: flops.bf17: no such type; types are "},
        {"flops: {bf16: -3 TFLOP/s}\n", "bf16: -3 TFLOP/s is not between 1 and"},
        {"levels: 3\n", "c.yaml:1:1: levels: must be a list of levels"},
        {"levels: [4]\n", "a level has the keys ranks bandwidth"},
        {"levels: [{ranks: 4}]\n", "levels: bandwidth: not set"},
        {"levels: [{bandwith: 4}]\n", "levels: bandwith: no such key; the keys of a level are "},
        {"levels: [{bandwidth: 1 GB/s}, {bandwidth: 1 GB/s}]\n", "only the last level may omit"},
        {"levels: [{ranks: 4, bandwidth: 1 GB/s}, {ranks: 6, bandwidth: 1 GB/s}]\n",
         "levels: ranks: 6 is no multiple of 4"},
        {"levels: [{ranks: 7.5, bandwidth: 1 GB/s}]\n", "ranks and links must be whole numbers"},
        {"levels: [{ranks: 0x8, bandwidth: 1 GB/s}]\n", "\"0x8\" is no number"},
        {DEVICE, "c.yaml: levels: not set, so that ranks have no links; add one like"},
        {DEVICE "levels: []\n", "c.yaml: levels: not set, so that ranks have no links"},
        {LEVELS, "c.yaml: device.memory: not set"},
        {"device: {memory: 1 GiB, reserved: 1 GiB, bandwidth: 1 GB/s}\nflops: {bf16: 1 TFLOP/s}\n"
         "products: {share: 1}\nattention: {share: 1}\nkernels: {share: 1}\n" LEVELS,
         "device.reserved: is all of device.memory"},
        {"- 1\n", "c.yaml:1:1: a cluster file has "},
        {"", "device.memory: not set"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ech_cluster c;
        assert_int_not_equal(
            ech_cluster_parse(cases[i].text, strlen(cases[i].text), "c.yaml", &c), ECH_OK);
        if (!strstr(ech_last_error(), cases[i].error))
            fail_msg("%s: %s", cases[i].text, ech_last_error());
    }
}

TEST(test_ranks)
{
    ech_cluster c = read_text(DEVICE "levels:\n  - {ranks: 8, bandwidth: 1 GB/s}\n"
                                     "  - {ranks: 32, bandwidth: 1 GB/s}\n");
    assert_int_equal(ech_cluster_check(&c, "c.yaml", 24), ECH_OK);
    assert_int_equal(ech_cluster_check(&c, "c.yaml", 5), ECH_OK);
    assert_int_not_equal(ech_cluster_check(&c, "c.yaml", 12), ECH_OK);
    assert_non_null(strstr(ech_last_error(), "12 ranks are no whole units of 8; use 8 or 16"));
    assert_int_not_equal(ech_cluster_check(&c, "c.yaml", 33), ECH_OK);
    assert_non_null(strstr(ech_last_error(), "the cluster has 32 ranks; 33 are too many"));
}

TEST(test_kernels)
{
    ech_cluster c = read_text(DEVICE LEVELS);
    /* 1 GB at half of 2 TB/s, and a launch */
    assert_close(ech_cluster_kernel(&c, 1e9), 1e9 / 1e12 + 2e-6);
    assert_close(ech_cluster_host(&c, 1e9), 1e9 / 25e9); /* half of 50 GB/s */
    /* shapes that reach 1/2, 2/3 and 3/4 of half the peak */
    ech_products p = {100, 400, 900, 3};
    double flops = 2 * 100.0 * 400 * 900 * 3, reached = 300e12 * 0.5 / 2 * 2 / 3 * 3 / 4;
    assert_close(ech_cluster_products(&c, &p, ECH_BF16, false, 0), flops / reached + 2e-6);
    assert_close(ech_cluster_products(&c, &p, ECH_BF16, true, 0), flops / 75e12 + 2e-6);
    c.attention_half_k = 300; /* heads of 900 reach 3/4 */
    assert_close(ech_cluster_products(&c, &p, ECH_BF16, true, 0), flops / 75e12 * 4 / 3 + 2e-6);
    /* memory is the bound */
    assert_close(ech_cluster_products(&c, &p, ECH_BF16, false, 1e9), 1e9 / 1e12 + 2e-6);
}

TEST(test_levels)
{
    ech_cluster c = read_text(DEVICE LEVELS);
    ech_rates rates = ech_rates_of_cluster(&c);
    /* within a machine; between two machines */
    assert_close(ech_cost_message(&rates, 3e9, 1, 6), 5e-6 + 3e9 / 150e9);
    assert_close(ech_cost_message(&rates, 3e9, 9, 6), 10e-6 + 3e9 / 20e9);
    /* 8 ranks of one machine: 3 rounds of a tree, 2 x 7/8 of the bytes */
    assert_close(ech_cost_reduction(&rates, 3e9, 8, 0, 7), 3 * 5e-6 + 3e9 * 1.75 / 150e9);
    /* one rank on each of 4 machines: its own link; 2 on each: two links; 8: eight, but no more
     * than the machine's own network */
    assert_close(ech_rates_between(&rates, 4, 3, 27), 20e9);
    assert_close(ech_rates_between(&rates, 8, 0, 28), 40e9);
    assert_close(ech_rates_between(&rates, 32, 0, 31), 150e9);
    c.step_factor = 2; /* multiplies the time of all communication */
    rates = ech_rates_of_cluster(&c);
    assert_close(ech_cost_message(&rates, 3e9, 1, 6), 2 * (5e-6 + 3e9 / 150e9));
    assert_close(ech_cost_copy(&rates, 25e9, false), 2);
    assert_close(ech_cost_copy(&rates, 3e9, true), 2);
    ech_lineup of = {.size = 8};
    double torus = ech_cost_sum(&rates, ECH_REDUCTION_TORUS, ECH_REDUCTION_WHOLE, 0, of, 0, 7);
    assert_close(torus, 2 * (2 + 1) * 5e-6); /* rows of 4, columns of 2 */
    c.step_factor = 1;
    rates = ech_rates_of_cluster(&c);
    c.level[1].links = 1;
    assert_close(ech_rates_between(&rates, 32, 0, 31), 20e9);
}

ALL_TESTS(NULL, NULL)
