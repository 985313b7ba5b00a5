/* SPDX-License-Identifier: Apache-2.0
 *
 * The page of `echelon plan --html`: its data is the plan's JSON, which has the train lists with
 * live memory and the bytes by level; nothing in the data becomes markup; nothing is loaded.
 */
#include <jansson.h>
#include <math.h>

#include "app/fixture.h"
#include "app/plan/json.h"
#include "app/plan/planning.h"
#include "unit.h"

static const char cluster_text[] = "name: a test's </script><!-- & more\n"
                                   "device: {memory: 1 GiB, bandwidth: 2000 GB/s}\n"
                                   "flops: {fp32: 10 TFLOP/s}\n"
                                   "products: {share: 0.8}\n"
                                   "attention: {share: 0.5}\n"
                                   "kernels: {share: 0.7}\n"
                                   "levels:\n"
                                   "  - {ranks: 4, bandwidth: 200 GB/s, latency: 5 us}\n"
                                   "  - {bandwidth: 20 GB/s, latency: 10 us}\n";

typedef struct made {
    ech_run_arguments arguments;
    ech_run run;
    ech_planning planning;
} made;

static void make_of(ech_config *config, int ranks, made *m)
{
    char path[300];
    snprintf(path, sizeof path, "%s/cluster.yaml", fixture_folder);
    assert_int_equal(ech_file_write(path, cluster_text, strlen(cluster_text)), ECH_OK);
    *m = (made){.arguments.ranks = ranks};
    m->run = (ech_run){.arguments = &m->arguments, .config = config};
    if (ech_model_reads_texts(config)) m->run.tokenizer = fixture_tokenizer;
    ech_planning_options options = {.cluster = path, .report = {.steps = true}};
    ech_status status = ech_planning_create(&m->run, &options, &m->planning);
    if (status != ECH_OK) fail_msg("%s", ech_last_error());
}

static void make(int ranks, const char *words, made *m)
{
    make_of(fixture_config("llama", words), ranks, m);
}

static json_t *json_of(made *m)
{
    ECH_FREED_TEXT text = {0};
    assert_int_equal(ech_plan_report_json(&m->planning.report, &text), ECH_OK);
    json_t *root = json_loads(text.at, 0, NULL);
    assert_non_null(root);
    return root;
}

static void release(made *m)
{
    ech_planning_destroy(&m->planning);
    ech_config_destroy(m->run.config);
}

static size_t count(const char *text, const char *of)
{
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, of)); at += strlen(of)) n++;
    return n;
}

/* The data of a page. */
static json_t *data_of(const char *page)
{
    static const char before[] = "<script type=\"application/json\" id=\"data\">";
    const char *begin = strstr(page, before);
    assert_non_null(begin);
    begin += strlen(before);
    const char *end = strstr(begin, "</script>");
    assert_non_null(end);
    json_t *data = json_loadb(begin, (size_t)(end - begin), JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(data);
    return data;
}

/* A browser leaves a script element at `</script`, and changes how it reads at `<!--`. */
static void assert_closed(const char *page)
{
    static const char *const outside[] = {"http:",   "https:", "src=",  "href=", "url(",
                                          "@import", "fetch(", "<link", "<!--",  "innerHTML"};
    assert_int_equal(count(page, "<script"), 2);
    assert_int_equal(count(page, "</script>"), 2);
    assert_int_equal(count(page, "</script"), 2);
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        assert_int_equal(count(page, outside[i]), 0);
    assert_non_null(strstr(page, "default-src 'none'"));
    assert_string_equal(page + strlen(page) - strlen("</body>\n</html>\n"), "</body>\n</html>\n");
}

TEST(the_page_holds_the_json_with_the_lists)
{
    made m;
    make(8, "parallel.pipeline=2 parallel.tensor=2 parallel.data=2", &m);
    ECH_FREED_TEXT page = {0};
    assert_int_equal(ech_plan_report_html(&m.planning.report, &page), ECH_OK);
    assert_closed(page.at);
    json_auto_t *whole = json_of(&m), *data = data_of(page.at);
    assert_true(json_equal(whole, data));
    const char *name = json_string_value(json_object_get(json_object_get(data, "cluster"), "name"));
    assert_string_equal(name, "a test's </script><!-- & more");
    release(&m);
}

TEST(hostile_strings_stay_data)
{
    static const char *const hostile[] = {"</script><script>alert(1)</script>",
                                          "<!--<script>",
                                          "]]>",
                                          "\"'`\\",
                                          "&lt;&amp;",
                                          "\xe2\x80\xa8 \xe2\x80\xa9 \xe2\x80\xa6",
                                          "a\nb",
                                          "</SCRIPT\t>",
                                          "\xf0\x9f\x98\x80"};
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        ECH_FREED_TEXT page = {0};
        json_auto_t *object =
            json_pack("{s:s, s:[s, i]}", hostile[i], hostile[i], "list", hostile[i], 1);
        ECH_FREED char *text = json_dumps(object, JSON_INDENT(1));
        ech_plan_page(text, &page);
        assert_closed(page.at);
        assert_int_equal(count(page.at, "\xe2\x80\xa8") + count(page.at, "\xe2\x80\xa9"), 0);
        json_auto_t *data = data_of(page.at);
        assert_true(json_equal(object, data));
    }
}

static json_int_t int_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

/* Steps run one after the other on the compute lane, within the step's time. */
static void check_list(const json_t *plan, double end)
{
    const json_t *train = json_object_get(plan, "train"), *sets = json_object_get(plan, "touched");
    json_int_t most = 0, written = 0;
    double at = 0;
    for (size_t s = 0; s < json_array_size(train); s++) {
        const json_t *step = json_array_get(train, s);
        const json_t *set = json_array_get(sets, (size_t)int_of(step, "touches"));
        double begin = json_real_value(json_object_get(step, "begin"));
        double finish = json_real_value(json_object_get(step, "end"));
        assert_true(json_is_array(set) && begin <= finish && finish <= end);
        for (size_t i = 0; i < json_array_size(set); i++) {
            const json_t *value = json_array_get(set, i);
            assert_true(int_of(value, "bytes") >= 0);
            bool writes = json_is_true(json_object_get(value, "writes"));
            assert_true(writes || json_is_true(json_object_get(value, "reads")));
            if (writes) written += int_of(value, "bytes");
        }
        if (strcmp(json_string_value(json_object_get(step, "lane")), "compute") != 0) continue;
        assert_true(begin >= at);
        at = finish;
        if (int_of(step, "live_bytes") > most) most = int_of(step, "live_bytes");
    }
    assert_true(written > 0);
    assert_int_equal(most, int_of(json_object_get(plan, "memory"), "lower_bound_bytes"));
}

TEST(lists_have_the_live_memory_and_times_of_the_plan)
{
    static const char *const words[] = {"", "parallel.pipeline=2 parallel.zero=1",
                                        "parallel.zero=3 memory.recompute=full"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        made m;
        make(4, words[i], &m);
        json_auto_t *whole = json_of(&m);
        const json_t *plans = json_object_get(whole, "plans");
        for (size_t p = 0; p < json_array_size(plans); p++)
            check_list(json_array_get(plans, p), m.planning.report.simulation.end);
        release(&m);
    }
}

TEST(the_device_arena_is_the_sum_of_what_fills_it)
{
    made m;
    make(4, "parallel.pipeline=2", &m);
    json_auto_t *whole = json_of(&m);
    const json_t *plans = json_object_get(whole, "plans");
    for (size_t p = 0; p < json_array_size(plans); p++) {
        const json_t *memory = json_object_get(json_array_get(plans, p), "memory");
        json_t *use = json_object_get(memory, "fullest_bytes"), *bytes;
        const char *kind;
        json_int_t sum = 0;
        json_object_foreach(use, kind, bytes) sum += json_integer_value(bytes);
        assert_int_equal(sum, int_of(memory, "arena_bytes"));
    }
    release(&m);
}

/* Bytes of the axis over all ranks, as rows of ranks say. */
static double sent(const json_t *whole, const char *axis)
{
    const json_t *plans = json_object_get(whole, "plans");
    double sum = 0;
    for (size_t p = 0; p < json_array_size(plans); p++) {
        const json_t *plan = json_array_get(plans, p);
        const json_t *of = json_object_get(json_object_get(plan, "traffic"), axis);
        sum += (double)int_of(of, "bytes") * (double)int_of(plan, "ranks");
    }
    return sum;
}

static double on_level(const json_t *whole, size_t level, const char *axis)
{
    const json_t *levels = json_object_get(json_object_get(whole, "cluster"), "levels");
    assert_int_equal(json_array_size(levels), 2);
    const json_t *bytes = json_object_get(json_array_get(levels, level), "bytes");
    return json_number_value(json_object_get(bytes, axis));
}

/* Machines have four ranks: neighbours of the tensor axis share one; the two stages of eight ranks
 * do not; replicas are every second rank and share one. */
TEST(bytes_are_counted_on_the_level_that_they_cross)
{
    static const char *const axes[] = {"tensor", "pipeline", "data"};
    static const bool outside[] = {false, true, false};
    made m;
    make(8, "parallel.pipeline=2 parallel.tensor=2 parallel.data=2", &m);
    json_auto_t *whole = json_of(&m);
    for (int i = 0; i < 3; i++) {
        double all = sent(whole, axes[i]), counted = on_level(whole, outside[i], axes[i]);
        assert_true(all > 0 && fabs(counted - all) <= 1e-12 * all);
        assert_true(!(on_level(whole, !outside[i], axes[i]) > 0));
    }
    release(&m);
}

/* There are four stages of two ranks. Neighbours may share a machine, but no stage shares one with
 * its peer: the first stores on the last. */
TEST(kept_activations_are_counted_by_themselves)
{
    static const char *const kept[] = {"kept", "back"};
    made m;
    make(8,
         "model.num_hidden_layers=4 parallel.pipeline=4 parallel.tensor=2 "
         "training.micro_batch_size=1 memory.offload_activations=peer",
         &m);
    json_auto_t *whole = json_of(&m);
    for (int i = 0; i < 2; i++) {
        double all = sent(whole, kept[i]);
        assert_true(all > 0 && fabs(on_level(whole, 1, kept[i]) - all) <= 1e-12 * all);
    }
    double inside = on_level(whole, 0, "pipeline"), all = sent(whole, "pipeline");
    assert_true(fabs(inside - all * 2 / 3) <= 1e-12 * all);
    release(&m);
}

static void assert_unit(ech_config *config, const char *unit)
{
    made m;
    make_of(config, 1, &m);
    json_auto_t *whole = json_of(&m);
    const json_t *batch = json_object_get(whole, "batch");
    assert_string_equal(json_string_value(json_object_get(batch, "unit")), unit);
    release(&m);
}

TEST(names_the_unit_of_rates)
{
    static const char images[] = "model: {architecture: mlp, num_classes: 2, image_height: 4, "
                                 "image_width: 4, hidden_size: 8, num_hidden_layers: 1}\n"
                                 "data: {train: none.images}\n"
                                 "parallel: {comm: local, threads: 1}\n"
                                 "training: {steps: 1, global_batch_size: 2}\n"
                                 "optimizer: {learning_rate: 1}\nlog: {directory: none}\n";
    assert_unit(fixture_config("llama", ""), "token");
    assert_unit(fixture_config_of(images, ""), "sample");
}

ALL_TESTS(fixture_setup, fixture_teardown)
