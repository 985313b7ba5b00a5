/* SPDX-License-Identifier: Apache-2.0
 *
 * Arbitrary bytes as a file of items of multiple choice.
 */
#include <stdlib.h>
#include <string.h>

#include "program/choices.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    ech_choices choices = {0};
    ech_status status = ech_choices_parse("items", (const char *)bytes, n, &choices);
    if (status == ECH_OK && choices.item.n == 0) abort();
    for (size_t i = 0; status == ECH_OK && i < choices.item.n; i++) {
        const ech_choice_item *item = &choices.item.at[i];
        if (item->n < 2 || item->answer < 0 || item->answer >= item->n) abort();
        if (item->first < 0 || (size_t)(item->first + item->n) > choices.choice.n) abort();
        for (int c = 0; c < item->n; c++)
            if (!choices.choice.at[item->first + c].text[0]) abort();
    }
    ech_choices_free(&choices);
    return 0;
}
