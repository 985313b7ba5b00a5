/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans: what their lists contain, where values lie, and that the checker refuses broken ones.
 */

#include "check/check.h"
#include "schedule/calendar.h"
#include "schedule/fixture.h"
#include "schedule/peaks.h"
#include "schedule/print.h"
#include "schedule/states.h"
#include "schedule/traffic.h"
#include "unit.h"

/* Of a block's program that is done in parts, the first counts. */
static int count(const ech_list *list, ech_step_kind kind)
{
    int n = 0;
    for (size_t s = 0; s < list->step.n; s++)
        n += list->step.at[s].kind == kind && list->step.at[s].first_call == 0;
    return n;
}

static int find(const ech_list *list, ech_step_kind kind, int index)
{
    for (size_t s = 0; s < list->step.n; s++)
        if (list->step.at[s].kind == kind && (index < 0 || list->step.at[s].index == index))
            return (int)s;
    return -1;
}

TEST(test_one_rank_runs_a_schedule_too)
{
    fixture f = fixture_plan(sample_config("gpt2"), 1);
    const ech_list *list = &f.plan[0]->list[ECH_LIST_TRAIN];
    int blocks = 5, micro = 12;
    assert_int_equal(count(list, ECH_STEP_FORWARD), blocks * micro);
    /* The embedding has no gradient of an input, the head finishes its weight in B. */
    assert_int_equal(count(list, ECH_STEP_BACKWARD_INPUT), (blocks - 1) * micro);
    assert_int_equal(count(list, ECH_STEP_BACKWARD_WEIGHT), (blocks - 1) * micro);
    assert_int_equal(count(list, ECH_STEP_REDUCE) + count(list, ECH_STEP_REDUCE_GRADS), 0);
    assert_int_equal(count(list, ECH_STEP_UPDATE), (int)f.plan[0]->bucket.n);
    fixture_free(&f);
}

/* The last of the blocks' steps that writes the bucket. */
static int last_writer(const ech_list *list, int bucket)
{
    int last = -1;
    for (int s = 0; s < (int)list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        for (int i = 0; i < step->accesses && step->block >= 0; i++) {
            const ech_access *access = &list->access.at[step->first_access + i];
            if (access->write && access->value == list->summed[bucket]) last = s;
        }
    }
    return last;
}

/* Li et al. 2020: each bucket has one reduction, after the last backward that adds to it. The
 * reductions begin with the last blocks, long before the last backward. Norms and updates have the
 * same order. */
TEST(test_buckets)
{
    fixture f = fixture_plan(sample_config("llama"), 3);
    const ech_plan *plan = f.plan[1];
    const ech_list *list = &plan->list[ECH_LIST_TRAIN];
    assert_true(plan->bucket.n > 3);
    assert_int_equal(count(list, ECH_STEP_REDUCE_GRADS), (int)plan->bucket.n);
    int last_w = 0;
    for (size_t s = 0; s < list->step.n; s++)
        if (list->step.at[s].kind == ECH_STEP_BACKWARD_WEIGHT) last_w = (int)s;
    assert_true(find(list, ECH_STEP_REDUCE_GRADS, -1) < last_w - 4);
    static const ech_step_kind kinds[] = {ECH_STEP_REDUCE_GRADS, ECH_STEP_NORM, ECH_STEP_UPDATE};
    for (int k = 0; k < 3; k++) {
        int block_before = 1000;
        assert_int_equal(count(list, kinds[k]), (int)plan->bucket.n);
        for (int s = 0; s < (int)list->step.n; s++) {
            if (list->step.at[s].kind != kinds[k]) continue;
            int block = plan->bucket.at[list->step.at[s].index].block;
            assert_true(block <= block_before);
            block_before = block;
        }
    }
    /* Accumulation: only the last micro-batch's backwards are followed by reductions. */
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        if (step->kind != ECH_STEP_REDUCE_GRADS) continue;
        int after = list->after.at[step->first_after];
        assert_int_equal(list->step.at[after].micro, list->micro_batches - 1);
        assert_int_equal(after, last_writer(list, step->index));
        /* Only reductions that the same step made ready may come between. */
        for (size_t between = (size_t)after + 1; between < s; between++)
            assert_int_equal(list->step.at[between].kind, ECH_STEP_REDUCE_GRADS);
    }
    fixture_free(&f);
}

/* Between blocks no forward or backward waits for a sum over ranks. Only the norm of a bucket waits
 * for the sum of its gradients. */
TEST(test_hidden_reductions)
{
    const char *const models[] = {"gpt2", "llama", "qwen3"};
    for (int m = 0; m < 3; m++) {
        fixture f = fixture_plan(sample_config(models[m]), 3);
        const ech_list *list = &f.plan[0]->list[ECH_LIST_TRAIN];
        int norms = 0;
        for (size_t s = 0; s < list->step.n; s++) {
            const ech_step *step = &list->step.at[s];
            for (int i = 0; i < step->afters; i++) {
                const ech_step *before = &list->step.at[list->after.at[step->first_after + i]];
                if (before->lane != ECH_LANE_REDUCE) continue;
                assert_true(ech_step_kind_phase(step->kind) < 0);
                if (before->kind != ECH_STEP_REDUCE_GRADS || step->lane != ECH_LANE_COMPUTE)
                    continue;
                assert_int_equal(step->kind, ECH_STEP_NORM);
                assert_int_equal(step->index, before->index);
                norms++;
            }
        }
        assert_int_equal(norms, (int)f.plan[0]->bucket.n);
        fixture_free(&f);
    }
}

/* ---- what a bucket is of ---- */

/* Whether two parameters of a rank may share a bucket: block, group, types, units, and what the
 * optimizer keeps of each element. */
static bool may_share(const ech_plan *plan, const ech_config *config, int a, int b)
{
    const ech_param *one = &plan->model->param.at[a], *other = &plan->model->param.at[b];
    ech_optimizer_needs x = ech_optimizer_needs_of(config, one);
    ech_optimizer_needs y = ech_optimizer_needs_of(config, other);
    const ech_extent extent = ech_extent_of_params(plan->layout->sharding);
    int64_t sizes[ECH_MAX_DIMS], others[ECH_MAX_DIMS];
    ech_shape seen = ech_shape_seen(&one->shape), other_seen = ech_shape_seen(&other->shape);
    ech_shape_resolve(&seen, extent, sizes);
    ech_shape_resolve(&other_seen, extent, others);
    bool same = one->block == other->block && x.states == y.states &&
                ech_optimizer_unit(&x, one, sizes) == ech_optimizer_unit(&y, other, others) &&
                ech_plan_param_dtype(plan, a) == ech_plan_param_dtype(plan, b) &&
                ech_plan_gradient_dtype(plan, a) == ech_plan_gradient_dtype(plan, b) &&
                ech_layout_addends(plan->layout, plan->model, a) ==
                    ech_layout_addends(plan->layout, plan->model, b);
    for (int i = 0; same && i < x.states; i++) same = strcmp(x.state[i].name, y.state[i].name) == 0;
    return same;
}

static int64_t bytes_of(const ech_plan *plan, int param)
{
    return (plan->param[param].elements + plan->param[param].padding) *
           (int64_t)ech_dtype_bytes(ech_plan_gradient_dtype(plan, param));
}

/* Each in the model's order, full, and of what may share a bucket; numbered by their first
 * parameters. */
static void check_composition(const ech_plan *plan, const ech_config *config)
{
    int before = -1;
    for (int i = 0; i < (int)plan->bucket.n; i++) {
        const ech_bucket *bucket = &plan->bucket.at[i];
        const int *params = &plan->bucket_param.at[bucket->first_param];
        assert_true(params[0] > before);
        before = params[0];
        assert_int_equal(bucket->block, plan->model->param.at[params[0]].block);
        assert_true(bucket->params == 1 ||
                    ech_plan_bucket_bytes(plan, i) <= config->parallel.bucket_bytes);
        assert_int_equal(bucket->shard % bucket->unit, 0);
        for (int k = 1; k < bucket->params; k++) {
            assert_int_equal(plan->param[params[k]].bucket_offset % bucket->unit, 0);
            assert_true(params[k] > params[k - 1]);
            assert_true(may_share(plan, config, params[0], params[k]));
        }
        for (int p = params[bucket->params - 1] + 1; p < (int)plan->model->param.n; p++)
            if (plan->param[p].bucket >= 0 && may_share(plan, config, params[0], p)) {
                assert_true(ech_plan_bucket_bytes(plan, i) + bytes_of(plan, p) >
                            config->parallel.bucket_bytes);
                break;
            }
    }
}

static void expect_same_buckets(const ech_plan *whole, const ech_plan *part)
{
    for (size_t p = 0; p < part->model->param.n; p++) {
        const ech_plan_param *a = &whole->param[p], *b = &part->param[p];
        if (b->bucket < 0) continue;
        assert_int_equal(a->bucket_offset, b->bucket_offset);
        assert_int_equal(whole->bucket.at[a->bucket].elements, part->bucket.at[b->bucket].elements);
        assert_int_equal(whole->bucket.at[a->bucket].params, part->bucket.at[b->bucket].params);
    }
}

/* The buckets of a block are the same on one rank, in a pipeline's stages, and in plans that only
 * run forwards. */
TEST(test_bucket_composition)
{
    static const char *const words[] = {"optimizer.name=adamw",
                                        "optimizer.name=muon optimizer.momentum=0.9",
                                        "optimizer.name=adafactor",
                                        "optimizer.name=adamw parallel.bucket_bytes=1",
                                        "optimizer.name=sm3 parallel.bucket_bytes=1MiB",
                                        "optimizer.name=adamw8 optimizer.block=24"};
    for (size_t w = 0; w < sizeof words / sizeof *words; w++) {
        fixture f[2];
        for (int i = 0; i < 2; i++) {
            ech_config *config = sample_config("llama");
            sample_set(config, words[w]);
            config->parallel.pipeline = 1 + i;
            f[i] = fixture_plan(config, 1 + i);
        }
        const ech_plan *whole = f[0].plan[0];
        check_composition(whole, f[0].of.config);
        for (int rank = 0; rank < 2; rank++) expect_same_buckets(whole, f[1].plan[rank]);
        ech_plan_request request = fixture_request(&f[0], 0);
        request.forward_only = true;
        ech_plan *forward = ech_plan_create(&request);
        assert_int_equal(forward->bucket.n, whole->bucket.n);
        expect_same_buckets(whole, forward);
        ech_plan_destroy(forward);
        for (int i = 0; i < 2; i++) fixture_free(&f[i]);
    }
}

/* Gradients of a bucket are contiguous and cover it. */
TEST(test_bucket_geometry)
{
    fixture f = fixture_plan(sample_config("gpt2"), 2);
    const ech_plan *plan = f.plan[0];
    int64_t all = 0;
    for (size_t b = 0; b < plan->bucket.n; b++) {
        const ech_bucket *bucket = &plan->bucket.at[b];
        int64_t next = 0;
        for (int i = 0; i < bucket->params; i++) {
            const ech_plan_param *p = &plan->param[plan->bucket_param.at[bucket->first_param + i]];
            assert_int_equal(p->bucket_offset, next);
            next += p->elements + p->padding;
            all += p->elements + p->padding;
        }
        assert_int_equal(next, bucket->elements);
    }
    int64_t sent = 0;
    for (int rank = 0; rank < 2; rank++)
        sent += ech_plan_traffic_along(f.plan[rank], ECH_TRAFFIC_DATA).bytes;
    assert_int_equal(sent, 2 * (2 - 1) * 4 * all); /* 2 (N-1)/N S per rank */
    fixture_free(&f);
}

/* Memory of activations depends on the size of a micro-batch, not on the number of micro-batches:
 * one is in flight, and one more is loaded. */
TEST(test_memory_is_flat_in_micro_batches)
{
    int64_t peak[2][ECH_MEMORY_KINDS];
    for (int i = 0; i < 2; i++) {
        ech_config *config = sample_config("llama");
        config->training.global_batch_size = i ? 40 : 4;
        fixture f = fixture_plan(config, 1);
        ech_plan_peaks(f.plan[0], peak[i]);
        assert_true(f.plan[0]->list[ECH_LIST_TRAIN].bytes[ECH_SPACE_DEVICE] >=
                    f.plan[0]->list[ECH_LIST_TRAIN].lower_bound[ECH_SPACE_DEVICE]);
        fixture_free(&f);
    }
    assert_int_equal(peak[0][ECH_MEMORY_ACTIVATIONS], peak[1][ECH_MEMORY_ACTIVATIONS]);
    assert_int_equal(peak[0][ECH_MEMORY_GRADIENTS], peak[1][ECH_MEMORY_GRADIENTS]);
    assert_int_equal(peak[0][ECH_MEMORY_BATCH], peak[1][ECH_MEMORY_BATCH]);
}

/* Offsets against a slow, independent check: no two values share a byte at a time both live. */
TEST(test_no_overlap)
{
    for (int ranks = 1; ranks <= 4; ranks++) {
        fixture f = fixture_plan(sample_config(ranks % 2 ? "gpt2" : "llama"), ranks);
        for (int l = 0; l < ECH_LIST_KINDS; l++) {
            const ech_list *list = &f.plan[0]->list[l];
            for (size_t i = 0; i < list->value.n; i++) {
                for (size_t j = 0; j < i; j++) {
                    const ech_value *a = &list->value.at[i], *b = &list->value.at[j];
                    bool meet = a->born <= b->dies && b->born <= a->dies;
                    bool share =
                        a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
                    assert_false(meet && share);
                }
            }
        }
        fixture_free(&f);
    }
}

static void expect_rejected(const ech_plan *plan, const char *why)
{
    ech_clear_error();
    assert_int_equal(ech_check_list(plan, &plan->list[ECH_LIST_TRAIN]), ECH_EINTERNAL);
    if (!strstr(ech_last_error(), why)) fail_msg("expected '%s' in: %s", why, ech_last_error());
}

/* Bytes of weights, states and gradients are those of the numbers, and padding. */
static void check_paddings(const ech_plan *plan)
{
    int64_t kept[ECH_MEMORY_KINDS] = {0}, padding[ECH_MEMORY_KINDS], numbers[ECH_DTYPES];
    for (size_t i = 0; i < plan->persistent.n; i++)
        kept[plan->persistent.at[i].kind] += plan->persistent.at[i].bytes;
    for (int b = 0; b < (int)plan->bucket.n; b++)
        kept[ECH_MEMORY_GRADIENTS] += ech_plan_bucket_bytes(plan, b);
    ech_plan_paddings(plan, padding);
    for (ech_memory_kind kind = 0; kind < ECH_MEMORY_KINDS; kind++) {
        bool in_buckets = kind == ECH_MEMORY_PARAMETERS || kind == ECH_MEMORY_OPTIMIZER ||
                          kind == ECH_MEMORY_GRADIENTS;
        assert_int_equal(padding[kind] > 0, in_buckets);
        if (!in_buckets) continue;
        int64_t bytes = padding[kind];
        ech_plan_numbers(plan, kind, numbers);
        for (ech_dtype d = 0; d < ECH_DTYPES; d++)
            bytes += numbers[d] * (int64_t)ech_dtype_bytes(d);
        assert_int_equal(bytes, kept[kind]);
    }
}

/* Where a device wants it, gradients begin at its alignment in any type, and values do. */
TEST(test_alignment)
{
    enum { ALIGNMENT = 256, ELEMENTS = ALIGNMENT / 2 };
    fixture f = fixture_plan(sample_config("gpt2"), 2);
    ech_plan_request request = fixture_request(&f, 0);
    ech_device_row device = *request.device;
    device.alignment = device.part = ALIGNMENT;
    request.device = &device;
    ech_plan *plan;
    assert_int_equal(ech_checked_plan_create(&request, &plan), ECH_OK);
    for (size_t b = 0; b < plan->bucket.n; b++) {
        const ech_bucket *bucket = &plan->bucket.at[b];
        int64_t next = 0, padding = 0;
        for (int i = 0; i < bucket->params; i++) {
            int param = plan->bucket_param.at[bucket->first_param + i];
            const ech_plan_param *p = &plan->param[param];
            assert_int_equal(p->bucket_offset, next);
            assert_int_equal(next % ELEMENTS, 0);
            bool last = i + 1 == bucket->params; /* its padding makes the two shards equal */
            assert_in_range(p->padding, 0, (1 + last) * ELEMENTS - 1);
            next += p->elements + p->padding;
            padding += p->padding;
        }
        assert_int_equal(next, bucket->elements);
        assert_int_equal(padding, bucket->padding);
    }
    check_paddings(plan);
    int64_t padded[ECH_DTYPES], packed[ECH_DTYPES];
    ech_plan_numbers(plan, ECH_MEMORY_GRADIENTS, padded);
    ech_plan_numbers(f.plan[0], ECH_MEMORY_GRADIENTS, packed);
    assert_memory_equal(padded, packed, sizeof padded);
    for (int l = 0; l < ECH_LIST_KINDS; l++)
        for (size_t v = 0; v < plan->list[l].value.n; v++)
            if (ech_memory_space(plan->list[l].value.at[v].kind) == ECH_SPACE_DEVICE)
                assert_int_equal(plan->list[l].value.at[v].offset % ALIGNMENT, 0);
    plan->list[ECH_LIST_TRAIN].value.at[0].offset += 64;
    expect_rejected(plan, "not aligned");
    ech_plan_destroy(plan);
    fixture_free(&f);
}

TEST(test_text)
{
    ech_text text = {0};
    ech_step step = {.kind = ECH_STEP_FORWARD, .chunk = 0, .micro = 3, .block = 5};
    ech_step_print(&step, &text);
    assert_string_equal(text.at, "F0.3/5");
    ech_text_free(&text);
    ech_config *config = sample_config("gpt2");
    config->training.global_batch_size = 4;
    fixture f = fixture_plan(config, 1);
    ech_list_print_row(&f.plan[0]->list[ECH_LIST_TRAIN], &text);
    assert_string_equal(text.at, "F0.0 B0.0 F0.1 B0.1");
    ech_text_free(&text);
    fixture_free(&f);
}

/* Programs that are cut at collectives: parts say which calls they do; the row is the same. */
TEST(test_text_of_parts)
{
    ech_text text = {0};
    ech_config *config = sample_config("llama");
    sample_set(config, "parallel.tensor=2 parallel.pipeline=2 model.num_hidden_layers=1 "
                       "training.global_batch_size=2 model.vocab_size=50");
    fixture f = fixture_plan(config, 4);
    ech_list *second = &f.plan[2]->list[ECH_LIST_TRAIN];
    ech_list_print(second, &text);
    assert_string_equal(text.at,
                        "    0  receive    recv_act 0.0/2 from rank 0\n"
                        "    1  collective C F0.0/2[received] all_gather over tensor  after 0\n"
                        "    2  compute    count\n"
                        "    3  compute    load 0\n"
                        "    4  compute    F0.0/2  after 0 1\n"
                        "    5  compute    B0.0/2[0-1]\n"
                        "    6  collective C B0.0/2[2] all_gather over tensor  after 5\n"
                        "    7  compute    B0.0/2[3-4]  after 6\n"
                        "    8  collective C B0.0/2[5] all_reduce over tensor  after 7\n"
                        "    9  compute    B0.0/2[6]  after 8\n"
                        "   10  compute    norm bucket 0\n"
                        "   11  reduce     reduce STOP..squares sum over world  after 10\n"
                        "   12  compute    norm_sum  after 11\n"
                        "   13  compute    clip\n"
                        "   14  compute    update bucket 0\n"
                        "   15  send       send_grad 0.0/2 to rank 0  after 9\n"
                        "   16  compute    read\n");
    text.n = 0;
    ech_list_print_row(second, &text);
    assert_string_equal(text.at, "F0.0 B0.0");
    ech_text_free(&text);
    fixture_free(&f);
}

TEST(test_calendar)
{
    ech_calendar c = {
        .steps = 10, .validate_every = 4, .check_every = 3, .save_every = 5, .validates = true};
    const char *validate = "0000100010100", *save = "0000010000100";
    for (int64_t step = 0; step <= 10; step++) {
        assert_int_equal(ech_calendar_due(&c, ECH_LIST_VALIDATE, step), validate[step] == '1');
        assert_int_equal(ech_calendar_due(&c, ECH_LIST_SAVE, step), save[step] == '1');
        assert_int_equal(ech_calendar_due(&c, ECH_LIST_TRAIN, step), step < 10);
    }
}
