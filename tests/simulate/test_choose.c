/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel.partition = auto: what is chosen, that no even grid is faster, and that the schedule
 * takes it.
 */

#include <stdlib.h>
#include <unistd.h>

#include <math.h>

#include "check/check.h"
#include "base/log.h"
#include "base/random.h"
#include "simulate/choose.h"
#include "schedule/fixture.h"
#include "simulate/simulate.h"
#include "unit.h"

enum { MOST_BLOCKS = 16 };

typedef struct costs {
    ech_profile profile;
    ech_profile_block block[MOST_BLOCKS];
} costs;

static ech_config *make(const char *keys)
{
    ech_config *config = sample_config("gpt2");
    sample_set(config, "model.tie_word_embeddings=false parallel.threads=1");
    config->training.micro_batch_size = 1;
    sample_set(config, keys);
    return config;
}

static ech_status choose(ech_config *config, const ech_profile *profile, int ranks)
{
    ech_model *model = NULL;
    ech_schedule_choice choice = ech_schedule_find(config);
    ech_status status = ech_rules_check(config);
    if (status == ECH_OK) status = ech_model_resolve(config, 50);
    if (status == ECH_OK) status = ech_model_create_whole(config, &model);
    if (status == ECH_OK)
        status =
            ech_simulate_choice(config, model, profile, ech_kernels_ref(ECH_F32), ranks, &choice);
    ech_model_destroy(model);
    ech_schedule_choice_free(&choice);
    return status;
}

/* Seconds of a step as `plan --simulate` says it; below 0: the run is refused. Takes the
 * configuration. */
static double simulate(ech_config *config, const ech_profile *profile, int ranks)
{
    fixture f;
    double seconds = -1;
    ech_status status = fixture_try(config, ranks, &f);
    if (status == ECH_OK) {
        ech_simulation simulation;
        const ech_costs in_seconds = ech_costs_of(config, profile, NULL);
        for (int rank = 0; rank < ranks; rank++) {
            ech_plan_request request = fixture_request(&f, rank);
            request.outline = true;
            assert_int_equal(ech_checked_plan_create(&request, &f.plan[rank]), ECH_OK);
        }
        assert_int_equal(ech_simulate((const ech_plan *const *)f.plan, ranks, ECH_LIST_TRAIN,
                                      &in_seconds, &simulation),
                         ECH_OK);
        seconds = simulation.end / f.schedule->turns;
        ech_simulation_free(&simulation);
    }
    fixture_free(&f);
    return seconds;
}

/* As a run file has it; `word`: the first of the choices. */
static const char *print(const ech_config_list *list, const char *word, char *text, size_t size)
{
    size_t n = 0;
    assert_true(list->n > 0 || list->word == 0);
    if (list->n == 0) return word;
    for (int i = 0; i < list->n && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%lld", i ? ", " : "[", (long long)list->at[i]);
    assert_true(n + 2 < size);
    memcpy(text + n, "]", 2);
    return text;
}

/* What is chosen is no slower than any even grid of those keys, and is not refused. Returns its
 * time and in *even that of the fastest such grid. */
static double assert_fastest(const char *keys, const costs *of, int ranks, double *even)
{
    ech_config *chosen = make(keys);
    sample_set(chosen, "parallel.partition=auto");
    assert_int_equal(choose(chosen, &of->profile, ranks), ECH_OK);
    char what[256], cut[100], replicas[100];
    snprintf(what, sizeof what, "%s, pipeline %lld, replicas %s",
             print(&chosen->parallel.partition, "even", cut, sizeof cut),
             (long long)chosen->parallel.pipeline,
             print(&chosen->parallel.stage_replicas, "auto", replicas, sizeof replicas));
    double seconds = simulate(chosen, &of->profile, ranks);
    if (seconds < 0) fail_msg("%s: %s is refused", keys, what);
    *even = (double)INFINITY;
    for (int stages = 1; stages <= ranks; stages++) {
        char grid[512];
        snprintf(grid, sizeof grid, "parallel.pipeline=%d %s", stages, keys);
        double time = simulate(make(grid), &of->profile, ranks);
        if (time < 0) continue;
        if (time < seconds)
            fail_msg("%s: %s takes %g s, %d stages %g s", keys, what, seconds, stages, time);
        if (time < *even) *even = time;
    }
    return seconds;
}

/* Bytes as the model of those keys has them; seconds are the caller's. */
static costs costs_of(const char *keys, double bandwidth)
{
    costs of = {.profile = {.bandwidth = bandwidth}};
    ech_config *config = make(keys);
    ech_model *model;
    assert_int_equal(ech_model_resolve(config, 50), ECH_OK);
    assert_int_equal(ech_model_create_whole(config, &model), ECH_OK);
    of.profile.blocks = (int)model->block.n;
    assert_true(of.profile.blocks <= MOST_BLOCKS);
    for (int i = 0; i < (int)model->param.n; i++)
        of.block[model->param.at[i].block].param_bytes +=
            4 * ech_shape_whole(&model->param.at[i].shape);
    for (int b = 0; b < of.profile.blocks - 1; b++)
        of.block[b].boundary_bytes = 4 * config->training.micro_batch_size *
                                     config->data.sequence_length * config->model.hidden_size;
    ech_model_destroy(model);
    ech_config_destroy(config);
    return of;
}

/* ---- what is chosen ---- */

/* Blocks: embedding, three layers, head. Seconds of all phases together. */
static void expect(const char *keys, int ranks, const double seconds[5], double bandwidth,
                   const char *partition, int pipeline, const char *replicas)
{
    costs of = costs_of(keys, bandwidth);
    of.profile.block = of.block;
    for (int b = 0; b < 5; b++) of.block[b].seconds[0] = seconds[b];
    ech_config *config = make(keys);
    sample_set(config, "parallel.partition=auto");
    assert_int_equal(choose(config, &of.profile, ranks), ECH_OK);
    char text[100];
    assert_string_equal(print(&config->parallel.partition, "even", text, sizeof text), partition);
    assert_string_equal(print(&config->parallel.stage_replicas, "auto", text, sizeof text),
                        replicas);
    assert_int_equal(config->parallel.pipeline, pipeline);
    assert_true(simulate(ech_config_copy(config), &of.profile, ranks) > 0);
    ech_config_destroy(config);
}

TEST(test_shapes)
{
    const double even[5] = {0, 2, 2, 2, 0}, front[5] = {0, 4, 1, 1, 0}, wide[5] = {0, 6, 3, 1, 1};
    const double fast = 1 << 30, slow = 1000;
    /* Nothing to sum up: replicas alone. Much to sum up: stages alone. */
    expect("", 3, even, fast, "[3]", 1, "auto");
    expect("", 3, even, slow, "[1, 1, 1]", 3, "auto");
    /* By seconds, which need not be those of FLOPs. */
    expect("parallel.pipeline=2", 2, front, slow, "[1, 2]", 2, "auto");
    expect("", 4, wide, fast, "[3]", 1, "auto");
    expect("", 4, wide, 2000, "[1, 2]", 2, "auto");
    /* Tensor ranks, or context ranks, are one worker together. */
    expect("parallel.tensor=2", 8, wide, slow, "[1, 2]", 2, "auto");
    expect("parallel.tensor=2 parallel.context=2 parallel.node_ranks=12", 12, even, slow,
           "[1, 1, 1]", 3, "auto");
    expect("parallel.tensor=2 parallel.data=1", 6, even, fast, "[1, 1, 1]", 3, "auto");
    /* Chunks of a rank. */
    expect("parallel.pipeline=2 parallel.virtual_stages=2 parallel.schedule=interleaved", 2, even,
           slow, "even", 2, "auto");
    expect("parallel.pipeline=2 parallel.virtual_stages=2 parallel.schedule=zero-bubble-v", 2, even,
           slow, "[0, 1, 1, 1]", 2, "auto");
    /* One stage holds nothing for a peer. */
    expect("memory.offload_activations=peer", 4, even, fast, "even", 4, "auto");
}

/* A stage of a rank that sleeps gets fewer layers; even is [1, 2]. */
TEST(test_slow_ranks)
{
    const double even[5] = {0, 2, 2, 2, 0}, slow = 1000;
    const char two[] = "parallel.pipeline=2 training.global_batch_size=12 ";
    char keys[200];
    for (int rank = 0; rank < 2; rank++) {
        snprintf(keys, sizeof keys, "%sparallel.delay=%d:20", two, rank);
        expect(keys, 2, even, slow, rank ? "[2, 1]" : "even", 2, "auto");
    }
    /* One of two tensor ranks. */
    snprintf(keys, sizeof keys, "%sparallel.tensor=2 parallel.delay=2:20", two);
    expect(keys, 4, even, slow, "[2, 1]", 2, "auto");
    snprintf(keys, sizeof keys, "%sparallel.tensor=2 parallel.delay=1:20", two);
    expect(keys, 4, even, slow, "even", 2, "auto");
}

/* Seconds of the fastest of all cuts of eight layers into four virtual stages on two ranks. */
static double fastest_cut(const char *keys, const costs *of)
{
    enum { LAYERS = 8, MOST = LAYERS - 3 };
    double fastest = (double)INFINITY;
    for (int cut = 0; cut < MOST * MOST * MOST; cut++) {
        int layers[3] = {1 + cut % MOST, 1 + cut / MOST % MOST, 1 + cut / MOST / MOST};
        int rest = LAYERS - layers[0] - layers[1] - layers[2];
        char words[400];
        if (rest < 1) continue;
        snprintf(words, sizeof words, "%s parallel.partition=[%d,%d,%d,%d]", keys, layers[0],
                 layers[1], layers[2], rest);
        double seconds = simulate(make(words), &of->profile, 2);
        assert_true(seconds > 0);
        fastest = fmin(fastest, seconds);
    }
    return fastest;
}

/* Eight layers, the first of 4 seconds for each phase and the others of 1, on two ranks with two
 * virtual stages each. The rank `slow` sleeps before its first forward of each step. What is chosen
 * is faster than even stages, and as fast as the best cut within 5 %. */
static void check_slow_rank(const char *schedule, int slow)
{
    char keys[300];
    snprintf(keys, sizeof keys,
             "model.num_hidden_layers=8 training.global_batch_size=8 parallel.pipeline=2 "
             "parallel.virtual_stages=2 parallel.schedule=%s parallel.delay=%d:60",
             schedule, slow);
    costs of = costs_of(keys, 1 << 30);
    of.profile.block = of.block;
    for (int b = 1; b <= 8; b++)
        for (int p = 0; p < ECH_PROFILE_PHASES; p++) of.block[b].seconds[p] = b == 1 ? 4 : 1;
    double even, seconds = assert_fastest(keys, &of, 2, &even), best = fastest_cut(keys, &of);
    assert_true(seconds < even);
    if (seconds > 1.05 * best)
        fail_msg("%s: %g s, and another partition takes %g s", keys, seconds, best);
}

TEST(test_slow_ranks_of_virtual_stages)
{
    for (int slow = 0; slow < 2; slow++) {
        check_slow_rank("interleaved", slow);
        check_slow_rank("zero-bubble-v", slow);
    }
}

/* What is recomputed counts, and what the profile knows of other recomputation does not: layers of
 * 1 second and a head of 3, where full recomputation takes 3 of each layer. */
TEST(test_recomputation)
{
    static const struct {
        const char *recompute, *partition;
    } cases[] = {{"none", "[3, 0]"}, {"selective", "[3, 0]"}, {"full", "[2, 1]"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char keys[100], text[100];
        snprintf(keys, sizeof keys, "parallel.pipeline=2 memory.recompute=%s", cases[i].recompute);
        costs of = costs_of(keys, 1000);
        of.profile.block = of.block;
        of.block[4].seconds[ECH_FORWARD] = 3;
        for (int b = 1; b < 4; b++) of.block[b].seconds[ECH_FORWARD] = 1;
        for (int b = 1; b < 4; b++) of.block[b].seconds[ECH_PROFILE_FULL] = 3;
        ech_config *config = make(keys);
        sample_set(config, "parallel.partition=auto");
        assert_int_equal(choose(config, &of.profile, 2), ECH_OK);
        print(&config->parallel.partition, "even", text, sizeof text);
        assert_string_equal(text, cases[i].partition);
        ech_config_destroy(config);
    }
}

/* GPT-2 of 12 layers: seconds of a micro-batch as one thread takes them. */
static costs gpt2(const char *keys, double bandwidth)
{
    costs of = costs_of(keys, bandwidth);
    for (int b = 1; b <= 12; b++)
        for (int p = 0; p < ECH_PROFILE_PHASES; p++) of.block[b].seconds[p] = 0.03;
    of.block[0].seconds[ECH_BACKWARD_WEIGHT] = 0.004;
    of.block[13].seconds[ECH_BACKWARD_INPUT] = 0.3;
    of.profile.latency = 2e-5;
    of.profile.update_seconds = 2e-10;
    return of;
}

#define GPT2                                                                                       \
    "model.num_hidden_layers=12 model.hidden_size=768 model.num_attention_heads=12 "               \
    "model.vocab_size=50257 data.sequence_length=256 "

/* Gradients are summed once a step. So replicas are best for four micro-batches on four ranks, even
 * where a sum for each micro-batch would cost far too much. With slower links, stages of unequal
 * replicas are better than any even grid. */
TEST(test_gpt2)
{
    double even;
    const char *keys = GPT2 "training.global_batch_size=4 ";
    costs of = gpt2(keys, 9e8);
    of.profile.block = of.block;
    ech_config *config = make(GPT2 "training.global_batch_size=4 parallel.partition=auto");
    assert_int_equal(choose(config, &of.profile, 4), ECH_OK);
    assert_int_equal(config->parallel.pipeline, 1);
    assert_int_equal(config->parallel.data, 4);
    ech_config_destroy(config);
    of.profile.bandwidth = 3e8;
    assert_true(assert_fastest(keys, &of, 4, &even) < 0.96 * even);
    for (double bandwidth = 1e8; bandwidth < 2e10; bandwidth *= 3) {
        of.profile.bandwidth = bandwidth;
        assert_fastest(keys, &of, 4, &even);
        assert_fastest(GPT2 "training.global_batch_size=16 ", &of, 4, &even);
    }
}

static double draw(uint32_t set, int i)
{
    ech_random_key key = {.seed = 11, .stream = set};
    return (double)(ech_random_word(key, (uint64_t)i) % 1000) / 1000;
}

/* Seconds and links of all kinds, under every schedule. */
TEST(test_never_slower)
{
    static const struct {
        const char *keys;
        int ranks;
    } runs[] = {
        {"parallel.schedule=1f1b", 4},
        {"parallel.schedule=gpipe training.global_batch_size=9", 3},
        {"parallel.schedule=zero-bubble parallel.zero=1", 6},
        {"parallel.schedule=1f1b parallel.node_ranks=2 parallel.network_bandwidth=3000", 4},
        {"parallel.schedule=1f1b parallel.tensor=2 parallel.sequence=true parallel.zero=2", 8},
        {"parallel.schedule=naive training.global_batch_size=7", 2},
        {"parallel.schedule=1f1b model.tie_word_embeddings=true model.vocab_size=900", 5},
        /* Six micro-batches divide by one, two, three and six replicas only. */
        {"parallel.schedule=pipedream training.global_batch_size=6 training.check_every=0", 5},
        {"parallel.schedule=pipedream-2bw training.check_every=0", 4},
        {"parallel.schedule=zero-bubble-v parallel.virtual_stages=2 parallel.pipeline=2 "
         "model.num_hidden_layers=5 model.tie_word_embeddings=true",
         4},
    };
    for (uint32_t set = 0; set < 50; set++) {
        const char *keys = runs[set % 10].keys;
        costs of = costs_of(keys, 300 * pow(1000, draw(set, 0)));
        of.profile.block = of.block;
        of.profile.latency = 0.1 * draw(set, 1);
        for (int b = 0; b < of.profile.blocks; b++)
            for (int p = 0; p < ECH_PROFILE_PHASES; p++)
                of.block[b].seconds[p] = draw(set, 2 + b * ECH_PROFILE_PHASES + p);
        double even;
        assert_fastest(keys, &of, runs[set % 10].ranks, &even);
    }
}

/* Of a profile's size of micro-batches; what does not fit is not chosen. */
TEST(test_memory)
{
    costs of = costs_of("", 1e9);
    of.profile.block = of.block;
    of.profile.model = "gpt2 C=16 b=2 T=8 fp32";
    for (int b = 1; b < 5; b++) of.block[b].seconds[0] = 1;
    int64_t need[2];
    for (int limited = 0; limited < 2; limited++) {
        char keys[100] = "training.micro_batch_size=auto";
        /* A little less than what four replicas need. */
        if (limited)
            snprintf(keys, sizeof keys, "training.micro_batch_size=auto memory.device_limit=%lld",
                     (long long)need[0] - 1);
        ech_config *config = make(keys);
        sample_set(config, "parallel.partition=auto");
        assert_int_equal(choose(config, &of.profile, 4), ECH_OK);
        assert_int_equal(config->training.micro_batch_size, 2);
        assert_true(limited == (config->parallel.pipeline > 1));
        fixture f = fixture_plan(config, 4);
        need[limited] = 0;
        for (int rank = 0; rank < 4; rank++)
            if (f.plan[rank]->arena_bytes[ECH_SPACE_DEVICE] > need[limited])
                need[limited] = f.plan[rank]->arena_bytes[ECH_SPACE_DEVICE];
        fixture_free(&f);
    }
    assert_true(need[1] < need[0]);
}

/* The most that a rank of a grid needs of the device. */
static int64_t need_of(const char *keys, int ranks)
{
    fixture f = fixture_plan(make(keys), ranks);
    int64_t most = 0;
    for (int rank = 0; rank < ranks; rank++)
        if (f.plan[rank]->arena_bytes[ECH_SPACE_DEVICE] > most)
            most = f.plan[rank]->arena_bytes[ECH_SPACE_DEVICE];
    fixture_free(&f);
    return most;
}

/* Four replicas, which are the fastest, fit by what they share out, or not at all. */
TEST(test_memory_with_zero)
{
    const char *model =
        "model.num_hidden_layers=6 model.hidden_size=64 training.global_batch_size=16";
    costs of = costs_of(model, 1e12);
    of.profile.block = of.block;
    for (int b = 1; b < 7; b++) of.block[b].seconds[0] = 1;
    int64_t need[4];
    for (int zero = 0; zero < 4; zero++) {
        char keys[300];
        snprintf(keys, sizeof keys, "%s parallel.data=4 parallel.zero=%d", model, zero);
        need[zero] = need_of(keys, 4);
    }
    for (int zero = 1; zero < 4; zero++) assert_true(need[zero] < need[zero - 1]);
    for (int limit = 0; limit < 4; limit++)
        for (int zero = 0; zero < 4; zero++) {
            char keys[300], replicated[400];
            snprintf(keys, sizeof keys,
                     "%s parallel.partition=auto parallel.zero=%d memory.device_limit=%lld", model,
                     zero, (long long)need[limit]);
            snprintf(replicated, sizeof replicated, "%s parallel.pipeline=1", keys);
            ech_config *any = make(keys), *flat = make(replicated);
            assert_int_equal(choose(any, &of.profile, 4), ECH_OK);
            assert_int_equal(any->parallel.pipeline == 1, zero >= limit);
            assert_int_equal(choose(flat, &of.profile, 4), zero >= limit ? ECH_OK : ECH_EUSAGE);
            ech_config_destroy(any);
            ech_config_destroy(flat);
        }
}

/* In a V each rank has an early chunk, which keeps much, and a late one, which keeps little: only
 * their plan says whether they fit, to the byte. */
TEST(test_memory_of_a_vee)
{
    const char *keys = "parallel.schedule=zero-bubble-v parallel.virtual_stages=2 "
                       "parallel.pipeline=2 model.num_hidden_layers=6 data.sequence_length=64 "
                       "parallel.partition=auto";
    costs of = costs_of("model.num_hidden_layers=6", 1e9);
    of.profile.block = of.block;
    for (int b = 1; b < 7; b++) {
        of.block[b].seconds[0] = 1;
        of.block[b].activation_bytes = 64 * 16 * 4 * 16;
    }
    ech_config *config = make(keys);
    assert_int_equal(choose(config, &of.profile, 2), ECH_OK);
    fixture f = fixture_plan(config, 2);
    int64_t need =
        f.plan[0]->arena_bytes[ECH_SPACE_DEVICE] > f.plan[1]->arena_bytes[ECH_SPACE_DEVICE]
            ? f.plan[0]->arena_bytes[ECH_SPACE_DEVICE]
            : f.plan[1]->arena_bytes[ECH_SPACE_DEVICE];
    fixture_free(&f);
    for (int short_of = 0; short_of < 2; short_of++) {
        config = make(keys);
        char limit[64];
        snprintf(limit, sizeof limit, "memory.device_limit=%lld", (long long)need - short_of);
        sample_set(config, limit);
        ech_status status = choose(config, &of.profile, 2);
        if (!short_of) assert_int_equal(status, ECH_OK);
        if (short_of && status == ECH_OK) { /* another cut */
            f = fixture_plan(config, 2);
            assert_true(f.plan[0]->arena_bytes[ECH_SPACE_DEVICE] < need &&
                        f.plan[1]->arena_bytes[ECH_SPACE_DEVICE] < need);
            fixture_free(&f);
        } else {
            ech_config_destroy(config);
        }
    }
}

/* ---- what is refused ---- */

static void refuse(const char *keys, const costs *of, int ranks, const char *words)
{
    ech_config *config = make(keys);
    sample_set(config, "parallel.partition=auto");
    ech_clear_error();
    assert_int_equal(choose(config, of ? &of->profile : NULL, ranks), ECH_EUSAGE);
    assert_true(sample_error_has(words));
    ech_config_destroy(config);
}

/* An order by hand whose ranks wait for each other: that is said, not that memory is short. */
static void refuse_a_deadlock(const costs *of)
{
    static const char order[] = "F0.0 B0.0 W0.0 F0.1 B0.1 W0.1\nF0.0 F0.1 B0.0 W0.0 B0.1 W0.1\n";
    char path[] = "/tmp/echelon-order-XXXXXX.txt", keys[200];
    int fd = mkstemps(path, 4);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, order, sizeof order - 1), sizeof order - 1);
    close(fd);
    snprintf(keys, sizeof keys,
             "parallel.pipeline=2 training.global_batch_size=2 parallel.schedule=%s", path);
    refuse(keys, of, 2, "the schedule file cannot run|waits for");
    unlink(path);
}

TEST(test_refusals)
{
    costs of = costs_of("", 1e9);
    of.profile.block = of.block;
    refuse("", NULL, 2, "echelon profile|parallel.profile");
    refuse("parallel.stage_replicas=[1,1]", NULL, 2,
           "parallel.partition = auto|remove one of the two keys");
    refuse("model.num_hidden_layers=4", &of, 2, "parallel.profile|has 5 blocks and the model 6");
    refuse("parallel.virtual_stages=2", &of, 2, "set parallel.pipeline");
    refuse("training.micro_batch_size=5", &of, 2, "global_batch_size = 24|25 would");
    refuse("training.micro_batch_size=auto", &of, 2, "micro_batch_size|needs to be given");
    refuse("parallel.node_ranks=3", &of, 4, "parallel.node_ranks = 3|does not divide 4 ranks");
    refuse("parallel.tensor=3", &of, 6, "3 tensor ranks do not divide 4 attention heads");
    refuse("parallel.data=3", &of, 4, "parallel.data = 3|needs 3 ranks");
    refuse_a_deadlock(&of);
    refuse("memory.device_limit=1KiB", &of, 4, "no partition fits into 1.0 KiB a worker");
    refuse("training.global_batch_size=1", &of, 8, "1 micro-batch of 5 blocks cannot be divided");
    of.profile.bandwidth = 0.5;
    refuse("", &of, 4, "bytes per second|parallel.network_bandwidth");
}
