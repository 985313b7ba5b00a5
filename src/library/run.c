/* SPDX-License-Identifier: Apache-2.0
 *
 * Version, errors, log, runs and their keys.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/setup/plugins.h"
#include "app/setup/setup.h"
#include "base/file.h"
#include "base/log.h"
#include "config/config.h"
#include "library/library.h"

#define X(name) _Static_assert((int)ECHELON_##name == (int)ECH_##name, "the same codes");
X(OK)
X(EUSAGE)
X(EINPUT)
X(EIO)
X(ENOMEM)
X(EUNSUPPORTED)
X(ECOMM) X(EABORTED) X(ENUMERIC) X(EINTERNAL)
#undef X
    _Static_assert((int)ECHELON_MOST_RANKS == (int)ECH_MOST_RANKS, "the same number");
_Static_assert((int)ECHELON_AUTO == (int)ECH_AUTO, "the same number");

/* ---- version, errors, log ---- */

const char *echelon_version(void)
{
    return ECH_VERSION;
}

const char *echelon_last_error(void)
{
    return ech_last_error();
}

static atomic_bool is_heard; /* somebody gets the log */

static void drop(const char *line, void *context)
{
    (void)line, (void)context;
}

static void drop_at_first(void)
{
    if (ech_log_has_sink())
        atomic_store(&is_heard, true);
    else
        ech_log_set_sink(drop, NULL);
}

ech_status ech_library_end_rank(const ech_design *design, ech_status status)
{
    bool is_process = !ech_comm_has_threads((ech_comm_kind)design->config->parallel.comm);
    bool is_first = status != ECH_OK && status != ECH_EABORTED;
    if (is_process && is_first && !atomic_load(&is_heard))
        fprintf(stderr, "echelon: error: %s\n", ech_last_error());
    return status;
}

static pthread_once_t entered = PTHREAD_ONCE_INIT;

void ech_library_enter(void)
{
    pthread_once(&entered, drop_at_first);
    ech_clear_error();
}

void echelon_set_log(echelon_log *log, void *context)
{
    pthread_once(&entered, drop_at_first);
    atomic_store(&is_heard, log != NULL);
    ech_log_set_sink(!log ? drop : log == echelon_log_print ? NULL : log, context);
}

/* The log without a sink does the same, and draws status lines besides. */
void echelon_log_print(const char *line, void *context)
{
    (void)context;
    fprintf(stderr, "%s\n", line);
}

ech_status ech_library_refuse_null(const char *argument, const char *function)
{
    ECH_FAIL(ECH_EUSAGE, "%s: the argument %s is NULL, and has no default", function, argument);
}

/* ---- structs that may grow ---- */

ech_status ech_library_check_size(size_t size)
{
    if (size >= sizeof size) return ECH_OK;
    ECH_FAIL(ECH_EUSAGE, "the first field of a struct is its size: set it to sizeof the struct");
}

void ech_library_give(void *to, size_t size, const void *from, size_t known)
{
    size_t n = size < known ? size : known;
    memcpy((char *)to + sizeof size, (const char *)from + sizeof size, n - sizeof size);
}

ech_status ech_library_take(void *to, size_t known, const void *from)
{
    size_t size;
    memset(to, 0, known);
    if (!from) return ECH_OK;
    memcpy(&size, from, sizeof size);
    ECH_TRY(ech_library_check_size(size));
    ech_library_give(to, known, from, size);
    return ECH_OK;
}

/* ---- runs ---- */

static echelon_status make(const char *file, const char *model, const char *text, echelon_run **out)
{
    echelon_run *run = ech_handle_create(sizeof *run, ECH_HANDLE_RUN);
    run->file = file ? ech_strdup(file) : NULL;
    run->model = model ? ech_strdup(model) : NULL;
    run->text = text ? ech_strdup(text) : NULL;
    *out = run;
    return ECHELON_OK;
}

echelon_status echelon_run_open(const char *path, echelon_run **out)
{
    ech_library_enter();
    ECH_NEED(path);
    ECH_NEED(out);
    if (ech_file_exists(path)) return make(path, NULL, NULL, out);
    ECH_REFUSE("%s: cannot open: %s", path, ech_system_error(ENOENT));
}

echelon_status echelon_run_open_text(const char *text, const char *name, echelon_run **out)
{
    ech_library_enter();
    ECH_NEED(text);
    ECH_NEED(name);
    ECH_NEED(out);
    return make(name, NULL, text, out);
}

echelon_status echelon_run_open_model(const char *folder, echelon_run **out)
{
    ech_library_enter();
    ECH_NEED(folder);
    ECH_NEED(out);
    return make(NULL, folder, NULL, out);
}

void echelon_run_close(echelon_run *run)
{
    if (!run) return;
    ECH_USE_HANDLE(run, RUN, );
    for (size_t i = 0; i < run->words.n; i++) free(run->words.at[i]);
    free(run->words.at);
    ech_text_free(&run->value);
    free(run->file);
    free(run->text);
    free(run->model);
    ech_handle_destroy(run);
}

ech_run_arguments ech_library_arguments(const echelon_run *run)
{
    ech_run_arguments in = {.file = run->file, .text = run->text, .model = run->model};
    for (size_t i = 0; i < run->words.n; i++) ECH_PUSH(in.assignment, run->words.at[i]);
    return in;
}

static ech_status set(echelon_run *run, const char *key, const char *value)
{
    ECH_CLEANUP(ech_config_destroy_at) ech_config *config = NULL;
    ECH_FREED_TEXT word = {0};
    ech_text_append(&word, "%s=%s", key, value);
    ech_run_arguments in = ech_library_arguments(run);
    ECH_PUSH(in.assignment, word.at);
    ech_status status = ech_plugins_open(run->file, run->text, false, in.assignment.at,
                                         (int)in.assignment.n); /* whose names a key may have */
    free(in.assignment.at);
    ECH_TRY(status);
    ECH_TRY(ech_setup_defaults(&config));
    ECH_TRY(ech_config_set(config, word.at));
    ECH_PUSH(run->words, ech_strdup(word.at));
    return ECH_OK;
}

echelon_status echelon_run_set(echelon_run *run, const char *key, const char *value)
{
    ech_library_enter();
    ECH_USE(run, RUN);
    ECH_NEED(key);
    ECH_NEED(value);
    return (echelon_status)set(run, key, value);
}

echelon_status echelon_run_add_word(echelon_run *run, const char *word)
{
    ech_library_enter();
    ECH_USE(run, RUN);
    ECH_NEED(word);
    const char *value = strchr(word, '=');
    if (!value) ECH_REFUSE("%s: keys are set with section.key=value", word);
    ECH_PUSH(run->words, ech_strdup(word));
    return ECHELON_OK;
}

/* The run's keys; required keys may be missing. Errors: there is no such key. */
static ech_status look(const echelon_run *run, const char *key, ech_config **out)
{
    ech_run_arguments in = ech_library_arguments(run);
    in.plans = true;
    ech_status status = in.model ? ech_run_configure(&in, out)
                                 : ech_setup_config_partial(in.file, in.text, in.assignment.at,
                                                            (int)in.assignment.n, out);
    free(in.assignment.at);
    if (status != ECH_OK || ech_config_type_name(key)) return status;
    ECH_FREED_TEXT word = {0};
    ech_text_append(&word, "%s=", key);
    return ech_config_set(*out, word.at); /* says which key is nearest */
}

static ech_status get(echelon_run *run, const char *key)
{
    ECH_CLEANUP(ech_config_destroy_at) ech_config *config = NULL;
    ECH_TRY(look(run, key, &config));
    if (!ech_config_is_set(config, key) && strcmp(ech_config_default(key), "required") == 0)
        ECH_FAIL(ECH_EUSAGE, "%s is not set, and has no default", key);
    if (strcmp(key, "training.steps") == 0) ECH_TRY(ech_setup_count_steps(config));
    run->value.n = 0;
    ech_config_format(config, key, &run->value);
    return ECH_OK;
}

echelon_status echelon_run_get(echelon_run *run, const char *key, const char **out)
{
    ech_library_enter();
    ECH_USE(run, RUN);
    ECH_NEED(key);
    ECH_NEED(out);
    ech_status status = get(run, key);
    if (status == ECH_OK) *out = run->value.at ? run->value.at : "";
    return (echelon_status)status;
}

echelon_status echelon_run_is_set(echelon_run *run, const char *key, bool *out)
{
    ECH_CLEANUP(ech_config_destroy_at) ech_config *config = NULL;
    ech_library_enter();
    ECH_USE(run, RUN);
    ECH_NEED(key);
    ECH_NEED(out);
    ech_status status = look(run, key, &config);
    if (status == ECH_OK) *out = ech_config_is_set(config, key);
    return (echelon_status)status;
}

/* ---- plugins ---- */

echelon_status echelon_plugin_register(const struct echelon_plugin *table)
{
    ech_library_enter();
    ECH_NEED(table);
    return (echelon_status)ech_plugins_register(table);
}

/* ---- keys ---- */

static ech_config *defaults; /* has the choices of all keys; never freed */
static ech_status defaults_status;

static void make_defaults(void)
{
    defaults_status = ech_setup_defaults(&defaults);
}

echelon_status echelon_key_at(int index, echelon_key *out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    ech_config_about is;
    ech_library_enter();
    pthread_once(&once, make_defaults);
    if (defaults_status != ECH_OK) return (echelon_status)defaults_status;
    ECH_NEED_STRUCT(out);
    if (!ech_config_about_key(index, &is))
        ECH_REFUSE("there is no key %d: the table of keys ends before it", index);
    ECH_FREED_TEXT path = {0};
    ech_text_append(&path, "%s.%s", is.section, is.name);
    echelon_key key = {.section = is.section,
                       .name = is.name,
                       .type = is.type,
                       .fallback = is.fallback,
                       .help = is.help,
                       .more = is.more ? is.more : "",
                       .choices = ech_config_key_choices(defaults, path.at)};
    ech_library_give(out, out->size, &key, sizeof key);
    return ECHELON_OK;
}
