/* SPDX-License-Identifier: Apache-2.0
 *
 * A search for a layout finds what planning every layout finds. ECHELON_SEARCH=N tries N drawn
 * problems instead of a few.
 */
#include <math.h>

#include "app/fixture.h"
#include "app/search/search.h"
#include "base/log.h"
#include "base/random.h"
#include "unit.h"

static const char cluster_text[] = "name: a test's\n"
                                   "device: {memory: 1 GiB, bandwidth: 2000 GB/s}\n"
                                   "flops: {fp32: 10 TFLOP/s, bf16: 100 TFLOP/s}\n"
                                   "products: {share: 0.8, half_k: 64}\n"
                                   "attention: {share: 0.5}\n"
                                   "kernels: {share: 0.7, launch: 1 us}\n"
                                   "levels:\n"
                                   "  - {ranks: 4, bandwidth: 200 GB/s, latency: 5 us}\n"
                                   "  - {bandwidth: 20 GB/s, latency: 10 us}\n";

static const char *write_cluster(char path[300])
{
    snprintf(path, 300, "%s/cluster.yaml", fixture_folder);
    assert_int_equal(ech_file_write(path, cluster_text, strlen(cluster_text)), ECH_OK);
    return path;
}

typedef struct problem {
    ech_run_arguments arguments;
    ech_run run;
    ech_planning_options options;
    char cluster[300];
} problem;

static void pose(const char *architecture, const char *words, int ranks, problem *p)
{
    *p = (problem){.arguments.ranks = ranks};
    p->run = (ech_run){.arguments = &p->arguments, .tokenizer = fixture_tokenizer};
    p->run.config = fixture_config(architecture, words);
    p->options.cluster = write_cluster(p->cluster);
}

/* Sets memory.device_limit beyond any layout. A plan that exceeds the limit tries other plans for
 * its error, which takes most of its time. */
static void lift_limit(ech_config *config)
{
    assert_int_equal(ech_config_set(config, "memory.device_limit=" ECH_SEARCH_NO_LIMIT), ECH_OK);
}

/* The step of the layout as `echelon plan` finds it, with or without its checks; NaN: it is
 * refused, or needs more bytes than `memory`. */
static double plan(const problem *p, const ech_search *search, const ech_candidate *c, bool checks,
                   int64_t memory)
{
    ech_run run = p->run;
    ech_planning_options options = p->options;
    ech_planning planning;
    run.config = ech_search_config(search, c);
    options.report.unchecked = !checks;
    if (!checks) lift_limit(run.config);
    double seconds = NAN;
    if (ech_planning_create(&run, &options, &planning) == ECH_OK) {
        int64_t bytes = ech_plan_report_bytes(&planning.report);
        if (bytes <= memory) seconds = ech_plan_forecast_of(&planning.report).seconds;
        if (c->fate == ECH_SEARCH_PLANNED) assert_int_equal(c->bytes, bytes);
    }
    ech_planning_destroy(&planning);
    ech_config_destroy(run.config);
    return seconds;
}

static const ech_search_limits all = {
    .shown = 3, .planned = 1000000, .brief = 1e12, .whole = 1e12, .freely = 1e12};

/* Asserts what the search says of one candidate, whose step takes so many seconds. */
static void assert_said(const ech_candidate *c, double seconds)
{
    assert_int_not_equal(c->fate, ECH_SEARCH_LEFT);
    if (c->fate == ECH_SEARCH_PLANNED) assert_true(seconds == c->seconds);
    if (c->fate == ECH_SEARCH_REFUSED || c->fate == ECH_SEARCH_LARGE) assert_true(isnan(seconds));
    if (c->fate != ECH_SEARCH_BRIEF || isnan(seconds)) return;
    if (c->exact)
        assert_true(fabs(c->seconds - seconds) <= 1e-9 * seconds);
    else
        assert_true(c->seconds <= ECH_SEARCH_BEYOND_EXACT * seconds);
}

/* The best time of all candidates. Places are planned with all checks. With ECHELON_SEARCH, all
 * candidates are. */
static double plan_all(const problem *p, const ech_search *search)
{
    double best = INFINITY;
    ech_search_space space;
    ech_search_costs_list known = {0};
    assert_int_equal(ech_search_space_create(&p->run, &search->cluster, search->ranks, &space),
                     ECH_OK);
    int64_t memory = p->run.config->memory.device_limit;
    if (!ech_config_is_set(p->run.config, "memory.device_limit"))
        memory = (int64_t)(search->cluster.device_memory - search->cluster.device_reserved);
    for (size_t i = 0; i < search->candidate.n; i++) {
        ech_candidate c = search->candidate.at[i];
        bool checks = (int)i < search->places || getenv("ECHELON_SEARCH");
        double seconds = plan(p, search, &c, checks, memory);
        assert_said(&c, seconds);
        if (isnan(seconds)) continue;
        ech_search_tighten(search, &space, &known, &c);
        assert_true(c.bound <= seconds);
        best = fmin(best, seconds);
    }
    free(known.at);
    ech_search_space_free(&space);
    return best;
}

/* Returns the number of layouts. */
static size_t assert_best(const char *architecture, const char *words, int ranks)
{
    problem p;
    ech_search search;
    pose(architecture, words, ranks, &p);
    ech_status status = ech_search_run(&p.run, &p.options, &all, &search);
    double best = plan_all(&p, &search);
    if (status == ECH_OK)
        assert_true(search.candidate.at[0].seconds == best);
    else
        assert_true(isinf(best));
    size_t n = search.candidate.n;
    ech_search_destroy(&search);
    ech_config_destroy(p.run.config);
    return n;
}

TEST(finds_what_planning_every_layout_finds)
{
    assert_true(assert_best("gpt2", "training.global_batch_size=4 parallel.zero=0", 4) > 30);
    assert_true(assert_best("llama",
                            "memory.device_limit=90KiB training.micro_batch_size=1 "
                            "parallel.schedule=1f1b",
                            3) > 5);
}

/* Of long steps: few micro-batches are simulated first, then more for an exact time. */
TEST(finds_exact_times_of_long_steps)
{
    static const char words[] = "model.num_hidden_layers=6 training.global_batch_size=104 "
                                "parallel.tensor=1 parallel.zero=0 training.micro_batch_size=1 "
                                "memory.offload_optimizer=none memory.recompute=none";
    assert_true(assert_best("gpt2", words, 4) >= 5);
}

/* Returns whether a candidate that was not refused has this value of the key. */
static bool has_value(const ech_search *search, ech_search_key key, const char *value)
{
    char text[32];
    for (size_t i = 0; i < search->candidate.n; i++) {
        const ech_candidate *c = &search->candidate.at[i];
        if (c->fate != ECH_SEARCH_REFUSED &&
            strcmp(ech_search_value(key, c->value[key], text), value) == 0)
            return true;
    }
    return false;
}

/* A search for another system finds no layout with what this system does not have. */
static void assert_lacks(const char *system, ech_search_key key, const char *value, const char *has)
{
    problem p;
    ech_search search;
    pose("gpt2", "model.num_hidden_layers=4 training.global_batch_size=4", 2, &p);
    assert_int_equal(ech_search_run(&p.run, &p.options, &all, &search), ECH_OK);
    assert_true(has_value(&search, key, value));
    ech_search_destroy(&search);
    p.options.report.advice.emit_for = system;
    assert_int_equal(ech_search_run(&p.run, &p.options, &all, &search), ECH_OK);
    assert_false(has_value(&search, key, value));
    assert_true(has_value(&search, key, has));
    ech_search_destroy(&search);
    ech_config_destroy(p.run.config);
}

TEST(searches_for_a_system_what_it_has)
{
    assert_lacks("megatron", ECH_SEARCH_schedule, "zero-bubble", "interleaved");
    assert_lacks("torchtitan", ECH_SEARCH_zero, "1", "0");
    assert_lacks("deepspeed", ECH_SEARCH_sequence, "true", "false");
}

/* With work for few plans, a search plans one layout of each family before the others, which that
 * one shows to be slower. In order of the first estimates it would find one 1.3 % slower. */
TEST(plans_one_of_a_family_before_others)
{
    problem p;
    ech_search search, whole;
    const ech_search_limits few = {
        .shown = 1, .planned = 2, .brief = 150, .whole = 1e12, .freely = 0};
    pose("gpt2", "training.global_batch_size=16", 4, &p);
    assert_int_equal(ech_search_run(&p.run, &p.options, &few, &search), ECH_OK);
    assert_int_equal(ech_search_run(&p.run, &p.options, &all, &whole), ECH_OK);
    assert_true(search.fates[ECH_SEARCH_LEFT] > 50);
    assert_true(search.candidate.at[0].seconds <= 1.01 * whole.candidate.at[0].seconds);
    ech_search_destroy(&search);
    ech_search_destroy(&whole);
    ech_config_destroy(p.run.config);
}

/* A simulated layout may show that others of its family need less memory than estimated. With work
 * for all, these are simulated as well, here before the error that none fits. */
TEST(looks_again_at_layouts_that_seemed_too_large)
{
    problem p;
    ech_search search;
    pose("mixtral",
         "model.num_hidden_layers=8 model.hidden_size=32 model.num_attention_heads=2 "
         "model.num_local_experts=4 training.global_batch_size=4 memory.device_limit=376KiB",
         2, &p);
    assert_int_equal(ech_search_run(&p.run, &p.options, &all, &search), ECH_EUSAGE);
    assert_true(search.candidate.n > 0);
    assert_int_equal(search.fates[ECH_SEARCH_LEFT], 0);
    ech_search_destroy(&search);
    ech_config_destroy(p.run.config);
}

static int64_t draw(ech_random_key key, uint64_t *i, int64_t least, int64_t most)
{
    return least +
           (int64_t)(ech_random_unit(ech_random_word(key, (*i)++)) * (double)(most - least + 1));
}

TEST(finds_it_for_drawn_problems)
{
    const char *text = getenv("ECHELON_SEARCH");
    ech_random_key key = {.seed = 45};
    uint64_t i = 0;
    for (int n = text ? atoi(text) : 1; n > 0; n--) {
        char words[400];
        int64_t units = draw(key, &i, 2, 7), layers = draw(key, &i, 1, 8);
        int64_t ranks = units > 4 ? 4 * (units - 3) : units; /* whole machines of the cluster */
        int64_t heads = 1 << draw(key, &i, 0, 3), batch = 4 * draw(key, &i, 1, 6);
        bool experts = draw(key, &i, 0, 3) == 0;
        snprintf(
            words, sizeof words,
            "model.num_hidden_layers=%lld model.hidden_size=%lld model.num_attention_heads=%lld "
            "training.global_batch_size=%lld memory.device_limit=%lldKiB %s",
            (long long)layers, (long long)(16 * heads), (long long)heads, (long long)batch,
            (long long)draw(key, &i, 50, 1500),
            experts ? "model.num_local_experts=4" : "memory.offload_optimizer=none");
        printf("%lld ranks, %s: ", (long long)ranks, words);
        fflush(stdout); /* so that a failure has it */
        size_t layouts = assert_best(experts ? "mixtral" : "llama", words, (int)ranks);
        printf("%zu layouts\n", layouts);
        assert_true(layouts > 0);
    }
}

/* ---- errors that say what would work ---- */

/* What a search says that finds nothing; it ends with 0, if it finds something. */
static const char *refusal(const char *words, int ranks)
{
    problem p;
    ech_search search;
    pose("llama", words, ranks, &p);
    ech_status status = ech_search_run(&p.run, &p.options, &all, &search);
    ech_search_destroy(&search);
    ech_config_destroy(p.run.config);
    return status == ECH_OK ? NULL : ech_last_error();
}

static void assert_refused(const char *words, int ranks, const char *says)
{
    const char *error = refusal(words, ranks);
    assert_non_null(error);
    if (!strstr(error, says)) fail_msg("%s", error);
}

/* The number after the words in the error. */
static int64_t number_after(const char *error, const char *words)
{
    const char *at = strstr(error, words);
    if (!at) fail_msg("%s", error);
    return strtoll(at + strlen(words), NULL, 10);
}

TEST(says_why_nothing_can_be_run)
{
    assert_refused("memory.device_limit=1KiB parallel.zero=0", 2, "or do not set parallel.zero");
    assert_refused("training.global_batch_size=7 parallel.pipeline=1 parallel.tensor=1", 4,
                   "with the run's parallel.pipeline or parallel.tensor; do not set this");
    assert_refused("parallel.schedule=gpipe", 2, "parallel.schedule");
    assert_refused("parallel.strategy=parameter_server", 2, "no servers");
    assert_refused("parallel.data=3", 2, "with the run's parallel.data = 3");
}

/* Degrees divide the ranks that train. */
TEST(leaves_out_ranks_that_evaluate)
{
    assert_null(refusal("parallel.evaluators=1 data.valid=x checkpoint.every=2", 3));
}

TEST(names_the_keys_that_make_the_space_empty)
{
#define FOUR "training.global_batch_size=4 "
    assert_refused(FOUR "parallel.zero=0 training.micro_batch_size=3", 2,
                   "with the run's training.micro_batch_size;");
    assert_refused(FOUR "parallel.pipeline=2 parallel.tensor=1 training.micro_batch_size=3", 4,
                   "with the run's training.micro_batch_size;");
    assert_null(refusal(FOUR "parallel.pipeline=2 parallel.tensor=1", 4));
    assert_refused(FOUR "parallel.pipeline=3 training.micro_batch_size=3", 4,
                   "with the run's parallel.pipeline and training.micro_batch_size;");
#undef FOUR
}

/* Where memory is missing, the limit that it names is the least that works, and the number of ranks
 * works. */
TEST(what_it_suggests_works)
{
    char words[200];
    int64_t limit = number_after(refusal("memory.device_limit=1KiB", 2), "device_limit=");
    snprintf(words, sizeof words, "memory.device_limit=%lld", (long long)limit);
    const char *fits = refusal(words, 2);
    if (fits) fail_msg("%s", fits);
    snprintf(words, sizeof words, "memory.device_limit=%lld", (long long)limit - 64);
    const char *error = refusal(words, 2);
    assert_non_null(error);
    assert_non_null(strstr(error, " more than the "));
    assert_int_equal(number_after(error, "device_limit="), limit);
    ECH_FREED_TEXT said = {0};
    ech_text_append(&said, "%s", error);
    const char *at = strstr(said.at, " ranks would fit");
    assert_non_null(at);
    while (at[-1] != ' ') at--;
    assert_int_equal(atoi(at), 4);
    assert_null(refusal(words, atoi(at)));
}

/* With work for few plans, a search looks at the layouts that need the least memory. If these are
 * too large it ends, and names the same layout as a search of all. If one fits, the search finds
 * it. */
TEST(looks_at_the_smallest_before_it_ends)
{
    problem p;
    ech_search search;
    const ech_search_limits few = {
        .shown = 3, .planned = 3, .brief = 400, .whole = 1e12, .freely = 0};
    char words[200];
    ECH_FREED_TEXT error = {0};
    ech_text_append(&error, "%s", refusal("memory.device_limit=1KiB", 4));
    pose("llama", "memory.device_limit=1KiB", 4, &p);
    assert_int_equal(ech_search_run(&p.run, &p.options, &few, &search), ECH_EUSAGE);
    assert_string_equal(ech_last_error(), error.at);
    assert_true(search.fates[ECH_SEARCH_LEFT] > search.fates[ECH_SEARCH_LARGE]);
    ech_search_destroy(&search);
    ech_config_destroy(p.run.config);
    snprintf(words, sizeof words, "memory.device_limit=%lld",
             (long long)number_after(error.at, "device_limit="));
    pose("llama", words, 4, &p);
    ech_status status = ech_search_run(&p.run, &p.options, &few, &search);
    if (status != ECH_OK) fail_msg("%s", ech_last_error());
    assert_true(search.fates[ECH_SEARCH_LEFT] > 0);
    ech_search_destroy(&search);
    ech_config_destroy(p.run.config);
}

/* ---- run files ---- */

/* Each emitted run file plans to the same bytes and the same time as its place says. */
static void assert_run_files(const char *architecture, const char *words, int ranks)
{
    problem p;
    ech_search search;
    pose(architecture, words, ranks, &p);
    assert_int_equal(ech_search_run(&p.run, &p.options, &all, &search), ECH_OK);
    assert_int_equal(search.places, 3);
    for (int i = 0; i < search.places; i++) {
        const ech_candidate *c = &search.candidate.at[i];
        ECH_FREED_TEXT text = {0};
        ech_run run = p.run;
        ech_planning planning;
        ech_search_run_file(&search, c, &text);
        assert_int_equal(ech_setup_config_own("found.yaml", text.at, false, NULL, 0, &run.config),
                         ECH_OK);
        assert_int_equal(ech_planning_create(&run, &p.options, &planning), ECH_OK);
        assert_int_equal(ech_plan_report_bytes(&planning.report), c->bytes);
        assert_true(ech_plan_forecast_of(&planning.report).seconds == c->seconds);
        ech_planning_destroy(&planning);
        ech_config_destroy(run.config);
    }
    ech_search_destroy(&search);
    ech_config_destroy(p.run.config);
}

TEST(run_files_plan_to_the_same_bytes)
{
    assert_run_files("gpt2", "training.global_batch_size=4", 4);
    assert_run_files("mixtral", "model.num_local_experts=4 parallel.pipeline=2", 4);
}

ALL_TESTS(fixture_setup, fixture_teardown)
