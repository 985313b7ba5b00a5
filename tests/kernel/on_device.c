/* SPDX-License-Identifier: Apache-2.0
 *
 * The tests of all rows on the GPU itself: one program, whose words are the nouns of tests; without
 * one all.
 *     test_kernel_cuda [NOUN ...]       --nouns: prints them. ECHELON_MIRRORED=cpu: on the
 *     processor, of which the program itself is tested
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "kernel/mirrored.h"
#include "unit.h"

int main(int arguments, char **word)
{
    const char *device = getenv("ECHELON_MIRRORED") ? getenv("ECHELON_MIRRORED") : "cuda";
    const bool is_cpu = strcmp(device, "cpu") == 0;
    const char *lacks = ech_device_lacks(device);
    ech_isa isa;
    int failed = 0;
    if (arguments > 1 && strcmp(word[1], "--nouns") == 0) {
        unit_print_nouns();
        return 0;
    }
    if (lacks) printf("skipped: %s\n", lacks);
    if (lacks) return 77;
    if (ech_isa_decide(&isa) != ECH_OK) return 1;
    lacks = ech_kernels_lack(device, ECH_F16); /* most tests go through all types */
    if (lacks) printf("skipped: %s\n", lacks);
    if (lacks) return 77;
    mirrored_begin(device, is_cpu ? ech_kernels_fast : ech_kernels_cuda);
    for (int i = 1; i < arguments; i++) failed += unit_run(word[i]);
    return (arguments > 1 ? failed : unit_run(NULL)) != 0;
}
