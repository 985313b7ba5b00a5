/* SPDX-License-Identifier: Apache-2.0
 *
 * Arbitrary bytes as the header of a model file of llm.c or llama2.c: refused for the file's size,
 * and with the size that it asks for a list of tensors that fill the file.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "checkpoint/raw.h"
#include "model/import_names.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { MOST_BYTES = 1 << 20 }; /* of a file whose tensors are listed */

/* The tensors do not overlap and lie inside the file. */
static void check(const ech_raw *raw)
{
    int64_t sum = 0;
    for (size_t i = 0; i < raw->tensor.n; i++) {
        const ech_raw_tensor *t = &raw->tensor.at[i];
        int64_t elements = t->shape[0] * (t->dims > 1 ? t->shape[1] : 1);
        int64_t size = elements * (int64_t)ech_dtype_bytes(raw->dtype);
        if (elements < 1 || t->offset < 28 || t->offset + size > raw->bytes) abort();
        if (ech_raw_find(raw, t->name) != t) abort();
        sum += size;
    }
    if (sum >= raw->bytes) abort();
}

static ech_status read_as(const void *header, size_t n, int64_t file_bytes, ech_raw *raw)
{
    ech_config *config = import_config();
    ech_status st = ech_raw_read("fuzz", header, n, file_bytes, config, raw);
    ech_config_destroy(config);
    return st;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    ech_log_set_quiet(true);
    char header[ECH_RAW_HEADER] = {0};
    ech_raw raw;
    if (n > sizeof header) n = sizeof header;
    memcpy(header, bytes, n);
    if (read_as(header, sizeof header, 0, &raw) == ECH_OK) abort(); /* none is empty */
    int64_t wanted = raw.bytes;
    ech_raw_close(&raw);
    if (wanted < 1 || wanted > MOST_BYTES) return 0;
    if (read_as(header, sizeof header, wanted, &raw) == ECH_OK) check(&raw);
    ech_raw_close(&raw);
    return 0;
}
