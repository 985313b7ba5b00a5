/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: formats in which one text is packed, recognized by a file's first bytes. A
 * packed file is one or several members, one after the other; its text is their unpacked content.
 */
#ifndef ECH_DATA_PACKING_H
#define ECH_DATA_PACKING_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes in and out of an unpacker; running it advances both ends. */
typedef struct ech_packing_io {
    const unsigned char *in;
    unsigned char *out;
    size_t in_n, out_n; /* bytes that may be read from `in`, and written to `out` */
    bool last;          /* no bytes of the file follow `in` */
} ech_packing_io;

typedef struct ech_packing {
    const char *name, *ending; /* "gzip", ".gz" */
    const char *command;       /* a file's command for unpacking, followed by its name: "gzip -d" */
    const char *package;       /* Debian's package of a library that a build may lack */
    bool (*begins)(const unsigned char *bytes, size_t n); /* a file with these first n bytes */
    /* The others are NULL if this build lacks the library. */
    void *(*create)(void);
    void (*destroy)(void *state); /* accepts NULL */
    void (*begin)(void *state);   /* before each member */
    /* Unpacks some bytes; *ends: the member has ended. Returns NULL, or what is wrong. */
    const char *(*run)(void *state, ech_packing_io *io, bool *ends);
} ech_packing;

enum { ECH_PACKING_FIRST = 10 }; /* bytes that ech_packing_of inspects */

/* The packing of a file with these first n bytes; NULL: it is not packed. */
const ech_packing *ech_packing_of(const unsigned char *bytes, size_t n);
/* The packing for the path's ending, case-insensitive; NULL: none. */
const ech_packing *ech_packing_named(const char *path);

#endif
