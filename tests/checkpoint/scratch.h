/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder of its own for each test of this room, and whole files in one call.
 */
#ifndef ECH_TESTS_CHECKPOINT_SCRATCH_H
#define ECH_TESTS_CHECKPOINT_SCRATCH_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "unit.h"

/* A new folder; scratch_remove removes it and frees the name. */
static inline char *scratch_make(void)
{
    const char *parent = getenv("TMPDIR");
    char *path = ech_file_join(parent ? parent : "/tmp", "echelon-test-XXXXXX");
    assert_non_null(mkdtemp(path));
    return path;
}

static inline void scratch_remove(char *path)
{
    assert_int_equal(ech_file_remove_all(path), ECH_OK);
    free(path);
}

static inline void scratch_replace(const char *path, const void *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

/* The path, released with free(). */
static inline char *scratch_write(const char *folder, const char *name, const void *bytes, size_t n)
{
    char *path = ech_file_join(folder, name);
    scratch_replace(path, bytes, n);
    return path;
}

static inline void assert_error_has(const char *part)
{
    if (!strstr(ech_last_error(), part)) {
        fail_msg("the error \"%s\" does not say \"%s\"", ech_last_error(), part);
    }
}

#endif
