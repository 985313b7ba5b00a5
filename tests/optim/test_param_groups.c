/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameter groups: which parameters patterns match, and what is refused.
 */

#include <string.h>

#include "config/config.h"
#include "optim/optim.h"
#include "unit.h"

enum { PARAMS = 4 };

static const char *const names[PARAMS] = {"wte.weight", "h.0.mlp.weight", "h.1.mlp.weight",
                                          "h.1.mlp.bias"};

static ech_status group(const char *no_decay, const char *rates, ech_param params[PARAMS])
{
    const ech_config_names known[] = {{"optimizers", ech_optimizer_names()}};
    ech_config *config;
    ech_text text = {0};
    assert_int_equal(ech_config_create(known, 1, &config), ECH_OK);
    ech_text_append(&text, "optimizer.no_decay=%s", no_decay);
    assert_int_equal(ech_config_set(config, text.at), ECH_OK);
    ech_text_free(&text);
    ech_text_append(&text, "optimizer.rates=%s", rates);
    assert_int_equal(ech_config_set(config, text.at), ECH_OK);
    ech_text_free(&text);
    for (int i = 0; i < PARAMS; i++)
        params[i] = (ech_param){.name = names[i], .decay = i < 3, .rate = 1};
    ech_status status = ech_optimizer_group_params(config, params, PARAMS);
    ech_config_destroy(config);
    return status;
}

TEST(test_who_is_matched)
{
    ech_param p[PARAMS];
    assert_int_equal(group("", "", p), ECH_OK);
    for (int i = 0; i < PARAMS; i++) assert_true(p[i].decay == (i < 3) && p[i].rate == 1);
    assert_int_equal(group("wte* h.1.*", "h.?.mlp.weight=0.5  *bias=2", p), ECH_OK);
    const double rate[PARAMS] = {1, 0.5, 0.5, 2};
    for (int i = 0; i < PARAMS; i++) assert_true(p[i].decay == (i == 1) && p[i].rate == rate[i]);
    assert_int_equal(group("", "h.0*=0.25 h.0.mlp*=0.25", p), ECH_OK); /* twice the same */
    assert_true(p[1].rate == 0.25);
}

/* The last pattern that matches counts; 0 freezes. */
TEST(test_last_pattern_counts)
{
    ech_param p[PARAMS];
    assert_int_equal(group("", "h.*=0.1 *mlp*=0.2 *bias=0.3", p), ECH_OK);
    const double rate[PARAMS] = {1, 0.2, 0.2, 0.3};
    for (int i = 0; i < PARAMS; i++) assert_true(p[i].rate == rate[i] && !p[i].frozen);
    assert_int_equal(group("", "*=0 h.1.mlp.weight=1 *bias=0.0", p), ECH_OK);
    for (int i = 0; i < PARAMS; i++) assert_true(p[i].frozen == (i != 2));
    assert_true(ech_param_is_trained(&p[2]) && !ech_param_is_trained(&p[3]));
}

static void expect_refused(const char *no_decay, const char *rates, const char *says)
{
    ech_param p[PARAMS];
    assert_int_equal(group(no_decay, rates, p), ECH_EUSAGE);
    if (!strstr(ech_last_error(), says)) fail_msg("\"%s\" lacks \"%s\"", ech_last_error(), says);
}

TEST(test_refusals)
{
    expect_refused("lm_head*", "", "optimizer.no_decay");
    expect_refused("wte* lm_head*", "",
                   "\"lm_head*\" matches no parameter; names are as h.1.mlp.bias");
    expect_refused("", "lm_head*=0.1", "\"lm_head*\" matches no parameter");
    expect_refused("", "*=0", "freezes all parameters");
    expect_refused("", "h.1.mlp.bias=1 *=0", "freezes all parameters");
    static const char *const bad[] = {"wte*", "wte*=", "wte*=x", "wte*=-1", "wte*=inf", "wte*=1e7"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_refused("", bad[i], "is no PATTERN=FACTOR with a factor from 0 to 1e+06");
}
