/* SPDX-License-Identifier: Apache-2.0
 *
 * For data and its tests alone: what a writer of token files knows.
 */
#ifndef ECH_DATA_TOKEN_WRITER_H
#define ECH_DATA_TOKEN_WRITER_H

#include "base/memory.h"
#include "data/data.h"
#include "data/sink.h"

struct ech_token_writer {
    char *prefix;
    int64_t vocabulary;
    int dtype;
    int64_t width;   /* bytes of a token */
    int64_t longest; /* a longer document becomes several sequences: lengths are 32 bits wide */
    ech_sink bin;
    ECH_LIST(int32_t) length;   /* of each sequence */
    ECH_LIST(int64_t) document; /* sequences after each document */
    int32_t open_length;        /* tokens of the sequence being written */
    bool open;                  /* a sequence or document is begun */
};

#endif
