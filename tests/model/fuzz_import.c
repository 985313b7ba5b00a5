/* SPDX-License-Identifier: Apache-2.0
 *
 * Arbitrary bytes as a config.json: refused, or keys that a run file could have set.
 */
#include <stdint.h>
#include <stdlib.h>

#include "base/log.h"
#include "model/import_names.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

/* What was read may be written over, and says the same again. */
static void carry(ech_config *config, const char *text, size_t n)
{
    ech_model_export_options options = {
        .dtype = ECH_F32, .path = "config.json", .text = text, .n = n};
    ech_stops stops = {0};
    ech_text out = {0};
    ech_config *back = import_config();
    if (ech_model_resolve(config, 1) == ECH_OK) {
        if (ech_model_export(config, &options, &out) != ECH_OK) abort();
        if (ech_model_import_text(back, "written", out.at, out.n, NULL) != ECH_OK) abort();
    }
    if (ech_model_read_stops("config.json", text, n, config->model.vocab_size, &stops) != ECH_OK)
        abort();
    for (size_t i = 0; i < stops.n; i++)
        if (stops.at[i] < 0 || stops.at[i] >= config->model.vocab_size) abort();
    free(stops.at);
    ech_text_free(&out);
    ech_config_destroy(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    ech_log_set_quiet(true);
    ech_model_text_ends ends = {-1, -1};
    ech_config *config = import_config(), *back = import_config();
    if (ech_model_import_text(config, "config.json", (const char *)bytes, n, &ends) == ECH_OK) {
        if (ends.begin < 0 || ends.begin >= config->model.vocab_size) abort();
        if (ends.end < 0 || ends.end >= config->model.vocab_size) abort();
        carry(config, (const char *)bytes, n);
        ech_text text = {0};
        ech_config_print(config, &text);
        if (ech_config_read_text(back, text.at, text.n, "print") != ECH_OK) abort();
        ech_text_free(&text);
    }
    ech_config_destroy(back);
    ech_config_destroy(config);
    return 0;
}
