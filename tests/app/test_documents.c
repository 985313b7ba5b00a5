/* SPDX-License-Identifier: Apache-2.0
 *
 * What data.document_mask costs: where documents begin is loaded by the ranks whose blocks look at
 * positions, once a micro-batch, and nothing else about a plan changes; without the key there is
 * nothing of it.
 */

#include "app/grid_run.h"
#include "unit.h"

enum { B = 2, T = 24, M = 4 };

/* Bytes of a list's values, by kind. */
static void add_bytes(const ech_list *list, int64_t bytes[ECH_MEMORY_KINDS])
{
    for (size_t i = 0; i < list->value.n; i++)
        bytes[list->value.at[i].kind] += list->value.at[i].bytes;
}

static bool looks_at_positions(const ech_block *block)
{
    for (size_t i = 0; i < block->node.n; i++) {
        const char *name = block->node.at[i].layer->name;
        if (strcmp(name, "position") == 0 || strcmp(name, "attention") == 0 ||
            strcmp(name, "attend") == 0)
            return true;
    }
    return false;
}

/* Whether some block of the rank does. */
static bool reads_starts(const grid_plans *g, int rank)
{
    for (size_t b = 0; b < g->design.model->block.n; b++)
        if (ech_layout_has_block(g->design.layout, rank, (int)b) &&
            looks_at_positions(g->design.model->block.at[b]))
            return true;
    return false;
}

/* The step from *s on that loads nothing, *s after it; NULL at the end. Only a rank that reads a
 * batch loads. */
static const ech_step *next_step(const ech_list *list, size_t *s)
{
    while (*s < list->step.n && list->step.at[*s].kind == ECH_STEP_LOAD) ++*s;
    return *s < list->step.n ? &list->step.at[(*s)++] : NULL;
}

static void compare_steps(const ech_list *without, const ech_list *with)
{
    size_t i = 0, j = 0;
    for (const ech_step *a, *b; (a = next_step(without, &i));) {
        assert_non_null(b = next_step(with, &j));
        assert_int_equal(a->kind, b->kind);
        assert_int_equal(a->bytes, b->bytes);
        assert_int_equal(a->calls, b->calls);
    }
    assert_null(next_step(with, &j));
}

static int count_loads(const ech_list *list)
{
    int n = 0;
    for (size_t s = 0; s < list->step.n; s++) n += list->step.at[s].kind == ECH_STEP_LOAD;
    return n;
}

static void compare_lists(const ech_list *without, const ech_list *with, bool reads)
{
    int64_t before[ECH_MEMORY_KINDS] = {0}, after[ECH_MEMORY_KINDS] = {0}, starts = 0;
    bool learns = with->kind == ECH_LIST_TRAIN || with->kind == ECH_LIST_VALIDATE;
    if (reads && learns)
        starts = with->micro_batches / with->numbering.sequence_chunks * with->extent.batch * T *
                 (int64_t)sizeof(int32_t);
    add_bytes(without, before);
    add_bytes(with, after);
    assert_int_equal(without->batch[ECH_STARTS], -1);
    assert_int_equal(with->batch[ECH_STARTS] >= 0, starts > 0);
    compare_steps(without, with);
    /* On the device, and on the way there. */
    for (int kind = 0; kind < ECH_MEMORY_KINDS; kind++)
        assert_int_equal(after[kind] - before[kind],
                         kind == ECH_MEMORY_BATCH || kind == ECH_MEMORY_STAGING ? starts : 0);
    /* A rank that loads nothing else stages them by themselves. */
    int64_t of = starts ? with->micro_batches / with->numbering.sequence_chunks : 0;
    assert_int_equal(with->value.n - without->value.n,
                     of + count_loads(with) - count_loads(without));
}

static const char *const grids[] = {
    "",
    "parallel.pipeline=4",
    "parallel.pipeline=2 parallel.schedule=interleaved parallel.virtual_stages=2",
    "parallel.pipeline=2 parallel.schedule=pipedream",
    "parallel.tensor=4 parallel.sequence=true",
    "parallel.context=4",
    "parallel.context=2 parallel.context_method=ulysses parallel.tensor=2",
    "memory.sequence_chunks=4",
    "parallel.pipeline=2 parallel.tensor=2 memory.sequence_chunks=2",
};

static void check(const char *family, const char *grid)
{
    char words[500], masked[560];
    snprintf(words, sizeof words,
             "training.micro_batch_size=%d training.global_batch_size=%d model.num_hidden_layers=4 "
             "model.tie_word_embeddings=false training.steps=4 %s",
             B, B * M, grid);
    snprintf(masked, sizeof masked, "%s data.document_mask=true", words);
    grid_plans without = grid_plan(family, words), with = grid_plan(family, masked);
    int readers = 0;
    for (int r = 0; r < with.ranks; r++) {
        bool reads = reads_starts(&with, r);
        readers += reads;
        for (int l = 0; l < ECH_LIST_KINDS; l++)
            compare_lists(&without.plan[r]->list[l], &with.plan[r]->list[l], reads);
        assert_memory_equal(without.plan[r]->persistent_bytes, with.plan[r]->persistent_bytes,
                            sizeof without.plan[r]->persistent_bytes);
        ech_loader_options a = ech_design_reads(&without.design, r, true, INT64_MAX);
        ech_loader_options b = ech_design_reads(&with.design, r, true, INT64_MAX);
        assert_false(a.document_mask);
        assert_true(b.document_mask);
        assert_int_equal(b.counts_only, a.counts_only && !reads);
    }
    assert_true(readers > 0);
    grid_plans_free(&without);
    grid_plans_free(&with);
}

TEST(test_plans)
{
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        check("gpt2", grids[i]);
        check("llama", grids[i]);
    }
}

/* Inner stages of a pipeline, which without documents count tokens and read none. */
TEST(test_middle_stages_read)
{
    const char *words = "parallel.pipeline=4 model.num_hidden_layers=4 data.document_mask=true";
    grid_plans g = grid_plan("llama", words);
    for (int r = 1; r <= 2; r++) {
        const ech_list *list = &g.plan[r]->list[ECH_LIST_TRAIN];
        assert_false(ech_design_reads(&g.design, r, true, INT64_MAX).counts_only);
        assert_true(list->batch[ECH_STARTS] >= 0);
        assert_int_equal(list->batch[ECH_TOKENS], -1);
        assert_int_equal(list->batch[ECH_TARGETS], -1);
    }
    grid_plans_free(&g);
}

ALL_TESTS(grid_setup, fixture_teardown)
