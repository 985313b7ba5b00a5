/* SPDX-License-Identifier: Apache-2.0
 *
 * Logits of whole samples. Training and evaluation never have them all; sampling has those of a
 * position.
 */
#include "app/logits.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "checkpoint/stored.h"

static const int64_t LARGEST = INT64_C(16) << 30; /* bytes */

enum { LOGITS, TOKENS, TARGETS, WEIGHTS, TENSORS };

typedef struct logits {
    const ech_trained *trained;
    const char *path;
    int fd;
    int64_t S, T, V;
    ech_saved_tensor tensor[TENSORS]; /* without boxes */
    ech_stored stored;
    float *row; /* (V) */
} logits;

static void describe(logits *l)
{
    static const char *const names[] = {"logits", "tokens", "targets", "weights"};
    for (int i = 0; i < TENSORS; i++)
        l->tensor[i] = (ech_saved_tensor){.name = names[i],
                                          .dtype = i == LOGITS || i == WEIGHTS ? ECH_F32 : ECH_I32,
                                          .dims = i == LOGITS ? 3 : 2,
                                          .shape = {l->S, l->T, i == LOGITS ? l->V : 0}};
}

static ech_status check_size(const logits *l)
{
    int64_t sample;
    bool over = __builtin_mul_overflow(l->T * l->V, INT64_C(4), &sample);
    if (!over && l->S <= LARGEST / sample) return ECH_OK;
    ECH_FAIL(ECH_EUSAGE,
             "--logits %s: the logits of %" PRId64 " samples of %" PRId64 " tokens and %" PRId64
             " ids take more than 16 GiB; --samples %" PRId64 " would do",
             l->path, l->S, l->T, l->V, over ? 0 : LARGEST / sample);
}

/* From `begin` on, contiguous in memory. */
static ech_status put(const logits *l, int which, const int64_t *begin, const int64_t *size,
                      void *data)
{
    ech_saved_tensor tensor = l->tensor[which];
    ech_tensor part = ech_tensor_view(data, tensor.dtype, tensor.dims, size);
    ech_saved_add(&tensor, begin, &part);
    for (int i = 0; i < l->stored.n; i++)
        if (strcmp(l->stored.tensors[i].name, tensor.name) == 0)
            return ech_safetensors_write(l->fd, l->path, &tensor, l->stored.offsets[i], NULL);
    ECH_FAIL(ECH_EINTERNAL, "no tensor %s", tensor.name);
}

/* A document's tokens see no others, and their positions count from its begin. */
static ech_status put_sample(const logits *l, int64_t s, const ech_batch *batch)
{
    const int64_t at[] = {s, 0, 0}, all[] = {1, l->T, 0}, one[] = {1, 1, l->V};
    ech_exec *exec = l->trained->session.exec;
    ECH_TRY(put(l, TOKENS, at, all, batch->tokens));
    ECH_TRY(put(l, TARGETS, at, all, batch->targets));
    ECH_TRY(put(l, WEIGHTS, at, all, batch->weights));
    for (int64_t t = 0; t < l->T; t++) {
        ech_exec_set_token(exec, batch->tokens[t], t - (batch->starts ? batch->starts[t] : 0));
        ECH_TRY(ech_exec_run(exec, ECH_LIST_GENERATE, 0));
        const double *row = ech_exec_logits(exec);
        for (int64_t v = 0; v < l->V; v++) l->row[v] = (float)row[v];
        ECH_TRY(put(l, LOGITS, (int64_t[]){s, t, 0}, one, l->row));
    }
    return ECH_OK;
}

static ech_status put_samples(const logits *l, const ech_corpus *corpus)
{
    const ech_config *config = l->trained->config;
    const ech_loader_options wanted = {.sequence_length = l->T,
                                       .global_batch_size = 1,
                                       .micro_batch_size = 1,
                                       .data_degree = 1,
                                       .vocabulary = l->V,
                                       .last_position = l->S,
                                       .document_mask = config->data.document_mask == 1,
                                       .prefetch = (int)config->data.prefetch};
    ech_loader *loader;
    ech_status status = ECH_OK;
    ECH_TRY(ech_loader_create(corpus, &wanted, 0, &loader));
    for (int64_t s = 0; s < l->S && status == ECH_OK; s++) {
        const ech_batch *batch;
        status = ech_loader_next(loader, s, &batch);
        if (status == ECH_OK) status = put_sample(l, s, batch);
    }
    ech_loader_destroy(loader);
    return status;
}

static ech_status put_all(logits *l, const ech_corpus *corpus)
{
    int why = 0;
    ECH_TRY(ech_stored_create(&l->stored, l->path));
    l->fd = open(l->path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (l->fd < 0) ECH_FAIL(ECH_EIO, "%s: cannot open it again: %s", l->path, strerror(errno));
    ech_status status = put_samples(l, corpus);
    if (status == ECH_OK && fsync(l->fd) != 0) why = errno;
    if (close(l->fd) != 0 && !why) why = errno;
    ECH_TRY(status);
    if (why) ECH_FAIL(ECH_EIO, "%s: cannot bring it to disk: %s", l->path, strerror(why));
    return ECH_OK;
}

ech_status ech_logits_write(const ech_trained *trained, const ech_corpus *corpus, int64_t samples,
                            const char *path)
{
    logits l = {.trained = trained,
                .path = path,
                .S = samples,
                .T = trained->config->data.sequence_length,
                .V = trained->config->model.vocab_size};
    ECH_TRY(check_size(&l));
    if (ech_file_exists(path))
        ECH_FAIL(ECH_EUSAGE, "--logits %s: is there already; name a new file, or remove it", path);
    describe(&l);
    l.row = ech_calloc((size_t)l.V, sizeof *l.row);
    ech_status status = ech_stored_plan(l.tensor, TENSORS, false, &l.stored);
    if (status == ECH_OK) {
        status = put_all(&l, corpus);
        if (status != ECH_OK) ech_file_remove_all(path);
    }
    ech_stored_free(&l.stored);
    free(l.row);
    return status;
}
