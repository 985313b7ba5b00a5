/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: a line in LIBSVM's format (data.h: ech_data_import_libsvm).
 */
#ifndef ECH_DATA_LIBSVM_H
#define ECH_DATA_LIBSVM_H

#include "data/data.h"

/* The sample of a line, and the labels of earlier lines. Begins as {0}; release with
 * ech_libsvm_free. */
typedef struct ech_libsvm {
    ech_ids ids; /* of features: indices - 1, ascending; at least one, with equally many values */
    ECH_LIST(float) values; /* finite */
    int32_t label;          /* 0 or 1 */
    bool minus, zero;       /* some label was -1, or 0 */
} ech_libsvm;

/* Parses line `number` of the file `path`, n bytes with or without its newline; neither need end in
 * a NUL. *found: it has a sample; false for a blank line or only a comment. features: the largest
 * index, at least 1. Errors: as for ech_data_import_libsvm. */
ech_status ech_libsvm_parse(const char *path, int64_t number, const char *line, size_t n,
                            int64_t features, ech_libsvm *sample, bool *found);
void ech_libsvm_free(ech_libsvm *sample);

#endif
