/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of schedules: names, weights, and what each refuses with which key and way out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "schedule/order/order.h"

static void test_table(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        ech_weights weights;
    } rows[] = {{"naive", ECH_WEIGHTS_FLUSHED},         {"gpipe", ECH_WEIGHTS_FLUSHED},
                {"1f1b", ECH_WEIGHTS_FLUSHED},          {"interleaved", ECH_WEIGHTS_FLUSHED},
                {"zero-bubble", ECH_WEIGHTS_FLUSHED},   {"pipedream", ECH_WEIGHTS_STASHED},
                {"pipedream-2bw", ECH_WEIGHTS_BUFFERED}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const ech_generator *generator = ech_generator_find(rows[i].name);
        assert_non_null(generator);
        assert_string_equal(generator->name, rows[i].name);
        assert_int_equal(generator->weights, rows[i].weights);
        assert_true(ech_text_has_word(ech_generator_names(), rows[i].name));
    }
    assert_null(ech_generator_find("zero_bubble"));
    assert_null(ech_generator_find(""));
}

static void accept(const char *name, ech_pipeline_shape shape)
{
    const char *key = NULL;
    ech_text why = {0};
    assert_true(ech_generator_accepts(ech_generator_find(name), &shape, &key, &why));
    assert_null(why.at);
}

static void refuse(const char *name, ech_pipeline_shape shape, const char *key_wanted,
                   const char *part)
{
    const char *key = NULL;
    ech_text why = {0};
    assert_false(ech_generator_accepts(ech_generator_find(name), &shape, &key, &why));
    assert_string_equal(key, key_wanted);
    assert_non_null(why.at);
    if (!strstr(why.at, part)) fail_msg("\"%s\" is not in \"%s\"", part, why.at);
    ech_text_free(&why);
}

static void test_chunks(void **state)
{
    (void)state;
    ech_pipeline_shape shape = {.stages = 2, .chunks = 2, .uniform = true, .micro_batches = 4};
    static const char *const one[] = {"1f1b", "zero-bubble", "pipedream", "pipedream-2bw"};
    for (size_t i = 0; i < sizeof one / sizeof *one; i++)
        refuse(one[i], shape, "parallel.virtual_stages", "parallel.schedule = interleaved");
    accept("interleaved", shape);
    accept("gpipe", shape);
    accept("naive", shape);
}

static void test_replicas(void **state)
{
    (void)state;
    ech_pipeline_shape shape = {.stages = 2, .chunks = 1, .uniform = false, .micro_batches = 4};
    static const char *const any[] = {"naive", "gpipe", "1f1b", "pipedream"};
    for (size_t i = 0; i < sizeof any / sizeof *any; i++) accept(any[i], shape);
    refuse("zero-bubble", shape, "parallel.stage_replicas", "use parallel.schedule = 1f1b");
    refuse("interleaved", shape, "parallel.stage_replicas", "give all 2 stages the same number");
    refuse("pipedream-2bw", shape, "parallel.stage_replicas", "use parallel.schedule = pipedream");
    shape.chunks = 2;
    refuse("gpipe", shape, "parallel.stage_replicas", "parallel.virtual_stages = 1");
    refuse("naive", shape, "parallel.stage_replicas", "parallel.virtual_stages = 1");
}

static void test_micro_batches(void **state)
{
    (void)state;
    ech_pipeline_shape shape = {.stages = 4, .chunks = 2, .uniform = true, .micro_batches = 6};
    refuse("interleaved", shape, "training.global_batch_size",
           "use 4 or 8 x training.micro_batch_size x replicas");
    shape.micro_batches = 3;
    refuse("interleaved", shape, "training.global_batch_size", "use 4 x training.micro_batch_size");
    shape.micro_batches = 8;
    accept("interleaved", shape);
    shape.chunks = 1;
    accept("interleaved", shape);

    shape.micro_batches = 3;
    refuse("pipedream-2bw", shape, "training.global_batch_size",
           "at least 4 x training.micro_batch_size x replicas, or a smaller "
           "training.micro_batch_size");
    shape.micro_batches = 4;
    accept("pipedream-2bw", shape);
    shape.micro_batches = 1;
    accept("pipedream", shape);
    accept("zero-bubble", shape);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_replicas),
        cmocka_unit_test(test_micro_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
