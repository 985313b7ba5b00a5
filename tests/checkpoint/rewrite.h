/* SPDX-License-Identifier: Apache-2.0
 *
 * The run file in a checkpoint's manifest, with other values, as a stranger may send it. After
 * cmocka.h.
 */
#ifndef ECH_TESTS_CHECKPOINT_REWRITE_H
#define ECH_TESTS_CHECKPOINT_REWRITE_H

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "checkpoint/manifest.h"
#include "unit.h"

/* After each changes[i][0], replaces the rest of the line by changes[i][1]. */
static inline void checkpoint_rewrite_run_file(const char *step, const char *const changes[][2],
                                               size_t n)
{
    char *path = ech_file_join(step, "manifest.json"), *text;
    size_t bytes;
    ech_manifest manifest;
    assert_int_equal(ech_file_read(path, 1 << 20, &text, &bytes), ECH_OK);
    assert_int_equal(ech_manifest_parse(path, text, bytes, &manifest), ECH_OK);
    free(text);
    /* without a tokenizer of its own, whose place the run file would say */
    manifest.files[ECH_FILE_TOKENIZER].bytes = manifest.files[ECH_FILE_TOKENIZER_CONFIG].bytes = -1;
    for (size_t i = 0; i < n; i++) {
        char *at = strstr(manifest.info.run_yaml, changes[i][0]);
        assert_non_null(at);
        size_t line = 1 + strcspn(at + 1, "\n");
        ech_text yaml = {0};
        ech_text_append(&yaml, "%.*s%s%s%s", (int)(at - manifest.info.run_yaml),
                        manifest.info.run_yaml, changes[i][0], changes[i][1], at + line);
        free(manifest.info.run_yaml);
        manifest.info.run_yaml = yaml.at;
    }
    ech_text printed = {0};
    assert_int_equal(ech_manifest_print(&manifest, &printed), ECH_OK);
    assert_int_equal(ech_file_write(path, printed.at, printed.n), ECH_OK);
    ech_text_free(&printed);
    ech_manifest_free(&manifest);
    free(path);
}

#endif
