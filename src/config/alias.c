/* SPDX-License-Identifier: Apache-2.0
 *
 * Look-ups in aliases.def.
 */
#include "config/alias.h"

#include <ctype.h>
#include <string.h>

#include "base/status.h"
#include "base/memory.h"

#define FIRST(ours, ...)        ours
#define SECOND(ours, note, ...) note

static const ech_alias names[] = {
#define KEY(theirs, ...) {#theirs, FIRST(__VA_ARGS__, NULL), SECOND(__VA_ARGS__, NULL, NULL)},
#define VALUE(key, theirs, ours)
#include "config/aliases.def"
};
enum { NAMES = sizeof names / sizeof *names };

static const struct {
    const char *key, *theirs, *ours;
} values[] = {
#define KEY(theirs, ...)
#define VALUE(key, theirs, ours) {key, theirs, ours},
#include "config/aliases.def"
};
enum { VALUES = sizeof values / sizeof *values };

/* In lower case, with '_' for '-'. */
static char *normal(const char *name)
{
    char *copy = ech_strdup(name);
    for (char *at = copy; *at; at++) *at = *at == '-' ? '_' : (char)tolower((unsigned char)*at);
    return copy;
}

const ech_alias *ech_alias_find(const char *name)
{
    const char *dot = strrchr(name, '.');
    ECH_FREED char *wanted = normal(dot ? dot + 1 : name + strspn(name, "-"));
    for (int i = 0; i < NAMES; i++)
        if (strcmp(names[i].theirs, wanted) == 0) return &names[i];
    return NULL;
}

const ech_alias *ech_alias_at(int index)
{
    return index >= 0 && index < NAMES ? &names[index] : NULL;
}

const char *ech_alias_value(const char *key, const char *value)
{
    ECH_FREED char *wanted = normal(value);
    for (int i = 0; i < VALUES; i++) {
        if (strcmp(values[i].key, key) != 0) continue;
        ECH_FREED char *theirs = normal(values[i].theirs);
        if (strcmp(theirs, wanted) == 0) return values[i].ours;
    }
    return NULL;
}

bool ech_alias_value_at(int index, const char **key, const char **theirs, const char **ours)
{
    if (index < 0 || index >= VALUES) return false;
    *key = values[index].key;
    *theirs = values[index].theirs;
    *ours = values[index].ours;
    return true;
}

void ech_alias_print(const ech_alias *foreign, const char *value, ech_text *out)
{
    bool option = foreign->ours[0] == '-', whole = foreign->note && strchr(foreign->note, '=');
    if (whole)
        ech_text_append(out, "%s", foreign->note);
    else if (value)
        ech_text_append(out, "%s%s%s", foreign->ours, option ? " " : "=", value);
    else
        ech_text_append(out, "%s", foreign->ours);
    if (foreign->note && !whole) ech_text_append(out, " (%s)", foreign->note);
}
