/* SPDX-License-Identifier: Apache-2.0
 *
 * Applies a strategy's row.
 */
#include "config/strategy.h"

#include <string.h>

#include "base/memory.h"

static const struct {
    const char *name, *sets;
    ech_strategy_protocol_kind protocol;
} strategies[] = {
#define X(NAME, text, sets, protocol) [ECH_STRATEGY_##NAME] = {text, sets, ECH_PROTOCOL_##protocol},
#include "config/strategies.def"
};

const char ech_strategy_names[] =
#define X(NAME, text, sets, protocol) text " "
#include "config/strategies.def"
    ;

const char *ech_strategy_keys(const ech_config *config)
{
    return strategies[config->parallel.strategy].sets;
}

/* True if the strategy's row has that protocol. */
static bool is_trained_by(const ech_config *config, ech_strategy_protocol_kind kind)
{
    return strategies[config->parallel.strategy].protocol == kind;
}

ech_strategy_protocol_kind ech_strategy_protocol(const ech_config *config)
{
    ech_strategy_protocol_kind protocol = strategies[config->parallel.strategy].protocol;
    if (protocol != ECH_PROTOCOL_SERVERS) return protocol;
    /* The one rank of verify has no servers. */
    if (ech_strategy_servers(config) == 0) return ECH_PROTOCOL_SYNCHRONOUS;
    if (config->parallel.backup_workers) return ECH_PROTOCOL_BACKUPS;
    bool each = config->parallel.server_sync == 0 && ech_strategy_staleness(config) > 0;
    return each ? ECH_PROTOCOL_PUSHES : ECH_PROTOCOL_SERVERS;
}

static const struct {
    ech_strategy_sums sums;
    bool alone;
    ech_strategy_meeting meets;
} protocols[ECH_PROTOCOLS] = {
#define X(NAME, name, sums, one, meets)                                                            \
    [ECH_PROTOCOL_##NAME] = {ECH_SUMS_##sums, one, ECH_MEETING_##meets},
#include "config/protocols.def"
};

ech_strategy_sums ech_strategy_sums_over(const ech_config *config)
{
    return protocols[ech_strategy_protocol(config)].sums;
}

bool ech_strategy_updates_alone(const ech_config *config)
{
    return protocols[ech_strategy_protocol(config)].alone;
}

ech_strategy_meeting ech_strategy_meets(const ech_config *config)
{
    return protocols[ech_strategy_protocol(config)].meets;
}

bool ech_strategy_is_ring(const ech_config *config)
{
    return config->parallel.strategy == ECH_STRATEGY_HOGWILD_RING;
}

int ech_strategy_servers(const ech_config *config)
{
    return is_trained_by(config, ECH_PROTOCOL_SERVERS) ? (int)config->parallel.servers : 0;
}

int ech_strategy_backups(const ech_config *config)
{
    return ech_strategy_servers(config) ? (int)config->parallel.backup_workers : 0;
}

int64_t ech_strategy_staleness(const ech_config *config)
{
    return config->parallel.strategy == ECH_STRATEGY_SSP ? config->parallel.staleness : INT64_MAX;
}

ech_status ech_strategy_apply(ech_config *config)
{
    const char *name = strategies[config->parallel.strategy].name;
    ECH_FREED_TEXT place = {0};
    ech_status status = ECH_OK;
    ech_text_append(&place, "parallel.strategy = %s", name);
    for (ECH_FREED_WORDS word = ech_words_in(ech_strategy_keys(config)); ech_words_next(&word);) {
        char *value = strchr(word.at, '=');
        *value++ = '\0';
        ECH_ALSO(&status, ech_config_fill(config, word.at, value, place.at, false));
    }
    return status;
}
