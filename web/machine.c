/* SPDX-License-Identifier: Apache-2.0
 *
 * The cores of a browser, in place of device/cores.c: one, to which nothing can be bound.
 */
#include "device/cores.h"

ech_core_set ech_cores_mine(void)
{
    return (ech_core_set){.word = {1}};
}

int ech_cores_count(const ech_core_set *set)
{
    return (int)(set->word[0] & 1);
}

void ech_cores_release(void)
{
}
