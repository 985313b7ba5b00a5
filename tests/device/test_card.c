/* SPDX-License-Identifier: Apache-2.0
 *
 * Data sheets by the names that drivers give: of a card that none is known of there is no rate.
 */
#include <math.h>

#include "device/card.h"
#include "unit.h"

static void check(const char *name, double halves, double singles)
{
    assert_true(fabs(ech_card_flops(name, ECH_CARD_HALVES) - halves * 1e12) < 1);
    assert_true(fabs(ech_card_flops(name, ECH_CARD_TF32) - halves / 2 * 1e12) < 1);
    assert_true(fabs(ech_card_flops(name, ECH_CARD_FP32) - singles * 1e12) < 1);
}

TEST(test_names)
{
    check("NVIDIA H100 80GB HBM3", 989, 67);
    check("NVIDIA H100 PCIe", 756, 51);
    check("NVIDIA H100 NVL", 835, 60);
    check("NVIDIA H200", 989, 67);
    check("NVIDIA A100-SXM4-80GB", 312, 19.5);
    check("NVIDIA A100-PCIE-40GB", 312, 19.5);
    check("8 x NVIDIA H100 80GB HBM3 (sm_90), CUDA 13.0", 989, 67);
}

TEST(test_others)
{
    check("NVIDIA GH200 480GB", 0, 0);
    check("NVIDIA A1000", 0, 0);
    check("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 0, 0);
    check("Tesla T4", 0, 0);
    check("", 0, 0);
}
