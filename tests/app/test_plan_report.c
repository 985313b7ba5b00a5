/* SPDX-License-Identifier: Apache-2.0
 *
 * What `echelon plan` says of grids: which ranks are alike, and what they send.
 */

#include <math.h>

#include <jansson.h>

#include "app/fixture.h"
#include "app/made_up_profile.h"
#include "app/plan/report.h"
#include "base/log.h"
#include "schedule/peaks.h"
#include "schedule/print.h"
#include "schedule/states.h"
#include "schedule/traffic.h"
#include "unit.h"

typedef struct made {
    ech_config *config;
    ech_design design;
    ech_plan_report report;
} made;

static void make(int ranks, const char *more, made *m)
{
    m->config = fixture_config("llama", more);
    assert_int_equal(ech_design_create(m->config, fixture_tokenizer, ranks, ranks, &m->design),
                     ECH_OK);
    assert_int_equal(ech_plan_report_create(&m->design, &(ech_plan_options){0}, &m->report),
                     ECH_OK);
}

static void release(made *m)
{
    ech_plan_report_destroy(&m->report);
    ech_design_destroy(&m->design);
    ech_config_destroy(m->config);
}

/* ---- ranks alike ---- */

/* All but the ranks that it speaks to. */
static void assert_same_step(ech_step a, ech_step b)
{
    a.peer = b.peer = -1;
    assert_int_equal(a.kind, b.kind);
    assert_int_equal(a.lane, b.lane);
    assert_int_equal(a.chunk, b.chunk);
    assert_int_equal(a.micro, b.micro);
    assert_int_equal(a.block, b.block);
    assert_int_equal(a.turn, b.turn);
    assert_int_equal(a.version, b.version);
    assert_int_equal(a.bytes, b.bytes);
    assert_int_equal(a.index, b.index);
    assert_int_equal(a.group, b.group);
    assert_int_equal(a.phase, b.phase);
    assert_int_equal(a.first_call, b.first_call);
    assert_int_equal(a.calls, b.calls);
    assert_int_equal(a.collective, b.collective);
    assert_int_equal(a.afters, b.afters);
    assert_int_equal(a.tick, b.tick);
}

static void assert_same_list(const ech_list *a, const ech_list *b)
{
    assert_int_equal(a->step.n, b->step.n);
    for (size_t s = 0; s < a->step.n; s++) assert_same_step(a->step.at[s], b->step.at[s]);
    assert_int_equal(a->after.n, b->after.n);
    if (a->after.n) assert_memory_equal(a->after.at, b->after.at, a->after.n * sizeof *a->after.at);
    assert_memory_equal(a->bytes, b->bytes, sizeof a->bytes);
    assert_memory_equal(a->peak, b->peak, sizeof a->peak);
}

static void assert_same_plan(const ech_plan *a, const ech_plan *b)
{
    ech_traffic of_a[ECH_TRAFFIC_AXES], of_b[ECH_TRAFFIC_AXES];
    for (int list = 0; list < ECH_LIST_KINDS; list++)
        assert_same_list(&a->list[list], &b->list[list]);
    assert_int_equal(a->arena_bytes[ECH_SPACE_DEVICE], b->arena_bytes[ECH_SPACE_DEVICE]);
    assert_int_equal(a->bucket.n, b->bucket.n);
    for (size_t i = 0; i < a->bucket.n; i++) {
        assert_int_equal(a->bucket.at[i].elements, b->bucket.at[i].elements);
        assert_int_equal(a->bucket.at[i].group, b->bucket.at[i].group);
    }
    ech_plan_traffic(a, of_a);
    ech_plan_traffic(b, of_b);
    /* Of gradients each owns a piece, which may be an element longer. */
    for (int axis = 0; axis < ECH_TRAFFIC_AXES; axis++)
        if (axis != ECH_TRAFFIC_DATA) assert_memory_equal(&of_a[axis], &of_b[axis], sizeof *of_a);
}

/* What is kept of a rank's plan says what its train list did, whomever's steps it borrows. */
static void assert_same_text(const ech_plan *kept, const ech_plan *whole)
{
    ECH_FREED_TEXT a = {0}, b = {0};
    ech_list_print(&kept->list[ECH_LIST_TRAIN], &a);
    ech_list_print(&whole->list[ECH_LIST_TRAIN], &b);
    assert_string_equal(a.at, b.at);
}

static void assert_alike(int ranks, int kinds, const char *more)
{
    made m;
    make(ranks, more, &m);
    const ech_classes *classes = &m.design.layout->classes;
    int counted = 0, borrow = 0;
    assert_int_equal(m.report.alike.n, kinds);
    for (int rank = 0; rank < ranks; rank++) {
        const ech_plan_class *class = &m.report.alike.at[m.report.class_of[rank]];
        const ech_plan *kept = m.report.listed[classes->of[rank]];
        assert_int_equal(kept->outline, kept->rank != class->rank);
        ECH_CLEANUP(ech_plan_destroy_at) ech_plan *whole = NULL;
        assert_int_equal(ech_design_plan(&m.design, rank, false, &whole), ECH_OK);
        assert_same_plan(whole, class->plan);
        if (rank == kept->rank) assert_same_text(kept, whole);
    }
    for (int c = 0; c < classes->n; c++) borrow += m.report.listed[c]->list[ECH_LIST_TRAIN].borrows;
    for (int k = 0; k < kinds; k++) counted += m.report.alike.at[k].ranks;
    assert_int_equal(counted, ranks);
    /* With unequal replicas each rank is a class, and peers are not as far from each. */
    assert_true(m.design.layout->uniform ? borrow == 0 && classes->n == kinds : borrow > 0);
    release(&m);
}

#define GRID "data.sequence_length=8 training.micro_batch_size=2 "

/* Ranks of one stage with as many micro-batches, whatever their tensor and context place. */
TEST(test_ranks_alike)
{
    assert_alike(4, 1, GRID "parallel.tensor=4");
    assert_alike(4, 1, GRID "parallel.tensor=4 model.num_key_value_heads=2 model.vocab_size=259");
    assert_alike(4, 1, GRID "parallel.tensor=2 parallel.context=2 parallel.sequence=true");
    assert_alike(8, 2, GRID "parallel.tensor=2 parallel.context=2 parallel.pipeline=2");
    assert_alike(8, 2,
                 GRID "parallel.tensor=2 parallel.pipeline=2 model.tie_word_embeddings=true "
                      "model.num_key_value_heads=1");
    /* Three stages, of which the first has two replicas of three micro-batches. */
    assert_alike(8, 3,
                 GRID "parallel.tensor=2 parallel.pipeline=3 parallel.stage_replicas=[2,1,1]");
    /* Of five micro-batches the first replica of the stage has one more. */
    assert_alike(6, 3,
                 GRID "parallel.tensor=2 parallel.pipeline=2 parallel.stage_replicas=[2,1] "
                      "training.global_batch_size=10");
}

/* ---- JSON ---- */

static json_int_t int_at(const json_t *object, const char *axis, const char *key)
{
    const json_t *value = json_object_get(json_object_get(object, axis), key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

static void assert_axis(const json_t *traffic, ech_traffic_axis axis, const ech_traffic *counted)
{
    const char *name = ech_traffic_axis_name(axis);
    const json_t *calls = json_object_get(json_object_get(traffic, name), "collectives");
    const json_t *flows = json_object_get(json_object_get(traffic, name), "flows"), *flow;
    ech_flow all = ech_traffic_all(counted);
    size_t i;
    json_int_t bytes = 0;
    assert_int_equal(int_at(traffic, name, "bytes"), all.bytes);
    assert_int_equal(int_at(traffic, name, "messages"), all.messages);
    json_array_foreach(flows, i, flow) bytes += json_integer_value(json_object_get(flow, "bytes"));
    assert_int_equal(bytes, all.bytes);
    for (int kind = ECH_COLLECTIVE_NONE + 1; kind < ECH_COLLECTIVES; kind++)
        assert_int_equal(
            json_integer_value(json_object_get(calls, ech_collective_name((ech_collective)kind))),
            ech_traffic_of(counted, kind, ECH_FLOW_ANY).calls);
}

static void assert_working(const json_t *memory, const ech_plan *plan)
{
    ech_working most = ech_plan_working(plan);
    const json_t *working = json_object_get(memory, "working"), *bytes;
    const char *name;
    json_int_t sum = 0;
    json_object_foreach(json_object_get((json_t *)working, "by_kind"), name, bytes)
    {
        assert_string_not_equal(name, ech_memory_name(ECH_MEMORY_PARAMETERS));
        sum += json_integer_value(bytes);
    }
    assert_int_equal(sum, most.bytes);
    assert_int_equal(json_integer_value(json_object_get(working, "bytes")), most.bytes);
    assert_string_equal(json_string_value(json_object_get(working, "list")), "train");
    assert_true(most.bytes > 0 &&
                most.bytes < json_integer_value(json_object_get(memory, "arena_bytes")));
}

/* What the model alone decides: the peaks without padding; gradients here are whole buckets all the
 * time. */
static void assert_states(const json_t *memory, const ech_plan *plan)
{
    int64_t peak[ECH_MEMORY_KINDS], padding[ECH_MEMORY_KINDS];
    ech_plan_peaks(plan, peak);
    ech_plan_paddings(plan, padding);
    for (int k = 0; k < ECH_MODEL_STATES; k++) {
        ech_memory_kind kind = ech_model_states[k];
        json_int_t bytes = int_at(memory, "model_states_bytes", ech_memory_name(kind));
        assert_true(bytes > 0 && bytes <= peak[kind] - padding[kind]);
        assert_true(bytes > (peak[kind] - padding[kind]) / 2); /* values are aligned */
    }
}

/* The numbers of the plan, of one training step. */
static void check_json(int ranks, const char *more)
{
    made m;
    make(ranks, more, &m);
    ech_text text = {0};
    assert_int_equal(ech_plan_report_json(&m.report, &text), ECH_OK);
    json_t *root = json_loads(text.at, 0, NULL);
    const json_t *plans = json_object_get(root, "plans");
    int turns = m.design.schedule->turns;
    assert_int_equal(json_array_size(plans), m.report.alike.n);
    assert_int_equal(int_at(root, "grid", "tensor"), m.design.layout->tensor);
    assert_int_equal(int_at(root, "grid", "context"), m.design.layout->context);
    assert_int_equal(int_at(root, "grid", "stages"), m.design.layout->stages);
    for (size_t k = 0; k < m.report.alike.n; k++) {
        const json_t *plan = json_array_get(plans, k);
        const json_t *traffic = json_object_get(plan, "traffic");
        ech_traffic counted[ECH_TRAFFIC_AXES], step[ECH_TRAFFIC_AXES];
        json_int_t sum = 0;
        ech_plan_traffic(m.report.alike.at[k].plan, counted);
        ech_plan_step_traffic(m.report.alike.at[k].plan, step);
        assert_int_equal(json_object_size(traffic), ECH_TRAFFIC_AXES);
        for (int axis = 0; axis < ECH_TRAFFIC_AXES; axis++) {
            ech_flow all = ech_traffic_all(&counted[axis]), once = ech_traffic_all(&step[axis]);
            assert_int_equal(turns * once.bytes, all.bytes);
            assert_int_equal(turns * once.messages, all.messages);
            assert_axis(traffic, (ech_traffic_axis)axis, &step[axis]);
            sum += once.bytes;
        }
        assert_true(sum > 0);
        assert_working(json_object_get(plan, "memory"), m.report.alike.at[k].plan);
        assert_states(json_object_get(plan, "memory"), m.report.alike.at[k].plan);
        assert_int_equal(json_integer_value(json_object_get(plan, "sent_bytes_per_step")), sum);
    }
    json_decref(root);
    ech_text_free(&text);
    release(&m);
}

TEST(test_traffic_json)
{
    check_json(8, GRID "parallel.tensor=2 parallel.context=2 parallel.pipeline=2");
    check_json(4, GRID "parallel.tensor=2 parallel.sequence=true");
    check_json(2, GRID "parallel.pipeline=2 parallel.schedule=pipedream-2bw "
                       "parallel.flush_every=2 training.check_every=0");
}

/* ---- text ---- */

static void assert_table(int ranks, const char *more, const char *expected)
{
    made m;
    make(ranks, more, &m);
    ech_text text = {0};
    ech_plan_print_traffic(&m.report, &text);
    assert_string_equal(text.n ? text.at : "", expected);
    ech_text_free(&text);
    release(&m);
}

TEST(test_traffic_table)
{
    assert_table(1, GRID, "");
    assert_table(
        4, GRID "parallel.tensor=2 parallel.pipeline=2 parallel.sequence=true",
        "traffic     that one rank sends or copies in a step; gradients by direct reduction\n"
        "            rank  axis        times  messages        bytes  what\n"
        "               0  tensor         42        42     21.0 KiB  all_gather   (2 ranks alike)\n"
        "                                 30        30     15.0 KiB  reduce_scatter\n"
        "                  pipeline        6         6      3.0 KiB  messages to other stages\n"
        "                  data            1         2        256 B  all_reduce over data x "
        "tensor\n"
        "               2  tensor         48        48     23.2 KiB  all_gather   (2 ranks alike)\n"
        "                                 30        30     15.0 KiB  reduce_scatter\n"
        "                  pipeline        6         6      3.0 KiB  messages to other stages\n"
        "                  data            2         4        512 B  all_reduce over data x "
        "tensor\n");
    assert_table(
        2, GRID "parallel.reduction=ring parallel.zero=1",
        "traffic     that one rank sends or copies in a step; gradients by ring reduction\n"
        "            rank  axis        times  messages        bytes  what\n"
        "               0  data            9         -     32.6 KiB  all_gather   (2 ranks alike)\n"
        "                                  9         -     32.6 KiB  reduce_scatter\n");
}

/* ---- experts ---- */

/* 16 rows a rank, each for two experts: of 32 from each of 4 ranks a quarter and half as many again
 * are kept. */
TEST(test_bound)
{
    static const char said[] = "the experts of a rank buffer up to 48 rows per layer, of at most "
                               "96; the rest needs up to 1 further round\n";
    static const char *const bounds[] = {"0", "1.5", "4"};
    for (int i = 0; i < 3; i++) {
        made m;
        char words[300];
        ech_text text = {0};
        snprintf(words, sizeof words,
                 GRID "model.architecture=mixtral model.num_local_experts=4 "
                      "training.global_batch_size=8 parallel.expert=4 model.moe_bound=%s",
                 bounds[i]);
        make(4, words, &m);
        ech_plan_report_text(&m.report, &text);
        if ((strstr(text.at, said) != NULL) != (i == 1)) fail_msg("%s: %s", bounds[i], text.at);
        ech_text_free(&text);
        release(&m);
    }
}

/* ---- many ranks ---- */

/* Returns how many lines of the text begin so, after blanks. */
static int count_lines(const char *text, const char *begins)
{
    int n = 0;
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += strspn(line, " \n");
        n += strncmp(line, begins, strlen(begins)) == 0;
    }
    return n;
}

/* Layers of 16 x 16 on stages, and a head of so many ids on the last. */
#define DEEP                                                                                       \
    "data.sequence_length=8 training.micro_batch_size=1 training.global_batch_size=2 "             \
    "model.tie_word_embeddings=false "

/* Of the class: what a processor's memory must have. */
static int64_t both_arenas(const made *m, size_t class)
{
    const ech_plan *plan = m->report.alike.at[class].plan;
    return plan->arena_bytes[ECH_SPACE_DEVICE] + plan->arena_bytes[ECH_SPACE_HOST];
}

/* The last stage has the head, which is larger than all else: it is shown, and it is what a limit
 * that all others keep refuses, below 64 ranks and above. */
TEST(test_last_stage)
{
    const int worlds[] = {64, 80};
    for (int i = 0; i < 2; i++) {
        made m;
        char keys[400], expected[100];
        int last = worlds[i] - 1;
        snprintf(keys, sizeof keys,
                 DEEP "model.num_hidden_layers=%d parallel.pipeline=%d parallel.partition=even",
                 worlds[i], worlds[i]);
        make(worlds[i], keys, &m);
        ech_text text = {0}, json = {0};
        ech_plan_print_memory(&m.report, &text);
        snprintf(expected, sizeof expected, "rank %d needs the most", last);
        if (!strstr(text.at, expected)) fail_msg("no \"%s\" in %s", expected, text.at);
        snprintf(expected, sizeof expected, "%d ", last);
        assert_int_equal(count_lines(text.at, expected), 1);
        assert_int_equal(count_lines(text.at, "... and"), 1);
        assert_true(count_lines(text.at, "") <= 15);
        assert_int_equal(ech_plan_report_json(&m.report, &json), ECH_OK);
        json_t *root = json_loads(json.at, 0, NULL);
        json_t *plans = json_object_get(root, "plans");
        for (size_t k = 0; k < json_array_size(plans); k++)
            assert_non_null(json_object_get(json_array_get(plans, k), "memory"));
        json_decref(root);
        int64_t most = 0;
        for (size_t k = 0; k + 1 < m.report.alike.n; k++)
            if (both_arenas(&m, k) > most) most = both_arenas(&m, k);
        assert_true(both_arenas(&m, m.report.alike.n - 1) > most);
        m.config->memory.device_limit = most;
        ech_plan_report report;
        assert_int_equal(ech_plan_report_create(&m.design, &(ech_plan_options){0}, &report),
                         ECH_EUSAGE);
        snprintf(expected, sizeof expected, "rank %d needs", last);
        if (!strstr(ech_last_error(), expected)) fail_msg("%s", ech_last_error());
        ech_text_free(&text);
        ech_text_free(&json);
        release(&m);
    }
}

/* Who writes most of a checkpoint has the largest snapshot, and stands for its kind. */
TEST(test_snapshots)
{
    static const char *const grids[] = {"parallel.data=3", "parallel.data=3 parallel.pipeline=2",
                                        "parallel.tensor=2 parallel.data=3"};
    static const int ranks[] = {3, 6, 6};
    bool other = false;
    for (int i = 0; i < 3; i++) {
        made m;
        char keys[400];
        snprintf(keys, sizeof keys,
                 GRID "checkpoint.background=true checkpoint.every=2 "
                      "model.tie_word_embeddings=false %s",
                 grids[i]);
        make(ranks[i], keys, &m);
        int64_t most[8] = {0};
        for (int rank = 0; rank < ranks[i]; rank++) {
            ECH_CLEANUP(ech_plan_destroy_at) ech_plan *plan = NULL;
            assert_int_equal(ech_design_plan(&m.design, rank, false, &plan), ECH_OK);
            int c = m.report.class_of[rank];
            int64_t kept[ECH_MEMORY_KINDS];
            ech_plan_peaks(plan, kept);
            assert_true(plan->snapshots > 0);
            assert_int_equal(ech_plan_snapshot_bytes(m.report.alike.at[c].plan, rank),
                             kept[ECH_MEMORY_SNAPSHOT]);
            if (plan->arena_bytes[ECH_SPACE_HOST] > most[c])
                most[c] = plan->arena_bytes[ECH_SPACE_HOST];
            other |= plan->arena_bytes[ECH_SPACE_HOST] !=
                     m.report.alike.at[c].plan->arena_bytes[ECH_SPACE_HOST];
        }
        for (size_t c = 0; c < m.report.alike.n; c++)
            assert_int_equal(m.report.alike.at[c].plan->arena_bytes[ECH_SPACE_HOST], most[c]);
        release(&m);
    }
    assert_true(other);
}

/* ---- balance ---- */

static void assert_balance(int ranks, const char *more, int stage, double most, const char *line)
{
    made m;
    make(ranks, more, &m);
    ech_text text = {0}, page = {0};
    assert_int_equal(ech_plan_report_json(&m.report, &text), ECH_OK);
    json_t *root = json_loads(text.at, 0, NULL);
    const json_t *balance = json_object_get(root, "balance");
    assert_int_equal(json_integer_value(json_object_get(balance, "stage")), stage);
    double said = json_real_value(json_object_get(balance, "largest_over_mean"));
    if (fabs(said - most) > 1e-9) fail_msg("%.12g, not %.12g", said, most);
    ech_plan_report_text(&m.report, &page);
    if (!strstr(page.at, line)) fail_msg("no \"%s\" in %s", line, page.at);
    json_decref(root);
    ech_text_free(&text);
    ech_text_free(&page);
    release(&m);
}

/* Multiply-adds of a token, forward and backward: of a layer three products with each of its 4 CC +
 * 3 CF weights, and 3.5 T C of attention over causal halves; of the head with its VC. */
TEST(test_balance)
{
    const double C = 64, F = 192, V = 257, T = 8;
    const double layer = 3 * (4 * C * C + 3 * C * F) + 3.5 * T * C, head = 3 * V * C;
#define SIZES                                                                                      \
    GRID "model.hidden_size=64 model.num_attention_heads=4 model.num_key_value_heads=4 "           \
         "model.intermediate_size=192 model.num_hidden_layers=4 "
    const double mean = (4 * layer + head) / 2;
    assert_balance(2, SIZES "parallel.pipeline=2", 1, (2 * layer + head) / mean,
                   "uneven: ranks of stage 1 have 1.07 x the mean of FLOPs");
    assert_balance(2, SIZES "parallel.pipeline=2 parallel.partition=[3,1]", 0, 3 * layer / mean,
                   "uneven: ranks of stage 0 have 1.39 x the mean of FLOPs");
    /* Chunks of a rank together; replicas share the micro-batches. */
    assert_balance(
        2, SIZES "parallel.pipeline=2 parallel.virtual_stages=2 parallel.schedule=interleaved", 1,
        (2 * layer + head) / mean, "uneven: ranks of stage 1");
    assert_balance(3, SIZES "parallel.stage_replicas=[2,1] parallel.partition=[3,1]", 0,
                   1.5 * layer / (mean * 2 / 3), "uneven: ranks of stage 0");
    assert_balance(2, SIZES "parallel.pipeline=2 model.num_hidden_layers=64", 1,
                   (32 * layer + head) / (32 * layer + head / 2), "even in FLOPs");
}

/* On links that are slow enough for nothing else to count, meetings and mixing take what is sent
 * over the bandwidth. */
TEST(test_meetings)
{
    enum { BANDWIDTH = 100000 };
    static const ech_list_kind lists[] = {ECH_LIST_SYNC, ECH_LIST_GOSSIP};
    static const char *const words[] = {"parallel.strategy=gossip parallel.data=4",
                                        "parallel.strategy=diloco parallel.data=2 "
                                        "parallel.pipeline=2",
                                        "parallel.data=4"};
    char path[300], more[700];
    made m;
    snprintf(path, sizeof path, "%s/profile.json", fixture_folder);
    for (int i = 0; i < 3; i++) {
        const char *every = i < 2 ? " parallel.sync_every=2 training.micro_batch_size=3" : "";
        snprintf(more, sizeof more, "training.micro_batch_size=3 %s%s", words[i], every);
        make(4, more, &m);
        for (int l = 0; l < 2; l++) /* without a profile messages cost nothing */
            assert_true(m.report.list_time[lists[l]] < 100);
        made_up_profile_write(&m.design, path);
        release(&m);
        snprintf(more, sizeof more,
                 "training.micro_batch_size=3 %s%s parallel.profile=%s "
                 "parallel.node_bandwidth=%d",
                 words[i], every, path, BANDWIDTH);
        make(4, more, &m);
        for (int l = 0; l < 2; l++) {
            double most = 0;
            for (int rank = 0; rank < 4 && i + l < 2; rank++) {
                ech_traffic traffic[ECH_TRAFFIC_AXES];
                ech_plan *plan;
                assert_int_equal(ech_design_plan(&m.design, rank, false, &plan), ECH_OK);
                ech_plan_list_traffic(plan, lists[l], traffic);
                most = fmax(most, (double)ech_traffic_all(&traffic[ECH_TRAFFIC_DATA]).bytes);
                ech_plan_destroy(plan);
            }
            assert_true((most > 0) == (i + l < 2));
            double wanted = most / BANDWIDTH, got = m.report.list_time[lists[l]];
            if (fabs(got - wanted) > 0.01 * wanted) fail_msg("%s: %g, not %g", more, got, wanted);
        }
        release(&m);
    }
}

/* ---- sequence chunks ---- */

#define LONG                                                                                       \
    "model.hidden_size=32 model.num_hidden_layers=6 training.micro_batch_size=1 "                  \
    "training.global_batch_size=1 data.sequence_length=2048 "

static int64_t device_bytes(const char *more)
{
    made m;
    make(1, more, &m);
    int64_t bytes = m.report.alike.at[0].plan->arena_bytes[ECH_SPACE_DEVICE];
    release(&m);
    return bytes;
}

/* expected: the keys of the hint; NULL: chunks pay, and nothing is said. The hint's run needs what
 * is said, and less. */
static void assert_chunks(const char *keys, const char *expected)
{
    made m;
    char words[400];
    ECH_FREED_TEXT text = {0}, json = {0}, line = {0};
    snprintf(words, sizeof words, LONG "%s", keys);
    make(1, words, &m);
    ech_plan_report_text(&m.report, &text);
    assert_int_equal(ech_plan_report_json(&m.report, &json), ECH_OK);
    const ech_plan_chunks chunks = m.report.chunks;
    int n = (int)m.config->memory.sequence_chunks;
    release(&m);
    assert_int_equal(chunks.bytes, device_bytes(words));
    assert_non_null(strstr(json.at, expected ? "\"pay\": false" : "\"pay\": true"));
    snprintf(words, sizeof words, LONG "%s memory.sequence_chunks=1", keys);
    assert_int_equal(chunks.whole, device_bytes(words));
    assert_int_equal(chunks.bytes < chunks.whole, !expected);
    if (!expected) {
        assert_null(strstr(text.at, "do not pay"));
        return;
    }
    snprintf(words, sizeof words, LONG "%s %s", keys, expected);
    int64_t helped = device_bytes(words);
    assert_true(helped < chunks.bytes && helped <= chunks.whole);
    ech_text_append(&line,
                    "\nchunks      %d sequence chunks do not pay: the device needs %s, with one "
                    "chunk %s; set %s",
                    n, ECH_BYTES(chunks.bytes), ECH_BYTES(chunks.whole), expected);
    if (chunks.away) ech_text_append(&line, ", with which it needs %s", ECH_BYTES(helped));
    ech_text_append(&line, "\n");
    if (!strstr(text.at, line.at)) fail_msg("no line '%s' in %s", line.at + 1, text.at);
}

TEST(test_chunks)
{
    assert_chunks("memory.sequence_chunks=8 memory.recompute=full",
                  "memory.offload_activations=host");
    assert_chunks("memory.sequence_chunks=8 memory.recompute=full memory.offload_activations=host",
                  NULL);
    assert_chunks("memory.sequence_chunks=8 model.num_key_value_heads=1", NULL);
    assert_chunks("memory.sequence_chunks=2 memory.recompute=full memory.offload_activations=host "
                  "memory.prefetch=9",
                  "memory.sequence_chunks=1");
}

/* Without chunks there is nothing to compare. */
TEST(test_no_chunks)
{
    made m;
    ECH_FREED_TEXT json = {0};
    make(1, LONG, &m);
    assert_int_equal(m.report.chunks.bytes, 0);
    assert_int_equal(ech_plan_report_json(&m.report, &json), ECH_OK);
    assert_null(strstr(json.at, "one_chunk_bytes"));
    release(&m);
}

ALL_TESTS(fixture_setup, fixture_teardown)
