/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports of real tiny runs: both timelines, charts, nothing from elsewhere; measured bars are the
 * steps that ran.
 */

#include <math.h>

#include "app/reported.h"
#include "app/trace_events.h"
#include "unit.h"

static bool is_work(ech_step_kind kind)
{
    return kind == ECH_STEP_FORWARD || kind == ECH_STEP_BACKWARD_INPUT ||
           kind == ECH_STEP_BACKWARD_WEIGHT;
}

/* The bar of a micro-batch's forwards, or its backwards. */
static const ech_timeline_bar *find_bar(const ech_timeline *timeline, int rank, bool forward,
                                        int micro)
{
    const ech_timeline_bar *found = NULL;
    for (size_t i = 0; i < timeline->bar.n; i++) {
        const ech_timeline_bar *bar = &timeline->bar.at[i];
        if (bar->rank != rank || bar->micro != micro || bar->kind == ECH_BAR_COLLECTIVE) continue;
        if ((bar->kind == ECH_BAR_FORWARD) != forward) continue;
        if (found) fail_msg("rank %d: two bars of micro-batch %d", rank, micro);
        found = bar;
    }
    if (!found) fail_msg("rank %d: no bar of micro-batch %d", rank, micro);
    return found;
}

/* One chunk a rank: every micro-batch has one bar of forwards and one of backwards, from the begin
 * of its first step to the end of its last, and there are no others. */
static void assert_bars_are_steps(const opened *run, int l)
{
    double start = INFINITY;
    size_t work = 0, wanted = 0;
    assert_int_equal(run->recording.lists, l + 1);
    for (int rank = 0; rank < run->design.world; rank++) {
        const ech_list *list = &run->plan[rank]->list[ECH_LIST_TRAIN];
        const double *begins = run->recording.rank[rank].begin.at + (size_t)l * list->step.n;
        for (size_t s = 0; s < list->step.n; s++)
            if (list->step.at[s].lane == ECH_LANE_COMPUTE) start = fmin(start, begins[s]);
    }
    for (int rank = 0; rank < run->design.world; rank++) {
        const ech_list *list = &run->plan[rank]->list[ECH_LIST_TRAIN];
        const double *begins = run->recording.rank[rank].begin.at + (size_t)l * list->step.n;
        const double *ends = run->recording.rank[rank].end.at + (size_t)l * list->step.n;
        for (int m = 0; m < 2 * list->micro_batches; m++) {
            double begin = INFINITY, end = 0;
            bool forward = m % 2 == 0;
            for (size_t s = 0; s < list->step.n; s++) {
                const ech_step *step = &list->step.at[s];
                if (!is_work(step->kind) || step->micro != m / 2) continue;
                if ((step->kind == ECH_STEP_FORWARD) != forward) continue;
                begin = fmin(begin, begins[s] - start);
                end = fmax(end, ends[s] - start);
            }
            const ech_timeline_bar *bar = find_bar(&run->timeline, rank, forward, m / 2);
            assert_true(fabs(bar->begin - begin) < 1e-9);
            assert_true(fabs(bar->end - end) < 1e-9);
        }
        wanted += 2 * (size_t)list->micro_batches;
    }
    for (size_t i = 0; i < run->timeline.bar.n; i++)
        work += run->timeline.bar.at[i].kind <= ECH_BAR_WEIGHT;
    assert_int_equal(work, wanted);
    assert_true(run->timeline.bubble > 0 && run->timeline.bubble < 1);
}

static int count_messages(const opened *run)
{
    int messages = 0;
    for (int rank = 0; rank < run->recording.ranks; rank++) {
        const ech_list *list = &run->plan[rank]->list[ECH_LIST_TRAIN];
        for (size_t s = 0; s < list->step.n; s++)
            messages += run->recording.lists * (list->step.at[s].lane == ECH_LANE_SEND);
    }
    return messages;
}

static void assert_events(const opened *run)
{
    size_t steps = 0;
    char *text = NULL;
    trace_events events;
    read_run_file("trace.json", &text);
    const char *fault = trace_events_fault(text, strlen(text), &events);
    if (fault) fail_msg("trace.json: %s", fault);
    for (int rank = 0; rank < run->recording.ranks; rank++) {
        char name[60];
        snprintf(name, sizeof name, "rank %d (stage %d", rank,
                 run->design.layout->coordinates[rank].stage);
        assert_memory_equal(trace_events_name(&events, rank, -1), name, strlen(name));
        steps += run->recording.rank[rank].begin.n;
    }
    assert_int_equal(events.steps, steps);
    assert_int_equal(trace_events_arrows(&events), count_messages(run));
    json_decref(events.root);
    free(text);
}

/* ---- memory ---- */

/* What the fact says, the bar of its rank and the table say, too, and it is what the rank's arena
 * takes. */
static void assert_one_peak(const made *page, const opened *run)
{
    char text[40], line[100];
    const ech_plan *most = NULL;
    for (int rank = 0; rank < run->design.world; rank++) {
        ech_plan *plan;
        assert_int_equal(ech_design_plan(&run->design, rank, false, &plan), ECH_OK);
        snprintf(line, sizeof line, "<td>%lld</td></tr>",
                 (long long)plan->arena_bytes[ECH_SPACE_DEVICE]);
        assert_says(page->html, line);
        if (most && most->arena_bytes[ECH_SPACE_DEVICE] >= plan->arena_bytes[ECH_SPACE_DEVICE]) {
            ech_plan_destroy(plan);
            continue;
        }
        ech_plan_destroy((ech_plan *)most);
        most = plan;
    }
    ech_text_from_bytes(most->arena_bytes[ECH_SPACE_DEVICE], text, sizeof text);
    snprintf(line, sizeof line, "<dt>peak memory</dt><dd>%s (rank %d)</dd>", text, most->rank);
    assert_says(page->html, line);
    snprintf(line, sizeof line, ">%s</text>", text);
    assert_says(page->html, line);
    ech_plan_destroy((ech_plan *)most);
}

/* ---- whole runs ---- */

TEST(test_pipeline)
{
    char *own, *reported;
    train(PIPELINE " " TRACED, 2);
    read_run_file("trace.json", &own);
    made page = report();
    read_run_file("trace.json", &reported);
    assert_string_equal(own, reported); /* the run wrote it itself */
    free(own);
    free(reported);
    opened run = open_run(2);
    assert_bars_are_steps(&run, 2);
    assert_events(&run);
    assert_timelines(&page, 1, 1);
    assert_charts(&page, true);
    static const char *const facts[] = {
        "<h1>gpt2 on 2 ranks: 2 stages, 1f1b</h1>",
        "<dt>model</dt><dd>gpt2, 2 layers, width 16</dd>",
        "<dt>parameters</dt>",
        "<dt>layout</dt><dd>2 stages</dd>",
        "<dt>schedule</dt><dd>1f1b</dd>",
        "<dt>ranks</dt><dd>2 of 1 thread</dd>",
        "<dt>compute type</dt><dd>fp32</dd>",
        "<dt>comm</dt><dd>local</dd>",
        "<dt>batch</dt><dd>12 samples a step, as 4 micro-batches of 3 samples</dd>",
        "<dt>sequence length</dt><dd>9 tokens</dd>",
        "/train</dd>",
        "/valid</dd>",
        "<dt>tokenizer</dt><dd>bytes</dd>",
        "<dt>optimizer</dt><dd>adamw, learning rate 0.01, cosine, 2 steps of warm-up, weight decay "
        "0.1, clipped at 1</dd>",
        "<dt>run file</dt>",
        "/run/run.yaml</dd>",
        "  num_hidden_layers: 2\n",
        "<dt>steps done</dt><dd>4 of 4</dd>",
        "<dt>last loss</dt>",
        "<dt>last validation loss</dt>",
        "<dt>tokens per second (median)</dt>",
        "<dt>step time (median)</dt>",
        "<dt>predicted from</dt><dd>the run&#39;s own block times</dd>",
        "<dt>measured timeline</dt><dd>step 3</dd>",
        "<dt>peak memory</dt>",
        ">Memory of each rank</text>",
    };
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) assert_says(page.html, facts[i]);
    double loss = number_behind(page.html, "<dt>last validation loss</dt><dd>");
    double perplexity = number_behind(page.html, "<dt>last validation perplexity</dt><dd>");
    assert_true(fabs(perplexity / exp(loss) - 1) < 1e-3);
    assert_one_peak(&page, &run);
    double predicted = number_behind(page.html, "<dt>bubble predicted</dt><dd>");
    double measured = number_behind(page.html, "<dt>bubble measured</dt><dd>");
    assert_true(fabs(measured - 100 * run.timeline.bubble) < 0.051);
    assert_true(predicted > 0 && predicted < 100);
    char line[200];
    snprintf(line, sizeof line, "bubble: predicted %.1f %%, measured %.1f %%\n", predicted,
             measured);
    assert_says(page.words.at, line);
    assert_says(page.words.at, "step: predicted ");
    assert_says(page.words.at, "/run/report.html\n");
    assert_says(page.words.at, "/run/trace.json");
    assert_null(strstr(page.words.at, "no measured"));
    /* The same folder makes the same page. */
    made again = report();
    assert_string_equal(page.html, again.html);
    release(&again);
    release(&page);
    close_run(&run);
}

TEST(test_replicas)
{
    train("parallel.pipeline=2 parallel.stage_replicas=[2,1] training.micro_batch_size=2 " TRACED,
          3);
    made page = report();
    opened run = open_run(3);
    assert_bars_are_steps(&run, 2);
    assert_events(&run);
    assert_timelines(&page, 1, 1);
    assert_says(page.html, "<h1>gpt2 on 3 ranks: 2 stages of 2 and 1 replicas, 1f1b</h1>");
    close_run(&run);
    release(&page);
}

/* Blocks in parts, with collectives between them. */
TEST(test_tensor)
{
    train("parallel.tensor=2 parallel.pipeline=2 parallel.sequence=true "
          "data.sequence_length=8 training.micro_batch_size=3 " TRACED,
          4);
    made page = report();
    opened run = open_run(4);
    assert_bars_are_steps(&run, 2);
    assert_events(&run);
    assert_timelines(&page, 1, 1);
    assert_says(page.html,
                "<h1>gpt2 on 4 ranks: 2 stages x 2 tensor, sequence parallel, 1f1b</h1>");
    assert_says(page.html, "<dt>layout</dt><dd>2 stages x 2 tensor, sequence parallel</dd>");
    assert_says(page.html, "<dt>collectives measured</dt>");
    assert_null(strstr(page.html, "collectives predicted")); /* they are free there */
    assert_says(page.html, "the run&#39;s own block times; collectives free</dd>");
    assert_says(page.html, ">waits for a collective</text>");
    assert_says(page.words.at, "collectives: measured ");
    assert_true(run.timeline.waits > 0 && run.timeline.waits < run.timeline.bubble);
    assert_true(run.timeline.collective > 0);
    close_run(&run);
    release(&page);
}

/* Experts of several ranks are collectives, too. */
TEST(test_experts)
{
    train("model.architecture=mixtral model.num_local_experts=4 parallel.expert=2 " TRACED, 2);
    made page = report();
    assert_says(page.html, "the run&#39;s own block times; collectives free</dd>");
    release(&page);
}

/* Traces as if every block had taken what it costs and messages nothing: what is measured is what
 * is predicted. With unequal replicas both pictures have the numbers over all ranks. */
TEST(test_as_predicted)
{
    static const char keys[] = "parallel.pipeline=2 parallel.stage_replicas=[2,1] "
                               "training.micro_batch_size=2";
    train(keys, 3);
    recorded run = recorded_create(keys, 3);
    char *folder = path_of("trace"), line[100];
    recorded_write_all(&run, 0, 2);
    assert_int_equal(rename(run.folder, folder), 0);
    made page = report();
    assert_timelines(&page, 1, 1);
    double bubble = 100 * run.timeline.bubble;
    snprintf(line, sizeof line, "bubble: predicted %.1f %%, measured %.1f %%\n", bubble, bubble);
    assert_says(page.words.at, line);
    double predicted = number_behind(page.words.at, "step: predicted ");
    assert_true(fabs(predicted - 1e3 * run.timeline.end) < 5e-4 * predicted); /* four digits */
    assert_true(fabs(number_behind(strstr(page.words.at, "\nstep: "), "measured ") - predicted) <
                1e-9);
    for (int q = 0; q < 6; q++) { /* on one rank of each stage, twice */
        snprintf(line, sizeof line, "<title>forward, micro-batch %d: ", q);
        assert_int_equal(markup_count(page.html, line), 4);
    }
    free(folder);
    release(&page);
    recorded_destroy(&run);
}

TEST(test_spans)
{
    train("parallel.pipeline=2 parallel.schedule=pipedream model.tie_word_embeddings=false "
          "training.micro_batch_size=12 parallel.flush_every=2 training.check_every=0 " TRACED,
          2);
    made page = report();
    opened run = open_run(2);
    assert_bars_are_steps(&run, 1); /* trace_steps 3: spans at 0 and 2 */
    assert_events(&run);
    assert_timelines(&page, 1, 1);
    assert_says(page.html, "<dd>pipedream, drained every 2 steps</dd>");
    assert_says(page.html, "<dt>measured timeline</dt><dd>steps 3 to 4</dd>");
    close_run(&run);
    release(&page);
}

TEST(test_alone)
{
    train("training.micro_batch_size=6", 1);
    made page = report();
    assert_timelines(&page, 1, 0);
    assert_charts(&page, true);
    assert_says(page.html, "<h1>gpt2 on 1 rank</h1>");
    assert_says(page.html, "<dt>bubble predicted</dt><dd>0.0 %</dd>");
    assert_says(page.words.at, "no measured timeline: no steps were recorded; train with "
                               "log.trace=true\n");
    assert_says(page.words.at, "predicted from blocks that cost the same");
    release(&page);
}

ALL_TESTS(fixture_setup, fixture_teardown)
