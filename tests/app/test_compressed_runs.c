/* SPDX-License-Identifier: Apache-2.0
 *
 * Training with compressed gradients: a run goes on on other ranks with what these have kept; what
 * cannot be as asked for is said. That a resumed run is the same run is probes/resumes.c.
 */
#include <fcntl.h>

#include "app/runs.h"
#include "share.h"
#include "unit.h"

#define SAVES "training.steps=8 checkpoint.every=4 "

/* Sums of residuals are what the next step sees: under powersgd other degrees train the same. */
static void check_others(const char *words, int ranks, const char *grid, int other_ranks,
                         const char *other)
{
    char before[600], after[600];
    snprintf(before, sizeof before, "%s %s", words, grid);
    snprintf(after, sizeof after, "%s %s", words, other);
    runs_train("llama", "whole", ranks, before);
    runs_train("llama", "parts", ranks, before);
    runs_remove_checkpoint("parts", 8);
    runs_train("llama", "parts", other_ranks, after);
    assert_false(runs_same_file("whole", "parts", 8, runs_state)); /* other residuals */
    assert_true(runs_apart("whole", "parts", 8, runs_model) < 1e-9);
    runs_remove("whole");
    runs_remove("parts");
}

#define POWERSGD                                                                                   \
    SAVES "precision.compute=fp64 parallel.compression=powersgd parallel.compression_rank=2 "      \
          "model.resid_pdrop=0 model.attn_pdrop=0"

TEST(other_ranks_go_on)
{
    check_others(POWERSGD, 2, "parallel.data=2", 3, "parallel.data=3");
}

/* Of experts there are fewer residuals than of the rest. */
TEST(other_expert_degrees_go_on)
{
    const char *words = POWERSGD " training.global_batch_size=4 data.sequence_length=8 "
                                 "model.architecture=mixtral model.num_local_experts=4";
    check_others(words, 4, "parallel.data=4 parallel.expert=2", 2,
                 "parallel.data=2 parallel.expert=2");
    check_others(words, 4, "parallel.data=4 parallel.expert=2", 4,
                 "parallel.data=2 parallel.tensor=2");
    check_others(words, 2, "parallel.data=2", 4,
                 "parallel.data=2 parallel.context=2 parallel.expert=4");
}

/* Trains `whole` and the first half of `parts` with `before`, each followed by the rest of the run
 * with its own words. Returns the largest difference of the weights. */
static double continued_apart(const char *before, const char *whole, int ranks, const char *parts,
                              int other_ranks)
{
    const char *const run[] = {"whole", "parts"}, *const after[] = {whole, parts};
    const int on[] = {ranks, other_ranks};
    char words[600];
    for (int i = 0; i < 2; i++) {
        runs_train("llama", run[i], 2, before);
        runs_remove_checkpoint(run[i], 8);
        snprintf(words, sizeof words, "%s %s", before, after[i]);
        runs_train("llama", run[i], on[i], words);
    }
    double apart = runs_apart("whole", "parts", 8, runs_model);
    runs_remove("whole");
    runs_remove("parts");
    return apart;
}

#define EXACT   "precision.compute=fp64 model.resid_pdrop=0 model.attn_pdrop=0 parallel.data=2 "
#define PLAIN   SAVES EXACT
#define FACTORS " parallel.compression=powersgd parallel.compression_rank="

/* A run whose first steps are not compressed has the same result in any layout. If the rank is the
 * matrices', it is the result without compression. */
TEST(compression_begins_later)
{
    assert_true(continued_apart(PLAIN, "", 2, FACTORS "99", 2) < 1e-9);
    assert_true(continued_apart(PLAIN, FACTORS "2", 2, FACTORS "2 parallel.data=3", 3) < 1e-9);
    assert_true(continued_apart(PLAIN, FACTORS "2", 2,
                                FACTORS "2 parallel.data=1 parallel.tensor=2", 2) < 1e-9);
    assert_true(continued_apart(PLAIN, "", 2, FACTORS "2", 2) > 1e-6);
    assert_true(continued_apart(PLAIN, FACTORS "2", 2,
                                " parallel.compression=topk parallel.compression_density=0.5",
                                2) > 1e-6);
}

/* By steps so short that gradients hardly change, weights are the sum of all that was sent. A last
 * step that sends all of it makes up for what the steps before, of another rank or kind, have
 * kept. */
TEST(another_rank_sends_what_was_kept)
{
    static const char *const kept[] = {
        FACTORS "1", " parallel.compression=topk parallel.compression_density=0.1"};
    const char *words =
        "training.steps=4 checkpoint.every=3 " EXACT
        "optimizer.name=sgd optimizer.momentum=0 optimizer.learning_rate=1e-6 "
        "optimizer.warmup_steps=0 optimizer.schedule=constant optimizer.weight_decay=0 "
        "optimizer.clip_norm=0";
    runs_train("llama", "plain", 2, words);
    for (int i = 0; i < 2; i++) {
        char first[700], last[700];
        snprintf(first, sizeof first, "%s%s", words, kept[i]);
        snprintf(last, sizeof last, "%s" FACTORS "99", words);
        runs_train("llama", "kept", 2, first);
        double without = runs_apart("kept", "plain", 4, runs_model);
        runs_remove_checkpoint("kept", 4);
        runs_train("llama", "kept", 2, last);
        double with = runs_apart("kept", "plain", 4, runs_model);
        if (!(with < 1e-3 * without)) fail_msg("%s: %g, before %g", kept[i], with, without);
        runs_remove("kept");
    }
    runs_remove("plain");
}

/* What a run prints. */
static void run_and_read(const char *words, char **text)
{
    char path[300];
    size_t n;
    snprintf(path, sizeof path, "%s/printed", fixture_folder);
    int own = dup(STDERR_FILENO), file = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    assert_true(own >= 0 && file >= 0 && dup2(file, STDERR_FILENO) >= 0);
    runs_train("gpt2", "said", 2, words);
    assert_true(dup2(own, STDERR_FILENO) >= 0);
    close(own);
    close(file);
    assert_int_equal(ech_file_read(path, 1 << 20, text, &n), ECH_OK);
    runs_remove("said");
}

/* Matrices are 16 x 48, 16 x 16, 16 x 64 and 64 x 16 in each of two layers. */
TEST(what_is_used_instead_is_said)
{
    static const struct {
        const char *words;
        bool said;
    } all[] = {{"powersgd parallel.compression_rank=17", true},
               {"powersgd parallel.compression_rank=16", false}};
    for (int i = 0; i < 2; i++) {
        char words[200], *text;
        snprintf(words, sizeof words, "parallel.data=2 parallel.compression=%s", all[i].words);
        run_and_read(words, &text);
        bool said =
            strstr(text, "parallel.compression_rank = 17 exceeds the shorter side of 8 "
                         "matrices") &&
            strstr(
                text,
                "that side is their rank, and only a lower rank sends less than the whole matrix");
        if (said != all[i].said) fail_msg("%s", text);
        free(text);
    }
}

/* Of two samples of two tokens a gradient is the sum of four outer products, and of no higher
 * rank. More samples have more than factors have. */
TEST(the_rank_found_is_reported)
{
    static const struct {
        int ranks;
        const char *words;
        double rank, is_short;
    } all[] = {
        {2, "parallel.data=2 data.sequence_length=2 training.global_batch_size=2", 4, 1},
        {4, "parallel.data=2 parallel.tensor=2 data.sequence_length=2 training.global_batch_size=2",
         4, 1},
        {4,
         "parallel.data=2 parallel.pipeline=2 data.sequence_length=2 "
         "training.global_batch_size=2 parallel.zero=1",
         4, 1},
        {2, "parallel.data=2 training.global_batch_size=4", 6, 0},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char words[600];
        snprintf(words, sizeof words,
                 "training.steps=1 precision.compute=fp64 parallel.compression=powersgd "
                 "parallel.compression_rank=6 training.micro_batch_size=1 %s",
                 all[i].words);
        runs_train("gpt2", "found", all[i].ranks, words);
        assert_true(fabs(runs_first("found", "compression_rank") - all[i].rank) < 1e-9);
        assert_true(runs_first("found", "compression_rank_short") == all[i].is_short);
        runs_remove("found");
    }
    runs_train("gpt2", "plain", 2, "training.steps=1 parallel.data=2");
    assert_true(isnan(runs_first("plain", "compression_rank")));
    runs_remove("plain");
}

ALL_TESTS(fixture_setup, fixture_teardown)
