/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of choosing tokens: greedy, temperature, top-k, top-p, and logits that are no numbers.
 */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/sampler.h"
#include "base/log.h"
#include "base/random.h"
#include "unit.h"

enum { V = 4, DRAWS = 20000 };

/* Shares 0.1, 0.4, 0.2, 0.3. */
static const double shares[V] = {0.1, 0.4, 0.2, 0.3};

static void make_logits(double *logits)
{
    for (int i = 0; i < V; i++) logits[i] = log(shares[i]) + 7;
}

static int32_t choose(ech_sampler sampler, const double *logits, double unit)
{
    int32_t id = -1;
    assert_int_equal(ech_sampler_choose(&sampler, logits, V, unit, &id), ECH_OK);
    assert_in_range(id, 0, V - 1);
    return id;
}

TEST(takes_the_likeliest_at_temperature_zero)
{
    double logits[V], equal[V] = {1, 2, 2, 2};
    make_logits(logits);
    for (double unit = 0.05; unit < 1; unit += 0.1) {
        assert_int_equal(choose((ech_sampler){0, 0, 1}, logits, unit), 1);
        assert_int_equal(choose((ech_sampler){0, 0, 1}, equal, unit), 1);
    }
}

/* In order of likelihood the shares end at 0.4, 0.7, 0.9, 1. */
TEST(draws_by_share)
{
    double logits[V];
    make_logits(logits);
    const ech_sampler plain = {1, 0, 1};
    assert_int_equal(choose(plain, logits, 1e-12), 1);
    assert_int_equal(choose(plain, logits, 0.399), 1);
    assert_int_equal(choose(plain, logits, 0.401), 3);
    assert_int_equal(choose(plain, logits, 0.699), 3);
    assert_int_equal(choose(plain, logits, 0.701), 2);
    assert_int_equal(choose(plain, logits, 0.901), 0);
    assert_int_equal(choose(plain, logits, 1 - 1e-12), 0);
}

TEST(frequencies_follow_the_shares)
{
    double logits[V];
    int count[V] = {0};
    make_logits(logits);
    for (uint32_t i = 0; i < DRAWS; i++) {
        ech_random_key key = {.seed = 3, .step = i, .stream = ECH_SITE_SAMPLE};
        count[choose((ech_sampler){1, 0, 1}, logits, ech_random_unit(ech_random_word(key, 0)))]++;
    }
    for (int i = 0; i < V; i++) {
        double sigma = sqrt(shares[i] * (1 - shares[i]) / DRAWS);
        assert_true(fabs((double)count[i] / DRAWS - shares[i]) < 5 * sigma);
    }
}

TEST(low_temperature_sharpens)
{
    double logits[V];
    make_logits(logits);
    /* At 1/2 shares are squared: 0.16 of 0.3 for the first. */
    assert_int_equal(choose((ech_sampler){0.5, 0, 1}, logits, 0.16 / 0.3 - 1e-3), 1);
    assert_int_equal(choose((ech_sampler){0.5, 0, 1}, logits, 0.16 / 0.3 + 1e-3), 3);
    assert_int_equal(choose((ech_sampler){1e-300, 0, 1}, logits, 0.999), 1);
}

TEST(top_k_keeps_k)
{
    double logits[V];
    make_logits(logits);
    assert_int_equal(choose((ech_sampler){1, 1, 1}, logits, 0.999), 1);
    assert_int_equal(choose((ech_sampler){1, 2, 1}, logits, 0.999), 3);
    assert_int_equal(choose((ech_sampler){1, 2, 1}, logits, 0.4 / 0.7 - 1e-3), 1);
    assert_int_equal(choose((ech_sampler){1, V, 1}, logits, 0.999), 0);
    assert_int_equal(choose((ech_sampler){1, 1000, 1}, logits, 0.999), 0);
}

TEST(top_p_keeps_the_fewest)
{
    double logits[V];
    make_logits(logits);
    assert_int_equal(choose((ech_sampler){1, 0, 1e-9}, logits, 0.999), 1);
    assert_int_equal(choose((ech_sampler){1, 0, 0.39}, logits, 0.999), 1);
    assert_int_equal(choose((ech_sampler){1, 0, 0.41}, logits, 0.999), 3);
    assert_int_equal(choose((ech_sampler){1, 0, 0.71}, logits, 0.999), 2);
    assert_int_equal(choose((ech_sampler){1, 0, 0.95}, logits, 0.999), 0);
    /* Of the two that top-k leaves, 0.4 of 0.7 is more than half. */
    assert_int_equal(choose((ech_sampler){1, 2, 0.5}, logits, 0.999), 1);
}

TEST(never_takes_what_has_no_probability)
{
    double logits[V] = {-INFINITY, 1, -INFINITY, -800};
    assert_int_equal(choose((ech_sampler){1, 0, 1}, logits, 1 - 1e-16), 1);
    double last[V] = {-INFINITY, -INFINITY, -INFINITY, -1e300};
    assert_int_equal(choose((ech_sampler){1, 3, 1}, last, 0.5), 3);
    assert_int_equal(choose((ech_sampler){0, 0, 1}, last, 0.5), 3);
}

static void refuse(const double *logits, const char *part)
{
    int32_t id = 77;
    ech_sampler samplers[] = {{0, 0, 1}, {1, 0, 1}};
    for (int i = 0; i < 2; i++)
        assert_int_equal(ech_sampler_choose(&samplers[i], logits, V, 0.5, &id), ECH_ENUMERIC);
    assert_int_equal(id, 77);
    assert_non_null(strstr(ech_last_error(), part));
}

TEST(refuses_what_is_no_number)
{
    refuse((double[V]){1, 2, NAN, 3}, "token 2");
    refuse((double[V]){NAN, 2, 1, 3}, "token 0");
    refuse((double[V]){1, INFINITY, 1, 3}, "token 1 is inf");
    refuse((double[V]){-INFINITY, -INFINITY, -INFINITY, -INFINITY}, "all 4 logits are -infinity");
}

TEST(checks_its_options)
{
    const ech_sampler good[] = {{0, 0, 1}, {2, 50, 0.5}, {0.8, 0, 1e-9}};
    const ech_sampler bad[] = {{-1, 0, 1}, {NAN, 0, 1}, {INFINITY, 0, 1}, {1, -1, 1},
                               {1, 0, 0},  {1, 0, 1.1}, {1, 0, NAN}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(ech_sampler_check(&good[i]), ECH_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(ech_sampler_check(&bad[i]), ECH_EUSAGE);
}

static void assert_prompt_with(const char *fixture, const char *text, int begins, bool special,
                               size_t front, size_t n, const int32_t *expected)
{
    char path[4096];
    ech_tokenizer *tokenizer;
    ech_ids ids = {0};
    size_t added;
    snprintf(path, sizeof path, "%s/bpe/%s.json", ECH_FIXTURES, fixture);
    assert_int_equal(ech_tokenizer_open(path, &tokenizer), ECH_OK);
    assert_int_equal(ech_sampler_prompt(tokenizer, text, begins, special, &ids, &added), ECH_OK);
    assert_int_equal(added, front);
    assert_int_equal(ids.n, n);
    assert_memory_equal(ids.at, expected, n * sizeof *expected);
    free(ids.at);
    ech_tokenizer_close(tokenizer);
}

static void assert_prompt(const char *fixture, const char *text, size_t front, size_t n,
                          const int32_t *expected)
{
    assert_prompt_with(fixture, text, -1, false, front, n, expected);
}

/* Mistral's post-processor puts <s>, 1, in front; GPT-2's nothing. */
TEST(prompts_begin_as_the_tokenizer_says)
{
    assert_prompt("mistral", "\n", 1, 3, (const int32_t[]){1, 340, 260});
    assert_prompt("mistral", "", 1, 1, (const int32_t[]){1});
    assert_prompt("gpt2", "!", 0, 1, (const int32_t[]){1});
    assert_prompt_with("mistral", "\n", 0, false, 0, 2, (const int32_t[]){340, 260});
    assert_prompt_with("gpt2", "!", 1, false, 1, 2, (const int32_t[]){0, 1});
    /* never twice */
    assert_prompt_with("mistral", "<s>", -1, true, 0, 1, (const int32_t[]){1});
    assert_prompt_with("gpt2", "<|endoftext|>!", 1, true, 0, 2, (const int32_t[]){0, 1});
}
