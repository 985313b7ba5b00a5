/* SPDX-License-Identifier: Apache-2.0
 *
 * Searches for a layout by app/search; results are printed on request.
 */
#include <stdlib.h>

#include "app/search/search.h"
#include "library/library.h"

struct echelon_search {
    ech_run_arguments arguments;
    ech_run run;
    ech_search search;
    ech_text text, json, html, run_file, goodput;
};

static ech_status create(const echelon_run *run, const echelon_plan_options *o,
                         echelon_search *search)
{
    ech_planning_options options = ech_library_planning(o);
    options.report.steps = options.report.simulate = false;
    ECH_TRY(ech_library_open_plans(run, o->ranks, &search->arguments, &search->run));
    if (o->progress) o->progress("searching", o->context);
    ECH_TRY(ech_search_run(&search->run, &options, NULL, &search->search));
    ECH_TRY(ech_search_advise(&search->search, &options));
    if (!o->steps) return ECH_OK;
    if (o->progress) o->progress("planning the first layout", o->context);
    return ech_search_add_plan(&search->search, &options);
}

echelon_status echelon_search_create(echelon_run *run, const echelon_plan_options *options,
                                     echelon_search **out)
{
    echelon_plan_options o;
    ech_library_enter();
    ECH_USE(run, RUN);
    ECH_NEED(out);
    ECH_TAKE(o, options);
    echelon_search *search = ech_handle_create(sizeof *search, ECH_HANDLE_SEARCH);
    ech_status status = create(run, &o, search);
    if (status == ECH_OK)
        *out = search;
    else
        echelon_search_free(search);
    return (echelon_status)status;
}

void echelon_search_free(echelon_search *search)
{
    if (!search) return;
    ECH_USE_HANDLE(search, SEARCH, );
    ech_search_destroy(&search->search);
    ech_run_close(&search->run);
    ech_text_free(&search->text);
    ech_text_free(&search->json);
    ech_text_free(&search->html);
    ech_text_free(&search->run_file);
    ech_text_free(&search->goodput);
    ech_handle_destroy(search);
}

const char *echelon_search_text(echelon_search *search)
{
    ech_library_enter();
    ECH_USE_HANDLE(search, SEARCH, NULL);
    if (!search->text.n) ech_search_text(&search->search, &search->text);
    return search->text.at;
}

const char *echelon_search_json(echelon_search *search)
{
    ech_library_enter();
    ECH_USE_HANDLE(search, SEARCH, NULL);
    bool made = search->json.n || ech_search_json(&search->search, &search->json) == ECH_OK;
    return made ? search->json.at : NULL;
}

const char *echelon_search_html(echelon_search *search)
{
    ech_library_enter();
    ECH_USE_HANDLE(search, SEARCH, NULL);
    bool made = search->html.n || ech_search_html(&search->search, &search->html) == ECH_OK;
    return made ? search->html.at : NULL;
}

int echelon_search_places(const echelon_search *search)
{
    ECH_USE_HANDLE(search, SEARCH, 0);
    return search->search.places;
}

const char *echelon_search_run_file(echelon_search *search, int place)
{
    ECH_USE_HANDLE(search, SEARCH, NULL);
    const ech_search *of = &search->search;
    if (place < 0 || place >= of->places) return NULL;
    ech_text_free(&search->run_file);
    ech_search_run_file(of, &of->candidate.at[place], &search->run_file);
    return search->run_file.at;
}

const char *echelon_search_emitted(const echelon_search *search)
{
    ECH_USE_HANDLE(search, SEARCH, NULL);
    return search->search.advice.emitted.file.at;
}

const char *echelon_search_goodput_svg(echelon_search *search)
{
    ech_library_enter();
    ECH_USE_HANDLE(search, SEARCH, NULL);
    const ech_advice *advice = &search->search.advice;
    bool made = search->goodput.n || ech_advice_svg(advice, &search->goodput) == ECH_OK;
    return made ? search->goodput.at : NULL;
}
