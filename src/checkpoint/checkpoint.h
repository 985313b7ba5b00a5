/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints: a folder per step that loads under any layout, and in Hugging Face transformers.
 *
 *     DIRECTORY/step-00000100/model/model.safetensors, config.json, tokenizer.json, ...
 *                             state/state.safetensors      optimizer state as NAME.exp_avg ...
 *                             manifest.json                checksums, resolved run file, counters
 *
 * Commit order: all ranks write their slices into step-N.tmp, fsync; barrier; file ranges of 16 MiB
 * are read back and hashed (XXH3-128), shared out over the ranks; rank 0 writes manifest.json last,
 * fsyncs files and folders, renames step-N.tmp to step-N, fsyncs DIRECTORY. So a folder with the
 * final name is whole, and whatever is interrupted leaves the older checkpoints as they were.
 */
#ifndef ECH_CHECKPOINT_CHECKPOINT_H
#define ECH_CHECKPOINT_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "comm/comm.h"
#include "tensor/tensor.h"

/* A hyper-rectangle of a tensor, and where a rank has it in memory. */
typedef struct ech_saved_box {
    int64_t begin[ECH_MAX_DIMS], size[ECH_MAX_DIMS]; /* in the whole tensor */
    void *data;                                      /* the box's first element */
    int64_t stride[ECH_MAX_DIMS];                    /* of `data`, in elements; the last is 1 */
} ech_saved_box;

enum { ECH_MOST_BOXES = 3 }; /* queries, keys and values side by side in one matrix */

/* A tensor as it lies in a file, and the boxes of it that a rank writes or wants. */
typedef struct ech_saved_tensor {
    const char *name; /* "model.norm.weight", "model.norm.weight.exp_avg" */
    bool is_state;    /* in state/, not in model/ */
    ech_dtype dtype;  /* of its boxes' memory */
    bool narrowed; /* when it is saved: as another floating-point type, rounded to the nearest, */
    ech_dtype narrow; /* this one */
    int dims;
    int64_t shape[ECH_MAX_DIMS]; /* whole */
    int boxes;                   /* this rank's; 0: no part */
    ech_saved_box box[ECH_MOST_BOXES];
} ech_saved_tensor;

/* The type of its elements in the file that it is saved into. */
ech_dtype ech_saved_dtype(const ech_saved_tensor *tensor);
/* The whole tensor is the only box, contiguous in `data`. (No box where it has no element.) */
void ech_saved_whole(ech_saved_tensor *tensor, void *data);
/* One more box: `part` is the memory of the elements that begin at `begin`, of the tensor's dtype
 * and dims. So of a local (C, 3·n) that holds n columns each of queries, keys and values, the keys
 * are ech_saved_add(&tensor, (int64_t[]){0, C + first}, &part) with the part
 * ech_tensor_columns(&local, n, n). */
void ech_saved_add(ech_saved_tensor *tensor, const int64_t *begin, const ech_tensor *part);

/* The files a checkpoint may hold beside its manifest: two of tensors, then texts. */
typedef enum ech_checkpoint_file {
    ECH_FILE_MODEL,
    ECH_FILE_STATE,
#define X(NAME, file) ECH_FILE_##NAME,
#include "checkpoint/texts.def"
#undef X
    ECH_FILES
} ech_checkpoint_file;
#define ECH_FIRST_TEXT ECH_FILE_CONFIG
/* "model/model.safetensors"; of a text below model/: "config.json" */
const char *ech_checkpoint_file_name(ech_checkpoint_file file);
const char *ech_checkpoint_text_name(ech_checkpoint_file file);

/* Bytes that a text may have. */
enum { ECH_TEXT_LIMIT = 64 << 20 };

/* What is saved besides tensors. */
typedef struct ech_checkpoint_info {
    int64_t step;            /* steps done */
    int64_t optimizer_count; /* updates done: the curve's and the optimizer's position */
    int64_t samples;         /* data position g */
    int64_t skipped_steps;
    double loss;    /* of the last step */
    int ranks;      /* that saved it; set by ech_checkpoint_save */
    char *run_yaml; /* the resolved run file */
    struct {
        char *at; /* n bytes, and a NUL; NULL: no such file */
        size_t n;
    } text[ECH_FILES]; /* from ECH_FIRST_TEXT on */
} ech_checkpoint_info;
/* With texts of its own. */
ech_checkpoint_info ech_checkpoint_info_copy(const ech_checkpoint_info *info);
void ech_checkpoint_info_free(ech_checkpoint_info *info); /* frees the texts */

/* Writes DIRECTORY/step-%08d. All ranks list the same tensors in the same order, each with its own
 * boxes; the boxes of all ranks have every element once, which is checked. Of `info`, member 0's counts, only the step must be the same
 * on all. A step-N that is there already is replaced: it is step-N.old until the new one has its
 * name. Collective over `world`. On failure on any rank every rank returns an error (ECH_EABORTED
 * where another rank failed; ECH_ENUMERIC where a tensor has a NaN or infinity) and member 0 removes the temporary folder; one that is left because
 * the process died is cleared by the next save. *bytes: of all files. */
ech_status ech_checkpoint_save(ech_group *world, const char *directory,
                               const ech_checkpoint_info *info, const ech_saved_tensor *tensors,
                               int n, int64_t *bytes);

typedef struct ech_checkpoint ech_checkpoint;

/* Opens one checkpoint folder (…/step-00000100) and checks its manifest, all sizes and the checksums of
 * config.json and tokenizer, and if `verify` every other checksum, and that all tensors are finite. Not
 * collective. Errors name file and byte range, or tensor and element. */
ech_status ech_checkpoint_open(const char *path, bool verify, ech_checkpoint **out);
void ech_checkpoint_close(ech_checkpoint *checkpoint); /* accepts NULL */
const char *ech_checkpoint_path(const ech_checkpoint *checkpoint);
const ech_checkpoint_info *ech_checkpoint_get_info(const ech_checkpoint *checkpoint);
/* Bytes of all files, and the type that most of the weights in model/ have. */
int64_t ech_checkpoint_bytes(const ech_checkpoint *checkpoint);
ech_dtype ech_checkpoint_dtype(const ech_checkpoint *checkpoint);
/* Reads each tensor's boxes, which may also be boxes of other ranks, and leaves memory between them
 * as it is. A missing tensor, another shape or dtype is an error that names it;
 * floating-point types convert into each other. */
ech_status ech_checkpoint_load(const ech_checkpoint *checkpoint, const ech_saved_tensor *tensors,
                               int n);

/* Whether state/ has a tensor of that name. */
bool ech_checkpoint_has_state(const ech_checkpoint *checkpoint, const char *name);

/* Opens the newest checkpoint below `directory` that verifies, saying which it skipped and why;
 * without `verify` the newest that opens, saying it only if none does (a look ahead of a resume). Only folders named exactly step-%08d count, and step-%08d.old where its successor is not there.
 * *out = NULL, ECH_OK when there is none at all; an error when there are some but none is whole. */
ech_status ech_checkpoint_open_newest(const char *directory, bool verify, ech_checkpoint **out);
/* Accepts a checkpoint folder, a checkpoints folder (its newest) or a run directory (likewise). */
ech_status ech_checkpoint_find(const char *path, bool verify, ech_checkpoint **out);
/* Removes what is older than the newest `keep` of those from the newest on that verifies (0: none is
 * removed; an error if none verifies). proven: the
 * last step from whose checkpoint training has gone on with finite numbers; the newest that is not behind
 * it stays, whatever `keep` says, since weights that are finite may still be of no use. Not collective. */
ech_status ech_checkpoint_prune(const char *directory, int64_t keep, int64_t proven);

/* ---- safetensors: one file ---- */

/* Bytes. The format allows 100,000,000; more than 100,000 tensors fit in this. */
enum { ECH_SAFETENSORS_HEADER_LIMIT = 16 << 20 };

typedef struct ech_safetensors ech_safetensors;
/* Parses and checks the header by the format's rules (docs/formats.md) before any allocation that
 * a hostile file could size. Keeps the file open. */
ech_status ech_safetensors_open(const char *path, ech_safetensors **out);
void ech_safetensors_close(ech_safetensors *file); /* accepts NULL */
int ech_safetensors_count(const ech_safetensors *file);
/* Tensor i: name, dtype, dims, shape; no boxes yet. Names are borrowed. */
ech_saved_tensor ech_safetensors_get(const ech_safetensors *file, int i);
int ech_safetensors_find(const ech_safetensors *file, const char *name); /* -1: no such tensor */
/* An element of a tensor. */
typedef struct ech_safetensors_element {
    const char *name; /* of the tensor; NULL: there is none */
    int64_t index;
    const char *value; /* "nan" */
} ech_safetensors_element;
/* The first NaN or infinity in n bytes of the file that lie at `offset`, of elements that are there whole. */
ech_safetensors_element ech_safetensors_nonfinite(const ech_safetensors *file, const char *bytes,
                                                  size_t n, int64_t offset);
/* Reads the boxes of `tensor`, which are boxes of the file's tensor i. Its dtype is that of its
 * memory: floating-point types convert into each other, another difference is an error. */
ech_status ech_safetensors_read(const ech_safetensors *file, int i, const ech_saved_tensor *tensor);

/* The header for these tensors (whole, in this order; boxes are not looked at), padded so that
 * data begins at a multiple of 4,096 bytes. *out: 8 length bytes and the JSON. offsets[i]: where
 * tensor i begins in the file; *file_bytes: the file's size. Errors: a name that comes twice or is
 * not UTF-8, a shape that cannot be counted. */
ech_status ech_safetensors_header(const ech_saved_tensor *tensors, int n, ech_text *out,
                                  int64_t *offsets, int64_t *file_bytes);
/* Writes the tensor's boxes, and no byte beside them, into a file where the whole tensor begins at
 * `offset`. sums: of the file's ranges, to which what is written is added (ech_sum_bytes), and then NaN and
 * infinities are refused (ECH_ENUMERIC); may be NULL. */
ech_status ech_safetensors_write(int fd, const char *path, const ech_saved_tensor *tensor,
                                 int64_t offset, uint64_t *sums);

#endif
