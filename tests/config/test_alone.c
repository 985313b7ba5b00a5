/* SPDX-License-Identifier: Apache-2.0
 *
 * The values of keys on one rank without parallelism.
 */
#include <string.h>

#include "config/sample.h"
#include "config/strategy.h"
#include "config/table.h"
#include "unit.h"

static char *value_of(const ech_config *config, const ech_config_key *key)
{
    ech_text text = {0};
    ech_config_format_value(config, key, &text);
    return text.at;
}

TEST(test_every_key)
{
    ech_config *config = sample_create();
    int changed = 0;
    assert_int_equal(ech_config_set(config, "parallel.tensor=4"), ECH_OK);
    assert_int_equal(ech_config_set(config, "parallel.stage_replicas=[3, 1]"), ECH_OK);
    assert_int_equal(ech_config_set(config, "parallel.delay=1:0.5"), ECH_OK);
    assert_int_equal(ech_config_set(config, "memory.recompute=full"), ECH_OK);
    assert_int_equal(ech_config_set(config, "model.hidden_size=96"), ECH_OK);
    ech_config *before = ech_config_copy(config);
    ech_config_set_alone(config);
    for (int k = 0; k < ECH_CONFIG_KEYS; k++) {
        const ech_config_key *key = &ech_config_keys[k];
        ECH_FREED char *was = value_of(before, key), *is = value_of(config, key);
        if (strcmp(key->alone ? key->alone : was, is) != 0)
            fail_msg("%s.%s: %s became %s", key->section, key->name, was, is);
        changed += strcmp(was, is) != 0;
    }
    assert_true(changed >= 4);
    assert_int_equal(config->parallel.servers, 0); /* which nobody may ask for */
    config->parallel.strategy = ECH_STRATEGY_ASP;
    assert_int_equal(ech_strategy_protocol(config), ECH_PROTOCOL_SYNCHRONOUS);
    assert_int_equal(ech_config_set(config, "parallel.servers=0"), ECH_EUSAGE);
    assert_int_equal(config->parallel.stage_replicas.n, 0);
    assert_false(ech_config_is_set(config, "parallel.servers"));
    ech_config_destroy(config);
    ech_config_destroy(before);
}
