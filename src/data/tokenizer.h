/* SPDX-License-Identifier: Apache-2.0
 *
 * For data alone: the tokenizers by name, one `const ech_tokenizer ech_tokenizer_NAME` a row of
 * tokenizer.def, each in its own file.
 */
#ifndef ECH_DATA_TOKENIZER_H
#define ECH_DATA_TOKENIZER_H

#include "data/data.h"

#define X(name, help) extern const ech_tokenizer ech_tokenizer_##name;
#include "data/tokenizer.def"
#undef X

#endif
