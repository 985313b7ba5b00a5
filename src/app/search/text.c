/* SPDX-License-Identifier: Apache-2.0
 *
 * What a search has found, for people and for programs.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "app/count.h"
#include "app/plan/json.h"
#include "app/search/search.h"
#include "base/text.h"
#include "base/visible.h"

static const char *const headings[ECH_SEARCH_KEYS] = {
#define KEY(name, key, names, heading) heading,
#include "app/search/space.def"
};

static const char *const fates[ECH_SEARCH_FATES] = {
    [ECH_SEARCH_LEFT] = "left",       [ECH_SEARCH_BOUNDED] = "bounded",
    [ECH_SEARCH_REFUSED] = "refused", [ECH_SEARCH_LARGE] = "large",
    [ECH_SEARCH_BRIEF] = "brief",     [ECH_SEARCH_PLANNED] = "planned",
};

/* The part of the step, other than products, that takes the most of it. */
static int limit_of(const ech_plan_forecast *f)
{
    int most = ECH_FORECAST_KERNELS;
    for (int part = most; part < ECH_FORECAST_PARTS; part++)
        if (f->part[part] > f->part[most]) most = part;
    return most;
}

/* The part that takes so much longer than in `better`. */
static int worse_part(const ech_plan_forecast *f, const ech_plan_forecast *better)
{
    int most = 0;
    double gained[ECH_FORECAST_PARTS];
    for (int part = 0; part < ECH_FORECAST_PARTS; part++) {
        gained[part] = f->part[part] * f->seconds - better->part[part] * better->seconds;
        if (gained[part] > gained[most]) most = part;
    }
    return most;
}

void ech_search_print_keys(const ech_search *search, const ech_candidate *candidate, ech_text *out)
{
    for (ech_search_key key = 0; key < ECH_SEARCH_KEYS; key++) {
        char value[32];
        if (search->fixed[key]) continue;
        ech_text_append(out, "%s%s=%s", out->n ? " " : "", ech_search_key_name(key),
                        ech_search_value(key, candidate->value[key], value));
    }
}

static void print_counts(const ech_search *search, ech_text *out)
{
    const size_t *n = search->fates;
    ech_text_append(out,
                    "search      %s for %s on %s\n"
                    "            %zu planned and simulated, %zu only with few micro-batches, %zu "
                    "too large, %zu refused\n"
                    "            %zu left out by a bound of their time, %zu by an estimate of it\n",
                    ECH_COUNT((int64_t)search->candidate.n, "layout"),
                    ECH_COUNT(search->ranks, "rank"), search->cluster.name, n[ECH_SEARCH_PLANNED],
                    n[ECH_SEARCH_BRIEF], n[ECH_SEARCH_LARGE], n[ECH_SEARCH_REFUSED],
                    n[ECH_SEARCH_BOUNDED], n[ECH_SEARCH_LEFT]);
    if (search->open)
        ech_text_append(out,
                        "            %zu of the latter may be among the first: the search's work "
                        "ended before; set a key to look at some\n",
                        search->open);
}

/* The longest text of a key's values or heading. */
static int width_of(const ech_search *search, ech_search_key key)
{
    size_t most = strlen(headings[key]);
    for (int i = 0; i < search->places; i++) {
        char value[32];
        size_t n = strlen(ech_search_value(key, search->candidate.at[i].value[key], value));
        if (n > most) most = n;
    }
    return (int)most;
}

static void print_heading(const ech_search *search, ech_text *out)
{
    ech_text_append(out, "\n  #  s a step  TFLOP/s  %% of peak     memory    dp");
    for (ech_search_key key = 0; key < ECH_SEARCH_KEYS; key++)
        if (!search->fixed[key])
            ech_text_append(out, "  %*s", width_of(search, key), headings[key]);
    ech_text_append(out, "\n");
}

static void print_place(const ech_search *search, int i, ech_text *out)
{
    const ech_candidate *c = &search->candidate.at[i];
    const ech_plan_forecast *f = &c->forecast;
    ech_text_append(out, "%3d %9.4g %8.1f %10.1f %10s %5lld", i + 1, f->seconds,
                    f->model_flops / 1e12, f->peak > 0 ? 100 * f->model_flops / f->peak : 0,
                    ECH_BYTES(c->bytes), (long long)c->data);
    for (ech_search_key key = 0; key < ECH_SEARCH_KEYS; key++) {
        char value[32];
        if (search->fixed[key]) continue;
        ech_text_append(out, "  %*s", width_of(search, key),
                        ech_search_value(key, c->value[key], value));
    }
    ech_text_append(out, "\n");
}

static void print_reason(const ech_search *search, int i, ech_text *out)
{
    const ech_plan_forecast *f = &search->candidate.at[i].forecast;
    int limit = limit_of(f);
    ech_text_append(out, "%3d  limit: %s, %.1f %%", i + 1, ech_plan_forecast_part(limit),
                    100 * f->part[limit]);
    if (i > 0) {
        const ech_plan_forecast *first = &search->candidate.at[0].forecast;
        int part = worse_part(f, first);
        ech_text_append(out, "; %.1f %% slower than 1, most of it %s (%+.1f %% of the step)",
                        100 * (f->seconds / first->seconds - 1), ech_plan_forecast_part(part),
                        100 * (f->part[part] - first->part[part]));
    }
    ech_text_append(out, "\n");
}

static void print_rest(const ech_search *search, ech_text *out)
{
    ECH_FREED_TEXT fixed = {0}, best = {0};
    for (ech_search_key key = 0; key < ECH_SEARCH_KEYS; key++)
        if (search->fixed[key])
            ech_text_append(&fixed, "%s%s", fixed.n ? ", " : "", ech_search_key_name(key));
    ech_text_append(
        out,
        "\nnot searched: unequal stages and replicas, context_method, other schedules, "
        "ZeRO 2 and 3 with a pipeline,\n              compression, asynchronous "
        "strategies, offloaded parameters and activations, sequence chunks,\n"
        "              tensor ranks of several machines, micro-batches other than 1, 2, "
        "4 .. %d times the run's,\n              context ranks with fewer than %d tokens "
        "of a sequence",
        ECH_SEARCH_MOST_MICRO, ECH_SEARCH_FEWEST_TOKENS);
    if (fixed.n) ech_text_append(out, ",\n              and what the run sets: %s", fixed.at);
    ech_search_print_keys(search, &search->candidate.at[0], &best);
    ech_text_append(out, "\nthe first:    %s\n", best.at);
}

void ech_search_text(const ech_search *search, ech_text *out)
{
    print_counts(search, out);
    print_heading(search, out);
    for (int i = 0; i < search->places; i++) print_place(search, i, out);
    ech_text_append(out, "\n");
    for (int i = 0; i < search->places; i++) print_reason(search, i, out);
    print_rest(search, out);
    ech_advice_text(&search->advice, search->candidate.at[0].forecast.days, out);
}

void ech_search_run_file(const ech_search *search, const ech_candidate *candidate, ech_text *out)
{
    ECH_CLEANUP(ech_config_destroy_at) ech_config *config = ech_search_config(search, candidate);
    ech_config_about about;
    const char *section = "";
    ech_text_append(out, "# Found by `echelon plan --search` for %s on ",
                    ECH_COUNT(search->ranks, "rank"));
    ech_visible_append(out, search->cluster.name, strlen(search->cluster.name), false, true);
    ech_text_append(out, ": %.4g s a step.\n", candidate->forecast.seconds);
    for (int i = 0; ech_config_about_key(i, &about); i++) {
        ECH_FREED_TEXT key = {0};
        ech_text_append(&key, "%s.%s", about.section, about.name);
        if (!ech_config_is_set(config, key.at)) continue;
        if (strcmp(section, about.section) != 0) ech_text_append(out, "%s:\n", about.section);
        section = about.section;
        ech_text_append(out, "  %s: ", about.name);
        ech_config_format_yaml(config, key.at, out);
        ech_text_append(out, "\n");
    }
}

/* ---- JSON ---- */

static json_t *candidate_json(const ech_search *search, const ech_candidate *c, bool is_place)
{
    ECH_FREED_TEXT run_file = {0};
    json_t *keys = json_object();
    for (ech_search_key key = 0; key < ECH_SEARCH_KEYS; key++) {
        char value[32];
        if (search->fixed[key]) continue;
        json_object_set_new(keys, ech_search_key_name(key),
                            json_string(ech_search_value(key, c->value[key], value)));
    }
    json_t *out = json_pack("{s:o, s:I, s:I, s:f, s:f, s:s}", "keys", keys, "data",
                            (json_int_t)c->data, "micro_batches", (json_int_t)c->micro_batches,
                            "bound", c->bound, "estimate", c->estimate, "fate", fates[c->fate]);
    bool simulated = c->fate == ECH_SEARCH_BRIEF || c->fate == ECH_SEARCH_PLANNED;
    if (simulated) json_object_set_new(out, "seconds", json_real(c->seconds));
    if (simulated || c->fate == ECH_SEARCH_LARGE)
        json_object_set_new(out, "bytes", json_integer(c->bytes));
    if (c->fate == ECH_SEARCH_PLANNED) {
        const ech_plan_forecast *f = &c->forecast;
        json_t *parts = json_object();
        for (int part = 0; part < ECH_FORECAST_PARTS; part++)
            json_object_set_new(parts, ech_plan_forecast_part(part), json_real(f->part[part]));
        json_object_set_new(out, "model_flops", json_real(f->model_flops));
        json_object_set_new(out, "tokens_per_second", json_real(f->tokens_per_second));
        json_object_set_new(out, "parts", parts);
    }
    if (is_place) {
        const ech_plan_forecast *f = &c->forecast, *first = &search->candidate.at[0].forecast;
        json_object_set_new(out, "limit", json_string(ech_plan_forecast_part(limit_of(f))));
        json_object_set_new(out, "slower",
                            json_string(ech_plan_forecast_part(worse_part(f, first))));
        ech_search_run_file(search, c, &run_file);
        json_object_set_new(out, "run_file", json_string(run_file.at));
    }
    if (c->why) json_object_set_new(out, "why", json_string(c->why));
    return out;
}

ech_status ech_search_add_plan(ech_search *search, const ech_planning_options *options)
{
    ECH_CLEANUP(ech_config_destroy_at)
    ech_config *config = ech_search_config(search, &search->candidate.at[0]);
    ech_run run = *search->run;
    ech_planning_options its = *options;
    ech_planning planning;
    run.config = config;
    its.report = (ech_plan_options){.tokens = options->report.tokens};
    ech_status status = ech_planning_create(&run, &its, &planning);
    if (status == ECH_OK) {
        json_decref(search->plan);
        search->plan = ech_plan_report_tree(&planning.report, true);
    }
    ech_planning_destroy(&planning);
    return status;
}

ech_status ech_search_json(const ech_search *search, ech_text *out)
{
    json_t *list = json_array(), *counts = json_object(), *fixed = json_array();
    for (size_t i = 0; i < search->candidate.n; i++)
        json_array_append_new(
            list, candidate_json(search, &search->candidate.at[i], (int)i < search->places));
    for (int fate = 0; fate < ECH_SEARCH_FATES; fate++)
        json_object_set_new(counts, fates[fate], json_integer((json_int_t)search->fates[fate]));
    for (ech_search_key key = 0; key < ECH_SEARCH_KEYS; key++)
        if (search->fixed[key]) json_array_append_new(fixed, json_string(ech_search_key_name(key)));
    json_t *all =
        json_pack("{s:i, s:s, s:i, s:i, s:o, s:o, s:I, s:o}", "version", 1, "cluster",
                  search->cluster.name, "ranks", search->ranks, "places", search->places, "fixed",
                  fixed, "counts", counts, "open", (json_int_t)search->open, "candidates", list);
    if (all) ech_advice_json(&search->advice, search->candidate.at[0].forecast.days, all);
    if (all && search->plan) json_object_set(all, "plan", search->plan);
    char *text = json_dumps(all, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
    json_decref(all);
    if (!text) ECH_FAIL(ECH_EINPUT, "a text of the search is not UTF-8");
    ech_text_append(out, "%s\n", text);
    free(text);
    return ECH_OK;
}

ech_status ech_search_html(const ech_search *search, ech_text *out)
{
    ECH_FREED_TEXT json = {0};
    ECH_TRY(ech_search_json(search, &json));
    ech_plan_page(json.at, out);
    return ECH_OK;
}
