/* SPDX-License-Identifier: Apache-2.0
 *
 * Traces from memory and disk: read as written, torn ends forgiven, all else refused with its line.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "app/fixture.h"
#include "app/trace/read.h"
#include "base/log.h"

#define HEAD                                                                                       \
    "{\"version\":3,\"rank\":1,\"world\":9,\"stage\":1,\"data\":0,\"context\":2,\"tensor\":3,"     \
    "\"first_step\":4,\"clock_offset\":-0.25,\"clock_error\":1e-5}\n"
#define LOAD                                                                                       \
    "{\"list\":4,\"step\":4,\"lane\":\"compute\",\"kind\":\"load\",\"name\":\"load\","             \
    "\"begin\":10.5,\"end\":10.75}\n"
#define SEND                                                                                       \
    "{\"list\":4,\"step\":5,\"lane\":\"send\",\"kind\":\"send_grad\",\"name\":\"to 0\","           \
    "\"chunk\":0,\"micro\":3,\"block\":2,\"peer\":0,\"begin\":11,\"end\":11}\n"
#define NEXT                                                                                       \
    "{\"list\":6,\"step\":6,\"lane\":\"compute\",\"kind\":\"F\",\"name\":\"F0.0/2\","              \
    "\"chunk\":0,\"micro\":0,\"block\":2,\"begin\":12.000000001,\"end\":13}\n"

static ech_status parse(const char *text, size_t n, ech_rank_trace *out)
{
    ech_clear_error();
    bool quiet = ech_log_set_quiet(true);
    ech_status status = ech_rank_trace_parse(text, n, "t.jsonl", out);
    ech_log_set_quiet(quiet);
    return status;
}

static void as_written(void **state)
{
    (void)state;
    static const char text[] = HEAD LOAD SEND NEXT;
    ech_rank_trace trace;
    assert_int_equal(parse(text, sizeof text - 1, &trace), ECH_OK);
    assert_int_equal(trace.rank, 1);
    assert_int_equal(trace.world, 9);
    assert_int_equal(trace.stage, 1);
    assert_int_equal(trace.data, 0);
    assert_int_equal(trace.context, 2);
    assert_int_equal(trace.tensor, 3);
    assert_int_equal(trace.first_step, 4);
    assert_int_equal(trace.step.n, 3);
    const ech_traced_step *load = &trace.step.at[0], *send = &trace.step.at[1];
    assert_int_equal(load->kind, ECH_STEP_LOAD);
    assert_int_equal(load->lane, ECH_LANE_COMPUTE);
    assert_int_equal(load->block, -1);
    assert_int_equal(load->micro, -1);
    assert_int_equal(load->chunk, -1);
    assert_true(load->begin == 10.25 && load->end == 10.5);
    assert_string_equal(ech_rank_trace_name(&trace, load), "load");
    assert_int_equal(send->step, 5);
    assert_int_equal(send->kind, ECH_STEP_SEND_GRAD);
    assert_int_equal(send->lane, ECH_LANE_SEND);
    assert_int_equal(send->chunk, 0);
    assert_int_equal(send->micro, 3);
    assert_int_equal(send->block, 2);
    assert_int_equal(send->peer, 0);
    assert_int_equal(load->peer, -1);
    assert_true(trace.clock_offset == -0.25 && trace.clock_error == 1e-5);
    assert_string_equal(ech_rank_trace_name(&trace, send), "to 0");
    assert_int_equal(trace.list.n, 2);
    assert_int_equal(trace.list.at[0].step, 4);
    assert_int_equal(trace.list.at[0].first, 0);
    assert_int_equal(trace.list.at[0].n, 2);
    assert_int_equal(trace.list.at[1].step, 6);
    assert_int_equal(trace.list.at[1].first, 2);
    assert_int_equal(trace.list.at[1].n, 1);
    ech_rank_trace_free(&trace);
}

/* Wherever a file is cut, what is left is the whole lines. */
static void torn_anywhere(void **state)
{
    (void)state;
    static const char text[] = HEAD LOAD SEND NEXT;
    size_t lines = 0;
    for (size_t n = 0; n < sizeof text; n++) {
        ech_rank_trace trace;
        if (n && text[n - 1] == '\n') lines++;
        assert_int_equal(parse(text, n, &trace), ECH_OK);
        assert_int_equal(trace.world, lines ? 9 : 0);
        assert_int_equal(trace.step.n, lines ? lines - 1 : 0);
        ech_rank_trace_free(&trace);
    }
}

/* The text with its first `from` replaced; fails with the words. */
static void assert_refused(const char *from, const char *to, ech_status wanted, const char *words)
{
    static const char text[] = HEAD LOAD SEND NEXT;
    ech_text changed = {0};
    ech_rank_trace trace;
    const char *at = strstr(text, from);
    assert_non_null(at);
    ech_text_append_bytes(&changed, text, (size_t)(at - text));
    ech_text_append(&changed, "%s%s", to, at + strlen(from));
    if (parse(changed.at, changed.n, &trace) != wanted) fail_msg("%s: %s", to, ech_last_error());
    if (!strstr(ech_last_error(), words)) fail_msg("no \"%s\" in %s", words, ech_last_error());
    ech_text_free(&changed);
}

static void refused(void **state)
{
    (void)state;
    const struct {
        const char *from, *to, *words;
    } cases[] = {
        {"\"rank\":1", "\"rank\":9", "t.jsonl:1: 'rank' is no whole number from 0 to 8"},
        {"\"rank\":1", "\"rank\":-1", "t.jsonl:1: 'rank'"},
        {"\"rank\":1", "\"rank\":0.5", "t.jsonl:1: 'rank'"},
        {"\"rank\":1,", "", "t.jsonl:1: 'rank'"},
        {"\"world\":9", "\"world\":0", "t.jsonl:1: 'world'"},
        {"\"world\":9", "\"world\":65537", "t.jsonl:1: 'world'"},
        {"\"data\":0", "\"data\":9", "t.jsonl:1: 'data'"},
        {"\"context\":2", "\"context\":9", "t.jsonl:1: 'context'"},
        {"\"tensor\":3,", "", "t.jsonl:1: 'tensor'"},
        {"\"stage\":1", "\"stage\":\"1\"", "t.jsonl:1: 'stage'"},
        {"\"first_step\":4", "\"first_step\":-4", "t.jsonl:1: 'first_step'"},
        {"\"first_step\":4", "\"first_step\":4,\"more\":1", "t.jsonl:1: 11 keys"},
        {"\"version\":3,", "", "t.jsonl:1: 'version'"},
        {"\"clock_offset\":-0.25,", "", "t.jsonl:1: 'clock_offset'"},
        {"\"clock_offset\":-0.25", "\"clock_offset\":-1e10", "t.jsonl:1: 'clock_offset'"},
        {"\"clock_error\":1e-5", "\"clock_error\":-1e-5", "t.jsonl:1: 'clock_error'"},
        {"\"peer\":0", "\"peer\":9", "t.jsonl:3: 'peer'"},
        {"\"peer\":0", "\"pear\":0", "t.jsonl:3: 11 keys where version 3 has 10"},
        {"{\"version\"", "[\"version\"", "t.jsonl:1:"},
        {HEAD, "[1]\n" HEAD, "t.jsonl:1: 'version'"},
        {LOAD, "\n", "t.jsonl:2:"},
        {LOAD, "[7]\n", "t.jsonl:2: 'list'"},
        {LOAD, LOAD "{\"list\":4\n", "t.jsonl:3:"},
        {"\"list\":4", "\"list\":3", "t.jsonl:2: 'list' is 3, below the 4"},
        {"\"list\":6", "\"list\":2", "t.jsonl:4: 'list' is 2, below the 4"},
        {"\"step\":5", "\"step\":3", "t.jsonl:3: 'step'"},
        {"\"step\":5", "\"step\":5,\"step\":5", "t.jsonl:3:"},
        {"\"compute\"", "\"comput\"", "t.jsonl:2: no lane is called 'comput'"},
        {"\"compute\"", "0", "t.jsonl:2: 'lane' is no text"},
        {"\"kind\":\"load\"", "\"kind\":\"lode\"", "t.jsonl:2: no step is of the kind 'lode'"},
        {"\"name\":\"load\"", "\"name\":null", "t.jsonl:2: 'name' is no text"},
        {"\"name\":\"load\"", "\"name\":\"\\u0000\"", "t.jsonl:2:"},
        {"\"name\":\"load\"", "\"name\":\"\377\"", "t.jsonl:2:"},
        {"\"begin\":10.5", "\"begin\":-1", "t.jsonl:2: 'begin'"},
        {"\"begin\":10.5", "\"begin\":\"10\"", "t.jsonl:2: 'begin'"},
        {"\"begin\":10.5", "\"begin\":NaN", "t.jsonl:2:"},
        {"\"end\":10.75", "\"end\":10.25", "t.jsonl:2: 'end'"},
        {"\"end\":10.75", "\"end\":1e10", "t.jsonl:2: 'end'"},
        {"\"end\":10.75", "\"end\":1e400", "t.jsonl:2:"},
        {"\"end\":10.75", "\"end\":Infinity", "t.jsonl:2:"},
        {"\"end\":10.75", "\"end\":10.75,\"chunk\":0", "t.jsonl:2: 8 keys"},
        {"\"chunk\":0,", "", "t.jsonl:3: 'chunk'"},
        {"\"micro\":3", "\"micro\":4294967296", "t.jsonl:3: 'micro'"},
        {"\"block\":2", "\"block\":-1", "t.jsonl:3: 'block'"},
        {"\"block\":2", "\"block\":2,\"more\":0", "t.jsonl:3: 12 keys"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_refused(cases[i].from, cases[i].to, ECH_EINPUT, cases[i].words);
    assert_refused("\"version\":3", "\"version\":1", ECH_EUNSUPPORTED, "version 1");
}

static void long_lines(void **state)
{
    (void)state;
    enum { MOST = 4096 };
    for (int more = 0; more < 2; more++) {
        ech_text text = {0};
        ech_rank_trace trace;
        int blanks = MOST + more - (int)(sizeof LOAD - 2);
        ech_text_append(&text, "%s%*s%s", HEAD, blanks, "", LOAD);
        assert_int_equal(parse(text.at, text.n, &trace), more ? ECH_EINPUT : ECH_OK);
        if (more)
            assert_non_null(strstr(ech_last_error(), "t.jsonl:2: longer than the 4096"));
        else
            ech_rank_trace_free(&trace);
        ech_text_free(&text);
    }
}

/* Braces inside braces inside braces: no stack is deep enough for a reader that follows. */
static void deep_lines(void **state)
{
    (void)state;
    ech_text text = {0};
    ech_rank_trace trace;
    ech_text_append(&text, HEAD);
    for (int i = 0; i < 4000; i++) ech_text_append(&text, "[");
    ech_text_append(&text, "\n");
    assert_int_equal(parse(text.at, text.n, &trace), ECH_EINPUT);
    ech_text_free(&text);
}

static void from_disk(void **state)
{
    (void)state;
    static const char text[] = HEAD LOAD;
    ech_rank_trace trace;
    char *path = ech_file_join(fixture_folder, "rank-00001.jsonl");
    assert_int_equal(ech_file_write(path, text, sizeof text - 1), ECH_OK);
    assert_int_equal(ech_rank_trace_read(path, &trace), ECH_OK);
    assert_int_equal(trace.step.n, 1);
    ech_rank_trace_free(&trace);
    remove(path);
    bool quiet = ech_log_set_quiet(true);
    assert_int_equal(ech_rank_trace_read(path, &trace), ECH_EIO);
    ech_log_set_quiet(quiet);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_written), cmocka_unit_test(torn_anywhere), cmocka_unit_test(refused),
        cmocka_unit_test(long_lines), cmocka_unit_test(deep_lines),    cmocka_unit_test(from_disk),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
