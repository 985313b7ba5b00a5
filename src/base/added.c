/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables of rows that plugins add.
 */
#include "base/added.h"

#include <string.h>

#include "base/text.h"

enum { LONGEST_NAME = 60 };

static bool is_name(const char *name)
{
    size_t n = name ? strlen(name) : 0;
    return n > 0 && n <= LONGEST_NAME &&
           name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")] ==
               '\0';
}

static ech_status put(ech_added *added, const char *plugin, const char *name, const char *names,
                      const void *row)
{
    size_t n = atomic_load(&added->n);
    if (!is_name(name))
        ECH_FAIL(ECH_EUSAGE,
                 "plugin %s: \"%.80s\" is no name of %s %s; use letters, digits, - and _, at most "
                 "%d",
                 plugin, name ? name : "", strchr("aeio", added->what[0]) ? "an" : "a", added->what,
                 LONGEST_NAME);
    if (ech_text_has_word(ech_added_names(added, names), name))
        ECH_FAIL(ECH_EUSAGE, "plugin %s: the name %s belongs to another %s; choose a new name",
                 plugin, name, added->what);
    if (n == ECH_MOST_ADDED)
        ECH_FAIL(ECH_EUSAGE,
                 "plugin %s: %s: plugins have added %d rows of this kind already, the "
                 "most that a process can have",
                 plugin, name, ECH_MOST_ADDED);
    ech_text all = {0}; /* it stays */
    ech_text_append(&all, "%s%s ", ech_added_names(added, names), name);
    added->at[n] = row;
    added->name[n] = name;
    atomic_store(&added->names, all.at);
    atomic_store(&added->n, n + 1);
    return ECH_OK;
}

ech_status ech_added_check(const char *plugin, const char *name, const char *function,
                           bool is_there)
{
    if (is_there) return ECH_OK;
    ECH_FAIL(ECH_EUSAGE, "plugin %s: %s: the function %s is missing (NULL)", plugin,
             name ? name : "a row without a name", function);
}

ech_status ech_added_put(ech_added *added, const char *plugin, const char *name, const char *names,
                         const void *row)
{
    pthread_mutex_lock(&added->lock);
    ech_status status = put(added, plugin, name, names, row);
    pthread_mutex_unlock(&added->lock);
    return status;
}

const void *ech_added_find(const ech_added *added, const char *name)
{
    for (size_t i = 0; i < atomic_load(&added->n); i++)
        if (strcmp(added->name[i], name) == 0) return added->at[i];
    return NULL;
}

const char *ech_added_names(const ech_added *added, const char *names)
{
    const char *all = atomic_load(&added->names);
    return all ? all : names;
}
