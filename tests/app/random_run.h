/* SPDX-License-Identifier: Apache-2.0
 *
 * Random run files as words: the dice that they are drawn with, and whether one is refused. After
 * fixture.h and cmocka.h.
 */
#ifndef ECH_TESTS_APP_RANDOM_RUN_H
#define ECH_TESTS_APP_RANDOM_RUN_H

#include "app/fixture.h"
#include "app/hints.h"
#include "base/log.h"
#include "base/random.h"

/* A fixed series of numbers. */
typedef struct dice {
    ech_random_key key;
    uint64_t thrown;
} dice;

static inline int64_t from_to(dice *d, int64_t least, int64_t most)
{
    return least + (int64_t)(ech_random_word(d->key, d->thrown++) % (uint32_t)(most - least + 1));
}

static inline bool chance(dice *d, int percent)
{
    return from_to(d, 1, 100) <= percent;
}

#define ONE_OF(dice, names)                                                                        \
    ((names)[from_to(dice, 0, (int64_t)(sizeof(names) / sizeof *(names)) - 1)])

static inline void add(random_run *r, const char *key, const char *value)
{
    ech_text_append(&r->words, "%s%s=%s", r->words.n ? " " : "", key, value);
}

static inline void add_number(random_run *r, const char *key, int64_t value)
{
    ech_text_append(&r->words, "%s%s=%lld", r->words.n ? " " : "", key, (long long)value);
}

static const char *const random_schedules[] = {"1f1b",
                                               "gpipe",
                                               "naive",
                                               "zero-bubble",
                                               "zero-bubble-v",
                                               "interleaved parallel.virtual_stages=2",
                                               "pipedream",
                                               "pipedream",
                                               "pipedream parallel.vertical_sync=true",
                                               "pipedream parallel.weight_stashing=false",
                                               "pipedream-2bw",
                                               "pipedream-2bw"};
static const char *const random_sequences[] = {"true", "keep"};
static const char *const random_recomputes[] = {"selective", "full"};
static const char *const random_methods[] = {"ring", "ulysses"};

/* NULL: the design of `yaml` with the run's words can be had; else why not, until the next error.
 * Ranks 0 become as many as the words say. */
static inline const char *refusal(const char *yaml, const ech_tokenizer *tokenizer, random_run *r)
{
    ech_design design = {0};
    ech_clear_error();
    ech_config *config = fixture_config_of(yaml, r->words.at);
    if (config && r->ranks == 0) r->ranks = (int)ech_setup_ranks(config);
    ech_status status =
        config ? ech_design_create(config, tokenizer, r->ranks, r->ranks, &design) : ECH_EUSAGE;
    if (status == ECH_OK) ech_design_destroy(&design);
    ech_config_destroy(config);
    return status == ECH_OK ? NULL : ech_last_error();
}

#endif
