/* SPDX-License-Identifier: Apache-2.0
 *
 * Random run files that their grid, batch, micro-batch or schedule is refused for: whatever grid,
 * number of ranks or number of samples the error offers is followed, each by itself, and nothing is
 * refused then.
 */

#include "app/random_run.h"
#include "unit.h"

enum { CASES = 600, MOST_GRIDS = 4 };

static const char run_file[] =
    "model: {architecture: llama, hidden_size: 48, num_hidden_layers: 4, num_attention_heads: 12,\n"
    "  num_key_value_heads: 6, intermediate_size: 96, vocab_size: 300}\n"
    "data: {train: x, sequence_length: 24}\n"
    "training: {steps: 60, global_batch_size: 8}\n"
    "optimizer: {learning_rate: 3e-3}\n"
    "parallel: {comm: local, threads: 1}\n"
    "log: {directory: runs/x}\n";

/* All forwards, then all backwards. */
static void write_order(int stages, int micro_batches)
{
    char path[300];
    ech_text text = {0};
    for (int s = 0; s < stages; s++) {
        for (int q = 0; q < micro_batches; q++) ech_text_append(&text, "F0.%d ", q);
        for (int q = 0; q < micro_batches; q++) ech_text_append(&text, "B0.%d ", q);
        ech_text_append(&text, "\n");
    }
    snprintf(path, sizeof path, "%s/%d-%d.order", fixture_folder, stages, micro_batches);
    assert_int_equal(ech_file_write(path, text.at, text.n), ECH_OK);
    ech_text_free(&text);
}

static void draw_schedule(dice *d, random_run *r)
{
    if (chance(d, 80)) {
        add(r, "parallel.schedule", ONE_OF(d, random_schedules));
        return;
    }
    int stages = (int)from_to(d, 1, 3), micro_batches = (int)from_to(d, 1, 4);
    write_order(stages, micro_batches);
    ech_text_append(&r->words, " parallel.schedule=%s/%d-%d.order", fixture_folder, stages,
                    micro_batches);
}

static random_run draw(dice *d)
{
    static const char *const bools[] = {"true", "false"}, *counts[] = {"1", "2", "3"};
    random_run r = {.ranks = (int)from_to(d, 1, 12)};
    add(&r, "model.tie_word_embeddings", ONE_OF(d, bools));
    draw_schedule(d, &r);
    bool replicas = chance(d, 20);
    if (replicas) {
        const char *first = ONE_OF(d, counts), *second = ONE_OF(d, counts);
        ech_text_append(&r.words, " parallel.stage_replicas=[%s,%s]", first, second);
    } else if (chance(d, 67)) {
        add_number(&r, "parallel.pipeline", from_to(d, 1, 4));
    }
    if (!replicas && chance(d, 50)) add_number(&r, "parallel.data", from_to(d, 1, 4));
    if (chance(d, 33)) {
        add_number(&r, "parallel.context", from_to(d, 1, 4));
        add(&r, "parallel.context_method", ONE_OF(d, random_methods));
    }
    if (chance(d, 33)) {
        add_number(&r, "parallel.tensor", from_to(d, 1, 5));
        if (chance(d, 67)) add(&r, "parallel.sequence", ONE_OF(d, random_sequences));
    }
    if (chance(d, 12)) add_number(&r, "memory.sequence_chunks", from_to(d, 2, 7));
    add_number(&r, "training.global_batch_size", from_to(d, 1, 32));
    if (chance(d, 67)) add_number(&r, "training.micro_batch_size", from_to(d, 1, 4));
    if (!replicas && chance(d, 75))
        r.ranks = (int)(number_of(&r, "parallel.pipeline=") * number_of(&r, "parallel.context=") *
                        number_of(&r, "parallel.tensor=") * number_of(&r, "parallel.data="));
    return r;
}

/* Whether pieces of a sequence are wrong and something beside them, which is said at once. */
static bool is_beside_another(const random_run *r)
{
    if (number_of(r, "memory.sequence_chunks=") < 5) return false;
    random_run whole = *r;
    whole.words = (ech_text){0};
    ech_text_append(&whole.words, "%s", r->words.at);
    set(&whole, "memory.sequence_chunks=1");
    bool another = refusal(run_file, NULL, &whole);
    ech_text_free(&whole.words);
    return another;
}

typedef bool follower(random_run *r, const char *error);

static bool take_ranks(random_run *r, const char *error)
{
    const char *ranks = strstr(error, "use --ranks ");
    if (ranks) r->ranks = atoi(ranks + strlen("use --ranks "));
    return ranks;
}

static bool take_grid(random_run *r, const char *error)
{
    const char *grids = strstr(error, "work");
    return grids && (follow_grid(r, grids) || follow_listed(r, grids));
}

static bool take_number(random_run *r, const char *error)
{
    return follow_number(r, error, strstr(error, " = "));
}

static bool take_batches(random_run *r, const char *error)
{
    return follow_batches(r, error);
}

/* Whether the error has that offer. */
static bool follow(const random_run *refused, const char *error, follower *take, int which)
{
    random_run r = *refused;
    char again[2000];
    r.words = (ech_text){0};
    r.hints = which;
    ech_text_append(&r.words, "%s", refused->words.at);
    bool offered = take(&r, error);
    const char *why = offered ? refusal(run_file, NULL, &r) : NULL;
    if (why) {
        snprintf(again, sizeof again, "%s", why);
        fail_msg("%s, %d ranks:\n  %s\nof which\n  %s, %d ranks:\n  %s", refused->words.at,
                 refused->ranks, error, r.words.at, r.ranks, again);
    }
    ech_text_free(&r.words);
    return offered;
}

TEST(test_nothing_offered_is_refused)
{
    static follower *const followers[] = {take_grid, take_ranks, take_number, take_batches};
    enum { FOLLOWERS = sizeof followers / sizeof *followers };
    int refused = 0, followed[FOLLOWERS] = {0};
    dice d = {.key = {.seed = 11}};
    for (int i = 0; i < CASES; i++) {
        random_run r = draw(&d);
        char error[2000];
        const char *why = refusal(run_file, NULL, &r);
        snprintf(error, sizeof error, "%s", why ? why : "");
        refused += why != NULL;
        if (why && is_beside_another(&r)) why = NULL;
        for (int f = 0; f < FOLLOWERS && why; f++)
            for (int which = 0; which < (f == 0 ? MOST_GRIDS : 1); which++)
                followed[f] += follow(&r, error, followers[f], which);
        ech_text_free(&r.words);
    }
    print_message("%d of %d are refused; followed: %d grids, %d numbers of ranks, %d numbers of "
                  "samples, %d of micro-batches\n",
                  refused, CASES, followed[0], followed[1], followed[2], followed[3]);
    for (int f = 0; f < FOLLOWERS; f++) assert_true(followed[f] > 0);
}

ALL_TESTS(fixture_setup, fixture_teardown)
