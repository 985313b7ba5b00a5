/* SPDX-License-Identifier: Apache-2.0
 *
 * The model that is given a text token by token, with carried keys and values, says what it says of
 * the whole text at once: the loss of a sample, in fp64.
 */
#include <math.h>

#include "app/fixture.h"
#include "unit.h"

enum { T = 9 };

typedef struct sampling {
    const char *architecture, *more;
    double whole, tokens; /* out: losses */
    bool again;           /* a second text gives what the first gave */
} sampling;

/* -log of the softmax' share of `target`. */
static double surprise(const double *logits, int64_t V, int32_t target)
{
    double most = logits[0], sum = 0;
    for (int64_t i = 1; i < V; i++) most = fmax(most, logits[i]);
    for (int64_t i = 0; i < V; i++) sum += exp(logits[i] - most);
    return most + log(sum) - logits[target];
}

static ech_status tell(ech_exec *exec, const int32_t *ids, int64_t V, double *loss)
{
    *loss = 0;
    for (int64_t t = 0; t < T; t++) {
        ech_exec_set_token(exec, ids[t], t);
        ECH_TRY(ech_exec_run(exec, ECH_LIST_GENERATE, 0));
        *loss += surprise(ech_exec_logits(exec), V, ids[t + 1]) / T;
    }
    return ECH_OK;
}

/* The first n ids of PREFIX.bin, which are u16. */
static ech_status read_ids(const char *prefix, int32_t *ids, size_t n)
{
    ECH_FREED_TEXT path = {0};
    ech_text_append(&path, "%s.bin", prefix);
    ECH_FREED char *bytes = NULL;
    size_t size;
    ECH_TRY(ech_file_read(path.at, 1 << 20, &bytes, &size));
    ECH_ASSERT(size >= 2 * n);
    for (size_t i = 0; i < n; i++) {
        uint16_t id;
        memcpy(&id, bytes + 2 * i, sizeof id);
        ids[i] = id;
    }
    return ECH_OK;
}

static ech_status compare(sampling *s, const ech_design *design, ech_exec *exec,
                          const ech_corpus *data)
{
    int32_t ids[2 * T + 1];
    double other;
    int64_t V = design->config->model.vocab_size;
    ech_loader_options options = ech_design_reads(design, 0, false, 1);
    ech_loader *loader;
    ECH_TRY(read_ids(design->config->data.train, ids, 2 * T + 1));
    ECH_TRY(ech_loader_create(data, &options, 0, &loader));
    ech_exec_set_loader(exec, ECH_EVALUATE, loader);
    ECH_TRY(ech_exec_run(exec, ECH_LIST_INIT, 0));
    ECH_TRY(ech_exec_run(exec, ECH_LIST_VALIDATE, 0));
    s->whole = ech_exec_readings(exec)->loss;
    ech_loader_destroy(loader);
    ECH_TRY(tell(exec, ids, V, &s->tokens));
    /* What was carried for one text is not seen by the next. */
    ECH_TRY(tell(exec, ids + T, V, &other));
    double first = s->tokens;
    ECH_TRY(tell(exec, ids, V, &s->tokens));
    s->again = memcmp(&first, &s->tokens, sizeof first) == 0 && fabs(other - first) > 1e-9;
    return ECH_OK;
}

static ech_status run_rank(ech_comm *comm, void *context)
{
    sampling *s = context;
    ech_config *config = fixture_config(s->architecture, s->more);
    ech_design design;
    ech_session session;
    ech_corpus *data;
    ECH_TRY(ech_design_create(config, fixture_tokenizer, 1, 1, &design));
    ECH_TRY(ech_session_create(&design, comm, true, &session));
    ECH_TRY(ech_design_open_data(&design, ECH_SPLIT_TRAIN, &data));
    ech_status status = compare(s, &design, session.exec, data);
    ech_corpus_close(data);
    ech_session_destroy(&session);
    ech_design_destroy(&design);
    ech_config_destroy(config);
    return status;
}

static void check(const char *architecture, const char *more)
{
    char words[400];
    snprintf(words, sizeof words,
             "precision.compute=fp64 training.global_batch_size=1 model.initializer_range=0.3 %s",
             more);
    sampling s = {.architecture = architecture, .more = words};
    assert_int_equal(ech_run_ranks(ECH_COMM_local, 1, 300, run_rank, &s), ECH_OK);
    assert_true(s.whole > 1);
    assert_true(fabs(s.whole - s.tokens) < 1e-12 * s.whole);
    assert_true(s.again);
}

TEST(test_token_by_token)
{
    check("gpt2", "");
    check("gpt2", "model.attn_pdrop=0.5 model.resid_pdrop=0.5"); /* off when sampling */
    check("llama", "model.num_key_value_heads=2");
    check("llama", "model.num_key_value_heads=1 model.tie_word_embeddings=true");
    check("llama", "memory.sequence_chunks=3");
    check("llama", "memory.sequence_chunks=3 parallel.device=walled");
    check("qwen3", "model.num_key_value_heads=2 model.head_dim=6");
    check("gpt2", "data.document_mask=true"); /* the first sample and the text are one document */
    check("llama", "data.document_mask=true memory.sequence_chunks=3");
    check("qwen3", "data.document_mask=true memory.sequence_chunks=3");
}

ALL_TESTS(fixture_setup, fixture_teardown)
