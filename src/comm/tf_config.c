/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading TF_CONFIG.
 */
#include "comm/tf_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/tcp_state.h"

#define NAME "TF_CONFIG"
#define WANTED                                                                                     \
    "{\"cluster\": {\"worker\": [\"host:port\", ...]}, \"task\": {\"type\": \"worker\", "          \
    "\"index\": 0}} is wanted"

typedef enum role { CHIEF, WORKER, PS, EVALUATOR, ROLES } role;
/* "master" is an older name of the chief. */
static const struct {
    const char *name;
    role role;
} names[] = {
    {"chief", CHIEF}, {"master", CHIEF}, {"worker", WORKER}, {"ps", PS}, {"evaluator", EVALUATOR}};
enum { NAMES = sizeof names / sizeof *names, MOST_BYTES = 1 << 20 };

static ech_status find_role(const char *name, const char *where, role *out)
{
    for (int i = 0; i < NAMES; i++)
        if (strcmp(name, names[i].name) == 0) {
            *out = names[i].role;
            return ECH_OK;
        }
    ECH_FAIL(ECH_EUSAGE, NAME ": %s \"%s\" is unknown; roles are chief, worker, ps and evaluator",
             where, name);
}

/* "host:port", or "[IPv6 address]:port". */
static bool read_address(const char *text, char *host, size_t host_bytes, int *port)
{
    const char *colon = strrchr(text, ':');
    int64_t number;
    if (!colon || !ech_text_to_int(colon + 1, &number) || number < 1 || number > 65535)
        return false;
    size_t n = (size_t)(colon - text);
    bool in_brackets = n > 2 && text[0] == '[' && text[n - 1] == ']';
    if (in_brackets) {
        text++;
        n -= 2;
    }
    if (n == 0 || n >= host_bytes || (!in_brackets && memchr(text, ':', n))) return false;
    memcpy(host, text, n);
    host[n] = '\0';
    *port = (int)number;
    return true;
}

/* Counts the tasks of each role. The first chief, or the first worker, is rank 0. */
static ech_status read_cluster(json_t *cluster, int *count, char *host, size_t host_bytes,
                               int *port)
{
    const char *name;
    json_t *addresses, *address;
    size_t i;
    bool has_chief = false;
    json_object_foreach(cluster, name, addresses)
    {
        role at;
        ECH_TRY(find_role(name, "the cluster's role", &at));
        if (!json_is_array(addresses))
            ECH_FAIL(ECH_EUSAGE, NAME ": cluster.%s is no list; " WANTED, name);
        json_array_foreach(addresses, i, address)
        {
            char *to = host, other[256];
            int other_port, *to_port = port;
            bool leads = i == 0 && (at == CHIEF || (at == WORKER && !has_chief));
            if (!leads) {
                to = other;
                to_port = &other_port;
            }
            if (!json_is_string(address) ||
                !read_address(json_string_value(address), to, leads ? host_bytes : sizeof other,
                              to_port))
                ECH_FAIL(ECH_EUSAGE, NAME ": cluster.%s[%zu] is no address \"host:port\"", name, i);
            has_chief |= at == CHIEF;
        }
        count[at] += (int)json_array_size(addresses);
    }
    if (count[CHIEF] > 1)
        ECH_FAIL(ECH_EUSAGE, NAME ": the cluster has %d chiefs; at most one is possible",
                 count[CHIEF]);
    if (count[CHIEF] + count[WORKER] == 0)
        ECH_FAIL(ECH_EUSAGE, NAME ": the cluster has neither a chief nor a worker; " WANTED);
    return ECH_OK;
}

/* Evaluators are no part of TFJob's cluster: parallel.evaluators says how many there are. */
static ech_status count_evaluators(int *count, int evaluators)
{
    if (count[EVALUATOR] && count[EVALUATOR] != evaluators)
        ECH_FAIL(ECH_EUSAGE,
                 NAME ": the cluster has %d evaluators, but parallel.evaluators = %d: set "
                      "parallel.evaluators=%d",
                 count[EVALUATOR], evaluators, count[EVALUATOR]);
    count[EVALUATOR] = evaluators;
    return ECH_OK;
}

static ech_status read_task(const json_t *task, const int *count, int *rank)
{
    const char *type = json_string_value(json_object_get(task, "type"));
    int64_t index;
    role at;
    if (!type) ECH_FAIL(ECH_EUSAGE, NAME ": task.type is missing or no text; " WANTED);
    ECH_TRY(find_role(type, "task.type", &at));
    if (!ech_json_to_int(json_object_get(task, "index"), 0, ECH_TCP_MOST_RANKS, &index) ||
        index >= count[at])
        ECH_FAIL(ECH_EUSAGE, NAME ": task.index is not below %d, the number of tasks of type %s%s",
                 count[at], type, at == EVALUATOR ? " (parallel.evaluators)" : "");
    *rank = (int)index;
    for (int before = 0; before < (int)at; before++) *rank += count[before];
    return ECH_OK;
}

ech_status ech_tf_config_parse(const char *text, int evaluators, ech_tf_config *out, char *host,
                               size_t host_bytes, int *port)
{
    const ech_json_limits limits = {
        .depth = 16, .containers = 64, .values = 2 * ECH_TCP_MOST_RANKS};
    json_auto_t *root = NULL;
    int count[ROLES] = {0}, all = 0;
    if (strlen(text) > MOST_BYTES)
        ECH_FAIL(ECH_EUSAGE, NAME " has %zu bytes; at most %d are read", strlen(text), MOST_BYTES);
    ECH_TRY(ech_json_parse(NAME, text, strlen(text), limits, &root));
    json_t *cluster = json_object_get(root, "cluster");
    if (!json_is_object(cluster))
        ECH_FAIL(ECH_EUSAGE, NAME ": \"cluster\" is missing or no object; " WANTED);
    ECH_TRY(read_cluster(cluster, count, host, host_bytes, port));
    ECH_TRY(count_evaluators(count, evaluators));
    ech_tf_config read = {.workers = count[CHIEF] + count[WORKER],
                          .servers = count[PS],
                          .evaluators = count[EVALUATOR]};
    ECH_TRY(read_task(json_object_get(root, "task"), count, &read.rank));
    for (int r = 0; r < ROLES; r++) all += count[r];
    if (all > ECH_TCP_MOST_RANKS)
        ECH_FAIL(ECH_EUSAGE, NAME ": %d tasks; at most %d ranks are possible", all,
                 ECH_TCP_MOST_RANKS);
    *out = read;
    return ECH_OK;
}

static ech_tf_config adopted;
static bool is_adopted;

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

ech_status ech_tf_config_adopt(int evaluators)
{
    const char *text = getenv(NAME);
    char host[256];
    int port;
    if (!text || !*text || (!is_adopted && getenv("RANK"))) return ECH_OK;
    ech_tf_config read;
    ECH_TRY(ech_tf_config_parse(text, evaluators, &read, host, sizeof host, &port));
    int size = read.workers + read.servers + read.evaluators;
    if (size == 1) return ECH_OK; /* this process, which may start ranks of its own */
    adopted = read;
    set_number("RANK", adopted.rank);
    set_number("WORLD_SIZE", size);
    setenv("MASTER_ADDR", host, 1);
    set_number("MASTER_PORT", port);
    is_adopted = true;
    return ECH_OK;
}

const ech_tf_config *ech_tf_config_adopted(void)
{
    return is_adopted ? &adopted : NULL;
}
