/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of schedules: names, weights, numbers of micro-batches that each refuses, and what
 * rules.def says of them.
 */
#include <stdlib.h>
#include <string.h>

#include "config/rules.h"
#include "schedule/order/order.h"
#include "unit.h"

TEST(test_table)
{
    static const struct {
        const char *name;
        ech_weights weights;
    } rows[] = {{"naive", ECH_WEIGHTS_FLUSHED},       {"gpipe", ECH_WEIGHTS_FLUSHED},
                {"1f1b", ECH_WEIGHTS_FLUSHED},        {"interleaved", ECH_WEIGHTS_FLUSHED},
                {"zero-bubble", ECH_WEIGHTS_FLUSHED}, {"zero-bubble-v", ECH_WEIGHTS_FLUSHED},
                {"pipedream", ECH_WEIGHTS_STASHED},   {"pipedream-2bw", ECH_WEIGHTS_BUFFERED}};
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

/* What the table of rules says of schedules by their names is so. */
TEST(test_rules)
{
    ech_config *config;
    char *names = ech_strdup(ech_generator_names()), *rest = NULL;
    assert_int_equal(ech_config_create(NULL, 0, &config), ECH_OK);
    for (char *name = strtok_r(names, " ", &rest); name; name = strtok_r(NULL, " ", &rest)) {
        ech_weights weights = ech_generator_find(name)->weights;
        ech_config_replace_text(&config->parallel.schedule, name);
        assert_int_equal(ech_feature_is_on(config, ECH_FEATURE_asynchronous),
                         weights != ECH_WEIGHTS_FLUSHED);
        assert_int_equal(ech_feature_is_on(config, ECH_FEATURE_not_stashed),
                         weights != ECH_WEIGHTS_STASHED);
        assert_int_equal(ech_feature_is_on(config, ECH_FEATURE_zero_bubble_v),
                         ech_generator_find(name)->chunks == 2);
        assert_false(ech_feature_is_on(config, ECH_FEATURE_written));
    }
    ech_config_destroy(config);
    free(names);
}

static void accept(const char *name, ech_pipeline_shape shape)
{
    ech_text why = {0};
    assert_true(ech_generator_accepts(ech_generator_find(name), &shape, &why));
    assert_null(why.at);
}

static void refuse(const char *name, ech_pipeline_shape shape, const char *part)
{
    ech_text why = {0};
    assert_false(ech_generator_accepts(ech_generator_find(name), &shape, &why));
    assert_non_null(why.at);
    if (!strstr(why.at, part)) fail_msg("\"%s\" is not in \"%s\"", part, why.at);
    ech_text_free(&why);
}

TEST(test_micro_batches)
{
    ech_pipeline_shape shape = {.stages = 4, .micro_batches = 6};
    refuse("interleaved", shape, "use 4 or 8 x training.micro_batch_size x replicas");
    shape.micro_batches = 3;
    refuse("interleaved", shape, "use 4 x training.micro_batch_size");
    shape.micro_batches = 8;
    accept("interleaved", shape);

    shape.micro_batches = 3;
    refuse("pipedream-2bw", shape,
           "at least 4 x training.micro_batch_size x replicas, or a smaller "
           "training.micro_batch_size");
    shape.micro_batches = 4;
    accept("pipedream-2bw", shape);
    shape.micro_batches = 1;
    accept("pipedream", shape);
    accept("zero-bubble", shape);
    accept("zero-bubble-v", shape);
}
