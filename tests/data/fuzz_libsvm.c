/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads arbitrary bytes as lines in LIBSVM's format. A line is refused with file and line, or it is
 * a comment, or it gives a label and features with ascending ids in range and finite values. The
 * reader of whole files finds the same number of samples.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "data/libsvm.h"
#include "data/fuzz_folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { FEATURES = 1000 };

static void check_sample(const ech_libsvm *sample)
{
    size_t n = sample->ids.n;
    if (n == 0 || sample->values.n != n || (sample->label != 0 && sample->label != 1)) abort();
    for (size_t i = 0; i < n; i++) {
        if (sample->ids.at[i] < 0 || sample->ids.at[i] >= FEATURES) abort();
        if (i > 0 && sample->ids.at[i] <= sample->ids.at[i - 1]) abort();
        if (!isfinite(sample->values.at[i])) abort();
    }
}

/* The samples of all lines; -1: a line is refused. */
static int64_t parse_lines(const char *text, size_t n)
{
    ech_libsvm sample = {0};
    int64_t samples = 0, number = 1;
    for (const char *at = text, *end = text + n, *next; at < end && samples >= 0; at = next) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        bool found;
        char place[32];
        next = newline ? newline + 1 : end;
        snprintf(place, sizeof place, "FILE:%lld: ", (long long)number++);
        ech_status status = ech_libsvm_parse("FILE", number - 1, at, (size_t)(next - at), FEATURES,
                                             &sample, &found);
        if (status != ECH_OK && !strstr(ech_last_error(), place)) abort();
        if (status == ECH_OK && found) check_sample(&sample);
        samples = status == ECH_OK ? samples + found : -1;
    }
    ech_libsvm_free(&sample);
    return samples;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (!folder[0]) make_folder();
    ech_log_set_quiet(true);
    char *text = ech_calloc(n + 1, 1); /* the copy ends where the bytes do */
    memcpy(text, bytes, n);
    int64_t samples = parse_lines(text, n);
    free(text);
    write_source("t.libsvm", bytes, n);
    char *in = ech_file_join(folder, "t.libsvm"), *out = ech_file_join(folder, "t");
    const ech_libsvm_options options = {.in = in, .out = out, .features = FEATURES};
    ech_libsvm_count count;
    bool good = ech_data_import_libsvm(&options, &count) == ECH_OK;
    if (good != (samples > 0) || (good && count.samples != samples)) abort();
    free(out);
    free(in);
    return 0;
}
