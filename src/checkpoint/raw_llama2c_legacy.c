/* SPDX-License-Identifier: Apache-2.0
 *
 * Model files of llama2.c as they were at first: seven numbers (the vocabulary negative where the head
 * is not the table), then fp32, tables of angles among it. There is no mark by which to know them: any
 * file whose size is right is one.
 */
#include "checkpoint/raw_llama2c.h"

enum { NUMBERS = 7, AT_VOCABULARY = 5 };

/* Width, feed-forward width, layers, heads, key/value heads, vocabulary, positions of anything that is
 * plausibly a model. */
static const int32_t largest[NUMBERS] = {1000000, 10000000, 100000,  100000,
                                         100000,  10000000, 10000000};

static bool claims(const void *header, size_t n)
{
    for (int i = 0; i < NUMBERS; i++) {
        int32_t value = ech_raw_number(header, n, i);
        if (value < 0 && i == AT_VOCABULARY) value = value == INT32_MIN ? 0 : -value;
        if (value < 1 || value > largest[i]) return false;
    }
    int32_t heads = ech_raw_number(header, n, 3), groups = ech_raw_number(header, n, 4);
    return ech_raw_number(header, n, 0) % heads == 0 && heads % groups == 0;
}

static ech_status fill(const ech_raw *raw, const void *header, size_t n, ech_config *config)
{
    bool shared = ech_raw_number(header, n, AT_VOCABULARY) > 0;
    return ech_raw_llama2c_fill(raw, header, n, 0, shared, config);
}

static ech_status list(ech_raw *raw, const void *header, const ech_config *config)
{
    static const ech_raw_llama2c_kind kinds[] = {
        ECH_RAW_TABLE,     ECH_RAW_FIRST_NORM,  ECH_RAW_QUERIES, ECH_RAW_KEYS, ECH_RAW_VALUES,
        ECH_RAW_OUT,       ECH_RAW_SECOND_NORM, ECH_RAW_GATE,    ECH_RAW_DOWN, ECH_RAW_UP,
        ECH_RAW_LAST_NORM, ECH_RAW_ANGLES,      ECH_RAW_HEAD};
    (void)header;
    ech_raw_llama2c_list(raw, 4 * NUMBERS, kinds, sizeof kinds / sizeof *kinds, config);
    return ECH_OK;
}

const ech_raw_format ech_raw_format_llama2c_legacy = {.meaning =
                                                          "llama2.c model file of the legacy kind",
                                                      .claims = claims,
                                                      .fill = fill,
                                                      .list = list};
