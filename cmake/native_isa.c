/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints the largest instruction set of kernel/isa.def that this machine has (ECH_ISAS=native).
 */
#include <stdio.h>

#include "kernel/isa_x86.h"

int main(void)
{
    puts(ech_x86_has_avx512bf16() ? "avx512bf16"
         : ech_x86_has_avx512()   ? "avx512"
         : ech_x86_has_avx2()     ? "avx2"
                                  : "portable");
    return 0;
}
