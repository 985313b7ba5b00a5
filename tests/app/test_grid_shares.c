/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank of a grid has, by its plan: 1/t of every matrix, 1/t of every message between stages,
 * which elements several ranks have (whose bits probes/alike.c compares), and nowhere anything of
 * the size of all logits.
 */

#include "app/grid_run.h"
#include "unit.h"

enum { B = 2, T = 24, C = 32, M = 3 };

static int64_t elements_of(const grid_plans *g, int rank, const char *part)
{
    int64_t sum = 0;
    for (size_t p = 0; p < g->design.model->param.n; p++)
        if (strstr(g->design.model->param.at[p].name, part))
            sum += g->plan[rank]->param[p].elements;
    return sum;
}

TEST(test_parameters_are_shared_out)
{
    static const char *const parts[][8] = {
        {"attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight",
         "attn.c_attn.bias", "mlp.c_fc.bias"},
        {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"},
        {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}};
    static const char *const families[] = {"gpt2", "llama", "qwen3"};
    for (int f = 0; f < 3; f++) {
        grid_plans one = grid_plan(families[f], "");
        for (int t = 2; t <= 8; t *= 2) {
            char words[80];
            snprintf(words, sizeof words, "parallel.tensor=%d", t);
            grid_plans g = grid_plan(families[f], words);
            for (int r = 0; r < t; r++)
                for (int i = 0; parts[f][i]; i++) {
                    int64_t whole = elements_of(&one, 0, parts[f][i]);
                    assert_true(whole > 0);
                    assert_int_equal(elements_of(&g, r, parts[f][i]) * t, whole);
                }
            grid_plans_free(&g);
        }
        grid_plans_free(&one);
    }
}

/* What goes from stage to stage is 1/t of a micro-batch, and c's share of that. */
TEST(test_messages_are_shared_out)
{
    static const struct {
        int shares;
        const char *more;
    } cases[] = {
        {1, ""},
        {2, "parallel.tensor=2"},
        {2, "parallel.tensor=2 parallel.sequence=true"},
        {4, "parallel.tensor=4 parallel.schedule=gpipe"},
        {4, "parallel.tensor=2 parallel.context=2"},
        {4, "parallel.tensor=2 parallel.context=2 parallel.sequence=keep"},
        {4, "parallel.tensor=2 memory.sequence_chunks=2 parallel.schedule=zero-bubble"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[400];
        snprintf(
            words, sizeof words,
            "parallel.pipeline=2 training.micro_batch_size=%d training.global_batch_size=%d %s", B,
            B * M, cases[i].more);
        grid_plans g = grid_plan(i % 2 ? "llama" : "gpt2", words);
        for (int r = 0; r < g.ranks; r++) {
            const ech_list *list = &g.plan[r]->list[ECH_LIST_TRAIN];
            int messages = 0;
            for (size_t s = 0; s < list->step.n; s++) {
                if (!ech_step_sends(&list->step.at[s])) continue;
                messages++;
                assert_int_equal(list->step.at[s].bytes * cases[i].shares,
                                 B * T * C * (int)sizeof(double));
            }
            assert_int_equal(messages, M * list->numbering.sequence_chunks);
        }
        grid_plans_free(&g);
    }
}

/* What tensor ranks do not share out: norms, the biases of sums, positions; and of llama norms. */
enum {
    L = 2,
    EVERY = -1,
    GPT2 = L * 6 * C + 2 * C + 24 * C,
    LLAMA = L * 2 * C + C,
    TABLE = 257 * C,
    KEY_VALUE = L * 2 * C * 4 /* of each head */
};

static void count_element(void *context, int64_t local, int64_t whole)
{
    (void)local;
    ++((int *)context)[whole];
}

/* How many elements more than one rank has. */
static int64_t count_shared(const grid_plans *g, int64_t *all)
{
    int64_t shared = 0;
    for (size_t p = 0; p < g->design.model->param.n; p++) {
        int64_t n = ech_shape_whole(&g->design.model->param.at[p].shape);
        ECH_FREED int *ranks = ech_calloc((size_t)n, sizeof *ranks);
        for (int r = 0; r < g->ranks; r++)
            if (ech_layout_holds(g->design.layout, r, (int)p))
                grid_each_element(&g->design, r, (int)p, count_element, ranks);
        for (int64_t i = 0; i < n; i++) {
            assert_true(ranks[i] > 0);
            shared += ranks[i] > 1;
        }
        *all += n;
    }
    return shared;
}

TEST(test_elements_on_several_ranks)
{
    static const struct {
        const char *family, *words;
        int64_t shared;
    } cases[] = {
        {"gpt2", "parallel.tensor=2", GPT2},
        {"llama", "parallel.tensor=2 parallel.sequence=true", LLAMA},
        {"gpt2", "parallel.tensor=2 parallel.sequence=keep parallel.data=2", EVERY},
        {"gpt2", "parallel.tensor=4 parallel.pipeline=2 parallel.sequence=true", GPT2 + TABLE},
        {"llama", "parallel.tensor=4 model.num_key_value_heads=1", LLAMA + KEY_VALUE},
        {"llama", "parallel.tensor=8 model.num_key_value_heads=2 parallel.sequence=true",
         LLAMA + 2 * KEY_VALUE},
        {"llama", "parallel.tensor=4 model.num_key_value_heads=2 parallel.context=2", EVERY},
        {"gpt2", "parallel.context=4 parallel.context_method=ulysses", EVERY},
        {"gpt2", "parallel.context=2 parallel.tensor=2 parallel.pipeline=2", EVERY},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t all = 0;
        grid_plans g = grid_plan(cases[i].family, cases[i].words);
        int64_t shared = count_shared(&g, &all);
        assert_int_equal(shared, cases[i].shared == EVERY ? all : cases[i].shared);
        grid_plans_free(&g);
    }
}

/* Logits never exist for all tokens and the whole vocabulary, nor anything else of that size. */
TEST(test_nothing_is_tokens_times_vocabulary)
{
    static const char *const shapes[] = {"",
                                         "parallel.tensor=2",
                                         "parallel.tensor=4 parallel.sequence=true",
                                         "parallel.context=2 parallel.tensor=2",
                                         "parallel.pipeline=2 parallel.tensor=2",
                                         "memory.sequence_chunks=4"};
    enum { SAMPLES = 8, TOKENS = 512, VOCABULARY = 8192 };
    const int64_t all = (int64_t)SAMPLES * TOKENS * VOCABULARY;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        char words[400];
        snprintf(words, sizeof words,
                 "data.sequence_length=%d model.vocab_size=%d training.micro_batch_size=%d "
                 "training.global_batch_size=%d precision.compute=fp32 %s",
                 TOKENS, VOCABULARY, SAMPLES, SAMPLES, shapes[i]);
        grid_plans g = grid_plan(i % 2 ? "llama" : "gpt2", words);
        for (int r = 0; r < g.ranks; r++)
            for (int kind = 0; kind < ECH_LIST_KINDS; kind++) {
                const ech_list *list = &g.plan[r]->list[kind];
                for (size_t v = 0; v < list->value.n; v++)
                    assert_true(list->value.at[v].bytes < all);
                assert_true(list->bytes[ECH_SPACE_DEVICE] > 0 || list->value.n == 0);
            }
        assert_true(g.plan[0]->arena_bytes[ECH_SPACE_DEVICE] > 0);
        grid_plans_free(&g);
    }
}

ALL_TESTS(grid_setup, fixture_teardown)
