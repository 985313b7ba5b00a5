/* SPDX-License-Identifier: Apache-2.0
 *
 * Other tools' names (config/aliases.def): each is none of ours, the error names ours, and ours is
 * accepted.
 */

#include "app/fixture.h"
#include "base/log.h"
#include "config/alias.h"
#include "unit.h"

static ech_config *defaults(void)
{
    ech_config *config = NULL;
    assert_int_equal(ech_setup_defaults(&config), ECH_OK);
    return config;
}

static const char *refusal(ech_config *config, const char *key, const char *value)
{
    char word[200];
    snprintf(word, sizeof word, "%s=%s", key, value);
    ech_clear_error();
    return ech_config_set(config, word) == ECH_OK ? NULL : ech_last_error();
}

/* By itself, in a section of ours, in another one, and with the other tool's spelling. */
static void try_name(ech_config *config, const ech_alias *foreign)
{
    static const char *const before[] = {"", "model.", "trainer."};
    for (int i = 0; i < 3; i++) {
        char key[100];
        snprintf(key, sizeof key, "%s%s", before[i], foreign->theirs);
        for (char *at = key; i == 2 && *at; at++)
            if (*at == '_') *at = '-';
        const char *why = refusal(config, key, "1");
        if (!why || !strstr(why, foreign->ours)) fail_msg("%s: %s", key, why ? why : "accepted");
    }
}

TEST(names_of_keys)
{
    ech_config *config = defaults();
    const ech_alias *foreign;
    int n = 0;
    for (; (foreign = ech_alias_at(n)); n++) {
        assert_ptr_equal(ech_alias_find(foreign->theirs), foreign); /* no name comes twice */
        assert_true(foreign->ours[0] == '-' || ech_config_type_name(foreign->ours));
        try_name(config, foreign);
        const char *note = foreign->note ? foreign->note : "";
        if (strchr(note, '=')) assert_int_equal(ech_config_set(config, note), ECH_OK);
    }
    assert_true(n > 100);
    ech_config_destroy(config);
}

TEST(names_of_values)
{
    ech_config *config = defaults();
    const char *key, *theirs, *ours;
    int n = 0;
    for (; ech_alias_value_at(n, &key, &theirs, &ours); n++) {
        char hint[100];
        const char *why = refusal(config, key, theirs);
        snprintf(hint, sizeof hint, "did you mean %s?", ours);
        if (!why || !strstr(why, hint)) fail_msg("%s=%s: %s", key, theirs, why ? why : "accepted");
        assert_null(refusal(config, key, ours));
    }
    assert_true(n > 50);
    ech_config_destroy(config);
}

/* A key that another section has comes first: "it is optimizer.schedule or parallel.schedule". */
TEST(our_names_come_first)
{
    ech_config *config = defaults();
    assert_non_null(strstr(refusal(config, "training.schedule", "1"), "it is optimizer.schedule"));
    assert_non_null(strstr(refusal(config, "precision", "bf16"), "the first is precision.compute"));
    ech_config_destroy(config);
}

ALL_TESTS(fixture_setup, fixture_teardown)
