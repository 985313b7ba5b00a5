/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: a BPE vocabulary (Sennrich et al. 2016, arXiv:1508.07909) over bytes (Radford et al. 2019, §2.2),
 * or over characters with byte fallback (SentencePiece: Kudo and Richardson 2018, arXiv:1808.06226). A word starts
 * as the tokens of its bytes or characters. Then the adjacent pair with the merge of the lowest rank, the leftmost
 * of equal ones, becomes one token, until no pair has a merge.
 */
#ifndef ECH_DATA_BPE_BPE_H
#define ECH_DATA_BPE_BPE_H

#include "data/bpe/pattern.h"
#include "data/bpe/table.h"
#include "data/data.h"

enum {
    ECH_BPE_NONE = -1,           /* no such id */
    ECH_BPE_LONGEST_ADDED = 1024 /* bytes of an added token */
};

#define ECH_BPE_END "<|endoftext|>"

/* Over characters: what replaces a blank (U+2581), and the name of a single byte's token. */
#define ECH_BPE_BLANK     "\u2581"
#define ECH_BPE_BYTE_NAME "<0x%02X>"

typedef struct ech_bpe_token {
    size_t at, n;  /* in ech_bpe.bytes; n = 0: no token has this id */
    bool plain;    /* in the model's vocabulary, not only an added token */
    bool byte;     /* over characters: a byte fallback token, "<0x0A>" */
    bool silent;   /* decodes to no text */
    bool searched; /* its searched form (ech_bpe_added.at) differs from its bytes */
} ech_bpe_token;

/* left + right become `made`. The lowest rank is merged first; of equal ranks the leftmost pair. */
typedef struct ech_bpe_merge {
    int32_t left, right, made, rank;
} ech_bpe_merge;

/* Added tokens are searched in the text before it is split into words; `normalized` ones after the others, in the
 * normalized text. */
typedef struct ech_bpe_added {
    int32_t id;
    bool special, normalized;
    bool verbatim; /* `normalized`, but the token itself is not normalized */
    bool hidden;   /* not searched; its name in a text is encoded like any other text */
    size_t at, n;  /* the searched form, in ech_bpe.bytes; set by ech_bpe_finish */
} ech_bpe_added;

typedef enum ech_bpe_form { ECH_BPE_AS_IS, ECH_BPE_NFC, ECH_BPE_NFKC } ech_bpe_form;

/* Where a blank is inserted. A part of a text is what is between added tokens. */
typedef enum ech_bpe_prefix {
    ECH_BPE_NO_PREFIX,
    ECH_BPE_PREFIX_FIRST, /* before a text, unless it begins with a blank or an added token */
    ECH_BPE_PREFIX_PARTS, /* before each part, unless it begins with a blank */
    ECH_BPE_PREFIX_ALWAYS /* before each part between not `normalized` added tokens, even if it begins with a blank */
} ech_bpe_prefix;

/* A trie of added tokens; node 0 is the root. */
typedef struct ech_bpe_trie {
    ech_bpe_table child;  /* node << 8 | byte: the next node */
    ECH_LIST(int32_t) id; /* by node: the token that ends here */
    bool begins[256];     /* the first bytes of tokens */
} ech_bpe_trie;

typedef struct ech_bpe {
    const char *file; /* the name in errors while it is built; borrowed */
    ech_bpe_pattern pattern;
    ech_bpe_form form;
    ech_bpe_prefix prefix;
    bool ignore_merges;
    bool characters;               /* over characters, with byte fallback; false: over bytes */
    bool normal_blanks;            /* the normalizer replaces blanks by U+2581, */
    bool word_blanks;              /* or the pre-tokenizer does; */
    bool splits_at_blanks;         /* then a word begins at each of these */
    bool strips;                   /* decoding removes the first blank of a text */
    ECH_LIST(ech_bpe_token) token; /* by id */
    ECH_LIST(ech_bpe_merge) merge; /* by rank */
    ECH_LIST(ech_bpe_added) added; /* in the file's order */
    ech_text bytes;
    int32_t byte[256]; /* the tokens of single bytes */
    int32_t begin_of_text, end_of_text;
    ech_text source;     /* content of the tokenizer.json or tokenizer.model; empty: other files */
    bool sentencepiece;  /* `source` is a tokenizer.model */
    ech_ids front, back; /* as in ech_tokenizer */
    ech_bpe_table plain; /* ids of plain tokens by a hash of their bytes */
    /* Derived by ech_bpe_finish: */
    ech_bpe_table pair;           /* merges by (left, right): (rank, made) */
    ech_bpe_trie raw, normalized; /* added tokens */
    size_t longest_added;
    /* If there is no pattern: the pairs of characters (over bytes: of bytes) that are adjacent in some token. */
    ech_bpe_table neighbours;
    bool bytes_alone; /* every byte of a text has its own id, whatever is around it */
    ech_bpe_splitter *splitter;
} ech_bpe;

ech_bpe *ech_bpe_create(void);
void ech_bpe_destroy(ech_bpe *bpe); /* accepts NULL */
ECH_DESTROY_AT(ech_bpe, ech_bpe_destroy)

/* Builders return false, changing nothing, if an id or a token exists already. */
bool ech_bpe_put(ech_bpe *bpe, int32_t id, const void *bytes, size_t n, bool plain);
/* Puts <|endoftext|>, an added token that begins and ends texts. */
void ech_bpe_put_end(ech_bpe *bpe, int32_t id);
/* If left + right is no token, `adds` puts it with the next id; else the result is false. */
bool ech_bpe_put_merge(ech_bpe *bpe, int32_t left, int32_t right, bool adds);
int32_t ech_bpe_find(const ech_bpe *bpe, const void *bytes, size_t n); /* the id of a plain token */
/* Ends building: derives tables, tries and the pattern. Errors: a byte without a token, a merge twice. */
ech_status ech_bpe_finish(ech_bpe *bpe);

/* Appends the bytes of an id in a text; `first`: it is the text's first. */
void ech_bpe_decode(const ech_bpe *bpe, int32_t id, bool first, ech_text *out);

/* Appends a text with `from` replaced by `to`; with blanks replaced by U+2581. */
void ech_bpe_replace(const char *text, size_t n, const char *from, const char *to, ech_text *out);
void ech_bpe_mark_blanks(const char *text, size_t n, ech_text *out);
/* *symbol: the first symbol of n > 0 bytes, a byte or a character (U+2581 for a blank). Returns its length. */
size_t ech_bpe_symbol(const ech_bpe *bpe, const char *text, size_t n, uint32_t *symbol);
/* Whether some token has `right` directly after `left`. If not, no merge crosses this boundary: the texts on both
 * sides can be encoded separately. */
bool ech_bpe_are_neighbours(const ech_bpe *bpe, uint32_t left, uint32_t right);
void ech_bpe_find_neighbours(ech_bpe *bpe);
/* Sets the searched form of an added token: its normalized text. */
ech_status ech_bpe_normalize_added(ech_bpe *bpe, ech_bpe_added *added);

/* Appends GPT-2's printable characters for bytes, as UTF-8: printable Latin-1 is itself, the other bytes become
 * U+0100, U+0101 ... in ascending order. */
void ech_bpe_show(const void *bytes, size_t n, ech_text *out);
/* The inverse; false: another character. */
bool ech_bpe_unshow(const char *text, size_t n, ech_text *out);

/* Finds the leftmost token of a trie in [at, n), of those that begin there the longest. False: there is none. */
bool ech_bpe_trie_find(const ech_bpe_trie *trie, const char *text, size_t n, size_t at,
                       size_t *begin, size_t *end, int32_t *id);
/* Whether the text before `at` ends in a prefix of a token: the token may extend to `at` or beyond. */
bool ech_bpe_trie_reaches(const ech_bpe_trie *trie, const char *text, size_t at, size_t longest);
bool ech_bpe_trie_put(ech_bpe_trie *trie, const char *bytes, size_t n,
                      int32_t id); /* false: twice */

/* Merges words into ids; for one thread, holds scratch. */
typedef struct ech_bpe_merger ech_bpe_merger;
ech_bpe_merger *ech_bpe_merger_create(const ech_bpe *bpe);
void ech_bpe_merger_destroy(ech_bpe_merger *merger); /* accepts NULL */
/* The ids of a word of n > 0 bytes, borrowed until the next call. */
ech_status ech_bpe_merger_run(ech_bpe_merger *merger, const unsigned char *bytes, size_t n,
                              const int32_t **ids, size_t *count);

/* Read files, which are untrusted, into a new vocabulary. Errors name the file and the key or the line. */
ech_status ech_bpe_read_sentencepiece(const char *path, ech_bpe *bpe); /* tokenizer.model */
ech_status ech_bpe_read_json(const char *path, ech_bpe *bpe);
ech_status ech_bpe_read_gpt2(const char *vocabulary, const char *merges, ech_bpe *bpe);
/* Sets begin_of_text and end_of_text: from tokenizer_config.json if it exists, else by their usual names. */
ech_status ech_bpe_read_ends(const char *path, const char *config_path, ech_bpe *bpe);
/* An error if tokenizer_config.json, next to vocabulary and merges, says that the tokenizer is not GPT-2's. */
ech_status ech_bpe_check_gpt2(const char *config_path);
/* See ech_bpe_trainer_finish and ech_tokenizer_export. */
void ech_bpe_export(const ech_bpe *bpe, ech_text *tokenizer_json, ech_text *config_json);

#endif
