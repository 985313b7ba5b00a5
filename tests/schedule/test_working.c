/* SPDX-License-Identifier: Apache-2.0
 *
 * Working memory: what a plan says is live at once, against a sum over its values at every tick.
 */

#include "check/check.h"
#include "schedule/fixture.h"
#include "schedule/peaks.h"
#include "unit.h"

/* As large as the model, whatever the tokens; named here once more, on purpose. */
static bool is_of_model(ech_memory_kind kind)
{
    return kind == ECH_MEMORY_PARAMETERS || kind == ECH_MEMORY_OPTIMIZER ||
           kind == ECH_MEMORY_GRADIENTS || ech_memory_space(kind) == ECH_SPACE_HOST;
}

static int64_t persistent_bytes(const ech_plan *plan)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < plan->persistent.n; i++)
        if (!is_of_model(plan->persistent.at[i].kind))
            bytes += ech_align(plan->persistent.at[i].bytes, 64);
    return bytes;
}

static int64_t bytes_at(const ech_list *list, int tick)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < list->value.n; i++) {
        const ech_value *v = &list->value.at[i];
        if (!is_of_model(v->kind) && v->born <= tick && tick <= v->dies)
            bytes += ech_align(v->bytes, 64);
    }
    return bytes;
}

/* The most over all ticks, and the first of these. */
static int64_t most_bytes(const ech_list *list, int *when)
{
    int64_t most = 0;
    for (int tick = 0; tick < list->ticks; tick++) {
        if (bytes_at(list, tick) <= most) continue;
        most = bytes_at(list, tick);
        *when = tick;
    }
    return most;
}

static void check_list(const ech_list *list, int64_t *most)
{
    int when = 0;
    int64_t bytes = most_bytes(list, &when), greatest = 0, sum = 0;
    assert_int_equal(list->working, bytes);
    assert_int_equal(list->working_tick, when);
    for (int kind = 0; kind < ECH_MEMORY_KINDS; kind++) {
        if (is_of_model((ech_memory_kind)kind)) continue;
        if (list->peak[kind] > greatest) greatest = list->peak[kind];
        sum += list->peak[kind];
    }
    assert_in_range(list->working, greatest, sum);
    assert_true(list->working <= list->lower_bound[ECH_SPACE_DEVICE] &&
                list->lower_bound[ECH_SPACE_DEVICE] <= list->bytes[ECH_SPACE_DEVICE]);
    if (bytes > *most) *most = bytes;
}

static void check_plan(const ech_plan *plan)
{
    int64_t most = 0, sum = 0;
    for (int l = 0; l < ECH_LIST_KINDS; l++) check_list(&plan->list[l], &most);
    ech_working working = ech_plan_working(plan);
    assert_int_equal(working.bytes, persistent_bytes(plan) + most);
    assert_int_equal(working.list->working, most);
    assert_in_range(working.list->working_tick, working.step->tick,
                    working.step->tick + ech_step_ticks(working.step) - 1);
    for (int kind = 0; kind < ECH_MEMORY_KINDS; kind++) sum += working.kind[kind];
    assert_int_equal(sum, working.bytes);
    assert_true(working.bytes < plan->arena_bytes[ECH_SPACE_DEVICE]);
}

static void check_shape(fixture_shape shape)
{
    fixture f = fixture_pipeline(shape);
    for (int rank = 0; rank < f.ranks; rank++) check_plan(f.plan[rank]);
    fixture_free(&f);
}

TEST(test_live_at_once)
{
    static const char *const schedules[] = {"gpipe", "1f1b", "zero-bubble"};
    for (int i = 0; i < 3; i++)
        for (int stages = 1; stages <= 3; stages++) {
            check_shape((fixture_shape){
                .schedule = schedules[i], .stages = stages, .micro_batches = 4, .layers = 6});
            check_shape((fixture_shape){.schedule = schedules[i],
                                        .architecture = "llama",
                                        .stages = stages,
                                        .micro_batches = 4,
                                        .layers = 6});
        }
    check_shape((fixture_shape){.schedule = "1f1b", .stages = 2, .tensor = 2, .micro_batches = 3});
    check_shape((fixture_shape){.schedule = "1f1b",
                                .architecture = "llama",
                                .stages = 2,
                                .context = 2,
                                .micro_batches = 3});
}

/* Of twice the samples there is twice the working memory, of the model as much as before. */
TEST(test_grows_with_tokens)
{
    int64_t bytes[2], parameters[2];
    for (int i = 0; i < 2; i++) {
        ech_config *config = sample_config("llama");
        sample_set(config, i ? "training.micro_batch_size=4 training.global_batch_size=4"
                             : "training.micro_batch_size=2 training.global_batch_size=2");
        fixture f = fixture_plan(config, 1);
        bytes[i] = f.plan[0]->list[ECH_LIST_TRAIN].working;
        int64_t peak[ECH_MEMORY_KINDS];
        ech_plan_peaks(f.plan[0], peak);
        parameters[i] = peak[ECH_MEMORY_PARAMETERS];
        fixture_free(&f);
    }
    assert_int_equal(parameters[0], parameters[1]);
    assert_in_range(bytes[1], 2 * bytes[0] * 9 / 10, 2 * bytes[0]);
}

/* ---- heirs ---- */

static int count_heirs(const ech_list *list)
{
    int n = 0;
    for (size_t i = 0; i < list->value.n; i++) n += list->value.at[i].successor >= 0;
    return n;
}

/* What the activation function reads is written over with its gradient, one value of each GPT-2
 * layer, two of each llama or qwen3 layer; not where a W that comes later makes the function's
 * output again. That output is then written over what a function of one operand reads. */
TEST(test_heirs)
{
    enum { LAYERS = 4, MICRO = 3 };
    static const char *const architectures[] = {"gpt2", "llama", "qwen3"};
    static const int heirs[] = {1, 2, 2};
    char *apart = fixture_write("F0.0 F0.1 F0.2 B0.0 B0.1 B0.2 W0.0 W0.1 W0.2\n");
    for (int i = 0; i < 3; i++) {
        fixture_shape shape = {.schedule = "gpipe",
                               .architecture = architectures[i],
                               .stages = 1,
                               .micro_batches = MICRO,
                               .layers = LAYERS};
        fixture f = fixture_pipeline(shape);
        assert_int_equal(count_heirs(fixture_list(&f, 0)), LAYERS * MICRO * heirs[i]);
        int64_t joined = fixture_list(&f, 0)->working;
        fixture_free(&f);
        shape.schedule = apart;
        f = fixture_pipeline(shape);
        assert_int_equal(count_heirs(fixture_list(&f, 0)), heirs[i] == 1 ? LAYERS * MICRO : 0);
        assert_true(fixture_list(&f, 0)->working > joined);
        fixture_free(&f);
    }
    assert_int_equal(unlink(apart), 0);
    free(apart);
}

static void refuse(const ech_plan *plan, const ech_list *list)
{
    assert_int_equal(ech_check_list(plan, list), ECH_EINTERNAL);
}

/* The checker notices a successor at another place, of another time, and one that the call does not
 * write. */
TEST(test_wrong_heirs)
{
    fixture f = fixture_pipeline((fixture_shape){
        .schedule = "gpipe", .architecture = "llama", .stages = 1, .micro_batches = 1});
    ech_list *list = &f.plan[0]->list[ECH_LIST_TRAIN];
    ech_value *first = NULL, *second = NULL;
    for (size_t i = 0; i < list->value.n && !second; i++) { /* gate and up of one layer */
        first = &list->value.at[i];
        for (size_t j = i + 1; j < list->value.n && first->successor >= 0; j++)
            if (list->value.at[j].successor >= 0 && list->value.at[j].dies == first->dies)
                second = &list->value.at[j];
    }
    assert_non_null(first);
    assert_non_null(second);
    ech_value was = *first, other = *second;
    assert_int_equal(ech_check_list(f.plan[0], list), ECH_OK);
    first->successor = other.successor; /* gate's gradient and up's, changed over */
    second->successor = was.successor;
    refuse(f.plan[0], list);
    *first = was;
    *second = other;
    first->successor = -1; /* read by the call, and dead */
    refuse(f.plan[0], list);
    *first = was;
    first->offset = other.offset;
    refuse(f.plan[0], list);
    *first = was;
    assert_int_equal(ech_check_list(f.plan[0], list), ECH_OK);
    fixture_free(&f);
}

/* ---- the batch: one micro-batch under way, and one ahead ---- */

static bool loads(const ech_list *list)
{
    bool some = false;
    for (ech_slot slot = 0; slot < ECH_BATCH_SLOTS; slot++) some |= list->batch[slot] >= 0;
    return some;
}

/* Micro-batch k + 1, if there is one, is loaded last when the first forward of k begins. */
static void check_loads(const ech_list *list)
{
    int chunks = list->numbering.sequence_chunks, all = list->micro_batches / chunks;
    int loaded = 0, counted = 0, begun = 0;
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        if (step->kind == ECH_STEP_COUNT) {
            assert_int_equal(step->turn, counted++);
            if (loads(list)) assert_int_equal(loaded, step->turn * list->numbering.micro_batches);
        } else if (step->kind == ECH_STEP_LOAD) {
            assert_int_equal(step->micro, loaded++ * chunks);
            assert_int_equal(step->turn, counted - 1);
        } else if (step->kind == ECH_STEP_FORWARD) {
            assert_true(step->turn < counted);
            if (step->micro / chunks < begun) continue;
            assert_int_equal(step->micro / chunks, begun++);
            if (loads(list)) assert_int_equal(loaded, begun < all ? begun + 1 : all);
        }
    }
    assert_int_equal(begun, all);
    assert_int_equal(counted, list->turns);
    assert_int_equal(loaded, loads(list) ? all : 0);
}

/* Bytes of the batch: the most over the ranks. */
static int64_t check_batch(const char *schedule, int stages, int micro_batches, const char *more,
                           ech_list_kind kind)
{
    int64_t most = 0;
    int turns = fixture_is_asynchronous(schedule) ? 2 : 0;
    fixture f = fixture_pipeline((fixture_shape){.schedule = schedule,
                                                 .stages = stages,
                                                 .chunks = fixture_chunks(schedule),
                                                 .micro_batches = micro_batches,
                                                 .turns = turns,
                                                 .more = more});
    for (int rank = 0; rank < f.ranks; rank++) {
        const ech_list *list = &f.plan[rank]->list[kind];
        check_loads(list);
        if (list->peak[ECH_MEMORY_BATCH] > most) most = list->peak[ECH_MEMORY_BATCH];
    }
    fixture_free(&f);
    return most;
}

TEST(batches_are_loaded_one_ahead)
{
    static const char *const more[] = {"", "memory.sequence_chunks=2 data.document_mask=true"};
    for (int i = 0; i < FIXTURE_SCHEDULES; i++)
        for (int m = 0; m < 2; m++) {
            const char *name = fixture_schedules[i];
            int64_t few = check_batch(name, 2, 8, more[m], ECH_LIST_TRAIN);
            int64_t many = check_batch(name, 2, 32, more[m], ECH_LIST_TRAIN);
            /* A batch is there until its last backward: of gpipe's, all are. */
            assert_int_equal(many, strcmp(name, "gpipe") == 0 ? 4 * few : few);
            few = check_batch(name, 2, 8, more[m], ECH_LIST_VALIDATE);
            assert_int_equal(check_batch(name, 2, 32, more[m], ECH_LIST_VALIDATE), few);
        }
    /* One sample of 8 tokens a micro-batch: tokens, targets and weights of two, four bytes each. */
    assert_int_equal(check_batch("naive", 1, 32, "", ECH_LIST_TRAIN), 2 * 3 * ech_align(8 * 4, 64));
    assert_int_equal(check_batch("naive", 1, 32, "", ECH_LIST_VALIDATE),
                     2 * 3 * ech_align(8 * 4, 64));
}
