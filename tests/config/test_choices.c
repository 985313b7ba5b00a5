/* SPDX-License-Identifier: Apache-2.0
 *
 * Names are read once: a key holds which of its choices it is, for each choice, and prints as its
 * name again.
 */

#include "base/log.h"
#include "config/sample.h"
#include "unit.h"

static void set(ech_config *config, const char *key, const char *name)
{
    ech_text word = {0};
    ech_text_append(&word, "%s=%s", key, name);
    assert_int_equal(ech_config_set(config, word.at), ECH_OK);
    assert_string_equal(ech_config_name(config, key), name);
    ech_text_free(&word);
}

TEST(names_are_enumerators)
{
    ech_config *config = sample_create();
#define CHECK(field, enumerator, name)                                                             \
    set(config, #field, name);                                                                     \
    assert_int_equal(config->field, enumerator);
#define X(enumerator, name) CHECK(model.rope_scaling, enumerator, name)
    ECH_ROPE_SCALINGS(X)
#undef X
#define X(enumerator, name) CHECK(training.on_nonfinite, enumerator, name)
    ECH_ON_NONFINITES(X)
#undef X
#define X(enumerator, name) CHECK(precision.compute, enumerator, name)
    ECH_COMPUTES(X)
#undef X
#define X(enumerator, name) CHECK(precision.gradients, enumerator, name)
    ECH_GRADIENT_TYPES(X)
#undef X
#define X(enumerator, name) CHECK(precision.residual, enumerator, name)
    ECH_RESIDUAL_TYPES(X)
#undef X
#define X(enumerator, name) CHECK(parallel.sequence, enumerator, name)
    ECH_SEQUENCES(X)
#undef X
#define X(enumerator, name) CHECK(parallel.context_method, enumerator, name)
    ECH_CONTEXT_METHODS(X)
#undef X
#define X(enumerator, name) CHECK(parallel.pin, enumerator, name)
    ECH_PINS(X)
#undef X
#define X(enumerator, name) CHECK(checkpoint.dtype, enumerator, name)
    ECH_SAVED_DTYPES(X)
#undef X
    ech_config_destroy(config);
}

/* Of a whole number. */
TEST(words_stand_for_numbers)
{
    ech_config *config = sample_create();
    ech_text text = {0}, yaml = {0};
    assert_int_equal(ech_config_set(config, "parallel.sync_every=epoch"), ECH_OK);
    assert_int_equal(config->parallel.sync_every, ECH_WORD(ECH_SYNC_EVERY_EPOCH));
    ech_config_format(config, "parallel.sync_every", &text);
    assert_string_equal(text.at, "epoch");
    config->parallel.sync_every = 251;
    ech_config_print(config, &yaml);
    assert_non_null(strstr(yaml.at, "sync_every: 251\n"));
    assert_int_equal(ech_config_set(config, "parallel.sync_every=epochs"), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "not a whole number; write it like 16, or epoch"));
    assert_int_equal(ech_config_set(config, "parallel.sync_every=0"), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "out of bounds; 1 to 1000000000000, or epoch"));
    assert_int_equal(ech_config_set(config, "parallel.flush_every=epoch"), ECH_EUSAGE);
    ech_text_free(&text);
    ech_text_free(&yaml);
    ech_config_destroy(config);
}

/* sample_create hands in two models, two comms and so on. */
TEST(handed_in_names_are_rows)
{
    ech_config *config = sample_create();
    assert_int_equal(config->model.architecture, -1);
    assert_string_equal(ech_config_name(config, "model.architecture"), "");
    assert_int_equal(config->optimizer.name, 0);
    set(config, "model.architecture", "llama");
    assert_int_equal(config->model.architecture, 1);
    set(config, "optimizer.schedule", "linear");
    assert_int_equal(config->optimizer.schedule, 1);
    ech_config *copy = ech_config_copy(config);
    ech_config_destroy(config);
    assert_string_equal(ech_config_name(copy, "model.architecture"), "llama");
    assert_string_equal(ech_config_name(copy, "parallel.comm"), "mpi");
    ech_config_destroy(copy);
}
