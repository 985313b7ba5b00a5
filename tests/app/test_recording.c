/* SPDX-License-Identifier: Apache-2.0
 *
 * Recordings of simulated runs: what comes out is what was put in; and files that are missing, cut
 * off, of other runs, or of other clocks.
 */

#include <math.h>

#include "app/recorded.h"
#include "base/log.h"
#include "unit.h"

static ech_status read_recording(const recorded *run, ech_recording *out, ech_text *why)
{
    return ech_recording_read(run->folder, recorded_plans(run), run->design.world, out, why);
}

static ech_recording read_all(const recorded *run)
{
    ech_recording recording;
    ech_text why = {0};
    assert_int_equal(read_recording(run, &recording, &why), ECH_OK);
    if (why.n) fail_msg("%s", why.at);
    assert_int_equal(recording.ranks, run->design.world);
    return recording;
}

/* A sentence with these words says why there is nothing. */
static void assert_unusable(const recorded *run, const char *words)
{
    ech_recording recording;
    ech_text why = {0};
    assert_int_equal(read_recording(run, &recording, &why), ECH_OK);
    assert_int_equal(recording.ranks, 0);
    if (!why.n || !strstr(why.at, words))
        fail_msg("no \"%s\" in \"%s\"", words, why.n ? why.at : "");
    ech_text_free(&why);
}

/* ---- what was put in ---- */

static void assert_near(double a, double b, double within)
{
    if (fabs(a - b) > within) fail_msg("%.12g is not %.12g", a, b);
}

/* The next bar of a block's work, from i on. */
static size_t next_work(const ech_timeline *timeline, size_t i)
{
    while (i < timeline->bar.n && timeline->bar.at[i].kind > ECH_BAR_WEIGHT) i++;
    return i;
}

static void assert_same_timeline(const ech_timeline *a, const ech_timeline *b)
{
    const double within = 3e-9; /* files have nanoseconds */
    double update[2] = {0};
    size_t i = next_work(a, 0), j = next_work(b, 0);
    assert_int_equal(a->ranks, b->ranks);
    assert_int_equal(a->chunks, b->chunks);
    assert_near(a->end, b->end, within);
    assert_near(a->bubble, b->bubble, 1e-6);
    assert_near(a->waits, b->waits, 1e-5);
    assert_near(a->collective, b->collective, 1e-5);
    for (; i < a->bar.n && j < b->bar.n; i = next_work(a, i + 1), j = next_work(b, j + 1)) {
        const ech_timeline_bar *x = &a->bar.at[i], *y = &b->bar.at[j];
        assert_int_equal(x->rank, y->rank);
        assert_int_equal(x->kind, y->kind);
        assert_int_equal(x->chunk, y->chunk);
        assert_int_equal(x->micro, y->micro);
        assert_near(x->begin, y->begin, within);
        assert_near(x->end, y->end, within);
    }
    assert_int_equal(i, a->bar.n);
    assert_int_equal(j, b->bar.n);
    for (int t = 0; t < 2; t++) {
        const ech_timeline *timeline = t ? b : a;
        for (size_t k = 0; k < timeline->bar.n; k++)
            if (timeline->bar.at[k].kind == ECH_BAR_UPDATE)
                update[t] += timeline->bar.at[k].end - timeline->bar.at[k].begin;
    }
    assert_true(update[0] > 0);
    assert_near(update[0], update[1], within * (double)a->bar.n);
}

/* Which phases of a block any rank computes something in. */
static bool runs(const recorded *run, int block, ech_phase phase)
{
    const ech_block *b = run->design.model->block.at[block];
    for (size_t c = 0; c < b->program[phase].n; c++)
        if (!ech_call_exchange(b, &b->program[phase].at[c], phase, ECH_TRAIN)) return true;
    return false;
}

/* Where layers are cut a block is many steps, of each of which a nanosecond is lost, and a rank has
 * a share of it. */
static double cost_error(const recorded *run)
{
    int ways = ech_plan_ways(run->plan[0]);
    return ways > 1 ? 100e-9 * ways : 3e-9;
}

static void assert_same_costs(const recorded *run, const ech_profile *profile)
{
    assert_int_equal(profile->blocks, run->profile.blocks);
    for (int b = 0; b < profile->blocks; b++)
        for (int p = 0; p < ECH_PHASES; p++) {
            int phase = ech_profile_phase((ech_phase)p, &run->plan[0]->model->options);
            assert_near(profile->block[b].seconds[phase],
                        runs(run, b, (ech_phase)p) ? run->profile.block[b].seconds[phase] : 0,
                        cost_error(run));
        }
    assert_near(profile->update_seconds, run->profile.update_seconds, 1e-11);
    assert_near(profile->other_seconds, run->profile.other_seconds, 3e-9);
    assert_true(profile->bandwidth <= 0 && profile->latency <= 0);
}

#define CUT "data.sequence_length=8 training.micro_batch_size=2 "

static const struct {
    const char *keys;
    int ranks;
} runs_of[] = {
    {"training.micro_batch_size=3", 1},
    {"training.micro_batch_size=3", 2},
    {"parallel.pipeline=2 training.micro_batch_size=2", 2},
    {"parallel.pipeline=2 training.micro_batch_size=2", 4},
    {"parallel.pipeline=3 training.micro_batch_size=2 parallel.schedule=zero-bubble", 3},
    {"parallel.pipeline=2 training.micro_batch_size=2 parallel.schedule=gpipe", 2},
    {"parallel.pipeline=2 parallel.virtual_stages=2 parallel.schedule=interleaved "
     "training.micro_batch_size=1",
     2},
    {"parallel.pipeline=2 parallel.schedule=pipedream model.tie_word_embeddings=false "
     "training.micro_batch_size=4 parallel.flush_every=4 training.check_every=0",
     2},
    {"parallel.pipeline=2 parallel.schedule=pipedream-2bw model.tie_word_embeddings=false "
     "training.micro_batch_size=3 parallel.flush_every=2 training.check_every=0",
     2},
    {CUT "parallel.tensor=2", 2},
    {CUT "parallel.tensor=2 parallel.pipeline=2 parallel.sequence=true", 4},
    {CUT "parallel.tensor=2 parallel.pipeline=2 parallel.schedule=zero-bubble", 4},
    {CUT "parallel.context=2 parallel.pipeline=2", 4},
    {CUT "parallel.context=2 parallel.context_method=ulysses parallel.data=2", 4},
    {CUT "memory.sequence_chunks=2 parallel.pipeline=2", 2},
};

/* Whether the list has collectives that a block waits for. (A ring's run beside the parts of
 * attention, and are hidden.) */
static bool is_cut(const recorded *run)
{
    const ech_list *list = &run->plan[0]->list[ECH_LIST_TRAIN];
    for (size_t s = 0; s < list->step.n; s++)
        if (list->step.at[s].kind == ECH_STEP_COLLECTIVE &&
            list->step.at[s].collective != ECH_COLLECTIVE_SHIFT)
            return true;
    return false;
}

TEST(test_what_was_put_in)
{
    for (size_t i = 0; i < sizeof runs_of / sizeof *runs_of; i++) {
        recorded run = recorded_create(runs_of[i].keys, runs_of[i].ranks);
        recorded_write_all(&run, 8, 3);
        ech_recording recording = read_all(&run);
        assert_int_equal(recording.lists, 3);
        assert_int_equal(recording.rank[0].first_step, 8);
        assert_true(ech_recording_has_one_clock(&recording));
        ech_timeline timeline;
        ech_recording_timeline(&recording, &timeline);
        assert_same_timeline(&timeline, &run.timeline);
        assert_int_equal(timeline.waits > 0, is_cut(&run));
        ech_profile *profile = ech_recording_profile(&recording);
        assert_same_costs(&run, profile);
        ech_profile_destroy(profile);
        ech_timeline_free(&timeline);
        ech_recording_free(&recording);
        recorded_destroy(&run);
    }
}

/* Rank 1's last list is cut off: the one before it is the last. */
TEST(test_cut_off)
{
    recorded run = recorded_create("parallel.pipeline=2 training.micro_batch_size=2", 2);
    recorded_write_all(&run, 0, 3);
    recorded_write(&run, 1, 0, 3, 5, 4000);
    ech_recording recording = read_all(&run);
    assert_int_equal(recording.rank[1].end.n, 2 * run.plan[1]->list[ECH_LIST_TRAIN].step.n + 5);
    assert_int_equal(recording.lists, 2);
    ech_timeline timeline;
    ech_recording_timeline(&recording, &timeline);
    assert_same_timeline(&timeline, &run.timeline);
    ech_timeline_free(&timeline);
    ech_recording_free(&recording);
    recorded_write(&run, 1, 0, 1, 5, 4000);
    assert_unusable(&run, "to its end");
    recorded_destroy(&run);
}

/* One slow micro-batch in three lists does not change what blocks cost. */
TEST(test_medians)
{
    recorded run = recorded_create("training.micro_batch_size=4", 1);
    recorded_write_all(&run, 0, 3);
    ech_recording recording = read_all(&run);
    size_t steps = recording.rank[0].end.n / 3;
    for (size_t s = steps; s < steps + 12; s++) recording.rank[0].end.at[s] += 1;
    ech_profile *profile = ech_recording_profile(&recording);
    assert_same_costs(&run, profile);
    ech_profile_destroy(profile);
    ech_recording_free(&recording);
    recorded_destroy(&run);
}

/* ---- numbers of micro-batches ---- */

TEST(test_numbers)
{
    recorded run = recorded_create("parallel.stage_replicas=[2,1] parallel.pipeline=2 "
                                   "training.micro_batch_size=2",
                                   3);
    recorded_write_all(&run, 0, 1);
    ech_recording recording = read_all(&run);
    ech_timeline timeline;
    ech_recording_timeline(&recording, &timeline);
    ech_recording_number(run.design.layout, &timeline);
    int seen[3][6] = {{0}}; /* forwards: 12 samples are 6 micro-batches */
    for (size_t i = 0; i < timeline.bar.n; i++) {
        const ech_timeline_bar *bar = &timeline.bar.at[i];
        if (bar->kind != ECH_BAR_FORWARD) continue;
        assert_in_range(bar->micro, 0, 5);
        seen[bar->rank][bar->micro]++;
    }
    for (int q = 0; q < 6; q++) {
        assert_int_equal(seen[0][q], q % 2 == 0);
        assert_int_equal(seen[1][q], q % 2 == 1);
        assert_int_equal(seen[2][q], 1);
    }
    ech_timeline_free(&timeline);
    ech_recording_free(&recording);
    recorded_destroy(&run);
}

/* Pieces of a micro-batch count on: those of global micro-batch q are 2 q and 2 q + 1. */
TEST(test_numbers_of_pieces)
{
    recorded run = recorded_create("parallel.stage_replicas=[2,1] parallel.pipeline=2 "
                                   "memory.sequence_chunks=2 data.sequence_length=8 "
                                   "training.micro_batch_size=2",
                                   3);
    assert_int_equal(run.timeline.sequence_chunks, 2);
    ech_recording_number(run.design.layout, &run.timeline);
    int seen[3][12] = {{0}};
    for (size_t i = 0; i < run.timeline.bar.n; i++) {
        const ech_timeline_bar *bar = &run.timeline.bar.at[i];
        if (bar->kind != ECH_BAR_FORWARD) continue;
        assert_in_range(bar->micro, 0, 11);
        seen[bar->rank][bar->micro]++;
    }
    for (int n = 0; n < 12; n++) {
        assert_int_equal(seen[0][n], n / 2 % 2 == 0);
        assert_int_equal(seen[1][n], n / 2 % 2 == 1);
        assert_int_equal(seen[2][n], 1);
    }
    recorded_destroy(&run);
}

/* Over the turns of a span numbers go on; with as many replicas everywhere they are the rank's
 * own. */
TEST(test_numbers_of_spans)
{
    const char *const replicas[] = {"parallel.stage_replicas=[2,1]", "parallel.data=2"};
    for (int uniform = 0; uniform < 2; uniform++) {
        char keys[400];
        snprintf(keys, sizeof keys,
                 "%s parallel.pipeline=2 parallel.schedule=pipedream parallel.flush_every=2 "
                 "model.tie_word_embeddings=false training.check_every=0 "
                 "training.micro_batch_size=3",
                 replicas[uniform]);
        recorded run = recorded_create(keys, 3 + uniform);
        ech_recording_number(run.design.layout, &run.timeline);
        bool seen[8] = {false};
        for (size_t i = 0; i < run.timeline.bar.n; i++)
            if (run.timeline.bar.at[i].rank == 1 && run.timeline.bar.at[i].micro >= 0)
                seen[run.timeline.bar.at[i].micro] = true;
        for (int q = 0; q < 8; q++) /* 4 micro-batches a step, of which rank 1 has 2 */
            assert_int_equal(seen[q], uniform ? q < 4 : q % 2 == 1);
        recorded_destroy(&run);
    }
}

/* ---- what cannot be used ---- */

TEST(test_missing)
{
    recorded run = recorded_create("parallel.pipeline=2 training.micro_batch_size=2", 2);
    assert_unusable(&run, "rank-00000.json is not there");
    recorded_write(&run, 0, 0, 2, -1, 4000);
    assert_unusable(&run, "rank-00001.json is not there; run again with log.trace=true");
    char *path = ech_trace_path(run.folder, 1);
    assert_int_equal(ech_file_write(path, "", 0), ECH_OK);
    assert_unusable(&run, "rank-00001.json is empty");
    free(path);
    recorded_write(&run, 1, 0, 0, -1, 4000);
    assert_unusable(&run, "to its end");
    recorded_destroy(&run);
}

TEST(test_of_another_run)
{
    recorded run = recorded_create("parallel.pipeline=2 training.micro_batch_size=2", 2);
    recorded_write_all(&run, 0, 2);
    recorded_write(&run, 1, 4, 2, -1, 4000);
    assert_unusable(&run, "from another run");
    recorded_write_all(&run, 0, 2);
    recorded other = recorded_create("parallel.pipeline=2 training.micro_batch_size=3", 2);
    assert_unusable(&other, "not of this layout");
    recorded gpipe = recorded_create(
        "parallel.pipeline=2 training.micro_batch_size=2 parallel.schedule=gpipe", 2);
    assert_unusable(&gpipe, "not of this layout");
    recorded more = recorded_create("parallel.pipeline=2 training.micro_batch_size=2", 4);
    assert_unusable(&more, "not of this layout");
    recorded_destroy(&more);
    recorded_destroy(&gpipe);
    recorded_destroy(&other);
    recorded_destroy(&run);
}

/* The first line with these words. */
static const char *line_of(const char *text, const char *words)
{
    const char *at = strstr(text, words);
    assert_non_null(at);
    while (at > text && at[-1] != '\n') at--;
    return at;
}

/* A list in the middle that is not whole, or that is missing. */
TEST(test_holes)
{
    recorded run = recorded_create("training.micro_batch_size=6", 1);
    recorded_write_all(&run, 0, 3);
    char *path = ech_trace_path(run.folder, 0), *text;
    size_t n;
    assert_int_equal(ech_file_read(path, 1 << 24, &text, &n), ECH_OK);
    const char *line = line_of(text, "{\"list\":1,"), *next = strchr(line, '\n') + 1;
    const char *end = line_of(text, "{\"list\":2,");
    for (int all = 0; all < 2; all++) {
        ech_text holed = {0};
        ech_text_append_bytes(&holed, text, (size_t)(line - text));
        ech_text_append(&holed, "%s", all ? end : next);
        assert_int_equal(ech_file_write(path, holed.at, holed.n), ECH_OK);
        assert_unusable(&run, "not of this layout");
        ech_text_free(&holed);
    }
    free(text);
    free(path);
    recorded_destroy(&run);
}

static ech_status parse(const ech_text *text, const ech_plan *plan, ech_recorded_rank *out,
                        bool *fits)
{
    ech_clear_error();
    ech_status status = ech_recording_parse(text->at, text->n, "t.json", plan, out, fits);
    return status;
}

/* Wherever a file is torn, what is whole is what was written. */
TEST(test_torn)
{
    recorded run = recorded_create("parallel.pipeline=2 training.micro_batch_size=6", 2);
    ech_text text = recorded_text(&run, 1, 4, 1, -1, 4000);
    for (size_t last = 0, n = 0; text.n; text.n--) {
        ech_recorded_rank rank;
        bool fits;
        assert_int_equal(parse(&text, run.plan[1], &rank, &fits), ECH_OK);
        assert_true(fits);
        assert_int_equal(rank.begin.n, rank.end.n);
        if (n++) assert_in_range(last - rank.begin.n, 0, 1);
        last = rank.begin.n;
        ech_recorded_rank_free(&rank);
    }
    ech_text_free(&text);
    recorded_destroy(&run);
}

static void assert_refused(const recorded *run, const char *from, const char *to, ech_status wanted,
                           const char *words)
{
    ech_text text = recorded_text(run, 1, 4, 1, -1, 4000), changed = {0};
    ech_recorded_rank rank;
    bool fits;
    const char *at = strstr(text.at, from);
    assert_non_null(at);
    ech_text_append_bytes(&changed, text.at, (size_t)(at - text.at));
    ech_text_append(&changed, "%s%s", to, at + strlen(from));
    if (parse(&changed, run->plan[1], &rank, &fits) != wanted)
        fail_msg("%s: %s", to, ech_last_error());
    if (!strstr(ech_last_error(), words)) fail_msg("no \"%s\" in %s", words, ech_last_error());
    ech_text_free(&text);
    ech_text_free(&changed);
}

TEST(test_damaged)
{
    recorded run = recorded_create("parallel.pipeline=2 training.micro_batch_size=6", 2);
    const struct {
        const char *from, *to, *words;
    } cases[] = {
        {"\"pid\":1", "\"pid\":-1", "t.json:1: 'pid' is no whole number from 0 to"},
        {"\"pid\":1", "\"pid\":0.5", "t.json:1: 'pid'"},
        {",\"world\":2", "", "t.json:1: 'world'"},
        {"\"world\":2", "\"world\":0", "t.json:1: 'world'"},
        {"\"first_step\":4", "\"first_step\":-4", "t.json:1: 'first_step'"},
        {"\"version\":4,", "", "t.json:1: 'version'"},
        {"[{\"name\"", "{\"name\"", "t.json:1:1: bad JSON: no event"},
        {"[{\"name\"", "[[\"name\"", "t.json:1:"},
        {"[{\"name\"", "[[7]\n,{\"name\"", "t.json:1: 'version'"},
        {",{\"name\":\"process_sort", "{\"name\":\"process_sort", "t.json:2:1: bad JSON: no event"},
        {",{\"name\":\"process_sort", "\n,{\"name\":\"process_sort", "t.json:2:1: bad JSON"},
        {",{\"name\":\"process_sort", ",{\"name\":\"a\",\"name\":\"process_sort", "t.json:2:"},
        {"\"process_sort", "\"\377", "t.json:2:"},
        {"\"tid\":0,\"ts\":", "\"tid\":\"0\",\"ts\":", ": 'tid'"},
        {"\"tid\":0,\"ts\":", "\"tid\":-1,\"ts\":", ": 'tid'"},
        {"\"ts\":", "\"ts\":-", ": 'ts' is no number of microseconds from 0 to 1e+15"},
        {"\"ts\":", "\"ts\":1000000", ": 'ts'"},
        {"\"ts\":", "\"t\":", ": 'ts'"},
        {"\"ts\":", "\"ts\":NaN,\"t\":", ": bad JSON"},
        {"\"dur\":", "\"dur\":-1,\"d\":", ": 'dur'"},
        {"\"dur\":", "\"dur\":1e400,\"d\":", ": bad JSON"},
        {"\"dur\":", "\"dur\":null,\"d\":", ": 'dur'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_refused(&run, cases[i].from, cases[i].to, ECH_EINPUT, cases[i].words);
    assert_refused(&run, "\"version\":4", "\"version\":3", ECH_EUNSUPPORTED, "version 3");
    ech_text deep = {0}, line = {0}; /* no stack is deep enough for a reader that follows */
    for (int i = 0; i < 4000; i++) ech_text_append(&deep, "[");
    ech_text_append(&line, ",%5000s", "");
    assert_refused(&run, "{", deep.at, ECH_EINPUT, "t.json:1:");
    assert_refused(&run, ",{\"name\":\"process_sort", line.at, ECH_EINPUT, "t.json:2: longer than");
    ech_text_free(&deep);
    ech_text_free(&line);
    recorded_destroy(&run);
}

/* An event that is whole, but another one than the plan's. */
TEST(test_other_events)
{
    recorded run = recorded_create("parallel.pipeline=2 training.micro_batch_size=6", 2);
    const char *const cases[][2] = {
        {"\"pid\":1", "\"pid\":0"},
        {"\"name\":\"count\"", "\"name\":\"coins\""},
        {"\"name\":\"count\"", "\"nome\":\"count\""},
        {"\"cat\":\"count\"", "\"cat\":\"F\""},
        {"\"tid\":0,\"ts\"", "\"tid\":32,\"ts\""},
        {"\"args\":{\"list\":4", "\"args\":{\"list\":5"},
        {"\"step\":4", "\"step\":5"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ech_text text = recorded_text(&run, 1, 4, 1, -1, 4000), changed = {0};
        const char *at = strstr(text.at, cases[i][0]);
        assert_non_null(at);
        ech_text_append_bytes(&changed, text.at, (size_t)(at - text.at));
        ech_text_append(&changed, "%s%s", cases[i][1], at + strlen(cases[i][0]));
        ech_recorded_rank rank;
        bool fits = true;
        assert_int_equal(parse(&changed, run.plan[1], &rank, &fits), ECH_OK);
        assert_false(fits);
        ech_recorded_rank_free(&rank);
        ech_text_free(&changed);
        ech_text_free(&text);
    }
    recorded_destroy(&run);
}

TEST(test_clocks)
{
    recorded run = recorded_create("parallel.pipeline=2 training.micro_batch_size=2", 4);
    for (int late = 0; late < 4; late++) {
        recorded_write_all(&run, 0, 2);
        recorded_write(&run, late, 0, 2, -1, 4000 + 1.01 * run.simulation.end);
        ech_recording recording = read_all(&run);
        assert_false(ech_recording_has_one_clock(&recording));
        ech_recording_free(&recording);
        recorded_write(&run, late, 0, 2, -1, 4000 - 1.01 * run.simulation.end);
        recording = read_all(&run);
        assert_false(ech_recording_has_one_clock(&recording));
        ech_recording_free(&recording);
    }
    recorded_destroy(&run);
}

ALL_TESTS(fixture_setup, fixture_teardown)
