/* SPDX-License-Identifier: Apache-2.0
 *
 * From text to batches: tokenizers, token files in Megatron's .bin/.idx format, and a loader that
 * gives every rank its samples of every step.
 *
 * The stream of a token file is its documents in index order, each closed by end-of-text (already
 * in the file). Sample s is tokens s T .. s T + T of the stream, T + 1 in all (so neighbours share
 * one), crossing documents; the last sample is padded with weight 0. A stream of N tokens has
 * S = ceil((N - 1) / T) samples.
 *
 * A corpus is one stream or a blend of several. Position g = step x global_batch_size + i of a run
 * belongs to source k, as the j-th of its samples (of one source: j = g); that is sample
 * pi(seed, k, j / S)(j mod S), pi the keyed permutation of base/random.h; validation takes sample
 * j mod S itself. The M = global_batch_size / b micro-batches of a step, b the micro-batch size, are
 * numbered q = 0 .. M - 1 over all ranks;
 * micro-batch q holds i = q b .. q b + b - 1. The ranks of a stage of the pipeline share them out: of r
 * such replicas, the one with data rank d takes q = k r + d, k = 0, 1, ... below M. M need not be a
 * multiple of r: some replicas then have one micro-batch more than the others. So what a step trains
 * on, and how many tokens of it count, do not depend on the ranks.
 *
 * A target counts (weighs 1) unless it lies in a sequence that the index calls a prompt, or, with
 * document_mask, is the first token of a document: nothing before it says what it will be.
 */
#ifndef ECH_DATA_DATA_H
#define ECH_DATA_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"

/* ---- tokenizers (tokenizer.def) ---- */

typedef struct ech_tokenizer ech_tokenizer;
typedef ECH_LIST(int32_t) ech_ids;

/* Opens `source`: "bytes", a tokenizer.json, a tokenizer.model, or a folder that holds tokenizer.json, or
 * encoder.json and vocab.bpe, or vocab.json and merges.txt, or tokenizer.model. What it opened may be used by many threads. Errors
 * name the file and what is wrong with it. Not collective. */
ech_status ech_tokenizer_open(const char *source, ech_tokenizer **out);
void ech_tokenizer_close(ech_tokenizer *tokenizer);             /* accepts NULL */
const char *ech_tokenizer_name(const ech_tokenizer *tokenizer); /* for people: "bytes", a path */
/* The folder of the files that it was opened from, in new memory; NULL: it has none. */
char *ech_tokenizer_folder(const ech_tokenizer *tokenizer);
int64_t ech_tokenizer_vocabulary(const ech_tokenizer *tokenizer); /* ids are below this */
int32_t ech_tokenizer_end_of_text(const ech_tokenizer *tokenizer);
/* What stands before a text in other people's programs; the end of text where there is no such token. */
int32_t ech_tokenizer_begin_of_text(const ech_tokenizer *tokenizer);
/* The ids that stand in front of a text that is encoded for itself, as a prompt is, and behind it: what
 * the tokenizer's own rules add. Imports add none of them: there the end of the text before says the same. */
const ech_ids *ech_tokenizer_front(const ech_tokenizer *tokenizer);
const ech_ids *ech_tokenizer_back(const ech_tokenizer *tokenizer);
/* Appends the bytes of an id, which is in [0, vocabulary). End-of-text appends nothing, nor does an
 * id that no token has. `first`: of a text, which for some tokenizers has lost a blank that encoding put
 * before it. */
void ech_tokenizer_decode(const ech_tokenizer *tokenizer, int32_t id, bool first, ech_text *out);
/* Under what name Hugging Face has its file: "tokenizer.json", or SentencePiece's "tokenizer.model". */
const char *ech_tokenizer_file(const ech_tokenizer *tokenizer);
/* Appends that file, as it is where it was read from one, and the text of a tokenizer_config.json. They open
 * again as the same tokenizer. */
void ech_tokenizer_export(const ech_tokenizer *tokenizer, ech_text *file, ech_text *config_json);
enum { ECH_TOKENIZER_HASH = 33 }; /* 32 hexadecimal digits and the NUL */
/* A hash (XXH3-128) of what every id stands for: tokenizers with the same one mean the same by
 * their ids, whatever files they come from and however they cut text. */
void ech_tokenizer_hash(const ech_tokenizer *tokenizer, char hash[ECH_TOKENIZER_HASH]);
/* Where a long text may be cut: the largest k in (0, n] such that whatever follows these n bytes of
 * a text, its ids are those of the first k bytes and then those of the rest. 0: nowhere in sight. */
size_t ech_tokenizer_split(const ech_tokenizer *tokenizer, const void *bytes, size_t n);

/* What one thread encodes with; remembers what it has met. */
typedef struct ech_coder ech_coder;
/* Borrows the tokenizer. */
ech_coder *ech_coder_create(const ech_tokenizer *tokenizer);
void ech_coder_destroy(ech_coder *coder); /* accepts NULL */
/* Appends the ids of n bytes, a whole text or what ech_tokenizer_split left of one, without end-of-text
 * behind them. Any bytes have ids. */
ech_status ech_coder_encode(ech_coder *coder, const void *bytes, size_t n, ech_ids *out);
/* The same for what stands behind a cut. */
ech_status ech_coder_continue(ech_coder *coder, const void *bytes, size_t n, ech_ids *out);

/* ---- texts ---- */

/* Texts, for an import or to learn a vocabulary from, and how they are read: a text file, or every
 * regular file below a folder in the byte order of their paths. Of a file that ends in .jsonl every
 * line is an object with a string `text`, or with strings `prompt` and `completion`; others are one
 * text. Errors name file and line, or file and byte: what is no file or folder, text that is no UTF-8,
 * lines that are no such objects or have more than 64 MiB. */
typedef struct ech_data_text_source {
    const char *in;
    bool
        binary; /* bytes that are no UTF-8 are taken as they are (not in .jsonl); otherwise an error */
    const char *text_key, *prompt_key, *completion_key; /* of .jsonl; NULL: "text", ... */
} ech_data_text_source;

/* ---- learning a vocabulary (byte-level BPE) ---- */

typedef struct ech_bpe_trainer ech_bpe_trainer;
/* Texts are cut into words by a pattern of bpe/pattern.def; merges do not cross words. Errors: no such
 * pattern. */
ech_status ech_bpe_trainer_create(const char *pattern, ech_bpe_trainer **out);
void ech_bpe_trainer_destroy(ech_bpe_trainer *trainer); /* accepts NULL */
const char *ech_bpe_trainer_patterns(void);             /* blank-separated */
/* Counts the words of a whole text, or of what ech_bpe_trainer_split (as ech_tokenizer_split) left of one. */
ech_status ech_bpe_trainer_add(ech_bpe_trainer *trainer, const void *bytes, size_t n);
size_t ech_bpe_trainer_split(const ech_bpe_trainer *trainer, const void *bytes, size_t n);
/* Learns a vocabulary of `vocabulary` tokens, <|endoftext|> (id 0) and the 256 bytes among them, and
 * appends its files. The same texts in any order give the same. `progress` (optional) is called with
 * tokens learnt. Errors: the texts have not so many. */
ech_status ech_bpe_trainer_finish(const ech_bpe_trainer *trainer, int64_t vocabulary,
                                  void (*progress)(int64_t done, int64_t all),
                                  ech_text *tokenizer_json, ech_text *config_json);
/* Learns from texts (a prompt and its completion are two) and writes OUT/tokenizer.json and
 * OUT/tokenizer_config.json. `progress` is called with bytes read, `learnt` with tokens; both are
 * optional. */
typedef struct ech_bpe_training {
    ech_data_text_source texts;
    const char *out, *pattern;
    int64_t vocabulary;
    void (*progress)(int64_t done, int64_t all), (*learnt)(int64_t done, int64_t all);
} ech_bpe_training;
ech_status ech_data_train_bpe(const ech_bpe_training *training);

/* ---- token files ---- */

typedef struct ech_token_file ech_token_file;

typedef struct ech_token_options {
    bool documents;      /* tell documents apart */
    int32_t end_of_text; /* ends a document in files without an index */
} ech_token_options;

/* Opens a stream of tokens, which is of one of three kinds:
 *
 *   PREFIX      PREFIX.bin and PREFIX.idx as Megatron writes them; the stream is the sequences of the
 *               index in order. Every number in .idx is checked first (sizes, lengths, aligned
 *               pointers inside .bin, documents that ascend, modes).
 *   FILE.bin    without FILE.idx beside it: tokens as llm.c writes them, u16 or u32 behind a header
 *               of 1,024 bytes, which is checked; or u16 alone, as nanoGPT writes them.
 *   PATTERN     with *, ? or [: all such files that match, as one stream in the byte order of their
 *               paths.
 *
 * If documents are asked for, files of the latter two kinds are read once from end to end. */
ech_status ech_token_file_open(const char *path, const ech_token_options *options,
                               ech_token_file **out);
void ech_token_file_close(ech_token_file *file); /* accepts NULL */
int64_t ech_token_file_tokens(const ech_token_file *file);
/* 0: without an index, and not asked for. */
int64_t ech_token_file_documents(const ech_token_file *file);
/* Tokens [first, first + n) of the stream. Errors: an id that is not in [0, vocabulary) (names
 * file, position, id and hints at the tokenizer), a range outside the stream, a file that was cut
 * off since it was opened. */
ech_status ech_token_file_read(const ech_token_file *file, int64_t first, int64_t n,
                               int64_t vocabulary, int32_t *ids);

/* Writes a token file, document by document, ids as u16 where the vocabulary is below 65,500, else
 * i32 (Megatron's rule). Nothing appears under the final names before ech_token_writer_finish. */
typedef struct ech_token_writer ech_token_writer;
ech_status ech_token_writer_create(const char *prefix, int64_t vocabulary, ech_token_writer **out);
ech_status ech_token_writer_add(ech_token_writer *writer, const int32_t *ids, size_t n);
/* Tokens that are not trained on: a sequence of mode 1. */
ech_status ech_token_writer_add_prompt(ech_token_writer *writer, const int32_t *ids, size_t n);
ech_status ech_token_writer_end_document(ech_token_writer *writer);
ech_status ech_token_writer_finish(ech_token_writer *writer); /* also destroys it, on failure too */
void ech_token_writer_discard(ech_token_writer *writer);      /* removes what was written */

/* What to import and how. */
typedef struct ech_import_options {
    ech_data_text_source texts;
    const char *out;
    const ech_tokenizer *tokenizer;
    double valid; /* share for validation, 0 to below 1 */
    int workers;  /* threads that encode; changes no result */
    /* Optional: bytes read and in all; `before` of them by an earlier, interrupted import. */
    void (*progress)(int64_t before, int64_t done, int64_t all);
    int64_t save_bytes; /* text between two places to go on from; 0: 256 MiB */
} ech_import_options;

/* What ech_data_import made. */
typedef struct ech_import_count {
    int64_t files, documents, bytes; /* documents: in both parts */
    int64_t tokens;                  /* in `out`, or in `out`-train */
    int64_t valid_tokens;            /* in `out`-valid */
} ech_import_count;

/* Tokenizes texts into `out`.bin/.idx, and says in `out`.origin.json with what tokenizer; the
 * folder of `out` is made if need be. A file is one document, closed by end-of-text; of a .jsonl
 * every line is, a prompt being a sequence that is not trained on. Nothing makes no document:
 * neither an empty file, nor a blank line, nor empty strings.
 *
 * With `valid` the last share of each file's bytes goes to `out`-valid and the rest to `out`-train
 * instead, cut between UTF-8 characters, or between the lines of a .jsonl.
 *
 * An import that was interrupted, however, is gone on with by the same call, and makes the same
 * bytes: until it is done its files lie in `out`.tmp, with a journal that knows inputs (paths,
 * sizes, times), tokenizer and options. If any of these has changed, it begins anew. Nothing
 * appears under the final names before all is done.
 *
 * Errors: those of the texts, no text or an empty part, an `out` that lies in the folder `in`,
 * another import into `out` under way. */
ech_status ech_data_import(const ech_import_options *options, ech_import_count *count);

/* ---- corpora: token files, blended and split, as samples ---- */

int64_t ech_data_samples(int64_t tokens, int64_t sequence_length);

typedef struct ech_corpus ech_corpus;

/* Which share of a split. */
typedef enum ech_split { ECH_SPLIT_TRAIN, ECH_SPLIT_VALID, ECH_SPLIT_TEST } ech_split;

typedef struct ech_corpus_options {
    const char *key;     /* "data.train": what errors call the text */
    const char *sources; /* what data.train says, see below */
    const char *split;   /* what data.split says; "": all documents */
    ech_split part;      /* with a split: whose documents */
    int64_t sequence_length;
    bool document_mask;
    int32_t end_of_text;
    /* Tokens that are known (PREFIX.origin.json) to be of another tokenizer are refused. NULL:
     * it is not known; those of more ids than the vocabulary are. */
    const ech_tokenizer *tokenizer;
    int64_t vocabulary;
} ech_corpus_options;

/* `sources` is words divided by blanks (a blank in a path is written "\ "): a path as
 * ech_token_file_open takes it; or several, which are blended by how many samples they have; or as
 * Megatron takes them, weights before paths, "0.3 PREFIX1 0.7 PREFIX2".
 *
 * Blends are of samples. Each source's share is a whole number n_k of a period P = sum n_k: weights
 * brought to their smallest whole numbers if P is then at most 2^20, else w_k 2^20 / sum w rounded, at
 * least 1. Position r of a period goes to the source that must come soonest among those due (Tijdeman
 * 1980, "The chairman assignment problem"), so that of the first t samples of a run source k has
 * n_k t / P, less than one more or less. (Megatron's own rule, the source that lacks most, strays up
 * to two.) It is a table of P entries: position g belongs to source k = table[g mod P], as its sample
 * j = (g / P) n_k + (how many entries before g mod P are k), whatever was read before.
 *
 * `split` is up to three numbers, "969,30,1": shares of the documents of each source for training,
 * validation and test; with D documents, bounds are D (sum of the shares before) / (sum of all),
 * rounded to even. */
ech_status ech_corpus_open(const ech_corpus_options *options, ech_corpus **out);
void ech_corpus_close(ech_corpus *corpus);           /* accepts NULL */
int64_t ech_corpus_tokens(const ech_corpus *corpus); /* of all sources */
/* Of one pass: positions until a sample would come a second time. */
int64_t ech_corpus_samples(const ech_corpus *corpus);

/* ---- the loader ---- */

/* What a rank reads and how. */
typedef struct ech_loader_options {
    int64_t sequence_length;   /* T */
    int64_t global_batch_size; /* samples per step over all ranks: M b */
    int64_t micro_batch_size;  /* b */
    int data_degree;           /* r <= M: replicas of this rank's stage */
    int data_rank;             /* d: which of them it is */
    int64_t vocabulary;
    bool shuffle; /* by (seed, epoch); validation: false */
    uint64_t seed;
    int64_t last_position; /* positions from here on are padding of weight 0; INT64_MAX: none */
    int prefetch;          /* batches read ahead */
    bool counts_only;      /* no token is read: for stages amid a pipeline */
    bool document_mask;    /* weigh 0 what follows a document's last token, and fill `starts` */
} ech_loader_options;

/* One rank's samples of one step: m micro-batches of b samples. With counts_only the arrays are
 * NULL. */
typedef struct ech_batch {
    int64_t step;
    int64_t micro_batches; /* m: this rank's own, ceil or floor of M / r */
    double step_tokens;    /* weights summed over the whole step: all M b samples, of all ranks */
    int32_t *tokens;       /* (m, b, T) */
    int32_t *targets;      /* (m, b, T): the following tokens; 0 where the weight is 0 */
    float *weights;  /* (m, b, T): 1; 0 for padding, and for targets that are not trained on */
    int32_t *starts; /* (m, b, T): place in the sample at which each token's document begins (0: at
                        or before the sample's begin); NULL without document_mask */
} ech_batch;

typedef struct ech_loader ech_loader;

/* A thread begins to read batches from `first_step` on. Borrows the corpus, which was opened with the
 * same sequence length and document mask. */
ech_status ech_loader_create(const ech_corpus *corpus, const ech_loader_options *options,
                             int64_t first_step, ech_loader **out);
void ech_loader_destroy(ech_loader *loader); /* ends the thread; accepts NULL */
/* The batch of `step`, borrowed until the next call. Steps are asked for in order, except that the
 * last one may be asked for again. Errors of the reading thread come out here. */
ech_status ech_loader_next(ech_loader *loader, int64_t step, const ech_batch **out);
/* The thread begins again at `step`, and so does ech_loader_next; what it has read ahead is dropped. Never
 * waits. An error that it met before stays its last word. */
void ech_loader_rewind(ech_loader *loader, int64_t step);
/* How often ech_loader_next had to wait for the thread. */
int64_t ech_loader_stalls(const ech_loader *loader);

#endif
