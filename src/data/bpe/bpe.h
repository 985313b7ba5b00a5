/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: a BPE vocabulary (Sennrich et al. 2016, arXiv:1508.07909) over bytes (Radford et
 * al. 2019, §2.2), or over characters with byte fallback (SentencePiece: Kudo and Richardson 2018,
 * arXiv:1808.06226). A word begins as the tokens of its bytes or characters. Then, as long as some
 * adjacent pair has a merge, the pair whose merge has the lowest rank becomes one token, the
 * leftmost of equal ones first. A rank here is a merge's priority, not a worker. A blank is U+0020
 * (over characters also U+2581, which replaces it). A symbol is a byte, or over characters a
 * character.
 *
 * A vocabulary is made by ech_bpe_create and either one ech_bpe_read_..., or builders and
 * ech_bpe_finish. Then it is only read, by any number of threads. Nothing is collective.
 */
#ifndef ECH_DATA_BPE_BPE_H
#define ECH_DATA_BPE_BPE_H

#include "data/bpe/pattern.h"
#include "data/bpe/table.h"
#include "data/data.h"

enum {
    ECH_BPE_NONE = -1,           /* no such id */
    ECH_BPE_LONGEST_ADDED = 1024 /* limit on the bytes of an added token */
};

#define ECH_BPE_END "<|endoftext|>"

/* Keys of tokenizer_config.json that name tokens besides "eos_token" and "bos_token". */
enum { ECH_BPE_NAMES = 5 };
extern const char *const ech_bpe_names[ECH_BPE_NAMES];

/* Over characters: what replaces a blank (U+2581), and the name of a single byte's token. */
#define ECH_BPE_BLANK     "\u2581"
#define ECH_BPE_BYTE_NAME "<0x%02X>"

typedef struct ech_bpe_token {
    size_t at, n; /* its bytes: n from `at` on in ech_bpe.bytes; n = 0: no token has this id */
    bool plain;   /* in the model's vocabulary, not only an added token */
    bool byte;    /* over characters: a byte fallback token, "<0x0A>" */
    bool silent;  /* decodes to no text */
    bool altered; /* normalization changed the form that is searched (ech_bpe_added.at) */
    int32_t added; /* its index in ech_bpe.added, plus 1; 0: it is not searched in texts */
} ech_bpe_token;

/* Tokens left + right become the token `made`; all three are ids. */
typedef struct ech_bpe_merge {
    int32_t left, right, made, rank;
} ech_bpe_merge;

/* A token that is searched in a text before that is split into words. Those that are not
 * `normalized` are searched first, in the text as it is; then the `normalized` ones, in what is
 * between, after its normalization. */
typedef struct ech_bpe_added {
    int32_t id;
    int32_t stated;  /* the id that its file says; the library numbers tokens itself */
    bool special;    /* Hugging Face's flag: it may be told to stay text (ech_coder_keep_special) */
    bool normalized; /* Hugging Face's flag: searched in normalized text, normalized itself */
    bool verbatim;   /* with `normalized`: the search form is not normalized */
    bool unlisted;   /* tokenizer.json does not list it; another file names it as special */
    bool hidden;     /* not searched; its name in a text is encoded like any other text */
    bool lstrip, rstrip; /* Hugging Face's: it includes the white space before it, after it */
    bool single_word; /* Hugging Face's: it is found only between characters that are not letters */
    /* The form that is searched in texts is n bytes from `at` on in ech_bpe.bytes. If this is
     * set, it differs from the token's own bytes (ech_bpe_token.at), which decoding appends. */
    bool apart;
    size_t at, n;
} ech_bpe_added;

typedef enum ech_bpe_form { ECH_BPE_AS_IS, ECH_BPE_NFC, ECH_BPE_NFKC } ech_bpe_form;

/* The places where encoding inserts a blank. FIRST: before a text, unless it begins with a blank or
 * an added token. PARTS: before each part of a text between added tokens, unless the part begins
 * with a blank. ALWAYS: before each part between added tokens that are not `normalized`, even if
 * the part begins with a blank; `normalized` tokens are searched after that. */
typedef enum ech_bpe_prefix {
    ECH_BPE_NO_PREFIX,
    ECH_BPE_PREFIX_FIRST,
    ECH_BPE_PREFIX_PARTS,
    ECH_BPE_PREFIX_ALWAYS
} ech_bpe_prefix;

/* A trie of the forms of added tokens that are searched; node 0 is the root. */
typedef struct ech_bpe_trie {
    ech_bpe_table child;  /* node << 8 | byte: the next node */
    ECH_LIST(int32_t) id; /* by node: the token that ends here, or ECH_BPE_NONE */
    bool begins[256];     /* the first bytes of tokens */
} ech_bpe_trie;

typedef struct ech_bpe {
    const char *file;        /* what errors name: the caller's text, or `name` */
    char *name;              /* an owned copy of that text, for after the build; or NULL */
    ech_bpe_pattern pattern; /* how texts are split into words; ECH_BPE_whole: not at all */
    ECH_LIST(ech_bpe_stage) own; /* of ECH_BPE_OWN */
    ech_bpe_form form;       /* how texts are normalized */
    ech_bpe_prefix prefix;   /* where a blank is inserted */
    bool ignore_merges; /* a word that is a plain token becomes that, whatever merges would make */
    bool characters;    /* over characters, with byte fallback; false: over bytes */
    bool normal_blanks, word_blanks;    /* normalizer, pre-tokenizer turn blanks into U+2581 */
    bool splits_at_blanks;              /* with word_blanks: a word begins at each U+2581 */
    bool strips;                        /* decoding removes the first blank of a text */
    ECH_LIST(ech_bpe_token) token;      /* by id */
    ECH_LIST(ech_bpe_merge) merge;      /* by ascending rank */
    ECH_LIST(ech_bpe_added) added;      /* in the file's order */
    ech_text bytes;                     /* of all tokens */
    size_t vocabulary;                  /* tokens that the model's vocabulary lists */
    int32_t begin_of_text, end_of_text; /* ids, or ECH_BPE_NONE */
    int32_t named[ECH_BPE_NAMES];       /* likewise, by ech_bpe_names */
    /* tokenizer_config.json has added tokens, whose flags replace the file's */
    bool relisted;
    ech_text source;     /* content of tokenizer.json or tokenizer.model; empty: other files */
    bool sentencepiece;  /* `source` is a tokenizer.model */
    ech_ids front, back; /* ids around a text that is encoded alone, as in ech_tokenizer */
    ech_bpe_table plain; /* ids of plain tokens by a hash of their bytes */
    /* Derived by ech_bpe_finish: */
    int32_t byte[256];            /* the ids of single bytes */
    ech_bpe_table pair;           /* merges by (left, right): rank << 32 | made */
    ech_bpe_trie raw, normalized; /* added tokens that are not `normalized`, and that are */
    size_t longest_added;         /* most bytes of a form in the tries */
    bool strips_around, single_words; /* some added token has lstrip or rstrip, single_word */
    ech_bpe_table neighbours;     /* without a pattern: symbols that are adjacent in some token */
    bool bytes_alone;             /* each byte b of a text becomes byte[b], whatever is around it */
    ech_bpe_splitter *splitter;
} ech_bpe;

ech_bpe *ech_bpe_create(void);
void ech_bpe_destroy(ech_bpe *bpe); /* accepts NULL */
ECH_DESTROY_AT(ech_bpe, ech_bpe_destroy)

/* Puts a token of n > 0 bytes. False, nothing changed: the id, or if `plain` a plain token of these
 * bytes, is there. */
bool ech_bpe_put(ech_bpe *bpe, int32_t id, const void *bytes, size_t n, bool plain);
/* Puts <|endoftext|>, an added token that begins and ends texts. */
void ech_bpe_put_end(ech_bpe *bpe, int32_t id);
/* Appends the merge of `left` and `right`, with the next rank; it makes the plain token that has
 * their bytes. If there is none: with `adds` puts one, with the next id; without returns false and
 * changes nothing. */
bool ech_bpe_put_merge(ech_bpe *bpe, int32_t left, int32_t right, bool adds);
/* The id of the plain token with these bytes, or ECH_BPE_NONE. */
int32_t ech_bpe_find(const ech_bpe *bpe, const void *bytes, size_t n);
/* Ends building. Errors: a byte without a (byte fallback) token, a merge or an added token twice, a
 * merge of a byte. */
ech_status ech_bpe_finish(ech_bpe *bpe);

/* Appends the bytes of an id in a text; `first`: it is the text's first id. */
void ech_bpe_decode(const ech_bpe *bpe, int32_t id, bool first, ech_text *out);

/* Appends n bytes of text with each `from` replaced by `to`. */
void ech_bpe_replace(const char *text, size_t n, const char *from, const char *to, ech_text *out);
void ech_bpe_mark_blanks(const char *text, size_t n, ech_text *out); /* U+2581 for blanks */
/* *symbol: the first symbol of n > 0 bytes (over characters U+2581 for a blank). Returns its length
 * in bytes. */
size_t ech_bpe_symbol(const ech_bpe *bpe, const char *text, size_t n, uint32_t *symbol);
/* True if some token has the symbol `right` directly after `left`; only without a pattern. If not,
 * no merge crosses this boundary: the texts on both sides can be encoded separately. */
bool ech_bpe_are_neighbours(const ech_bpe *bpe, uint32_t left, uint32_t right);
void ech_bpe_find_neighbours(ech_bpe *bpe); /* for ech_bpe_finish */
/* For ech_bpe_finish: sets added->at and n to the token's normalized form. */
ech_status ech_bpe_normalize_added(ech_bpe *bpe, ech_bpe_added *added);

/* Appends GPT-2's printable characters for bytes, as UTF-8: printable Latin-1 is itself, the other
 * bytes become U+0100, U+0101 ... in ascending order. */
void ech_bpe_show(const void *bytes, size_t n, ech_text *out);
/* The inverse, from characters to bytes. False: the text has a character that stands for no
 * byte. */
bool ech_bpe_unshow(const char *text, size_t n, ech_text *out);

/* Finds the token in [at, n) that begins first, the longest of those there: [*begin, *end). False:
 * there is none. */
bool ech_bpe_trie_find(const ech_bpe_trie *trie, const char *text, size_t n, size_t at,
                       size_t *begin, size_t *end, int32_t *id);
/* True if the text before `at` ends with a token or with the beginning of one, so that a token
 * which is searched may cross `at` or end there. `longest`: ech_bpe.longest_added. */
bool ech_bpe_trie_reaches(const ech_bpe_trie *trie, const char *text, size_t at, size_t longest);
/* Puts a token of n > 0 bytes. False: the trie has these bytes already. */
bool ech_bpe_trie_put(ech_bpe_trie *trie, const char *bytes, size_t n, int32_t id);

/* Merges words into ids; for one thread, since it holds working arrays. Borrows the vocabulary. */
typedef struct ech_bpe_merger ech_bpe_merger;
ech_bpe_merger *ech_bpe_merger_create(const ech_bpe *bpe);
void ech_bpe_merger_destroy(ech_bpe_merger *merger); /* accepts NULL */
/* The ids of a word of n > 0 bytes, borrowed until the next call. */
ech_status ech_bpe_merger_run(ech_bpe_merger *merger, const unsigned char *bytes, size_t n,
                              const int32_t **ids, size_t *count);

/* Added tokens in a text: where the next one is. Set all to 0 before the first. */
typedef struct ech_bpe_place {
    size_t begin, end; /* of the token, with white space that it takes */
    int32_t id;
    size_t search; /* internal: where the search goes on */
    int64_t kept;  /* names of special tokens that stayed text so far */
    int32_t kept_id; /* the last one's */
} ech_bpe_place;
/* Finds the next token of the trie in n bytes of text as Hugging Face's library does; place->end is
 * the end of the one before. special: tokens with this flag are found as well. False: there is
 * none. */
bool ech_bpe_next_added(const ech_bpe *bpe, const ech_bpe_trie *trie, const char *text, size_t n,
                        bool special, ech_bpe_place *place);
/* True if a text may be split at `at` without changing which added tokens are found. */
bool ech_bpe_may_split(const ech_bpe *bpe, const char *text, size_t n, size_t at);

/* These three read untrusted files into a vocabulary that ech_bpe_create has just made. Call
 * ech_bpe_read_sides after one of them. Errors name the file and the key or the line. Paths are
 * borrowed. */
ech_status ech_bpe_read_sentencepiece(const char *path, ech_bpe *bpe); /* a tokenizer.model */
ech_status ech_bpe_read_json(const char *path, ech_bpe *bpe);          /* a tokenizer.json */
ech_status ech_bpe_read_gpt2(const char *vocabulary, const char *merges, ech_bpe *bpe);
/* Reads the files beside `path` in `folder` that say more about the same tokenizer:
 * flags of added tokens, begin_of_text and end_of_text (else by usual names, "</s>"), front and
 * back. The files are tokenizer_config.json, special_tokens_map.json, added_tokens.json and, beside
 * a tokenizer.json, tokenizer.model. Calls ech_bpe_finish. Errors: two files disagree (both are
 * named); no end_of_text. */
ech_status ech_bpe_read_sides(const char *path, const char *folder, ech_bpe *bpe);
/* An error if there is a tokenizer_config.json at `config_path` that names another class than
 * GPT-2's. */
ech_status ech_bpe_check_gpt2(const char *config_path);
/* Appends the content of tokenizer.json (or of tokenizer.model, if it was read from one) and
 * tokenizer_config.json. */
void ech_bpe_export(const ech_bpe *bpe, ech_text *tokenizer_json, ech_text *config_json);

#endif
