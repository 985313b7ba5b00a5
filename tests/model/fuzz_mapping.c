/* SPDX-License-Identifier: Apache-2.0
 *
 * Arbitrary bytes as a mapping file: refused, or a family whose rows, constants and names hold what
 * code relies on; read again, the same.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "model/mapping.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void demand(bool holds)
{
    if (!holds) abort();
}

static void check_rows(const ech_family *family)
{
    demand(family->rows && family->reads && family->replaces && family->buffers && family->prefix);
    for (const ech_family_row *row = family->rows; row->name; row++) {
        demand(*row->name != '\0');
        demand(row->key ? ech_config_type_name(row->key) != NULL : row->initial != NULL);
    }
}

/* "key=value key=value" */
static void check_words(const char *words)
{
    for (const char *at = words; at && *at; at += strcspn(at, " "), at += *at == ' ') {
        size_t key = strcspn(at, "= ");
        demand(key > 0 && at[key] == '=' && at[key + 1] != ' ' && at[key + 1] != '\0');
    }
}

/* Names become parts of tensors' names, and "%d" the number of an expert. */
static void check_name(const char *name, const char *otherwise)
{
    const char *percent = name ? strchr(name, '%') : NULL;
    bool expert = otherwise && strstr(otherwise, "%d");
    demand(!otherwise || name);
    demand(!name || (*name && strlen(name) <= 120));
    demand(expert == (percent != NULL));
    if (percent) demand(percent[1] == 'd' && !strchr(percent + 1, '%'));
}

static void check_names(const ech_family *family)
{
    const ech_names names = ech_names_of(family);
#define ROLE(name, otherwise, meaning) check_name(names.name, otherwise);
#include "model/roles.def"
    for (const ech_family_fused *row = family->fused; row && row->file; row++)
        demand(row->file[0] == '.' && strchr(row->parts, ' '));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    ech_log_set_quiet(true);
    ech_mapping *mapping, *again;
    if (ech_mapping_parse("fuzz.yaml", (const char *)bytes, n, &mapping) != ECH_OK) return 0;
    demand(ech_mapping_parse("fuzz.yaml", mapping->text, mapping->n, &again) == ECH_OK);
    demand(strcmp(mapping->summary, again->summary) == 0);
    demand(*mapping->family.name && *mapping->family.architecture);
    demand(!strchr(mapping->family.name, ' '));
    check_rows(&mapping->family);
    check_words(mapping->family.constants);
    check_words(mapping->family.defaults);
    check_names(&mapping->family);
    ech_mapping_destroy(again);
    ech_mapping_destroy(mapping);
    return 0;
}
