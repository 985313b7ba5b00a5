/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks send, against the papers' closed formulas.
 */

#include "check/check.h"
#include "schedule/fixture.h"
#include "schedule/traffic.h"
#include "unit.h"

enum { B = 2, T = 16, C = 16, H = 4, V = 52, L = 3, M = 4, ITEM = 4 };

/* Micro-batches of B samples; M of them for each of `data` replicas. */
static fixture plan(int ranks, int data, const char *more)
{
    ech_text text = {0};
    ech_config *config = sample_config("llama");
    ech_text_append(&text,
                    "data.sequence_length=%d training.micro_batch_size=%d "
                    "training.global_batch_size=%d model.num_hidden_layers=%d "
                    "model.num_attention_heads=%d model.vocab_size=%d training.check_every=0 %s",
                    T, B, B * M * data, L, H, V, more);
    sample_set(config, text.at);
    ech_text_free(&text);
    return fixture_plan(config, ranks);
}

static void check(const ech_traffic *traffic, ech_collective kind, int64_t calls)
{
    assert_int_equal(ech_traffic_of(traffic, kind, ECH_FLOW_ANY).calls, calls);
}

static void assert_silent(const ech_traffic *traffic)
{
    const ech_traffic none = {0};
    assert_memory_equal(traffic, &none, sizeof none);
}

/* Gradients that a rank sums over groups of a kind, without their padding; *padding: that. */
static int64_t summed(const ech_plan *plan, ech_layout_group group, int64_t *padding)
{
    int64_t elements = 0;
    *padding = 0;
    for (size_t b = 0; b < plan->bucket.n; b++) {
        if (plan->bucket.at[b].group != group) continue;
        elements += plan->bucket.at[b].elements - plan->bucket.at[b].padding;
        *padding += plan->bucket.at[b].padding;
    }
    return elements;
}

/* One rank has nobody to send to. */
TEST(test_one_rank)
{
    ech_traffic traffic[ECH_TRAFFIC_AXES];
    fixture f = plan(1, 1, "");
    ech_plan_traffic(f.plan[0], traffic);
    for (int axis = 0; axis < ECH_TRAFFIC_AXES; axis++) assert_silent(&traffic[axis]);
    fixture_free(&f);
}

/* Shoeybi et al. 2019: each layer has two all-reduces forward and two backward. There is one for
 * the rows of the table and one for the gradient of the head's input. Each sends 2 (t - 1) / t of
 * its tensor. */
static void check_tensor(int t)
{
    char more[64];
    ech_traffic traffic[ECH_TRAFFIC_AXES];
    snprintf(more, sizeof more, "parallel.tensor=%d", t);
    fixture f = plan(t, 1, more);
    int64_t calls = M * (4 * L + 2), R = B * T;
    for (int rank = 0; rank < t; rank++) {
        ech_plan_traffic(f.plan[rank], traffic);
        const ech_traffic *tensor = &traffic[ECH_TRAFFIC_TENSOR];
        check(tensor, ECH_COLLECTIVE_ALL_REDUCE, calls);
        /* The loss: three numbers in fp64 of every row to every other rank. */
        check(tensor, ECH_COLLECTIVE_ALL_GATHER, M);
        assert_int_equal(ech_traffic_of(tensor, ECH_FLOW_ANY, ECH_GROUP_TENSOR).calls, calls + M);
        assert_int_equal(ech_traffic_all(tensor).bytes,
                         calls * 2 * (t - 1) * R * C * ITEM / t + M * (t - 1) * R * 3 * 8);
        assert_int_equal(ech_traffic_all(tensor).messages, calls * 2 * (t - 1) + M * (t - 1));
        assert_silent(&traffic[ECH_TRAFFIC_CONTEXT]);
        assert_silent(&traffic[ECH_TRAFFIC_PIPELINE]);
        assert_silent(&traffic[ECH_TRAFFIC_DATA]);
    }
    fixture_free(&f);
}

TEST(test_tensor)
{
    check_tensor(2);
    check_tensor(4);
}

/* Korthikanti et al. 2022: an all-reduce becomes a reduce-scatter and an all-gather, which together
 * send as much; what is not kept of gathered inputs is gathered again. */
static void check_sequence(bool keep)
{
    ech_traffic traffic[ECH_TRAFFIC_AXES];
    fixture f = plan(2, 1,
                     keep ? "parallel.tensor=2 parallel.sequence=keep"
                          : "parallel.tensor=2 parallel.sequence=true");
    int64_t gathers = M * ((keep ? 4 : 6) * L + 2), scatters = M * (4 * L + 2), R = B * T;
    for (int rank = 0; rank < 2; rank++) {
        ech_plan_traffic(f.plan[rank], traffic);
        const ech_traffic *tensor = &traffic[ECH_TRAFFIC_TENSOR];
        check(tensor, ECH_COLLECTIVE_ALL_REDUCE, 0);
        check(tensor, ECH_COLLECTIVE_ALL_GATHER, gathers + M); /* the loss's, too */
        check(tensor, ECH_COLLECTIVE_REDUCE_SCATTER, scatters);
        assert_int_equal(ech_traffic_all(tensor).bytes,
                         (gathers + scatters) * R * C * ITEM / 2 + M * R * 3 * 8);
        assert_int_equal(ech_traffic_all(tensor).messages, gathers + scatters + M);
        /* Gains of norms: each rank has a share of their gradients' sum. */
        const ech_traffic *data = &traffic[ECH_TRAFFIC_DATA];
        assert_int_equal(ech_traffic_of(data, ECH_FLOW_ANY, ECH_GROUP_PARTIAL).calls,
                         ech_traffic_of(data, ECH_COLLECTIVE_ALL_REDUCE, ECH_FLOW_ANY).calls);
        int64_t padding, gains = summed(f.plan[rank], ECH_GROUP_PARTIAL, &padding);
        assert_int_equal(gains, (2 * L + 1) * C);
        assert_int_equal(ech_traffic_all(data).bytes, (gains + padding) * ITEM);
    }
    fixture_free(&f);
}

TEST(test_sequence)
{
    check_sequence(false);
    check_sequence(true);
}

/* Keys and values go around once in the forward, and once more in the backward, with their
 * gradients the same way home. */
TEST(test_ring)
{
    enum { c = 4 };
    ech_traffic traffic[ECH_TRAFFIC_AXES];
    fixture f = plan(c, 1, "parallel.context=4");
    for (int rank = 0; rank < c; rank++) {
        ech_plan_traffic(f.plan[rank], traffic);
        const ech_traffic *context = &traffic[ECH_TRAFFIC_CONTEXT];
        int64_t calls = M * L * 3 * (c - 1);
        check(context, ECH_COLLECTIVE_SHIFT, calls);
        assert_int_equal(ech_traffic_of(context, ECH_FLOW_ANY, ECH_GROUP_CONTEXT).calls, calls);
        assert_int_equal(ech_traffic_all(context).bytes, calls * 2 * B * T / c * C * ITEM);
        assert_int_equal(ech_traffic_all(context).messages, calls);
        assert_silent(&traffic[ECH_TRAFFIC_TENSOR]);
    }
    fixture_free(&f);
}

/* A window that reaches only the neighbours: each rank sends them keys and values twice, and
 * gradients back once. */
TEST(test_window)
{
    enum { c = 4, NEXT = T / (2 * c) + 1 };
    ech_traffic traffic[ECH_TRAFFIC_AXES];
    char words[80];
    for (int window = 1; window <= NEXT; window += NEXT - 1) {
        snprintf(words, sizeof words, "parallel.context=4 model.sliding_window=%d", window);
        fixture f = plan(c, 1, words);
        for (int rank = 0; rank < c; rank++) {
            ech_plan_traffic(f.plan[rank], traffic);
            const ech_traffic *context = &traffic[ECH_TRAFFIC_CONTEXT];
            int64_t neighbours = window == 1 ? 0 : rank % (c - 1) == 0 ? 1 : 2;
            check(context, ECH_COLLECTIVE_SHIFT, 0);
            check(context, ECH_COLLECTIVE_SLIDE, window == 1 ? 0 : M * L * 6);
            assert_int_equal(ech_traffic_all(context).messages, M * L * 3 * neighbours);
            assert_int_equal(ech_traffic_all(context).bytes,
                             M * L * 3 * neighbours * 2 * B * T / c * C * ITEM);
        }
        fixture_free(&f);
    }
}

/* DeepSpeed-Ulysses: queries, keys, values and what comes of them change places, and their
 * gradients. */
TEST(test_ulysses)
{
    enum { c = 2 };
    ech_traffic traffic[ECH_TRAFFIC_AXES];
    fixture f = plan(c, 1, "parallel.context=2 parallel.context_method=ulysses");
    for (int rank = 0; rank < c; rank++) {
        ech_plan_traffic(f.plan[rank], traffic);
        const ech_traffic *context = &traffic[ECH_TRAFFIC_CONTEXT];
        int64_t calls = M * L * 8, own = B * T / c * C * ITEM;
        check(context, ECH_COLLECTIVE_ALL_TO_ALL, calls);
        assert_int_equal(ech_traffic_all(context).bytes, calls * own * (c - 1) / c);
        assert_int_equal(ech_traffic_all(context).messages, calls * (c - 1));
    }
    fixture_free(&f);
}

/* A stage sends each micro-batch on and its gradient back; of tensor ranks that hold it alike each
 * sends a part, which the receiving ones gather. */
TEST(test_pipeline)
{
    ech_traffic traffic[ECH_TRAFFIC_AXES];
    fixture f = plan(4, 1, "parallel.tensor=2 parallel.pipeline=2");
    int64_t R = B * T;
    for (int rank = 0; rank < 4; rank++) {
        ech_plan_traffic(f.plan[rank], traffic);
        const ech_traffic *pipeline = &traffic[ECH_TRAFFIC_PIPELINE];
        assert_int_equal(ech_traffic_all(pipeline).bytes, M * R * C * ITEM / 2);
        assert_int_equal(ech_traffic_all(pipeline).messages, M);
        int loss = f.of.layout->coordinates[rank].stage == 1 ? M : 0, first, end, layers;
        ech_layout_blocks(f.of.layout, rank, 0, &first, &end);
        layers = end - first - 1; /* the embedding, or the head */
        const ech_traffic *tensor = &traffic[ECH_TRAFFIC_TENSOR];
        check(tensor, ECH_COLLECTIVE_ALL_GATHER, M + loss);
        check(tensor, ECH_COLLECTIVE_ALL_REDUCE, M * (4 * layers + 1));
        assert_int_equal(ech_traffic_all(tensor).bytes,
                         (M + 2 * M * (4 * layers + 1)) * R * C * ITEM / 2 + loss * R * 3 * 8);
    }
    fixture_free(&f);
}

/* 2 (N - 1) / N of all gradients, whatever replicas and context ranks make up N; and what ranks
 * send does not depend on the number of replicas otherwise. */
TEST(test_data)
{
    ech_traffic traffic[ECH_TRAFFIC_AXES], alone[ECH_TRAFFIC_AXES];
    fixture f = plan(4, 2, "parallel.context=2"), g = plan(2, 1, "parallel.context=2");
    int64_t bytes = 0, N = 4, padding, all = summed(f.plan[0], ECH_GROUP_DATA, &padding);
    for (int rank = 0; rank < N; rank++) {
        ech_plan_traffic(f.plan[rank], traffic);
        bytes += ech_traffic_all(&traffic[ECH_TRAFFIC_DATA]).bytes;
        assert_int_equal(
            ech_traffic_of(&traffic[ECH_TRAFFIC_DATA], ECH_FLOW_ANY, ECH_GROUP_DATA).calls,
            f.plan[rank]->bucket.n);
        assert_true(ech_traffic_all(&traffic[ECH_TRAFFIC_DATA]).messages > 0);
    }
    assert_int_equal(all, ech_model_params(f.of.model));
    assert_int_equal(bytes, 2 * (N - 1) * (all + padding) * ITEM);
    ech_plan_traffic(g.plan[0], alone);
    assert_memory_equal(&traffic[ECH_TRAFFIC_CONTEXT], &alone[ECH_TRAFFIC_CONTEXT],
                        sizeof *traffic);
    fixture_free(&f);
    fixture_free(&g);
}

/* How many messages a ring needs is not said. */
TEST(test_ring_reduction)
{
    ech_traffic traffic[ECH_TRAFFIC_AXES];
    fixture f = plan(2, 2, "");
    f.plan[0]->reduction = ECH_REDUCTION_RING;
    ech_plan_traffic(f.plan[0], traffic);
    assert_int_equal(ech_traffic_all(&traffic[ECH_TRAFFIC_DATA]).messages, -1);
    int64_t padding, all = summed(f.plan[0], ECH_GROUP_DATA, &padding);
    assert_int_equal(ech_traffic_all(&traffic[ECH_TRAFFIC_DATA]).bytes, (all + padding) * ITEM);
    fixture_free(&f);
}

/* An outline counts the same. */
TEST(test_outline)
{
    ech_traffic whole[ECH_TRAFFIC_AXES], traffic[ECH_TRAFFIC_AXES];
    fixture f = plan(8, 1, "parallel.tensor=2 parallel.pipeline=2 parallel.context=2");
    for (int rank = 0; rank < 8; rank++) {
        ech_plan_request request = fixture_request(&f, rank);
        request.outline = true;
        ech_plan *outline = NULL;
        assert_int_equal(ech_checked_plan_create(&request, &outline), ECH_OK);
        ech_plan_traffic(f.plan[rank], whole);
        ech_plan_traffic(outline, traffic);
        assert_memory_equal(whole, traffic, sizeof whole);
        ech_plan_destroy(outline);
    }
    fixture_free(&f);
}
