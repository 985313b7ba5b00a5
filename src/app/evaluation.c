/* SPDX-License-Identifier: Apache-2.0
 *
 * The loss of a trained model, and its logits.
 */
#include "app/evaluation.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "app/train/trained.h"
#include "app/train/validation.h"
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/stored.h"
#include "comm/comm.h"

/* ---- logits ----
 *
 * Logits of whole samples. Training and evaluation never store them all; sampling computes them for
 * one position. */

static const int64_t LARGEST = INT64_C(16) << 30; /* bytes */

enum { LOGITS, TOKENS, TARGETS, WEIGHTS, TENSORS };

typedef struct logits {
    const ech_trained *trained;
    const char *path;
    int fd;
    int64_t S, T, V;
    ech_saved_tensor tensor[TENSORS]; /* without boxes */
    ech_stored stored;                /* in the order of `tensor`: all have 4 bytes an element */
    float *row;                       /* (V) */
} logits;

static void free_logits(logits *l)
{
    ech_stored_free(&l->stored);
    free(l->row);
}

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
             " ids take more than 16 GiB; use at most --samples %" PRId64,
             l->path, l->S, l->T, l->V, over ? 0 : LARGEST / sample);
}

/* From `begin` on, contiguous in memory. */
static ech_status put(const logits *l, int which, const int64_t *begin, const int64_t *size,
                      void *data)
{
    ech_saved_tensor tensor = l->tensor[which];
    ech_tensor part = ech_tensor_view(data, tensor.dtype, tensor.dims, size);
    ech_saved_add(&tensor, begin, &part);
    return ech_safetensors_write(l->fd, l->path, &tensor, l->stored.offsets[which], NULL);
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
    ech_loader_options one = ech_design_reads(&l->trained->design, 0, false, l->S);
    ECH_CLEANUP(ech_loader_destroy_at) ech_loader *loader = NULL;
    one.global_batch_size = one.micro_batch_size = 1;
    ECH_TRY(ech_loader_create(corpus, &one, 0, &loader));
    for (int64_t s = 0; s < l->S; s++) {
        const ech_batch *batch;
        ECH_TRY(ech_loader_next(loader, s, &batch));
        ECH_TRY(put_sample(l, s, batch));
    }
    return ECH_OK;
}

static logits logits_of(const ech_trained *trained, int64_t samples, const char *path)
{
    return (logits){.trained = trained,
                    .path = path,
                    .S = samples,
                    .T = trained->config->data.sequence_length,
                    .V = trained->config->model.vocab_size};
}

/* Errors: more than 16 GiB, a file that is there, no folder to write it into. */
static ech_status check_logits(const ech_trained *trained, int64_t samples, const char *path)
{
    logits l = logits_of(trained, samples, path);
    ECH_TRY(check_size(&l));
    if (ech_file_exists(path))
        ECH_FAIL(ECH_EUSAGE, "--logits %s: already exists; name a new file, or remove it", path);
    return ech_file_check_place(path);
}

/* Writes the first `samples` samples of the corpus, S of them, into the new file `path`, of
 * safetensors: logits F32 (S,T,V), tokens and targets I32 (S,T), and weights F32 (S,T), 0 where
 * a target does not count. The model reads token by token. */
static ech_status write_logits(const ech_trained *trained, const ech_corpus *corpus,
                               int64_t samples, const char *path)
{
    ECH_CLEANUP(free_logits) logits l = logits_of(trained, samples, path);
    describe(&l);
    l.row = ech_calloc((size_t)l.V, sizeof *l.row);
    ECH_TRY(ech_stored_plan(l.tensor, TENSORS, ECH_FILE_MODEL, NULL, &l.stored));
    ech_status status = ech_stored_begin(&l.stored, path, &l.fd);
    if (status == ECH_OK) status = ech_stored_finish(l.fd, path, put_samples(&l, corpus));
    if (status != ECH_OK) ech_file_remove_all(path);
    return status;
}

/* ---- losses ---- */

typedef struct sums {
    double loss, targets, hits, hits_of_5;
    double bytes; /* of text; 0: not known */
} sums;

typedef struct evaluation_run {
    const char *path;
    const ech_eval_options *options;
    ech_eval_result *out;
} evaluation_run;

static ech_corpus_options corpus_options(const ech_trained *trained, const ech_eval_options *in)
{
    const ech_config *config = trained->config;
    bool whole = config->data.packing == ECH_PACKING_DOCUMENTS;
    return (ech_corpus_options){.key = "--data",
                                .sources = in->data,
                                .split = in->split ? in->split : "",
                                .part = ECH_SPLIT_TEST,
                                .sequence_length = config->data.sequence_length,
                                .document_mask = whole || config->data.document_mask == 1,
                                .whole_documents = whole,
                                .drop_longer = config->data.long_documents == ECH_LONG_DROP,
                                .samples = ech_family_of(config)->samples,
                                .image = ech_model_image(config),
                                .end_of_text = trained->ends.end,
                                .tokenizer = trained->tokenizer,
                                .vocabulary = ech_model_outputs(config)};
}

static int64_t count_samples(const ech_corpus *corpus, const ech_eval_options *in)
{
    int64_t all = ech_corpus_samples(corpus);
    return in->samples > 0 && in->samples < all ? in->samples : all;
}

/* ech_trained_options.fit: a batch has no more samples than there are, in whole balance groups. The
 * ranks report what is wrong with the data. */
static ech_status fit_batch(ech_trained *trained, void *context)
{
    const evaluation_run *run = context;
    const ech_corpus_options wanted = corpus_options(trained, run->options);
    ECH_CLEANUP(ech_corpus_close_at) ech_corpus *corpus = NULL;
    int64_t *batch = &trained->config->training.global_batch_size;
    int64_t group = trained->config->model.moe_group_samples;
    bool quiet = ech_log_set_quiet(true);
    ech_status status = ech_corpus_open(&wanted, &corpus);
    ech_log_set_quiet(quiet);
    if (status != ECH_OK) return ECH_OK;
    int64_t groups = (count_samples(corpus, run->options) + group - 1) / group;
    if (groups > 0 && *batch > groups * group) *batch = groups * group;
    return ECH_OK;
}

/* All batches; the last one is filled up with samples of weight 0. */
static ech_status run_batches(const ech_trained *trained, const ech_eval_options *in,
                              int64_t samples, sums *all)
{
    ech_exec *exec = trained->session.exec;
    int64_t batch = trained->config->training.global_batch_size;
    bool shows = in->progress && ech_comm_rank(trained->comm) == 0;
    for (int64_t first = 0; first < samples; first += batch) {
        if (shows) in->progress(first, samples, in->context);
        ECH_TRY(ech_exec_run(exec, ECH_LIST_VALIDATE, first / batch));
        all->loss += ech_exec_readings(exec)->loss_sum;
        all->targets += ech_exec_readings(exec)->tokens;
        all->hits += ech_exec_readings(exec)->hits;
        all->hits_of_5 += ech_exec_readings(exec)->hits_of_5;
    }
    return ECH_OK;
}

static ech_status evaluate(ech_trained *trained, void *context)
{
    const evaluation_run *run = context;
    const ech_eval_options *in = run->options;
    const ech_config *config = trained->config;
    ECH_CLEANUP(ech_corpus_close_at) ech_corpus *corpus = NULL;
    ECH_CLEANUP(ech_loader_destroy_at) ech_loader *loader = NULL;
    sums all = {0};
    const ech_corpus_options wanted = corpus_options(trained, in);
    if (!ech_model_reads_texts(config) && (in->tokenizer || in->logits))
        ECH_FAIL(ECH_EUSAGE, "--%s: %s is of the family %s, which has no tokens; remove the option",
                 in->tokenizer ? "tokenizer" : "logits", run->path,
                 trained->design.model->family->name);
    if (in->logits && ech_comm_size(trained->comm) > 1)
        ECH_FAIL(ECH_EUSAGE, "--logits %s: logits are computed on one rank; use no --parallel",
                 in->logits);
    ECH_TRY(ech_corpus_open(&wanted, &corpus));
    int64_t samples = count_samples(corpus, in);
    if (in->logits) ECH_TRY(check_logits(trained, samples, in->logits));
    ECH_TRY(ech_session_read(&trained->session, &trained->design, corpus, ECH_EVALUATE, 0, samples,
                             &loader));
    ECH_TRY(run_batches(trained, in, samples, &all));
    if (all.targets <= 0)
        ECH_FAIL(ECH_EUSAGE,
                 "--samples %" PRId64 ": none of these tokens is a target, so there is no loss; "
                 "use more samples",
                 samples);
    if (ech_comm_rank(trained->comm) > 0) return ECH_OK;
    ECH_TRY(ech_validation_count_bytes(&trained->design, trained->tokenizer, corpus, samples, false,
                                       &all.bytes));
    if (in->logits) ECH_TRY(write_logits(trained, corpus, samples, in->logits));
    *run->out = (ech_eval_result){
        .loss = all.loss / all.targets,
        .bits_per_byte = ech_validation_bits(all.loss / all.targets, all.targets, all.bytes),
        .accuracy = ech_validation_share(wanted.samples, all.hits, all.targets),
        .accuracy_of_5 = ech_validation_share(wanted.samples, all.hits_of_5, all.targets),
        .targets = (int64_t)all.targets,
        .samples = samples,
        .kind = wanted.samples};
    return ECH_OK;
}

ech_status ech_evaluate(const char *path, const ech_eval_options *options, ech_eval_result *out)
{
    evaluation_run run = {path, options, out};
    const ech_trained_options wanted = {.path = path,
                                        .samples = options->batch,
                                        .fit = fit_batch,
                                        .evaluates = true,
                                        .tokenizer = options->tokenizer,
                                        .device = options->device,
                                        .plugins = options->plugins,
                                        .parallel = options->parallel,
                                        .ids_do = true};
    return ech_trained_run(&wanted, evaluate, &run);
}
