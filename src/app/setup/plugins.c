/* SPDX-License-Identifier: Apache-2.0
 *
 * Loading plugins, and their rows' way into the program's tables.
 */
#include "app/setup/plugins.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/path.h"
#include "checkpoint/checkpoint.h"
#include "layer/layers.h"
#include "model/model.h"
#include "optim/optim.h"
#include "schedule/schedule.h"

enum { MOST_PLUGINS = 64, LARGEST_FILE = 256 << 20 };

typedef struct plugin {
    const echelon_plugin *table; /* as the plugin has it */
    echelon_plugin is;           /* with the fields that this program knows */
    char *path;                  /* NULL: a program registered it */
    char hash[ECH_CHECKPOINT_DIGITS + 1];
    bool is_refused;
} plugin;

static struct {
    pthread_mutex_t lock;
    int n;
    plugin at[MOST_PLUGINS];
} loaded = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- structs that may be older or newer ---- */

/* Copies the known fields; others must be 0. */
static ech_status take(const char *where, const char *what, const void *from, void *to,
                       size_t known)
{
    size_t size = *(const size_t *)from;
    const char *bytes = from;
    if (size <= sizeof size || size > 1 << 16)
        ECH_FAIL(ECH_EUSAGE,
                 "%s: the first field of its %s is not the size: set it to sizeof the "
                 "struct",
                 where, what);
    for (size_t i = known; i < size; i++)
        if (bytes[i])
            ECH_FAIL(ECH_EUSAGE,
                     "%s: its %s has fields that this program does not know; build the plugin "
                     "with this program's echelon_plugin.h",
                     where, what);
    memset(to, 0, known);
    memcpy(to, from, size < known ? size : known);
    return ECH_OK;
}

/* ---- rows ---- */

/* Adds the rows of one array by plug(); they stay. */
#define ADD_ROWS(type, array, what, plug)                                                          \
    for (const type *const *row = (array); row && *row; row++) {                                   \
        type *own = ech_calloc(1, sizeof *own);                                                    \
        ech_status status = take(p->is.name, what, *row, own, sizeof *own);                        \
        if (status == ECH_OK) status = plug(p->is.name, own);                                      \
        ECH_TRY(status);                                                                           \
    }

static ech_status add_rows(const plugin *p)
{
    ADD_ROWS(echelon_optimizer, p->is.optimizers, "echelon_optimizer", ech_optimizer_plug)
    ADD_ROWS(echelon_curve, p->is.curves, "echelon_curve", ech_curve_plug)
    ADD_ROWS(echelon_order, p->is.orders, "echelon_order", ech_order_plug)
    ADD_ROWS(echelon_loss, p->is.losses, "echelon_loss", ech_loss_plug)
    ADD_ROWS(echelon_layer, p->is.layers, "echelon_layer", ech_layer_plug)
    return ECH_OK;
}

/* The beginning of every version of the struct. */
static ech_status check_version(const char *where, const echelon_plugin *table)
{
    if (table->version == ECHELON_PLUGIN_VERSION) return ECH_OK;
    ECH_FAIL(ECH_EUSAGE,
             "%s: has version %d of the plugin interface, and this program has version %d; build "
             "the plugin with this program's echelon_plugin.h",
             where, table->version, ECHELON_PLUGIN_VERSION);
}

static ech_status check_name(const char *where, const char *name)
{
    const char *letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    if (!name || !*name || strlen(name) > 60 || name[strspn(name, letters)])
        ECH_FAIL(ECH_EUSAGE,
                 "%s: the plugin's name is \"%.80s\"; use letters, digits, - and _, at most 60",
                 where, name ? name : "");
    for (int i = 0; i < loaded.n; i++)
        if (strcmp(loaded.at[i].is.name, name) == 0)
            ECH_FAIL(ECH_EUSAGE,
                     "%s: the plugin's name %s belongs to %s already; choose another "
                     "name",
                     where, name, loaded.at[i].path ? loaded.at[i].path : "a registered plugin");
    return ECH_OK;
}

/* path NULL: it is registered. */
static ech_status add(const echelon_plugin *table, const char *path, const char *hash)
{
    const char *where = path ? path : "a plugin that is registered";
    plugin p = {.table = table};
    ECH_TRY(check_version(where, table));
    ECH_TRY(take(where, "echelon_plugin", table, &p.is, sizeof p.is));
    ECH_TRY(check_name(where, p.is.name));
    if (loaded.n == MOST_PLUGINS)
        ECH_FAIL(ECH_EUSAGE, "%s: a process can have at most %d plugins", where, MOST_PLUGINS);
    p.path = path ? ech_strdup(path) : NULL;
    memcpy(p.hash, hash, strlen(hash) + 1);
    plugin *own = &loaded.at[loaded.n++];
    *own = p;
    own->is_refused = true;
    ECH_TRY(add_rows(own));
    own->is_refused = false;
    return ECH_OK;
}

static plugin *find_table(const echelon_plugin *table)
{
    for (int i = 0; i < loaded.n; i++)
        if (loaded.at[i].table == table) return &loaded.at[i];
    return NULL;
}

/* One that is there already. */
static ech_status meet_again(const plugin *p, const char *hash)
{
    if (p->is_refused)
        ECH_FAIL(ECH_EUSAGE, "plugin %s: it was refused when this process first loaded it",
                 p->is.name);
    if (strcmp(p->hash, hash) == 0) return ECH_OK;
    ECH_FAIL(ECH_EUSAGE,
             "%s: the file has changed since this process loaded it; start the process again",
             p->path);
}

ech_status ech_plugins_register(const echelon_plugin *table)
{
    pthread_mutex_lock(&loaded.lock);
    const plugin *p = find_table(table);
    ech_status status = p ? meet_again(p, "registered") : add(table, NULL, "registered");
    pthread_mutex_unlock(&loaded.lock);
    return status;
}

/* ---- files ---- */

static const char *last_dlerror(void)
{
    const char *error = dlerror(); // NOLINT(concurrency-mt-unsafe): glibc has one per thread
    return error ? error : "no reason is known";
}

static ech_status load_locked(const char *path)
{
    char hash[ECH_CHECKPOINT_DIGITS + 1];
    ECH_FREED_TEXT file = {0};
    if (!ech_file_exists(path)) ECH_FAIL(ECH_EUSAGE, "training.plugins: %s: no such file", path);
    if (ech_checkpoint_hash_file(path, LARGEST_FILE, hash) != ECH_OK) return ECH_EUSAGE;
    /* A name without a slash would be searched for in the folders of libraries. */
    ech_text_append(&file, "%s%s", strchr(path, '/') ? "" : "./", path);
    void *library = dlopen(file.at, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        ECH_FAIL(ECH_EUSAGE,
                 "training.plugins: %s cannot be loaded: %s; build it with cc -shared -fPIC", path,
                 last_dlerror());
    const echelon_plugin *table = dlsym(library, "echelon_plugin_table");
    const plugin *p = table ? find_table(table) : NULL;
    if (p) {
        dlclose(library); /* the first handle stays */
        return meet_again(p, hash);
    }
    if (!table) {
        dlclose(library);
        ECH_FAIL(ECH_EUSAGE,
                 "training.plugins: %s does not define echelon_plugin_table (echelon_plugin.h), so "
                 "it is not a plugin",
                 path);
    }
    return add(table, path, hash);
}

/* Calls use() for each word. */
static ech_status each_word(const char *words, ech_status (*use)(const char *word, void *context),
                            void *context)
{
    for (const char *at = words;;) {
        ECH_CLEANUP(ech_path_word_free) ech_path_word word = ech_path_next_word(&at);
        if (!word.text) return ECH_OK;
        if (word.open)
            ECH_FAIL(ECH_EUSAGE, "training.plugins \"%s\": a quote is not closed", words);
        ECH_TRY(use(word.text, context));
    }
}

static ech_status load(const char *path, void *context)
{
    (void)context;
    pthread_mutex_lock(&loaded.lock);
    ech_status status = load_locked(path);
    pthread_mutex_unlock(&loaded.lock);
    return status;
}

ech_status ech_plugins_load(const char *paths)
{
    return each_word(paths, load, NULL);
}

/* ---- runs ---- */

static const plugin *find_name(const char *name, size_t n)
{
    for (int i = 0; i < loaded.n; i++)
        if (strlen(loaded.at[i].is.name) == n && strncmp(loaded.at[i].is.name, name, n) == 0)
            return &loaded.at[i];
    return NULL;
}

typedef struct stated {
    const char *place;
    bool saved;
} stated;

/* "lion=HASH". */
static ech_status check_stated_locked(const char *word, const stated *s)
{
    size_t n = strcspn(word, "=");
    const char *hash = word[n] ? word + n + 1 : "";
    const plugin *p = find_name(word, n);
    if (!p || p->is_refused)
        ECH_FAIL(
            ECH_EUSAGE,
            "%s: it was written by a run with the plugin %.*s, which is never loaded from "
            "there; name its file on the command line: training.plugins=./%.*s.so (sample, eval "
            "and report: --plugins ./%.*s.so)",
            s->place, (int)n, word, (int)n, word, (int)n, word);
    if (s->saved || strcmp(hash, p->hash) == 0) return ECH_OK;
    ECH_FAIL(ECH_EUSAGE,
             "%s: training.plugin_hashes: the plugin %.*s was %.40s, but %s has %s; name the same "
             "file, or set training.plugin_hashes=any",
             s->place, (int)n, word, hash, p->path ? p->path : "the registered one", p->hash);
}

static ech_status check_stated(const char *word, void *context)
{
    pthread_mutex_lock(&loaded.lock);
    ech_status status = check_stated_locked(word, context);
    pthread_mutex_unlock(&loaded.lock);
    return status;
}

/* A folder that a run has written. */
static bool is_in_run_directory(const char *run_file)
{
    ECH_FREED char *folder = ech_strdup(run_file);
    char *slash = strrchr(folder, '/');
    if (slash) *slash = '\0';
    ECH_FREED char *metrics = ech_file_join(slash ? folder : ".", "metrics.jsonl");
    return ech_file_exists(metrics);
}

ech_status ech_plugins_open(const char *name, const char *text, bool saved,
                            char *const *assignments, int n)
{
    const char *own = saved ? "" : text;
    ECH_FREED char *given = ech_config_peek_path(name, "", assignments, n, "training.plugins");
    ECH_FREED char *paths = ech_config_peek_path(name, own, assignments, n, "training.plugins");
    ECH_FREED char *hashes =
        ech_config_peek_path(name, text, assignments, n, "training.plugin_hashes");
    if (*paths && !*given && !text && is_in_run_directory(name))
        ECH_FAIL(ECH_EUSAGE,
                 "%s: training.plugins = %s: plugins are not loaded from the run file in a run "
                 "directory; name them on the command line: training.plugins=FILE",
                 name, paths);
    ECH_TRY(ech_plugins_load(paths));
    bool states = *hashes && strcmp(hashes, "auto") != 0 && strcmp(hashes, "any") != 0;
    return states ? each_word(hashes, check_stated, &(stated){name, saved}) : ECH_OK;
}

#define HAS_ROW(type, array, chosen)                                                               \
    for (const type *const *row = (array); row && *row; row++)                                     \
        if (strcmp((*row)->name, chosen) == 0) return true;

static bool is_used(const plugin *p, const ech_config *config)
{
    if (p->is_refused) return false;
    HAS_ROW(echelon_optimizer, p->is.optimizers, ech_config_name(config, "optimizer.name"))
    HAS_ROW(echelon_curve, p->is.curves, ech_config_name(config, "optimizer.schedule"))
    HAS_ROW(echelon_order, p->is.orders, config->parallel.schedule)
    HAS_ROW(echelon_loss, p->is.losses, ech_config_name(config, "training.loss"))
    const ech_family *family = ech_family_of(config);
    HAS_ROW(echelon_layer, p->is.layers, family->attention ? family->attention->name : "")
    HAS_ROW(echelon_layer, p->is.layers, family->feed_forward ? family->feed_forward->name : "")
    return false;
}

static bool names(const char *paths, const char *path)
{
    for (const char *at = paths;;) {
        ECH_CLEANUP(ech_path_word_free) ech_path_word word = ech_path_next_word(&at);
        if (!word.text || strcmp(word.text, path) == 0) return word.text != NULL;
    }
}

static ech_status check_named(const plugin *p, const ech_config *config)
{
    if (!p->path || !is_used(p, config) || names(config->training.plugins, p->path)) return ECH_OK;
    return ech_config_complain(config, "training.plugins",
                               "the run uses the plugin %s, which another run of this process "
                               "has loaded; add %s",
                               p->is.name, p->path);
}

ech_status ech_plugins_check(const ech_config *config)
{
    ech_status status = ECH_OK;
    pthread_mutex_lock(&loaded.lock);
    for (int i = 0; i < loaded.n; i++) ECH_ALSO(&status, check_named(&loaded.at[i], config));
    pthread_mutex_unlock(&loaded.lock);
    return status;
}

ech_status ech_plugins_derive(const ech_config *config)
{
    ECH_FREED_TEXT why = {0};
    const ech_family *family = ech_family_of(config);
    const echelon_layer *layers[] = {family->attention, family->feed_forward};
    const echelon_loss *loss = ech_loss_plugged(config->training.loss);
    for (int i = 0; i < 2; i++)
        if (layers[i] && !ech_layer_plugged_derives(layers[i], &why))
            ECH_FAIL(ECH_ENUMERIC, "the plugin's layer %s: %s", layers[i]->name, why.at);
    if (loss && !ech_loss_plugged_derives(loss, &why))
        ECH_FAIL(ECH_ENUMERIC, "the plugin's loss %s: %s", loss->name, why.at);
    return ECH_OK;
}

void ech_plugins_describe(const ech_config *config, ech_text *out)
{
    pthread_mutex_lock(&loaded.lock);
    for (int i = 0; i < loaded.n; i++)
        if (is_used(&loaded.at[i], config))
            ech_text_append(out, "%s%s=%s", out->n ? " " : "", loaded.at[i].is.name,
                            loaded.at[i].hash);
    pthread_mutex_unlock(&loaded.lock);
}
