/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiny runs for tests: a folder of their own, token files of seeded noise, and a run file.
 */
#ifndef ECH_TESTS_APP_FIXTURE_H
#define ECH_TESTS_APP_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/setup/setup.h"
#include "base/file.h"
#include "data/data.h"

static char fixture_folder[256];
static ech_tokenizer *fixture_tokenizer; /* bytes */

/* A new folder below TMPDIR with train and valid tokens (ids below 50) in a few documents. */
static inline void fixture_open(void)
{
    ECH_ASSERT(ech_tokenizer_open("bytes", &fixture_tokenizer) == ECH_OK);
    const char *tmp = getenv("TMPDIR");
    snprintf(fixture_folder, sizeof fixture_folder, "%s/echelon-test-XXXXXX", tmp ? tmp : "/tmp");
    ECH_ASSERT(mkdtemp(fixture_folder) != NULL);
    const char *names[] = {"train", "valid"};
    for (int f = 0; f < 2; f++) {
        char prefix[300];
        ech_token_writer *writer;
        snprintf(prefix, sizeof prefix, "%s/%s", fixture_folder, names[f]);
        ECH_ASSERT(ech_token_writer_create(prefix, 257, &writer) == ECH_OK);
        ech_random_key key = {.seed = (uint64_t)f + 7};
        for (uint64_t i = 0; i < 1000; i++) {
            int32_t id = (int32_t)(ech_random_word(key, i) % 50);
            if (i % 4 == 3) id = (int32_t)(i / 4 % 50); /* something to learn */
            ECH_ASSERT(ech_token_writer_add(writer, &id, 1) == ECH_OK);
            if (i % 300 == 299) ECH_ASSERT(ech_token_writer_end_document(writer) == ECH_OK);
        }
        ECH_ASSERT(ech_token_writer_end_document(writer) == ECH_OK);
        ECH_ASSERT(ech_token_writer_finish(writer) == ECH_OK);
    }
}

static inline void fixture_close(void)
{
    ech_tokenizer_close(fixture_tokenizer);
    ECH_ASSERT(ech_file_remove_all(fixture_folder) == ECH_OK);
}

/* For ALL_TESTS. */
static inline int fixture_setup(void **state)
{
    (void)state;
    fixture_open();
    return 0;
}

static inline int fixture_teardown(void **state)
{
    (void)state;
    fixture_close();
    return 0;
}

/* A run file with further assignments, divided by blanks. NULL: it is refused. */
static inline ech_config *fixture_config_of(const char *yaml, const char *more)
{
    enum { MOST_WORDS = 80 };
    char *words = strdup(more), *rest = NULL, *assignments[MOST_WORDS];
    int n = 0;
    ech_config *config = NULL;
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        ECH_ASSERT(n < MOST_WORDS);
        assignments[n++] = word;
    }
    ech_status status = ech_setup_config_text(yaml, "run.yaml", assignments, n, &config);
    free(words);
    return status == ECH_OK ? config : NULL;
}

/* A checked configuration of a tiny model. */
static inline ech_config *fixture_config(const char *architecture, const char *more)
{
    ech_text yaml = {0};
    ech_text_append(&yaml,
                    "model:\n  architecture: %s\n  hidden_size: 16\n  num_hidden_layers: 2\n"
                    "  num_attention_heads: 4\n  vocab_size: 257\n"
                    "data:\n  train: %s/train\n  valid: %s/valid\n  sequence_length: 9\n"
                    "training:\n  steps: 4\n  global_batch_size: 12\n"
                    "optimizer:\n  learning_rate: 1e-2\n  warmup_steps: 2\n  weight_decay: 0.1\n"
                    "parallel:\n  comm: local\n  threads: 1\n  bucket_bytes: 8KiB\n"
                    "log:\n  directory: %s/run\n",
                    architecture, fixture_folder, fixture_folder, fixture_folder);
    ech_config *config = fixture_config_of(yaml.at, more);
    ECH_ASSERT(config != NULL);
    ech_text_free(&yaml);
    return config;
}

/* NULL: the family reads no texts. */
static inline ech_tokenizer *fixture_tokenizer_of(const ech_config *config)
{
    return ech_config_reads(config, "data.tokenizer") ? fixture_tokenizer : NULL;
}

/* Runs `main` on every rank of what the configuration makes, which stays as it is. */
static inline ech_status fixture_run(const ech_config *config, int ranks, ech_design_main main,
                                     void *context)
{
    ech_config *copy = ech_config_copy(config);
    ech_design design = {0};
    ech_status status = ech_design_create(copy, fixture_tokenizer_of(copy), ranks, ranks, &design);
    if (status == ECH_OK) status = ech_design_run(&design, main, context);
    ech_design_destroy(&design);
    ech_config_destroy(copy);
    return status;
}

/* fixture_run of a tiny model with these words, which are said with what went wrong. */
static inline bool fixture_runs(const char *architecture, const char *words, int ranks,
                                ech_design_main main, void *context)
{
    ech_config *config = fixture_config(architecture, words);
    ech_status status = fixture_run(config, ranks, main, context);
    ech_config_destroy(config);
    if (status != ECH_OK) fprintf(stderr, "%s, %s: %s\n", architecture, words, ech_last_error());
    return status == ECH_OK;
}

/* Calls `use` for each rank's plan of such a run. */
typedef void (*fixture_on_plan)(const ech_plan *plan, void *context);

static inline void fixture_each_plan(const char *architecture, int ranks, const char *words,
                                     fixture_on_plan use, void *context)
{
    ech_design design = {0};
    ech_config *config = fixture_config(architecture, words);
    ECH_ASSERT(ech_design_create(config, fixture_tokenizer, ranks, ranks, &design) == ECH_OK);
    for (int rank = 0; rank < ranks; rank++) {
        ech_plan *plan;
        ECH_ASSERT(ech_design_plan(&design, rank, false, &plan) == ECH_OK);
        use(plan, context);
        ech_plan_destroy(plan);
    }
    ech_design_destroy(&design);
    ech_config_destroy(config);
}

/* What has lived is what is planned, to the byte; what differs is said. lists: a bit each of those
 * that were run. */
static inline bool fixture_peaks_are_planned(const ech_session *s, unsigned lists)
{
    int64_t planned[ECH_MEMORY_KINDS] = {0}, measured[ECH_MEMORY_KINDS];
    for (int kind = 0; kind < ECH_MEMORY_KINDS; kind++)
        for (int l = 0; l < ECH_LIST_KINDS; l++)
            if (lists >> l & 1 && s->plan->list[l].peak[kind] > planned[kind])
                planned[kind] = s->plan->list[l].peak[kind];
    for (size_t i = 0; i < s->plan->persistent.n; i++) {
        const ech_value *v = &s->plan->persistent.at[i];
        planned[v->kind] += ech_plan_align(s->plan, v->kind, v->bytes);
    }
    ech_exec_peaks(s->exec, measured);
    for (int kind = 0; kind < ECH_MEMORY_KINDS; kind++)
        if (measured[kind] != planned[kind])
            fprintf(stderr, "%s: %lld bytes, planned are %lld\n",
                    ech_memory_name((ech_memory_kind)kind), (long long)measured[kind],
                    (long long)planned[kind]);
    return memcmp(measured, planned, sizeof planned) == 0;
}

/* INIT is of every run; INIT and TRAIN. */
enum { FIXTURE_TRAINED = 1u << ECH_LIST_INIT | 1u << ECH_LIST_TRAIN };

#endif
