/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: the interface of a kind of tokenizer: one `const ech_tokenizer_kind ech_tokenizer_NAME` per row
 * of tokenizer.def, each in its own file.
 */
#ifndef ECH_DATA_TOKENIZER_H
#define ECH_DATA_TOKENIZER_H

#include "data/data.h"

typedef struct ech_tokenizer_kind {
    const char *name;
    bool built_in;                     /* has no file */
    bool (*takes)(const char *source); /* whether it opens this source */
    /* Sets the fields after `name` of a zeroed tokenizer. */
    ech_status (*open)(const char *source, ech_tokenizer *out);
    void (*close)(ech_tokenizer *tokenizer);        /* optional: nothing to free */
    void *(*begin)(const ech_tokenizer *tokenizer); /* creates a coder's state; NULL: it has none */
    void (*end)(void *state);                       /* destroys it */
    ech_status (*encode)(ech_coder *coder, const void *bytes, size_t n, bool begins, ech_ids *out);
    /* Appends the bytes of any id; of end-of-text its name. */
    void (*decode)(const ech_tokenizer *tokenizer, int32_t id, bool first, ech_text *out);
    void (*export_files)(const ech_tokenizer *tokenizer, ech_text *file, ech_text *config_json);
    size_t (*split)(const ech_tokenizer *tokenizer, const void *bytes, size_t n);
} ech_tokenizer_kind;

struct ech_tokenizer {
    const ech_tokenizer_kind *kind;
    char *name;
    const char *file; /* see ech_tokenizer_file */
    int64_t vocabulary;
    int32_t begin_of_text, end_of_text;
    ech_ids front, back;
    void *state; /* the kind's own */
};

struct ech_coder {
    const ech_tokenizer *tokenizer;
    void *state; /* the kind's own */
};

#define X(name, help) extern const ech_tokenizer_kind ech_tokenizer_##name;
#include "data/tokenizer.def"
#undef X

#endif
