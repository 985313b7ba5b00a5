/* SPDX-License-Identifier: Apache-2.0
 *
 * For data alone: a BPE vocabulary (Sennrich et al. 2016, arXiv:1508.07909) over bytes (Radford et al.
 * 2019, §2.2), or over characters with bytes for those that it has not (SentencePiece: Kudo and Richardson
 * 2018, arXiv:1808.06226). A word is the tokens of its bytes or characters; then, as long as there is one,
 * the pair of neighbours of the lowest rank becomes one token, the leftmost of equals first.
 */
#ifndef ECH_DATA_BPE_BPE_H
#define ECH_DATA_BPE_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"
#include "data/bpe/pattern.h"

enum {
    ECH_BPE_NONE = -1,           /* no such id */
    ECH_BPE_LONGEST_ADDED = 1024 /* bytes of an added token */
};

/* What a blank is over characters (U+2581), and how a single byte is written there. */
#define ECH_BPE_BLANK     "\u2581"
#define ECH_BPE_BYTE_NAME "<0x%02X>"

typedef struct ech_bpe_token {
    size_t at, n;  /* in ech_bpe.bytes; n = 0: no token has this id */
    bool plain;    /* of the model, not only added */
    bool byte;     /* over characters: a byte's name, which stands for the byte */
    bool silent;   /* stands for no text */
    bool searched; /* added, and as looked for it is not as it is written */
} ech_bpe_token;

/* Merges of equal rank: the leftmost comes first. */
typedef struct ech_bpe_merge {
    int32_t left, right, made, rank;
} ech_bpe_merge;

/* Recognised in text before anything else; `normalized`: in the normalized text, after the others. */
typedef struct ech_bpe_added {
    int32_t id;
    bool special, normalized;
    bool verbatim; /* `normalized`, but looked for as it is written */
    size_t at, n;  /* as it is looked for, in ech_bpe.bytes; by ech_bpe_finish */
} ech_bpe_added;

typedef ECH_LIST(int32_t) ech_bpe_around; /* ids */

typedef enum ech_bpe_form { ECH_BPE_AS_IS, ECH_BPE_NFC, ECH_BPE_NFKC } ech_bpe_form;

/* Before what a blank is put. A part of a text is what lies between added tokens. */
typedef enum ech_bpe_prefix {
    ECH_BPE_NO_PREFIX,
    ECH_BPE_PREFIX_FIRST, /* a text, unless it begins with a blank or an added token */
    ECH_BPE_PREFIX_PARTS, /* every part, unless it begins with a blank */
    ECH_BPE_PREFIX_ALWAYS /* every part between those that are not `normalized`, with its blanks, too */
} ech_bpe_prefix;

/* Which characters (over bytes: bytes) stand next to each other within tokens: a set of pairs. */
typedef struct ech_bpe_neighbours {
    uint64_t *pair; /* 0: a free slot */
    size_t n, slots;
} ech_bpe_neighbours;

typedef struct ech_bpe_pair {
    uint64_t key;       /* left and right */
    int32_t rank, made; /* made = 0 and rank = -1: a free slot */
} ech_bpe_pair;

/* A node in a trie of added tokens; node 0 is the root. */
typedef struct ech_bpe_trie_node {
    int32_t id; /* of the token that ends here */
    uint32_t child, sibling;
    unsigned char byte;
} ech_bpe_trie_node;

typedef struct ech_bpe_trie {
    ECH_LIST(ech_bpe_trie_node) node;
    bool begins[256]; /* bytes that a token begins with */
} ech_bpe_trie;

typedef struct ech_bpe {
    ech_bpe_pattern pattern;
    ech_bpe_form form;
    ech_bpe_prefix prefix;
    bool ignore_merges;
    bool characters;               /* not over bytes */
    bool normal_blanks;            /* the normalizer makes blanks U+2581, */
    bool word_blanks;              /* or what cuts words does, */
    bool splits_at_blanks;         /* before each of which a word begins */
    bool strips;                   /* a blank at the front of a text that is decoded */
    ECH_LIST(ech_bpe_token) token; /* by id */
    ECH_LIST(ech_bpe_merge) merge; /* by rank */
    ECH_LIST(ech_bpe_added) added; /* in the file's order */
    ech_text bytes;
    int32_t byte[256]; /* the tokens of single bytes */
    int32_t begin_of_text, end_of_text;
    ech_text source;            /* the file that it was read from; empty: from others than these: */
    bool sentencepiece;         /* a tokenizer.model, else a tokenizer.json */
    ech_bpe_around front, back; /* what is put around a text that stands for itself */
    /* What follows is found from the above. */
    int32_t *word; /* plain tokens by hash */
    size_t words, word_slots;
    ech_bpe_pair *pair; /* merges by hash */
    size_t pair_mask;
    ech_bpe_trie raw, normalized; /* added tokens */
    size_t longest_added;
    ech_bpe_neighbours neighbours; /* where there is no pattern */
    ech_bpe_splitter *splitter;
} ech_bpe;

ech_bpe *ech_bpe_create(void);
void ech_bpe_destroy(ech_bpe *bpe); /* accepts NULL */

/* Builders return false where an id or a token comes twice, and change nothing then. */
bool ech_bpe_put(ech_bpe *bpe, int32_t id, const void *bytes, size_t n, bool plain);
void ech_bpe_put_added(ech_bpe *bpe, ech_bpe_added added);             /* its bytes are put */
bool ech_bpe_put_merge(ech_bpe *bpe, int32_t left, int32_t right);     /* false: nothing is made */
int32_t ech_bpe_find(const ech_bpe *bpe, const void *bytes, size_t n); /* a plain token */
int32_t ech_bpe_find_added(const ech_bpe *bpe, const void *bytes, size_t n); /* another one */
/* Tables, tries and the pattern. `file` is for errors: a byte without a token, a merge twice. */
ech_status ech_bpe_finish(ech_bpe *bpe, const char *file);
const ech_bpe_pair *ech_bpe_find_pair(const ech_bpe *bpe, int32_t left, int32_t right);

/* Appends the bytes that an id stands for in a text; `first`: at its front. */
void ech_bpe_decode(const ech_bpe *bpe, int32_t id, bool first, ech_text *out);

/* Appends a text with its blanks as U+2581. */
void ech_bpe_mark_blanks(const char *text, size_t n, ech_text *out);
/* The symbol that n > 0 bytes begin with, a byte or a character (a blank is U+2581); its bytes. */
size_t ech_bpe_symbol(const ech_bpe *bpe, const char *text, size_t n, uint32_t *symbol);
/* Whether a token has `right` behind `left`. If not, nothing merges across: what stands before and what
 * follows have their ids each for itself. */
bool ech_bpe_are_neighbours(const ech_bpe *bpe, uint32_t left, uint32_t right);
void ech_bpe_find_neighbours(ech_bpe *bpe);
/* Finds how an added token is looked for: as the normalizer leaves it. */
ech_status ech_bpe_normalize_added(ech_bpe *bpe, ech_bpe_added *added);

/* GPT-2's visible characters for bytes, as UTF-8: printable Latin-1 stands for itself, the other
 * bytes take U+0100, U+0101 ... in ascending order. */
void ech_bpe_show(const void *bytes, size_t n, ech_text *out);
bool ech_bpe_unshow(const char *text, size_t n, ech_text *out); /* false: another character */

/* The longest token of a trie at the first byte that has one, in [at, n). False: there is none. */
bool ech_bpe_trie_find(const ech_bpe_trie *trie, const char *text, size_t n, size_t at,
                       size_t *begin, size_t *end, int32_t *id);
/* Whether a token of the trie may begin before `at` and reach it, or beyond. */
bool ech_bpe_trie_reaches(const ech_bpe_trie *trie, const char *text, size_t at, size_t longest);
bool ech_bpe_trie_put(ech_bpe_trie *trie, const char *bytes, size_t n,
                      int32_t id); /* false: twice */

/* How a word becomes ids; scratch that grows. */
typedef struct ech_bpe_merger ech_bpe_merger;
ech_bpe_merger *ech_bpe_merger_create(const ech_bpe *bpe);
void ech_bpe_merger_destroy(ech_bpe_merger *merger); /* accepts NULL */
/* The ids of n > 0 bytes, borrowed until the next call. */
ech_status ech_bpe_merger_run(ech_bpe_merger *merger, const unsigned char *bytes, size_t n,
                              const int32_t **ids, size_t *count);

/* Files. Every error names the file and the key or the line. */
ech_status ech_bpe_read_sentencepiece(const char *path, ech_bpe **out); /* tokenizer.model */
ech_status ech_bpe_read_json(const char *path, ech_bpe **out);
ech_status ech_bpe_read_gpt2(const char *vocabulary, const char *merges, ech_bpe **out);
/* Begin and end of text: from tokenizer_config.json if that is there, else by their usual names. */
ech_status ech_bpe_read_ends(const char *path, const char *config_path, ech_bpe *bpe);
/* Whether the folder of GPT-2's pair says that it is another tokenizer's. */
ech_status ech_bpe_check_gpt2(const char *config_path);
void ech_bpe_export(const ech_bpe *bpe, ech_text *tokenizer_json, ech_text *config_json);

#endif
