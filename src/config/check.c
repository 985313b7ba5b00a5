/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks once all keys are read: required keys, keys that this run does not read, keys that a resume changes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "config/table.h"

/* All that are missing in one line: a new run file is then written in one go. */
static ech_status check_required(const ech_config *config)
{
    ECH_FREED_TEXT missing = {0};
    for (size_t k = 0; k < ECH_CONFIG_KEYS; k++) {
        const ech_config_key *key = &ech_config_keys[k];
        const ech_config_origin *origin = ech_config_origin_of(config, key);
        if (strcmp(key->initial, "required") == 0 && !origin->place && !origin->tried)
            ech_text_append(&missing, " %s.%s", key->section, key->name);
    }
    if (missing.n == 0) return ECH_OK;
    ECH_FAIL(ECH_EUSAGE,
             "required but not set:%s; set them in the run file or as section.key=value on the "
             "command line",
             missing.at);
}

/* Given names were checked when they were set; a default may name what this build lacks. */
static ech_status check_default_names(const ech_config *config)
{
    ech_status st = ECH_OK;
    for (size_t k = 0; k < ECH_CONFIG_KEYS; k++) {
        const ech_config_key *key = &ech_config_keys[k];
        if (key->type != ECH_CONFIG_NAME || ech_config_origin_of(config, key)->place) continue;
        int row;
        if (strcmp(key->initial, "required") != 0)
            ECH_ALSO(&st, ech_config_read_name(config, key, key->initial, "default", &row));
    }
    return st;
}

ech_status ech_config_check(const ech_config *config)
{
    ech_status st = check_required(config);
    ECH_ALSO(&st, check_default_names(config));
    return st;
}

ech_status ech_config_check_read(const ech_config *config, const char *owned, const char *read,
                                 const char *reader)
{
    ech_status st = ECH_OK;
    bool said[ECH_CONFIG_KEYS] = {false}; /* a key may be several rows' own */
    ECH_FREED char *copy = ech_strdup(owned);
    char *rest = NULL;
    for (char *path = strtok_r(copy, " ", &rest); path; path = strtok_r(NULL, " ", &rest)) {
        const ech_config_key *key = ech_config_find_path(path);
        ech_config_origin *origin = ech_config_origin_of(config, key);
        origin->unread = !ech_text_has_word(read, path);
        bool *is_said = &said[key - ech_config_keys];
        if (origin->unread && origin->place && !*is_said)
            ECH_ALSO(&st, ech_config_complain(config, path, "not read by %s; remove it", reader));
        *is_said = true;
    }
    return st;
}

/* ---- resuming ---- */

bool ech_config_is_changed(const ech_config *before, const ech_config *after,
                           const ech_config_key *key, ech_text *value_before, ech_text *value_after)
{
    ech_config_format_value(before, key, value_before);
    ech_config_format_value(after, key, value_after);
    return strcmp(value_before->at, value_after->at) != 0;
}

ech_status ech_config_check_resume(const ech_config *saved, const ech_config *now, const char *also)
{
    /* A value that nobody has set follows from others: those are to blame, if there are any. */
    ECH_FREED_TEXT causes = {0}, effects = {0};
    int n[2] = {0};
    for (size_t k = 0; k < ECH_CONFIG_KEYS; k++) {
        const ech_config_key *key = &ech_config_keys[k];
        const char *place = ech_config_origin_of(now, key)->place;
        ECH_FREED_TEXT before = {0}, after = {0};
        char path[128];
        snprintf(path, sizeof path, "%s.%s", key->section, key->name);
        if (!key->fixed && !ech_text_has_word(also, path)) continue;
        if (!ech_config_is_changed(saved, now, key, &before, &after)) continue;
        bool follows = strcmp(key->initial, "auto") == 0 && !place;
        ech_text *out = follows ? &effects : &causes;
        if (n[follows]++) ech_text_append(out, "; ");
        if (place) ech_text_append(out, "%s: ", place);
        ech_text_append(out, "%s = %.120s%s: %.120s in the checkpoint", path, after.at,
                        place ? "" : " (default)", before.at);
    }
    if (n[0] + n[1] == 0) return ECH_OK;
    ECH_FAIL(ECH_EUSAGE,
             "%s, and may not change on resume; set %s back, or start a run in another directory",
             n[0] ? causes.at : effects.at, (n[0] ? n[0] : n[1]) == 1 ? "it" : "them");
}
