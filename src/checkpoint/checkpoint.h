/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints: a folder per training step (here: step) that loads under any layout (resharding),
 * and in Hugging Face transformers. Only ech_checkpoint_save is collective.
 *
 *     DIRECTORY/step-00000100/model/model.safetensors, config.json, tokenizer.json, ...
 *                             state/state.safetensors      optimizer state as NAME.exp_avg ...
 *                             manifest.json                checksums, resolved run file, counters
 *
 * Commit order: all ranks write their shards into step-N.tmp, fsync; barrier; the ranks read back
 * and hash (XXH3-128) file ranges of 16 MiB, divided among them; rank 0 writes manifest.json last,
 * fsyncs files and folders, renames step-N.tmp to step-N, fsyncs DIRECTORY. So a folder with the
 * final name is complete, and an interrupted save leaves older checkpoints unchanged. A
 * checkpoint's small files, config.json and others, are called its texts.
 */
#ifndef ECH_CHECKPOINT_CHECKPOINT_H
#define ECH_CHECKPOINT_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "comm/comm.h"
#include "optim/optim.h"
#include "tensor/box.h"

/* How memory that the host cannot access is copied to and from host memory, and a buffer of host
 * memory for it. */
typedef struct ech_saved_copier {
    void *context;
    ech_status (*copy)(void *context, void *to, const void *from, size_t bytes);
    char *bounce;
    size_t bounce_bytes;
} ech_saved_copier;

enum { ECH_CHECKPOINT_DIGITS = 32 }; /* of a hash */

/* The files of a checkpoint besides its manifest: files of tensors, then texts. */
typedef enum ech_checkpoint_file {
    ECH_FILE_MODEL,
    ECH_FILE_STATE,
    ECH_FILE_ADAPTER, /* adapters (LoRA), as PEFT names them */
#define X(NAME, file) ECH_FILE_##NAME,
#include "checkpoint/texts.def"
#undef X
    ECH_FILES
} ech_checkpoint_file;
#define ECH_FIRST_TEXT ECH_FILE_CONFIG
/* A file's path below the checkpoint's folder: "model/model.safetensors", "model/config.json". */
const char *ech_checkpoint_file_name(ech_checkpoint_file file);
/* A text's name below model/: "config.json". */
const char *ech_checkpoint_text_name(ech_checkpoint_file file);

/* A tensor of a file, and the boxes of it that a rank saves or loads. */
typedef struct ech_saved_tensor {
    const char *name; /* "model.norm.weight", "model.norm.weight.exp_avg"; borrowed */
    ech_checkpoint_file file; /* that it is in; only a file of tensors */
    ech_dtype dtype;          /* of its boxes' memory */
    bool narrowed;            /* it is saved as `narrow`, rounded to nearest */
    ech_dtype narrow; /* another floating-point type; ignored unless `narrowed` */
    int dims;
    int64_t shape[ECH_MAX_DIMS]; /* of the whole tensor */
    ech_box_place place;         /* in the file's tensor of that name, which others may share */
    bool by_token;               /* its first dimension counts the vocabulary */
    int boxes;                   /* this rank's; may be 0 */
    ech_box box[ECH_MOST_BOXES];
    void *data;                     /* their memory; borrowed */
    const ech_saved_copier *copier; /* for the boxes' memory; NULL: it is the host's */
} ech_saved_tensor;

/* In front of a parameter's name in a file of adapters, as PEFT has it. */
#define ECH_ADAPTER_PREFIX "base_model.model."
/* The dtype of a weight in a folder of `dtype`. Adapters, and routers, which training stores in the
 * wide type, are not rounded; the gains of norms are, as in other programs' folders. */
ech_dtype ech_saved_weight_dtype(const ech_param *param, ech_dtype dtype);
/* The dtype in the file: `narrow` if `narrowed`, else dtype. */
ech_dtype ech_saved_dtype(const ech_saved_tensor *tensor);
/* The shape of the file's tensor of that name. */
void ech_saved_shape(const ech_saved_tensor *tensor, int64_t out[ECH_MAX_DIMS]);
/* ECH_EINPUT unless `have`, a tensor of the file or folder `where`, has the shape of `want`:
 * "WHERE: tensor 'NAME' has shape [3, 4]BEFORE[3, 5]AFTER", first the shape of `have`, then the
 * shape of `want`. `before` and `after` are texts. */
ech_status ech_shape_check(const char *where, const ech_saved_tensor *have,
                           const ech_saved_tensor *want, const char *before, const char *after);
/* Adds a box whose memory is `part` (borrowed, of the tensor's dtype and dims), and whose first
 * index is `begin`. If a tensor has several boxes, all parts lie in one array, and the
 * part that is added first begins it. Example: the file has a matrix (C, 3 C) of queries, keys and
 * values. This rank has n columns of each, from column `first` of it on, as a local matrix
 * (C, 3 n). Its keys are ech_saved_add(&tensor, (int64_t[]){0, C + first}, &part) with the part
 * ech_tensor_narrow(&local, 1, n, n). */
void ech_saved_add(ech_saved_tensor *tensor, const int64_t *begin, const ech_tensor *part);

/* Tensors of files, as a rank has them. */
typedef struct ech_saved_list {
    const ech_saved_copier *copier; /* of all tensors; NULL: of the host's memory */
    ech_pool *pool;                 /* of names; NULL: none was made */
    ECH_LIST(ech_saved_tensor) tensor;
} ech_saved_list;
/* Appends a parameter, or with `suffix` ("exp_avg") a state of it. `whole`: all but its name and
 * copier. A stack of experts' parameters (ech_param.name), and its states, become one tensor per
 * expert, without the experts' dimension, each with this rank's boxes. An adapter is in a file of
 * its own, with ECH_ADAPTER_PREFIX; its states are as others'. If files have the parameter
 * in another tensor (ech_param.file_name), it is a part of that one; its states are tensors of
 * their own. */
void ech_saved_list_add(ech_saved_list *list, const ech_param *param, const char *suffix,
                        const ech_saved_tensor *whole);
/* The name of the first of these tensors; it lives as long as the pool. */
const char *ech_saved_name(ech_pool *pool, const ech_param *param, const char *suffix);
void ech_saved_list_free(ech_saved_list *list);

/* The largest text, in bytes. */
enum { ECH_TEXT_LIMIT = 64 << 20 };

/* The content of a checkpoint besides tensors. */
/* The validations of a run up to a checkpoint. */
typedef struct ech_validated {
    bool is;           /* there was one; the rest is only set then */
    int64_t step;      /* of the last one */
    double loss;       /* of the last one; NaN: no token counted as a target */
    int64_t best_step; /* of the last improvement, as training.min_improvement defines it */
    double best;       /* its loss; NaN: there was none */
    int64_t waited;    /* validations since then */
} ech_validated;

typedef struct ech_checkpoint_info {
    int64_t step;            /* training steps done */
    int64_t optimizer_count; /* updates done: `count` of learning-rate curve and optimizer */
    int64_t samples;         /* data consumed: the next position g (data/data.h) */
    /* training steps whose update was withheld, except because of overflows */
    int64_t skipped_steps;
    bool has_scaler;   /* the run's loss scale is dynamic */
    ech_scaler scaler; /* if has_scaler */
    /* [clocks] if servers update at each push: the training step of each worker's next push;
     * owned */
    int64_t *clock;
    int clocks;     /* workers; 0: there are no pushes */
    double loss;    /* of the last step */
    ech_validated validated;
    int ranks;      /* that saved it; set by ech_checkpoint_save */
    char *run_yaml; /* the resolved run file; owned */
    char *card;     /* for saves: model/README.md; NULL: none; owned */
    /* of a run with adapters: the hash of their base's weights (ech_shards_hash); "": unknown */
    char base[ECH_CHECKPOINT_DIGITS + 1];
    struct {
        char *at; /* n bytes and a NUL; NULL: no such file; owned */
        size_t n;
    } text[ECH_FILES]; /* by ech_checkpoint_file, from ECH_FIRST_TEXT on */
} ech_checkpoint_info;
/* A line of model cards that Echelon has written. */
#define ECH_CARD_MARK "<!-- Written by Echelon. Remove this line from a card that you edit. -->"
/* A deep copy; release it with ech_checkpoint_info_free. */
ech_checkpoint_info ech_checkpoint_info_copy(const ech_checkpoint_info *info);
void ech_checkpoint_info_free(ech_checkpoint_info *info); /* frees run_yaml and the texts */

/* Writes DIRECTORY/step-%08d. Collective over `world`. All ranks list the same n tensors in the
 * same order, each with its own boxes; the boxes of all ranks must cover each element exactly once,
 * which is checked. The checkpoint gets member 0's `info`; of the others' only `step` and `base`
 * are used, which must be equal on all. An existing step-N is replaced: it is step-N.old until the
 * new one has its name. Its model/README.md is kept unless it has ECH_CARD_MARK; the manifest does
 * not have that file, which may be edited. If any rank fails, all return an error (ECH_EABORTED if
 * another rank failed; ECH_ENUMERIC for a NaN or infinity in a tensor), and member 0 removes
 * step-N.tmp; a step-N.tmp that a dead process left is removed by the next save. *bytes: of all
 * files in the manifest, and it, on every rank. */
ech_status ech_checkpoint_save(ech_group *world, const char *directory,
                               const ech_checkpoint_info *info, const ech_saved_tensor *tensors,
                               int n, int64_t *bytes);

typedef struct ech_checkpoint ech_checkpoint;

/* Opens a checkpoint folder (…/step-00000100). Checks the manifest, the sizes of all files and the
 * hashes of texts; with `verify` all hashes, and that all tensors are finite. Errors name file and
 * byte range, or tensor and element. */
ech_status ech_checkpoint_open(const char *path, bool verify, ech_checkpoint **out);
void ech_checkpoint_close(ech_checkpoint *checkpoint); /* accepts NULL */
ECH_DESTROY_AT(ech_checkpoint, ech_checkpoint_close)
const char *ech_checkpoint_path(const ech_checkpoint *checkpoint); /* borrowed, as the info is */
const ech_checkpoint_info *ech_checkpoint_get_info(const ech_checkpoint *checkpoint);
int64_t ech_checkpoint_bytes(const ech_checkpoint *checkpoint); /* of all files */
/* The dtype that has the most bytes of weights in model/. */
ech_dtype ech_checkpoint_dtype(const ech_checkpoint *checkpoint);
/* Reads the boxes of n tensors into their memory; memory outside boxes is unchanged. A rank may
 * read boxes that others saved (resharding). Floating-point types are converted to
 * tensors[i].dtype. Errors: a missing tensor, another shape, or another dtype if one of the two is
 * not a floating-point type. */
ech_status ech_checkpoint_load(const ech_checkpoint *checkpoint, const ech_saved_tensor *tensors,
                               int n);

/* The first size of the tensor of that name in state/; 0: there is none. */
int64_t ech_checkpoint_state_size(const ech_checkpoint *checkpoint, const char *name);
/* True if state/ has a tensor of that name. */
bool ech_checkpoint_has_state(const ech_checkpoint *checkpoint, const char *name);
/* True if the checkpoint has a tensor of that name and shape, so that it can be loaded. */
bool ech_checkpoint_fits(const ech_checkpoint *checkpoint, const ech_saved_tensor *want);

/* Opens the newest checkpoint in `directory` that is whole, as ech_checkpoint_open with this
 * `verify` finds; damaged ones are skipped. If `verify` is true, each skipped one is logged with
 * the reason, otherwise only if none opens. Considers folders named exactly step-%08d, and
 * step-%08d.old if step-%08d does not exist. ECH_OK and *out NULL: there is none; error: none
 * opens. */
ech_status ech_checkpoint_open_newest(const char *directory, bool verify, ech_checkpoint **out);
/* Opens the checkpoint that `path` names: a checkpoint folder, or the newest (as above) of a folder
 * of checkpoints or of a run directory. ECH_EUSAGE: there is none. */
ech_status ech_checkpoint_find(const char *path, bool verify, ech_checkpoint **out);
/* Removes old checkpoints (checkpoint.keep). Kept are the newest one that is whole by all its
 * hashes, the `keep` - 1 before it and all after it; keep 0: all. The newest checkpoint of a step
 * <= `proven` and all after it are always kept; `proven` is the last step from whose checkpoint
 * training has continued with finite numbers (-1: none yet, all are kept). The `best` ones with the
 * lowest validation losses (ech_folder_valid_loss) are also kept; of equal losses the earlier one
 * is better. Errors: none is whole; nothing is then removed. */
ech_status ech_checkpoint_prune(const char *directory, int64_t keep, int64_t best, int64_t proven);

/* ---- safetensors: one file ---- */

/* The key of a header's metadata for the hash of adapters' base. */
#define ECH_BASE_KEY "echelon_base_xxh3_128"
/* Largest header, in bytes: the format's own limit. */
enum { ECH_SAFETENSORS_HEADER_LIMIT = 100000000 };

typedef struct ech_safetensors ech_safetensors;
/* Opens a file and checks its header by the format's rules (docs/formats.md), before any allocation
 * whose size is read from the file. The file is untrusted. */
ech_status ech_safetensors_open(const char *path, ech_safetensors **out);
void ech_safetensors_close(ech_safetensors *file); /* accepts NULL */
ECH_DESTROY_AT(ech_safetensors, ech_safetensors_close)
int ech_safetensors_count(const ech_safetensors *file);
/* The hash of the weights that the file's adapters belong to, as its header states it; NULL: it
 * states none. Borrowed, any text. */
const char *ech_safetensors_base(const ech_safetensors *file);
/* Tensor i, 0 <= i < count: name, dtype, dims and shape; no boxes. The name is borrowed. */
ech_saved_tensor ech_safetensors_get(const ech_safetensors *file, int i);
/* The tensor's i; -1: no such tensor. */
int ech_safetensors_find(const ech_safetensors *file, const char *name);
/* Logs that none of the n files has the tensor `name`, and the nearest name that they have. Returns
 * ECH_EINPUT. `where`: what the files are called in the message. */
ech_status ech_safetensors_fail_missing(const char *where, ech_safetensors *const *files, size_t n,
                                        const char *name);
/* An element of a tensor. */
typedef struct ech_safetensors_element {
    const char *name;  /* of the tensor, borrowed; NULL: no element */
    int64_t index;     /* in the whole tensor, row-major */
    const char *value; /* "nan", "inf" or "-inf" */
} ech_safetensors_element;
/* The first NaN or infinity in `bytes`, the n bytes of the file from byte `offset` on. Elements cut
 * at its ends are ignored. */
ech_safetensors_element ech_safetensors_nonfinite(const ech_safetensors *file, const char *bytes,
                                                  size_t n, int64_t offset);
/* Reads boxes of the file's tensor i, whose shape must equal ech_saved_shape.
 * Floating-point types are converted to tensor->dtype, any other difference is an error. */
ech_status ech_safetensors_read(const ech_safetensors *file, int i, const ech_saved_tensor *tensor);

/* Writes the tensor's boxes, converted to ech_saved_dtype, and no other byte, into a file in which
 * the whole tensor begins at byte `offset`. Other ranks may write theirs at the same time. sums
 * (may be NULL): checksums of the file's ranges, to which the written bytes are added
 * (ech_sum_bytes). With sums a NaN or infinity is ECH_ENUMERIC. */
ech_status ech_safetensors_write(int fd, const char *path, const ech_saved_tensor *tensor,
                                 int64_t offset, uint64_t *sums);

/* Writes the hash of a file of at most `limit` bytes, XXH3-128, as hexadecimal digits and a NUL.
 * Errors: of ech_file_read. */
ech_status ech_checkpoint_hash_file(const char *path, size_t limit,
                                    char digits[ECH_CHECKPOINT_DIGITS + 1]);

#endif
