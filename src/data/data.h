/* SPDX-License-Identifier: Apache-2.0
 *
 * From text to batches: tokenizers, token files in Megatron's .bin/.idx format, and a loader that
 * gives each rank its samples of each training step. Here a step is a training step, counted from
 * 0. None of these calls is collective.
 *
 * The stream of a token file is its documents in index order, each ending in end-of-text (which is
 * in the file). Sample s is tokens s T .. s T + T of the stream: T + 1 tokens; the last one is also
 * the next sample's first. Samples cross documents; the last sample is padded with weight 0. A
 * stream of N tokens has S = ceil((N - 1) / T) samples. An epoch is S samples, each once.
 *
 * With WHOLE DOCUMENTS a sample is one or several of them instead, with T places together, as
 * best-fit decreasing packs them (documents.h). A document of n tokens takes n places; its last
 * token has no target. A longer one is truncated to its first T tokens, or left out. Places that
 * are left are padding of weight 0, a document of its own.
 *
 * A corpus is one stream or a blend of several. Sample i of step `step` has position g = step x
 * global_batch_size + i, which counts all samples that are read, from 0. A blend maps g to a source
 * k and the source's j-th sample, from 0 (j = g if there is one source). With shuffling this is
 * sample pi(seed, k, j / S)(j mod S) of the source's stream, pi the keyed permutation of
 * base/random.h; without (validation) it is sample j mod S.
 *
 * A step has M = global_batch_size / b micro-batches, b the micro-batch size, numbered q = 0 .. M -
 * 1 over all replicas. Micro-batch q is samples i = q b .. q b + b - 1. Of a stage's r replicas the
 * one with data rank d reads q = d, d + r, d + 2 r, ... below M; M need not be a multiple of r. So
 * the samples and the token count of a step do not depend on the layout.
 *
 * With N SHARES, which divide M, micro-batch q belongs to share q mod N; with as many shares as
 * data ranks each has its own. Share d of a source is S / N consecutive samples or one more,
 * shuffled separately. A blend is formed from each share's positions; a step has global_batch_size
 * / N of them. Without shuffling there is one share.
 *
 * A target has weight 1, or weight 0 if it is in a sequence that the index marks as a prompt, or if
 * document_mask is set and it is the first token of a document, which nothing before it could
 * predict.
 *
 * Samples are of a KIND (layer/samples.def): order, blends, shares and epochs are the same for all
 * kinds. What is said of tokens above holds for texts.
 *
 * SAMPLES OF FEATURES (sparse features) are documents of token files: PREFIX.values has a number
 * for each token. A document is a sample, padded to T places. It has at most T features, whose ids
 * are a prompt, and one label, 0 or 1, after them. step_tokens counts samples.
 *
 * SAMPLES OF IMAGES are records of packed files (image_file.h).
 */
#ifndef ECH_DATA_DATA_H
#define ECH_DATA_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"
#include "layer/samples.h"

/* ---- tokenizers ---- */

typedef ECH_LIST(int32_t) ech_ids;

/* An open tokenizer: BPE (bpe/bpe.h). Any number of threads may use it. */
typedef struct ech_tokenizer {
    char *name;       /* the `source` that was opened */
    const char *file; /* its file in Hugging Face folders: "tokenizer.json" or "tokenizer.model" */
    int64_t vocabulary;  /* ids are 0 .. vocabulary - 1; some may be unused */
    int32_t end_of_text; /* the EOS token */
    /* The BOS token, which other programs put before a text; end-of-text if the vocabulary has
     * none. */
    int32_t begin_of_text;
    /* The ids that the tokenizer's post-processor adds before and after a text
     * (ech_tokenizer_begin). */
    ech_ids front, back;
    struct ech_bpe *bpe;
} ech_tokenizer;

/* Opens `source`: "bytes" (one token per byte; id 256 ends a text), a tokenizer.json, a
 * tokenizer.model, or a folder that has tokenizer.json, or encoder.json and vocab.bpe, or
 * vocab.json and merges.txt, or tokenizer.model (the first of these that it has). Errors name the
 * file and the reason. */
ech_status ech_tokenizer_open(const char *source, ech_tokenizer **out);
void ech_tokenizer_close(ech_tokenizer *tokenizer); /* accepts NULL */
ECH_DESTROY_AT(ech_tokenizer, ech_tokenizer_close)
/* The folder of its files, released with free(); NULL: it has no files ("bytes"). */
char *ech_tokenizer_folder(const ech_tokenizer *tokenizer);
/* Appends the bytes of an id in [0, vocabulary); none for end-of-text and for unused ids. `first`:
 * it is the first id of a text: some tokenizers then drop the blank that encoding had put before
 * the text. */
void ech_tokenizer_decode(const ech_tokenizer *tokenizer, int32_t id, bool first, ech_text *out);
/* Appends to `file` the content of tokenizer->file (byte for byte what was read, if it was read
 * from such a file), and to `config_json` the content of a tokenizer_config.json. A folder with
 * these two files opens as the same tokenizer. */
void ech_tokenizer_export(const ech_tokenizer *tokenizer, ech_text *file, ech_text *config_json);
enum { ECH_TOKENIZER_HASH = 33 }; /* 32 hexadecimal digits and the NUL */
/* A hash of all ids' bytes: if hashes are equal, ids mean the same, independently of files and of
 * how text is split into ids. */
void ech_tokenizer_hash(const ech_tokenizer *tokenizer, char hash[ECH_TOKENIZER_HASH]);
void ech_data_hash(const ech_text *text, char hash[ECH_TOKENIZER_HASH]); /* XXH3-128 of any bytes */
/* Appends the ids that precede a text. `wanted` 0: none; 1: `front`, or if that is empty the begin
 * of text; -1: `front`, the tokenizer's default. */
void ech_tokenizer_begin(const ech_tokenizer *tokenizer, int wanted, ech_ids *out);

/* Returns a place where a long text can be split for encoding: a k in (0, n], as large as the
 * search finds. For any continuation of the n bytes, the ids of the text are the ids of the first k
 * bytes followed by the ids of the rest. 0: none was found. */
size_t ech_tokenizer_split(const ech_tokenizer *tokenizer, const void *bytes, size_t n);

/* An encoder, for one thread; caches words. Borrows the tokenizer. */
typedef struct ech_coder ech_coder;
ech_coder *ech_coder_create(const ech_tokenizer *tokenizer);
/* Sets whether names of special tokens (<|endoftext|>) in a text stay text. Initially they become
 * ids, as in Hugging Face's libraries. */
void ech_coder_keep_special(ech_coder *coder, bool keep);
/* Returns how many names stayed text since the last call. *id: the last one's token. */
int64_t ech_coder_report_kept(ech_coder *coder, int32_t *id);
void ech_coder_destroy(ech_coder *coder); /* accepts NULL */
/* Appends the ids of n bytes, which are a whole text or a part between splits
 * (ech_tokenizer_split). `begins`: the text begins with these bytes. Appends no end-of-text. Any
 * bytes have ids, even if they are not UTF-8. */
ech_status ech_coder_encode(ech_coder *coder, const void *bytes, size_t n, bool begins,
                            ech_ids *out);

/* ---- texts ---- */

/* The texts of an import or of training a tokenizer: a file, or the regular files below a folder in
 * the byte order of their paths. The first bytes of a file determine its format, whatever its name.
 * It may be packed by gzip, zstd, xz or bzip2. It may be lines of JSON or an array of objects, each
 * with a string `text`, or with strings `prompt` and `completion` (null counts as absent), or with
 * a conversation (text_chats.h). Any other file is one text.
 *
 * In a folder, files that are usually not training text are skipped with a warning: README and
 * LICENSE, tables, HTML and XML, other JSON, documents, images. Errors name file and line, or file
 * and byte: no file or folder, invalid UTF-8, a line without such an object or with more than 64
 * MiB, an unsupported format. */
typedef struct ech_data_text_source {
    const char *in; /* the file or folder */
    bool binary;    /* accepts text that is not UTF-8 (not in JSON), and other formats, as bytes */
    bool as_text;   /* JSON, tables, HTML and README are plain texts like any other */
    /* the most invalid objects, or lines that are too long, that are skipped with a warning */
    int64_t skip_bad;
    const char *text_key, *prompt_key, *completion_key; /* of objects; NULL: as above */
    /* Internal: the template of conversations; NULL: contents alone are read, or if `no_chat` is
     * set, which says why there is none, a conversation is an error. */
    const struct ech_chat_template *chat;
    const char *no_chat;
} ech_data_text_source;

/* Counts the files and the bytes of text, unpacked, that an import would read. Errors: as above;
 * ECH_EINPUT: there is no text. */
ech_status ech_data_count_texts(const ech_data_text_source *source, int64_t *files, int64_t *bytes);

/* ---- chats ---- */

/* Who says something in a conversation. */
typedef enum ech_speaker {
    ECH_SPEAKER_SYSTEM,
    ECH_SPEAKER_USER,
    ECH_SPEAKER_ASSISTANT,
    ECH_SPEAKERS
} ech_speaker;

/* A built-in chat template; static. It makes a text of a conversation as one that is published as
 * Jinja does. */
typedef struct ech_chat_template ech_chat_template;
/* Finds the template `name`. NULL: the one in the tokenizer's folder (chat_template.jinja, or
 * chat_template in tokenizer_config.json), which must be a built-in one; `plain` if the folder has
 * none. Errors: an unknown name or template, a tokenizer without its tokens. */
ech_status ech_chat_template_find(const ech_tokenizer *tokenizer, const char *name,
                                  const ech_chat_template **out);
/* The template that equals a text of Jinja; NULL: none. */
const ech_chat_template *ech_chat_template_of(const char *jinja);
const char *ech_chat_template_name(const ech_chat_template *chat_template);
void ech_chat_template_names(ech_text *out); /* appends the names of all, separated by blanks */

/* ---- training a tokenizer (byte-level BPE) ---- */

typedef struct ech_bpe_trainer ech_bpe_trainer;
/* Texts are split into words by a pattern of bpe/pattern.def; merges do not cross words. Errors: no
 * such pattern. */
ech_status ech_bpe_trainer_create(const char *pattern, ech_bpe_trainer **out);
void ech_bpe_trainer_destroy(ech_bpe_trainer *trainer); /* accepts NULL */
ECH_DESTROY_AT(ech_bpe_trainer, ech_bpe_trainer_destroy)
/* Counts the words of a text. */
ech_status ech_bpe_trainer_add(ech_bpe_trainer *trainer, const void *bytes, size_t n);
/* Learns a vocabulary of `vocabulary` tokens, including <|endoftext|> (id 0) and the 256 bytes, and
 * appends the content of tokenizer.json and of tokenizer_config.json. The result does not depend on
 * the order of texts. `progress` (may be NULL) is called after each token with the tokens so far.
 * Errors: the texts have fewer tokens. */
ech_status ech_bpe_trainer_finish(const ech_bpe_trainer *trainer, int64_t vocabulary,
                                  void (*progress)(int64_t done, int64_t all),
                                  ech_text *tokenizer_json, ech_text *config_json);
typedef struct ech_bpe_training {
    ech_data_text_source texts;
    const char *out;                             /* the folder for the files */
    const char *pattern;                         /* as in ech_bpe_trainer_create */
    int64_t vocabulary;                          /* as in ech_bpe_trainer_finish, like `learnt` */
    void (*progress)(int64_t done, int64_t all); /* bytes of text read; may be NULL */
    void (*learnt)(int64_t done, int64_t all);   /* tokens; may be NULL */
} ech_bpe_training;
/* Learns from texts (prompts and completions are texts) and writes tokenizer.json and
 * tokenizer_config.json. */
ech_status ech_data_train_bpe(const ech_bpe_training *training);

/* ---- token files ---- */

/* Writes a token file PREFIX.bin and .idx, document by document; ids are u16 if the vocabulary is
 * below 65,500, else i32 (Megatron's rule). The final names appear at ech_token_writer_finish. */
typedef struct ech_token_writer ech_token_writer;
ech_status ech_token_writer_create(const char *prefix, int64_t vocabulary, ech_token_writer **out);
/* Appends n tokens to the document. An id outside the vocabulary is an error. */
ech_status ech_token_writer_add(ech_token_writer *writer, const int32_t *ids, size_t n);
/* Appends n tokens that are not trained on: a sequence of their own, of mode 1 in the index. */
ech_status ech_token_writer_add_prompt(ech_token_writer *writer, const int32_t *ids, size_t n);
/* Ends the document; the next token begins another. Adds no end-of-text. */
ech_status ech_token_writer_end_document(ech_token_writer *writer);
/* The same with PREFIX.values, only for samples of features. */
ech_status ech_token_writer_create_valued(const char *prefix, int64_t vocabulary,
                                          ech_token_writer **out);
/* Appends a sample: n >= 1 features, and a label, 0 or 1, below the vocabulary as well. */
ech_status ech_token_writer_add_sample(ech_token_writer *writer, const int32_t *ids,
                                       const float *values, size_t n, int32_t label);
/* Gives the files their names; the last document must have ended. Destroys the writer, also on
 * failure. */
ech_status ech_token_writer_finish(ech_token_writer *writer);
/* Destroys a writer that is not finished, and removes its files. Accepts NULL. */
void ech_token_writer_discard(ech_token_writer *writer);
ECH_DESTROY_AT(ech_token_writer, ech_token_writer_discard)

/* Imports features from lines in LIBSVM's format, one sample per line: a label, 1 and -1, or 1 and
 * 0, then INDEX:VALUE pairs whose indices, from 1 on, ascend; # begins a comment. A feature's id is
 * its index - 1, its value rounded to fp32. */
typedef struct ech_libsvm_options {
    const char *in, *out; /* as for an import of texts */
    double valid;         /* the same */
    int64_t features;     /* indices are 1 .. features; 0: INT32_MAX */
    void (*progress)(int64_t before, int64_t done, int64_t all); /* the same, `before` 0 */
} ech_libsvm_options;

typedef struct ech_libsvm_count {
    int64_t files, bytes;           /* of input */
    int64_t samples, valid_samples; /* in `out`, or in `out`-train; in `out`-valid */
    int64_t features;               /* the largest index */
    int64_t longest;                /* the most features of a sample */
} ech_libsvm_count;

/* True if the path ends in .libsvm or .svm, perhaps followed by the ending of a packing (.gz, .zst,
 * .xz, .bz2). */
bool ech_data_is_libsvm(const char *path);
/* Writes a file of samples of features. A line without features becomes feature 0 with value 0.
 * Errors name file and line. Labels: an invalid one, or both -1 and 0. Pairs: an index that is out
 * of range, or not above the previous one; a value that is not a number or not finite in fp32; any
 * other invalid pair. Files: no sample; an empty part. */
ech_status ech_data_import_libsvm(const ech_libsvm_options *options, ech_libsvm_count *count);

/* Packs images (docs/formats.md): an IDX file of images with its labels beside it, a binary file of
 * CIFAR-10, or a folder of these. */
typedef struct ech_images_options {
    const char *in;   /* the file or folder */
    const char *out;  /* OUT.images, or with `valid` OUT-train.images and OUT-valid.images */
    double valid;     /* fraction for validation, in [0, 1) */
    const char *like; /* a packed file, whose means and deviations are used; NULL: its own */
    int workers;      /* threads that read; does not change results */
    void (*progress)(int64_t before, int64_t done, int64_t all); /* images; may be NULL */
} ech_images_options;

typedef struct ech_images_count {
    const char *format;           /* "IDX" */
    int64_t images, valid_images; /* in the training part, or all; in the validation part */
    int64_t classes;
    ech_image image;
} ech_images_count;

/* Errors name file and image: damaged or truncated files, sizes out of bounds, labels out of range,
 * an empty part. */
ech_status ech_data_import_images(const ech_images_options *options, ech_images_count *count);

/* An import: texts to token files. */
typedef struct ech_import_options {
    ech_data_text_source texts;
    const char *out;                /* prefix of the output files */
    const ech_tokenizer *tokenizer; /* borrowed */
    bool special; /* names of special tokens in texts become their ids; false: they stay text */
    /* As for ech_chat_template_find; needed only for conversations. Names of special tokens in
     * conversations always become ids. */
    const char *chat_template;
    bool trains_on_all; /* all tokens of conversations are trained on, not only answers */
    /* ech_tokenizer_begin before each document; a text that begins with these ids gets none */
    int begins;
    double valid;                   /* fraction for validation, in [0, 1) */
    int workers;                    /* threads that encode; does not change results */
    /* May be NULL. done of all bytes of text are imported, `before` of these by an earlier,
     * interrupted import. */
    void (*progress)(int64_t before, int64_t done, int64_t all);
    int64_t save_bytes; /* bytes of text between two saves of the import's journal; 0: 256 MiB */
} ech_import_options;

/* The result of ech_data_import. */
typedef struct ech_import_count {
    int64_t files;        /* number of files read */
    int64_t documents;    /* in `out`, or in `out`-train and `out`-valid */
    int64_t bytes;        /* of text */
    int64_t tokens;       /* in `out`, or in `out`-train */
    int64_t valid_tokens; /* in `out`-valid */
    int64_t bad;          /* skipped objects (skip_bad) */
    int64_t chats;        /* of the documents: conversations */
    const char *chat_template; /* name of their template; NULL: none is known */
    int64_t unanswered;        /* conversations without an answer to train on, which are skipped */
    int64_t unwritten;         /* system messages that the template leaves out */
    int64_t kept;              /* names of special tokens that stayed text */
    int64_t kept_id;           /* one of these tokens */
} ech_import_count;

/* Tokenizes texts into `out`.bin/.idx, and writes the tokenizer's name and hash into
 * `out`.origin.json; makes the folder of `out`. Each file, or each object of JSON, becomes a
 * document that ends in end-of-text; a prompt becomes a sequence that is not trained on. Empty
 * files, blank lines and empty strings make no document. A conversation ends as its template does;
 * only the assistant's tokens are trained on, with the tokens that end its messages.
 *
 * With `valid`, the last fraction of each file's bytes goes to `out`-valid and the rest to
 * `out`-train, split between UTF-8 characters, or between objects of JSON.
 *
 * The same call continues an interrupted import, with the same bytes as a result: until it ends,
 * its files are in `out`.tmp, with a journal of inputs (paths, sizes, times), tokenizer and
 * options. If any of these has changed, it starts again. The final names appear when everything is
 * done. Errors: as for the texts, no text or an empty part, an `out` inside the folder `in`,
 * another import into `out` that is running. */
ech_status ech_data_import(const ech_import_options *options, ech_import_count *count);

/* Calls `use` for each token of the first conversation of options->texts that has an answer, in the
 * first MiB; `bytes` is its text. */
typedef void (*ech_chat_token_use)(const char *bytes, size_t n, ech_speaker role, bool trained,
                                   void *context);
ech_status ech_data_first_chat(const ech_import_options *options, ech_chat_token_use use,
                               void *context);

/* ---- corpora: token files, blended and split, as samples ---- */

/* Finds out whether the token files of `sources` (as in ech_corpus_options) have begin of text
 * before each document, according to their .origin.json. *begins: 0 or 1; -1: unknown. Error: they
 * differ. `key`: as there. */
ech_status ech_data_begins(const char *key, const char *sources, int *begins);

/* Samples of a stream: S = ceil((tokens - 1) / sequence_length). */
int64_t ech_data_samples(int64_t tokens, int64_t sequence_length);

typedef struct ech_corpus ech_corpus;

/* The parts of a split. */
typedef enum ech_split { ECH_SPLIT_TRAIN, ECH_SPLIT_VALID, ECH_SPLIT_TEST } ech_split;

typedef struct ech_corpus_options {
    const char *key;         /* "data.train": the key in errors */
    const char *sources;     /* the value of data.train or data.valid, see below */
    const char *split;       /* the value of data.split; "": all documents */
    ech_split part;          /* which documents of the split; ignored if `split` is "" */
    int64_t sequence_length; /* T */
    bool document_mask;
    bool whole_documents; /* samples are whole documents; needs document_mask */
    bool drop_longer;     /* documents of more than T tokens are left out, not truncated */
    ech_sample_kind samples; /* what sources have */
    ech_image image;         /* the sizes of images */
    int32_t end_of_text; /* ends a document in files without an index */
    /* PREFIX.origin.json must have this tokenizer's hash. NULL: the tokenizer is unknown; then the
     * vocabulary in PREFIX.origin.json must not be larger than `vocabulary`. */
    const ech_tokenizer *tokenizer;
    int64_t vocabulary;
} ech_corpus_options;

/* A token file is one of:
 *
 * - PREFIX: PREFIX.bin and PREFIX.idx in Megatron's format; the stream is the sequences in index
 *   order. All numbers of .idx are checked (sizes, lengths, aligned pointers inside .bin,
 *   ascending documents, modes).
 * - FILE.bin without a FILE.idx: tokens as llm.c writes them, u16 or u32 after a header of 1,024
 *   bytes, which is checked; or u16 alone, as nanoGPT writes them.
 * - PATTERN, with *, ? or [: all matching files, which must be of the kind FILE.bin, as one
 *   stream in the byte order of paths.
 *
 * `sources` is blank-separated (a blank in a path is written "\ "): one token file; or several,
 * blended by their numbers of samples; or, as in Megatron, weights before paths: "0.3 PREFIX1 0.7
 * PREFIX2".
 *
 * A blend is of samples and periodic: source k gives n_k of each P = sum n_k samples. The n_k are
 * the smallest integers proportional to the weights if then P <= 2^20, else w_k 2^20 / sum w,
 * rounded, at least 1. Positions of a period are assigned earliest deadline first (Tijdeman 1980,
 * "The chairman assignment problem"): of the first t samples of a run, source k has n_k t / P, with
 * an error below 1. (Megatron's rule, the source that lacks most, can be off by 2.) The result is a
 * table of P entries: position g belongs to source k = table[g mod P], and is its sample j = (g /
 * P) n_k + (number of entries before g mod P that are k).
 *
 * `split` is up to three numbers, "969,30,1": the proportions of each source's documents for
 * training, validation and test. With D documents, the bounds are D (sum of the numbers before) /
 * (sum of all), rounded to even. */
/* Errors: as for files, texts and splits; a source without a sample or without a target of weight
 * 1. */
ech_status ech_corpus_open(const ech_corpus_options *options, ech_corpus **out);
void ech_corpus_close(ech_corpus *corpus); /* accepts NULL */
ECH_DESTROY_AT(ech_corpus, ech_corpus_close)
/* The file of a source that is a single document, in a corpus with document_mask; NULL: there is
 * none. */
const char *ech_corpus_undivided(const ech_corpus *corpus);
/* The number of positions before the first at which some source begins its second epoch. */
int64_t ech_corpus_samples(const ech_corpus *corpus);

/* A list of tokens. The last `targets` < n of them are predicted. */
typedef struct ech_item {
    const int32_t *ids;
    size_t n, targets;
} ech_item;
/* A corpus without a document mask whose sample i is items[i], with padding after it; n > 0 items
 * of at most sequence_length + 1 tokens, which are copied. Errors: ECH_EIO. */
ech_status ech_corpus_of_items(const ech_item *items, int64_t n, int64_t sequence_length,
                               ech_corpus **out);

/* What a run of some samples reads. Tokens are counted as if it read each sample of a source
 * equally often; if a run ends within an epoch, they are expected values. */
typedef struct ech_corpus_counts {
    int64_t samples;                  /* of the run */
    int64_t epoch_samples;            /* of one epoch of every source */
    double tokens, targets, padding;  /* of the run: input tokens; targets of weight 1; padding */
    double least_epochs, most_epochs; /* over the sources */
    int64_t documents;                /* of all sources; 0: their boundaries are not needed */
    int64_t longer;                   /* documents that are truncated or dropped */
    int64_t left_out;                 /* tokens that this leaves out */
} ech_corpus_counts;
void ech_corpus_count(const ech_corpus *corpus, int64_t samples, ech_corpus_counts *out);

/* Appends a description of the corpus that is equal for equal data, whatever the file names:
 * numbers of tokens, weights, and hashes of where documents begin and of 16,384 of each source's
 * tokens. Errors: of reading. */
ech_status ech_corpus_identity(const ech_corpus *corpus, ech_text *out);
/* Appends how two different identities differ: "3100 tokens, where there were 3000". They are
 * untrusted. */
void ech_corpus_print_change(const char *before, const char *now, ech_text *out);

/* Checks that each of `shares` shares of each source has a sample. Errors: ECH_EUSAGE, with
 * data.shares and a number that would work. */
ech_status ech_corpus_check_shares(const ech_corpus *corpus, int64_t shares);

/* ---- the loader ---- */

/* The part of a run's samples that a rank reads. */
typedef struct ech_loader_options {
    int64_t sequence_length;   /* T */
    int64_t global_batch_size; /* samples per step over all ranks: M b */
    int64_t micro_batch_size;  /* b, in samples */
    int data_degree;           /* r <= M: replicas of this rank's stage */
    int data_rank;             /* d: this replica's index */
    int64_t vocabulary;        /* an id outside it is an error; of images the classes */
    int64_t shares; /* N */
    bool shuffle;  /* permute each epoch's samples, keyed by seed and epoch; validation: false */
    uint64_t seed; /* of `shuffle` and `drawn_from` */
    /* Positions are a random sample, without replacement, of [0, drawn_from), keyed by seed alone;
     * 0: they are used in order. */
    int64_t drawn_from;
    int64_t last_position; /* from this position on: padding of weight 0; INT64_MAX: none */
    int prefetch;          /* batches to read ahead, at least 1 */
    /* For diverging replicas, this replica's index, and their number: samples of others'
     * micro-batches (q modulo `replicas`) are padding, and not counted in step_tokens unless
     * counts_others is set; 0: replicas do not diverge. */
    int replicas, replica;
    bool counts_others;
    bool counts_only;      /* reads no tokens: for the inner stages of a pipeline */
    bool document_mask;    /* weight 0 for targets that begin a document; fills `starts` */
    ech_sample_kind samples; /* as the corpus was opened, like `image` */
    ech_image image;
    /* Images are shifted by up to crop_padding pixels in each direction, with zeros from outside,
     * and every second one is mirrored, as its position in the run draws. */
    int64_t crop_padding;
    bool flip;
} ech_loader_options;

/* One rank's samples of one step: m micro-batches of b samples. With counts_only the arrays are
 * NULL. */
typedef struct ech_batch {
    int64_t step;
    int64_t micro_batches; /* m: this rank's own, ceil or floor of M / r */
    /* sum of the weights of all M b samples of the step, over all ranks; for diverging replicas
     * only of this one's, without counts_others */
    double step_tokens;
    /* By slot (layer/slots.def): (m, b, ...), as samples.def shapes the kind's slots. NULL: the
     * kind does not fill it; `starts` also without document_mask. */
    union {
        struct {
#define X(slot, name, type, number, ...) number *name;
#include "layer/slots.def"
#undef X
        };
        void *slot[ECH_BATCH_SLOTS];
    };
} ech_batch;

typedef struct ech_loader ech_loader;

/* Starts a thread that reads batches from `first_step` on. Borrows the corpus, which must have been
 * opened with the same sequence length and document mask. */
ech_status ech_loader_create(const ech_corpus *corpus, const ech_loader_options *options,
                             int64_t first_step, ech_loader **out);
void ech_loader_destroy(ech_loader *loader); /* ends the thread; accepts NULL */
ECH_DESTROY_AT(ech_loader, ech_loader_destroy)
/* The batch of `step`, borrowed until the next call. Waits until it is read. `step` must equal the
 * previous call's step (except after creation or a rewind) or the one after it. Returns the reading
 * thread's errors. */
ech_status ech_loader_next(ech_loader *loader, int64_t step, const ech_batch **out);
/* Makes `step` the next one for the thread and for ech_loader_next; batches read ahead are dropped.
 * Does not wait. If the thread has ended with an error, ech_loader_next still returns it. */
void ech_loader_rewind(ech_loader *loader, int64_t step);
/* Number of calls of ech_loader_next that had to wait for the thread. */
int64_t ech_loader_waits(const ech_loader *loader);

#endif
