/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of tokenizers.
 */
#include "data/tokenizer.h"

#include <string.h>

static const ech_tokenizer *const tokenizers[] = {
#define X(name, help) &ech_tokenizer_##name,
#include "data/tokenizer.def"
#undef X
};

const ech_tokenizer *ech_tokenizer_find(const char *name)
{
    for (size_t i = 0; i < sizeof tokenizers / sizeof tokenizers[0]; i++)
        if (strcmp(tokenizers[i]->name, name) == 0) return tokenizers[i];
    return NULL;
}

const char *ech_tokenizer_names(void)
{
#define X(name, help) " " #name
    static const char names[] =
#include "data/tokenizer.def"
        ;
#undef X
    return names + 1;
}
