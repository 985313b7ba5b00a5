/* SPDX-License-Identifier: Apache-2.0
 *
 * The lattice of runs over the grid: its axes, a case as the words of a command line, whether a run of
 * that kind may be asked for (the layout is asked, no rule is written down again here), and the verdict
 * of verify on it, in a process of its own, so that a case that crashes is a case that fails. After
 * grid_run.h.
 */
#ifndef ECH_TESTS_APP_LATTICE_H
#define ECH_TESTS_APP_LATTICE_H

#include "app/cover.h"
#include "app/verdict.h"

enum lattice_axis {
    PIPELINE,
    DATA,
    CONTEXT,
    TENSOR,
    SEQUENCE,
    METHOD,
    PIECES,
    SCHEDULE,
    MODEL,
    LATTICE_GRID_AXES, /* the axes above say which rank does what of which model */
    MICRO_BATCHES = LATTICE_GRID_AXES,
    DROPOUT,
    VOCABULARY,
    REDUCTION,
    BUCKET,
    DOCUMENTS,
    LATTICE_AXES
};

enum { LATTICE_RANKS = 8, LATTICE_LAYERS = 2 };

/* The words of each level; the first is the simplest. Degrees and micro-batches are numbers. */
static const char *const lattice_models[] = {
    "model.architecture=gpt2 model.tie_word_embeddings=false",
    "model.architecture=gpt2 model.tie_word_embeddings=true",
    "model.architecture=llama model.num_key_value_heads=2",
    "model.architecture=llama model.num_key_value_heads=1",
    "model.architecture=llama model.num_key_value_heads=4 model.tie_word_embeddings=true",
    "model.architecture=qwen3 model.num_key_value_heads=2 model.head_dim=6",
    "model.architecture=qwen3 model.num_key_value_heads=4 model.head_dim=2 "
    "model.tie_word_embeddings=true",
};
static const char *const lattice_schedules[] = {
    "gpipe",       "1f1b",      "naive",         "interleaved parallel.virtual_stages=2",
    "zero-bubble", "pipedream", "pipedream-2bw", "zero-bubble-v",
};
static const int lattice_degrees[] = {1, 2, 3, 4, 8};
/* Of a data rank, and samples in each. */
static const int lattice_micro_batches[][2] = {{1, 2}, {2, 1}, {3, 2}, {4, 1}};
static const char *const lattice_sequences[] = {"false", "true", "keep"};
static const char *const lattice_methods[] = {"ring", "ulysses"};
static const char *const lattice_pieces[] = {"1", "2"};
static const char *const lattice_dropouts[] = {
    "", " model.resid_pdrop=0.1 model.attn_pdrop=0.2 model.embd_pdrop=0.1"};
static const char *const lattice_vocabularies[] = {"264", "257"};
static const char *const lattice_reductions[] = {"direct", "ring"};
static const char *const lattice_buckets[] = {"1GiB", "8KiB", "1"};
static const char *const lattice_documents[] = {"", " data.document_mask=true"};

#define LATTICE_LEVELS(names) (int)(sizeof(names) / sizeof *(names))
static const int lattice_levels[LATTICE_AXES] = {
    [PIPELINE] = LATTICE_LEVELS(lattice_degrees),
    [DATA] = LATTICE_LEVELS(lattice_degrees),
    [CONTEXT] = LATTICE_LEVELS(lattice_degrees),
    [TENSOR] = LATTICE_LEVELS(lattice_degrees),
    [SEQUENCE] = LATTICE_LEVELS(lattice_sequences),
    [METHOD] = LATTICE_LEVELS(lattice_methods),
    [PIECES] = LATTICE_LEVELS(lattice_pieces),
    [SCHEDULE] = LATTICE_LEVELS(lattice_schedules),
    [MICRO_BATCHES] = LATTICE_LEVELS(lattice_micro_batches),
    [MODEL] = LATTICE_LEVELS(lattice_models),
    [DROPOUT] = LATTICE_LEVELS(lattice_dropouts),
    [VOCABULARY] = LATTICE_LEVELS(lattice_vocabularies),
    [REDUCTION] = LATTICE_LEVELS(lattice_reductions),
    [BUCKET] = LATTICE_LEVELS(lattice_buckets),
    [DOCUMENTS] = LATTICE_LEVELS(lattice_documents),
};

static inline int lattice_ranks(const cover_case *c)
{
    int ranks = 1;
    for (int axis = PIPELINE; axis <= TENSOR; axis++) ranks *= lattice_degrees[c->level[axis]];
    return ranks;
}

/* Whether some axis is not at its first level although that changes nothing. */
static inline bool lattice_is_idle(const cover_case *c)
{
    return (c->level[TENSOR] == 0 && c->level[SEQUENCE] > 0) ||
           (c->level[CONTEXT] == 0 && c->level[METHOD] > 0);
}

/* As many layers as the stages need: embedding and head are blocks, too. */
static inline int lattice_layers(const cover_case *c)
{
    const char *schedule = lattice_schedules[c->level[SCHEDULE]];
    bool chunks = strstr(schedule, "virtual_stages") || strstr(schedule, "bubble-v");
    int stages = lattice_degrees[c->level[PIPELINE]] * (chunks ? 2 : 1);
    return stages - 2 > LATTICE_LAYERS ? stages - 2 : LATTICE_LAYERS;
}

/* Assignments, divided by blanks. */
static inline void lattice_print_words(const cover_case *c, ech_text *out)
{
    const int *x = c->level, *micro = lattice_micro_batches[x[MICRO_BATCHES]];
    ech_text_append(out, "%s model.num_hidden_layers=%d model.vocab_size=%s%s",
                    lattice_models[x[MODEL]], lattice_layers(c),
                    lattice_vocabularies[x[VOCABULARY]], lattice_dropouts[x[DROPOUT]]);
    ech_text_append(out, " parallel.pipeline=%d parallel.data=%d parallel.context=%d",
                    lattice_degrees[x[PIPELINE]], lattice_degrees[x[DATA]],
                    lattice_degrees[x[CONTEXT]]);
    ech_text_append(out, " parallel.tensor=%d parallel.sequence=%s parallel.context_method=%s",
                    lattice_degrees[x[TENSOR]], lattice_sequences[x[SEQUENCE]],
                    lattice_methods[x[METHOD]]);
    ech_text_append(out, " memory.sequence_chunks=%s parallel.schedule=%s",
                    lattice_pieces[x[PIECES]], lattice_schedules[x[SCHEDULE]]);
    ech_text_append(out, " training.micro_batch_size=%d training.global_batch_size=%d", micro[1],
                    micro[0] * micro[1] * lattice_degrees[x[DATA]]);
    ech_text_append(out, " parallel.reduction=%s parallel.bucket_bytes=%s%s",
                    lattice_reductions[x[REDUCTION]], lattice_buckets[x[BUCKET]],
                    lattice_documents[x[DOCUMENTS]]);
}

/* "echelon verify FOLDER/run.yaml --ranks 4 ...". */
static inline void lattice_print_command(const cover_case *c, ech_text *out)
{
    ech_text_append(out, "echelon verify %s/run.yaml --ranks %d ", fixture_folder,
                    lattice_ranks(c));
    lattice_print_words(c, out);
}

/* What that command reads. */
static inline void lattice_write_run_file(void)
{
    char path[300];
    ech_text yaml = {0};
    snprintf(path, sizeof path, "%s/run.yaml", fixture_folder);
    grid_print_yaml("gpt2", "run", &yaml);
    ECH_ASSERT(ech_file_write(path, yaml.at, yaml.n) == ECH_OK);
    ech_text_free(&yaml);
}

/* NULL: refused. */
static inline ech_config *lattice_config(const cover_case *c)
{
    ech_text words = {0};
    lattice_print_words(c, &words);
    ech_config *config = grid_config_of("gpt2", "run", words.at);
    ech_text_free(&words);
    return config;
}

/* ---- what may be asked for ---- */

/* Whether there are not too many ranks, and the layout makes a design of it. */
static inline bool lattice_is_feasible(const cover_case *c)
{
    ech_design design = {0};
    if (lattice_ranks(c) > LATTICE_RANKS) return false;
    bool quiet = ech_log_set_quiet(true);
    ech_config *config = lattice_config(c);
    ech_status status = config ? ech_design_create(config, fixture_tokenizer, lattice_ranks(c),
                                                   lattice_ranks(c), &design)
                               : ECH_EUSAGE;
    if (status == ECH_OK) ech_design_destroy(&design);
    ech_config_destroy(config);
    ech_log_set_quiet(quiet);
    return status == ECH_OK;
}

/* ---- the verdict ---- */

static inline verdict lattice_verify(const cover_case *c)
{
    ech_config *config = lattice_config(c);
    verdict found =
        verdict_of(&(verdict_request){.config = config, .ranks = lattice_ranks(c), .steps = 2});
    ech_config_destroy(config);
    return found;
}

#endif
