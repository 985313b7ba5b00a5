/* SPDX-License-Identifier: Apache-2.0
 *
 * The planner in a browser: what worker.js calls. The model's folder and the cluster file are in
 * the memory of the page (MEMFS). Everything is done by the library (include/echelon.h), so results
 * are the command line's.
 */
#include <echelon.h>
#include <emscripten.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL   "model"
#define CLUSTER "cluster.yaml"

static echelon_run *run;
static echelon_plan *plan;
static echelon_search *search;
static char *file; /* the run file, as text */

EM_JS(void, tell, (const char *doing), { postProgress(UTF8ToString(doing)); });

static void on_progress(const char *doing, void *context)
{
    (void)context;
    tell(doing);
}

static void release(void)
{
    echelon_plan_free(plan);
    echelon_search_free(search);
    echelon_run_close(run);
    plan = NULL;
    search = NULL;
    run = NULL;
}

/* words: "section.key=value", one a line. */
static echelon_status open_run(char *words)
{
    release();
    echelon_status status = echelon_run_open_model(MODEL, &run);
    for (char *rest = NULL, *word = strtok_r(words, "\n", &rest); word && status == ECHELON_OK;
         word = strtok_r(NULL, "\n", &rest))
        status = echelon_run_add_word(run, word);
    return status;
}

/* system: that the layout is for, as of --emit-for; "": of ours. */
static echelon_plan_options options_of(int ranks, double tokens, int steps, const char *system)
{
    return (echelon_plan_options){.size = sizeof(echelon_plan_options),
                                  .ranks = ranks,
                                  .steps = steps,
                                  .cluster = CLUSTER,
                                  .tokens = tokens,
                                  .emit_for = *system ? system : NULL,
                                  .progress = on_progress};
}

/* These return JSON, borrowed until the next call, or NULL; then the next function says why. */
EMSCRIPTEN_KEEPALIVE const char *planner_plan(char *words, int ranks, double tokens,
                                              const char *system, int steps)
{
    echelon_plan_options options = options_of(ranks, tokens, steps, system);
    if (open_run(words) || echelon_plan_create(run, &options, &plan)) return NULL;
    return echelon_plan_json(plan);
}

EMSCRIPTEN_KEEPALIVE const char *planner_search(char *words, int ranks, double tokens,
                                                const char *system)
{
    echelon_plan_options options = options_of(ranks, tokens, 0, system);
    if (open_run(words) || echelon_search_create(run, &options, &search)) return NULL;
    return echelon_search_json(search);
}

/* The last result's layout as arguments of its system; "": it is of ours. */
EMSCRIPTEN_KEEPALIVE const char *planner_emitted(void)
{
    const char *text = plan     ? echelon_plan_emitted(plan)
                       : search ? echelon_search_emitted(search)
                                : NULL;
    return text ? text : "";
}

EMSCRIPTEN_KEEPALIVE const char *planner_error(void)
{
    return echelon_last_error();
}

/* ---- the run file ---- */

typedef struct text {
    char *at;
    size_t n;
} text;

static void append(text *out, const char *more)
{
    size_t n = strlen(more);
    char *grown = realloc(out->at, out->n + n + 1);
    if (!grown) abort();
    memcpy(grown + out->n, more, n + 1);
    *out = (text){grown, out->n + n};
}

static int append_key(const echelon_key *key, const char **section, text *out)
{
    char name[128];
    const char *value;
    bool is_set;
    snprintf(name, sizeof name, "%s.%s", key->section, key->name);
    if (echelon_run_is_set(run, name, &is_set)) return 0;
    if (!is_set || (strcmp(key->section, "model") == 0 && strcmp(key->name, "init_from") != 0))
        return 1; /* config.json says the rest of the model */
    if (echelon_run_get(run, name, &value)) return 0;
    if (strcmp(*section, key->section) != 0) {
        append(out, key->section);
        append(out, ":\n");
    }
    *section = key->section;
    append(out, "  ");
    append(out, key->name);
    append(out, ": ");
    append(out, value);
    append(out, "\n");
    return 1;
}

/* The keys that the last plan's run sets. */
EMSCRIPTEN_KEEPALIVE const char *planner_run_file(void)
{
    text out = {0};
    const char *section = "";
    echelon_key key = {.size = sizeof key};
    append(&out, "");
    for (int i = 0; echelon_key_at(i, &key) == ECHELON_OK; i++)
        if (!append_key(&key, &section, &out)) break;
    free(file);
    file = out.at;
    return file;
}
