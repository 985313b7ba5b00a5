/* SPDX-License-Identifier: Apache-2.0
 *
 * Plugins (echelon_plugin.h): shared objects of the user, and tables that a program registers. A
 * plugin stays loaded until the process ends. Errors are ECH_EUSAGE, logged; they name the file or
 * the plugin.
 */
#ifndef ECH_APP_SETUP_PLUGINS_H
#define ECH_APP_SETUP_PLUGINS_H

#include <echelon_plugin.h>

#include "config/config.h"

/* Loads the files, whose paths are separated by blanks; those that are loaded stay so. Errors: no
 * such file; not a shared object; no echelon_plugin_table; another version; a row is incomplete, or
 * its name is taken; the file has changed since it was loaded. */
ech_status ech_plugins_load(const char *paths);
/* Adds a table of this process. Registering it again does nothing. Errors: as above. */
ech_status ech_plugins_register(const echelon_plugin *table);

/* Loads the plugins that the user names. `assignments` of a command line take precedence over the
 * run file `name`, or its `text` (NULL: the file's). `saved`: the user did not write the text, so
 * it names none. Checks that the plugins of training.plugin_hashes are loaded and, unless `saved`,
 * that their files have these hashes. Errors: as above; the run file is in a run directory and
 * names plugins. */
ech_status ech_plugins_open(const char *name, const char *text, bool saved,
                            char *const *assignments, int n);
/* Checks that this run names the plugins that it uses, or that a program registered them. */
ech_status ech_plugins_check(const ech_config *config);
/* Compares derivatives of the run's layers and loss that plugins add with finite differences.
 * Errors: ECH_ENUMERIC, logged: one is off. */
ech_status ech_plugins_derive(const ech_config *config);
/* Appends "lion=HASH" for each plugin that the run uses, separated by blanks: the text of
 * training.plugin_hashes. Registered ones have "registered" instead of a hash. */
void ech_plugins_describe(const ech_config *config, ech_text *out);

#endif
