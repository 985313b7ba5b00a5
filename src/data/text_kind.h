/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: what a file of text is, by the first bytes of its text and, where these do not
 * tell, by its name.
 * */
#ifndef ECH_DATA_TEXT_KIND_H
#define ECH_DATA_TEXT_KIND_H

#include <stdbool.h>
#include <stddef.h>

/* How a file's text is divided into documents. */
typedef enum ech_text_form {
    ECH_TEXT_PLAIN, /* one document */
    ECH_TEXT_LINES, /* lines of JSON, a document each */
    ECH_TEXT_ARRAY  /* an array of objects, a document each */
} ech_text_form;

/* Whether a file is read. */
typedef enum ech_text_use_of {
    ECH_TEXT_READ,
    /* Skipped among others in a folder: it is about the texts, or in another format. */
    ECH_TEXT_ASIDE,
    ECH_TEXT_FOREIGN, /* not a text; skipped likewise */
    ECH_TEXT_DATA     /* has texts, but in an unsupported format: an error, also in a folder */
} ech_text_use_of;

typedef struct ech_text_kind {
    ech_text_form form;
    ech_text_use_of use;
    const char *is;   /* "a zip archive"; NULL: ECH_TEXT_READ */
    const char *hint; /* for FOREIGN and DATA: what would work */
} ech_text_kind;

enum { ECH_TEXT_KIND_FIRST = 64 << 10 }; /* bytes of a text that are inspected */

/* The kind of a file whose text begins with n bytes: all of it, or at least ECH_TEXT_KIND_FIRST. */
ech_text_kind ech_text_kind_of(const char *path, const char *first, size_t n);

#endif
