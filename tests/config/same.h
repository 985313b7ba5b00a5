/* SPDX-License-Identifier: Apache-2.0
 *
 * For the tests of config: whether two structs hold the same values, to the bit.
 */
#ifndef ECH_TESTS_CONFIG_SAME_H
#define ECH_TESTS_CONFIG_SAME_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "config/config.h"

static inline bool same_INT(int64_t a, int64_t b)
{
    return a == b;
}

static inline bool same_SIZE(int64_t a, int64_t b)
{
    return a == b;
}

static inline bool same_BOOL(int a, int b)
{
    return a == b;
}

static inline bool same_REAL(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

static inline bool same_TIME(double a, double b)
{
    return same_REAL(a, b);
}

static inline bool same_TEXT(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

static inline bool same_PATH(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

static inline bool same_PATHS(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

static inline bool same_NAME(int a, int b)
{
    return a == b;
}

static inline bool same_LIST(ech_config_list a, ech_config_list b)
{
    return a.word == b.word && a.n == b.n &&
           (a.n == 0 || memcmp(a.at, b.at, (size_t)a.n * sizeof *a.at) == 0);
}

/* The first key that differs, NULL if none does. */
static inline const char *first_difference(const ech_config *a, const ech_config *b)
{
#define SECTION(section, help)
#define KEY(section, key, type, ...)                                                               \
    if (!same_##type(a->section.key, b->section.key)) return #section "." #key;
#define END(section)
#include "config/keys.def"
    return NULL;
}

#endif
