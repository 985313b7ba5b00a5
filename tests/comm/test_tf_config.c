/* SPDX-License-Identifier: Apache-2.0
 *
 * TF_CONFIG: ranks of roles, the address of rank 0, and what is refused.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "comm/launch.h"
#include "comm/tf_config.h"
#include "unit.h"

static const char all[] =
    "{\"cluster\": {\"ps\": [\"p0:5\", \"p1:5\"], \"worker\": [\"w0:1\", \"w1:2\"], "
    "\"chief\": [\"c.ns.svc:2222\"]}, \"environment\": \"cloud\", \"task\": "
    "{\"type\": \"%s\", \"index\": %d}}";

static void expect_rank(const char *type, int index, int evaluators, int rank)
{
    char text[512], host[64];
    int port = 0;
    ech_tf_config got = {.rank = -1};
    snprintf(text, sizeof text, all, type, index);
    assert_int_equal(ech_tf_config_parse(text, evaluators, &got, host, sizeof host, &port), ECH_OK);
    assert_int_equal(got.workers, 3);
    assert_int_equal(got.servers, 2);
    assert_int_equal(got.evaluators, evaluators);
    assert_int_equal(got.rank, rank);
    assert_string_equal(host, "c.ns.svc");
    assert_int_equal(port, 2222);
}

TEST(roles_are_ranks)
{
    expect_rank("chief", 0, 0, 0);
    expect_rank("master", 0, 0, 0);
    expect_rank("worker", 0, 0, 1);
    expect_rank("worker", 1, 0, 2);
    expect_rank("ps", 0, 0, 3);
    expect_rank("ps", 1, 2, 4);
    expect_rank("evaluator", 0, 2, 5);
    expect_rank("evaluator", 1, 2, 6);
}

TEST(the_address_of_rank_0)
{
    char host[64];
    int port;
    ech_tf_config got;
#define TASK "\"task\": {\"type\": \"worker\", \"index\": 1}}"
    assert_int_equal(ech_tf_config_parse("{\"cluster\": {\"worker\": [\"a:1\", \"b:2\"]}, " TASK, 0,
                                         &got, host, sizeof host, &port),
                     ECH_OK);
    assert_string_equal(host, "a");
    assert_int_equal(port, 1);
    assert_int_equal(got.rank, 1);
    assert_int_equal(
        ech_tf_config_parse("{\"cluster\": {\"chief\": [\"[fe80::1]:65535\"], \"worker\": "
                            "[\"a:1\", \"b:2\"]}, " TASK,
                            0, &got, host, sizeof host, &port),
        ECH_OK);
    assert_string_equal(host, "fe80::1");
    assert_int_equal(port, 65535);
    assert_int_equal(got.rank, 2);
}

static void expect_refused(const char *text, const char *why)
{
    char host[64];
    int port;
    ech_tf_config got = {.rank = -7};
    assert_int_not_equal(ech_tf_config_parse(text, 1, &got, host, sizeof host, &port), ECH_OK);
    if (!strstr(ech_last_error(), why) || !strstr(ech_last_error(), "TF_CONFIG"))
        fail_msg("\"%s\" does not say \"%s\"", ech_last_error(), why);
    assert_int_equal(got.rank, -7);
}

TEST(what_is_refused)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"worker 0", "bad JSON"},
        {"[]", "object"},
        {"{}", "\"cluster\" is missing or no object"},
        {"{\"cluster\": [], " TASK, "\"cluster\" is missing or no object"},
        {"{\"cluster\": {\"wroker\": [\"a:1\"]}, " TASK, "role \"wroker\" is unknown"},
        {"{\"cluster\": {\"worker\": \"a:1\"}, " TASK, "cluster.worker is no list"},
        {"{\"cluster\": {\"worker\": [\"a\"]}, " TASK, "cluster.worker[0] is no address"},
        {"{\"cluster\": {\"worker\": [\"a:1\", 7]}, " TASK, "cluster.worker[1] is no address"},
        {"{\"cluster\": {\"worker\": [\"a:0\"]}, " TASK, "cluster.worker[0] is no address"},
        {"{\"cluster\": {\"worker\": [\"a:65536\"]}, " TASK, "cluster.worker[0] is no address"},
        {"{\"cluster\": {\"worker\": [\":1\"]}, " TASK, "cluster.worker[0] is no address"},
        {"{\"cluster\": {\"worker\": [\"::1:1\"]}, " TASK, "cluster.worker[0] is no address"},
        {"{\"cluster\": {\"ps\": [\"a:1\"]}, " TASK, "neither a chief nor a worker"},
        {"{\"cluster\": {\"chief\": [\"a:1\"], \"master\": [\"b:1\"]}, " TASK, "has 2 chiefs"},
        {"{\"cluster\": {\"worker\": [\"a:1\"], \"evaluator\": [\"b:1\", \"c:1\"]}, " TASK,
         "has 2 evaluators, but parallel.evaluators = 1"},
        {"{\"cluster\": {\"worker\": [\"a:1\"]}}", "task.type is missing"},
        {"{\"cluster\": {\"worker\": [\"a:1\"]}, \"task\": {\"type\": \"boss\", \"index\": 0}}",
         "task.type \"boss\" is unknown"},
        {"{\"cluster\": {\"worker\": [\"a:1\"]}, " TASK,
         "task.index is not below 1, the number of tasks of type worker"},
        {"{\"cluster\": {\"worker\": [\"a:1\"]}, \"task\": {\"type\": \"worker\", \"index\": -1}}",
         "task.index is not below 1"},
        {"{\"cluster\": {\"worker\": [\"a:1\"]}, \"task\": {\"type\": \"worker\"}}",
         "task.index is not below 1"},
        {"{\"cluster\": {\"worker\": [\"a:1\"]}, \"task\": {\"type\": \"ps\", \"index\": 0}}",
         "task.index is not below 0, the number of tasks of type ps"},
        {"{\"cluster\": {\"worker\": [\"a:1\"]}, \"task\": {\"type\": \"evaluator\", \"index\": "
         "1}}",
         "type evaluator (parallel.evaluators)"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) expect_refused(bad[i].text, bad[i].why);
}

/* Its process may start ranks of its own, which are no task. */
TEST(a_lone_task_adopts_nothing)
{
    assert_int_equal(clearenv(), 0);
    setenv("TF_CONFIG",
           "{\"cluster\": {\"worker\": [\"a:1\"]}, \"task\": {\"type\": \"worker\", "
           "\"index\": 0}}",
           1);
    assert_int_equal(ech_tf_config_adopt(0), ECH_OK);
    assert_null(ech_tf_config_adopted());
    assert_null(getenv("RANK"));
}

/* Torchrun's variables have precedence, as a PyTorchJob sets them. */
TEST(torchrun_comes_first)
{
    char text[512];
    ech_launched launched;
    snprintf(text, sizeof text, all, "worker", 1);
    assert_int_equal(clearenv(), 0);
    assert_int_equal(ech_tf_config_adopt(0), ECH_OK);
    assert_null(ech_tf_config_adopted());
    setenv("TF_CONFIG", text, 1);
    setenv("RANK", "0", 1);
    assert_int_equal(ech_tf_config_adopt(0), ECH_OK);
    assert_null(ech_tf_config_adopted());
    unsetenv("RANK");
    assert_int_equal(ech_tf_config_adopt(1), ECH_OK);
    assert_int_equal(ech_tf_config_adopted()->servers, 2);
    assert_string_equal(getenv("RANK"), "2");
    assert_string_equal(getenv("WORLD_SIZE"), "6");
    assert_string_equal(getenv("MASTER_ADDR"), "c.ns.svc");
    assert_string_equal(getenv("MASTER_PORT"), "2222");
    assert_true(ech_launched_here(&launched));
    assert_int_equal(launched.size, 6);
    assert_true(launched.without_mpi);
    assert_int_equal(ech_tf_config_adopt(0), ECH_OK); /* a second run of the process */
    assert_string_equal(getenv("WORLD_SIZE"), "5");
    setenv("TF_CONFIG", "{", 1);
    assert_int_not_equal(ech_tf_config_adopt(0), ECH_OK);
}
