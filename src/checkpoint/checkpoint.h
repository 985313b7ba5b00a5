/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints: a folder per step that loads under any layout, and in Hugging Face transformers.
 *
 *     DIRECTORY/step-00000100/model/model.safetensors, config.json, tokenizer.json, ...
 *                             state/state.safetensors      optimizer state as NAME.exp_avg ...
 *                             manifest.json                checksums, resolved run file, counters
 *
 * Commit order: all ranks write their shards into step-N.tmp, fsync; barrier; the ranks read back and hash
 * (XXH3-128) file ranges of 16 MiB, divided among them; rank 0 writes manifest.json last, fsyncs files and folders,
 * renames step-N.tmp to step-N, fsyncs DIRECTORY. So a folder with the final name is complete, and an interrupted
 * save leaves older checkpoints unchanged.
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

/* A hyper-rectangle of a tensor, and a rank's memory of it. */
typedef struct ech_saved_box {
    int64_t begin[ECH_MAX_DIMS], size[ECH_MAX_DIMS]; /* in the whole tensor */
    void *data;                                      /* the box's first element */
    int64_t stride[ECH_MAX_DIMS];                    /* of `data`, in elements; the last is 1 */
} ech_saved_box;

enum { ECH_MOST_BOXES = 3 }; /* a rank's queries, keys and values in one matrix */

/* A tensor of a file, and the boxes of it that a rank saves or loads. */
typedef struct ech_saved_tensor {
    const char *name; /* "model.norm.weight", "model.norm.weight.exp_avg" */
    bool is_state;    /* in state/, not in model/ */
    ech_dtype dtype;  /* of its boxes' memory */
    bool narrowed;    /* it is saved as `narrow`, another floating-point type, rounded to nearest */
    ech_dtype narrow;
    int dims;
    int64_t shape[ECH_MAX_DIMS]; /* of the whole tensor */
    int boxes;                   /* this rank's; may be 0 */
    ech_saved_box box[ECH_MOST_BOXES];
} ech_saved_tensor;

/* The dtype in the file that it is saved into. */
ech_dtype ech_saved_dtype(const ech_saved_tensor *tensor);
/* Adds a box: `part`, of the tensor's dtype and dims, is the memory of the elements from index `begin` on. Example:
 * of a local (C, 3·n) matrix with n columns each of queries, keys and values, the keys are
 * ech_saved_add(&tensor, (int64_t[]){0, C + first}, &part) with the part ech_tensor_narrow(&local, 1, n, n). */
void ech_saved_add(ech_saved_tensor *tensor, const int64_t *begin, const ech_tensor *part);

/* The files of a checkpoint besides its manifest: two of tensors, then texts. */
typedef enum ech_checkpoint_file {
    ECH_FILE_MODEL,
    ECH_FILE_STATE,
#define X(NAME, file) ECH_FILE_##NAME,
#include "checkpoint/texts.def"
#undef X
    ECH_FILES
} ech_checkpoint_file;
#define ECH_FIRST_TEXT ECH_FILE_CONFIG
/* The path below the checkpoint, "model/model.safetensors", "model/config.json"; and a text's name below model/,
 * "config.json". */
const char *ech_checkpoint_file_name(ech_checkpoint_file file);
const char *ech_checkpoint_text_name(ech_checkpoint_file file);

/* The largest text, in bytes. */
enum { ECH_TEXT_LIMIT = 64 << 20 };

/* The content of a checkpoint besides tensors. */
typedef struct ech_checkpoint_info {
    int64_t step;            /* training steps done */
    int64_t optimizer_count; /* updates done: `count` of learning-rate curve and optimizer */
    int64_t samples;         /* the next data position g (data/data.h) */
    int64_t skipped_steps;
    double loss;    /* of the last step */
    int ranks;      /* that saved it; set by ech_checkpoint_save */
    char *run_yaml; /* the resolved run file */
    struct {
        char *at; /* n bytes and a NUL; NULL: no such file */
        size_t n;
    } text[ECH_FILES]; /* from ECH_FIRST_TEXT on */
} ech_checkpoint_info;
/* A deep copy. */
ech_checkpoint_info ech_checkpoint_info_copy(const ech_checkpoint_info *info);
void ech_checkpoint_info_free(ech_checkpoint_info *info); /* frees the texts */

/* Writes DIRECTORY/step-%08d. Collective over `world`. All ranks list the same tensors in the same order, each with
 * its own boxes; the boxes of all ranks must cover each element exactly once, which is checked. `info` is that of
 * member 0; its step must be equal on all ranks. An existing step-N is replaced: it is step-N.old until the new one
 * has its name. If any rank fails, all return an error (ECH_EABORTED if another rank failed; ECH_ENUMERIC for a NaN
 * or infinity in a tensor), and member 0 removes step-N.tmp; one of a process that died is removed by the next
 * save. *bytes: of all files. */
ech_status ech_checkpoint_save(ech_group *world, const char *directory,
                               const ech_checkpoint_info *info, const ech_saved_tensor *tensors,
                               int n, int64_t *bytes);

typedef struct ech_checkpoint ech_checkpoint;

/* Opens a checkpoint folder (…/step-00000100). Checks the manifest, all sizes and the checksums of texts; with
 * `verify` all checksums, and that all tensors are finite. Not collective. Errors name file and byte range, or
 * tensor and element. */
ech_status ech_checkpoint_open(const char *path, bool verify, ech_checkpoint **out);
void ech_checkpoint_close(ech_checkpoint *checkpoint); /* accepts NULL */
ECH_DESTROY_AT(ech_checkpoint, ech_checkpoint_close)
const char *ech_checkpoint_path(const ech_checkpoint *checkpoint);
const ech_checkpoint_info *ech_checkpoint_get_info(const ech_checkpoint *checkpoint);
/* Bytes of all files; and the dtype of most of the weights in model/. */
int64_t ech_checkpoint_bytes(const ech_checkpoint *checkpoint);
ech_dtype ech_checkpoint_dtype(const ech_checkpoint *checkpoint);
/* Reads the boxes of each tensor, which need not be those that this rank saved; memory outside of boxes is
 * unchanged. Floating-point types are converted. Errors: a missing tensor, another shape, or another dtype that is
 * no floating-point type. Not collective. */
ech_status ech_checkpoint_load(const ech_checkpoint *checkpoint, const ech_saved_tensor *tensors,
                               int n);

/* Whether state/ has a tensor of that name. */
bool ech_checkpoint_has_state(const ech_checkpoint *checkpoint, const char *name);

/* Opens the newest checkpoint below `directory` that verifies, and logs which ones it skipped and why. Without
 * `verify`: the newest that opens; logs only if none does. Considers folders named exactly step-%08d, and
 * step-%08d.old if step-%08d does not exist. ECH_OK with *out = NULL: there is none; an error: none of them opens. */
ech_status ech_checkpoint_open_newest(const char *directory, bool verify, ech_checkpoint **out);
/* Opens the checkpoint that `path` names: a checkpoint folder, or the newest of a folder of checkpoints or of a run
 * directory. */
ech_status ech_checkpoint_find(const char *path, bool verify, ech_checkpoint **out);
/* Removes old checkpoints (checkpoint.keep). Counting from the newest one that verifies, `keep` stay and older ones
 * are removed; 0: all stay. Always stay: the newest checkpoint of a step <= `proven`, and those after it; `proven` is
 * the last step from whose checkpoint training has continued with finite numbers. Errors: none verifies. Not
 * collective. */
ech_status ech_checkpoint_prune(const char *directory, int64_t keep, int64_t proven);

/* ---- safetensors: one file ---- */

/* Largest header, in bytes: enough for 100,000 tensors. The format allows 100,000,000. */
enum { ECH_SAFETENSORS_HEADER_LIMIT = 16 << 20 };

typedef struct ech_safetensors ech_safetensors;
/* Opens a file and checks its header by the format's rules (docs/formats.md), before any allocation whose size is
 * read from the file. The file is untrusted. */
ech_status ech_safetensors_open(const char *path, ech_safetensors **out);
void ech_safetensors_close(ech_safetensors *file); /* accepts NULL */
ECH_DESTROY_AT(ech_safetensors, ech_safetensors_close)
int ech_safetensors_count(const ech_safetensors *file);
/* Tensor i: name, dtype, dims and shape; no boxes. The name is borrowed. */
ech_saved_tensor ech_safetensors_get(const ech_safetensors *file, int i);
int ech_safetensors_find(const ech_safetensors *file, const char *name); /* -1: no such tensor */
/* Logs that none of the n files, which `where` names, has the tensor, and the nearest name; returns ECH_EINPUT. */
ech_status ech_safetensors_fail_missing(const char *where, ech_safetensors *const *files, size_t n,
                                        const char *name);
/* An element of a tensor. */
typedef struct ech_safetensors_element {
    const char *name; /* of the tensor; NULL: no element */
    int64_t index;
    const char *value; /* "nan" */
} ech_safetensors_element;
/* The first NaN or infinity in `bytes`, n bytes of the file from `offset` on; elements that are not whole in it are
 * ignored. */
ech_safetensors_element ech_safetensors_nonfinite(const ech_safetensors *file, const char *bytes,
                                                  size_t n, int64_t offset);
/* Reads boxes of the file's tensor i. tensor->dtype is that of the boxes' memory: floating-point types are converted,
 * any other difference is an error. */
ech_status ech_safetensors_read(const ech_safetensors *file, int i, const ech_saved_tensor *tensor);

/* Writes the tensor's boxes, converted to ech_saved_dtype, and no other byte, into a file in which the whole tensor
 * begins at `offset`; other ranks may write theirs at the same time. sums (may be NULL): checksums of the file's ranges, to which the written bytes are added (ech_sum_bytes); then a NaN or
 * infinity is an error, too (ECH_ENUMERIC). */
ech_status ech_safetensors_write(int fd, const char *path, const ech_saved_tensor *tensor,
                                 int64_t offset, uint64_t *sums);

#endif
