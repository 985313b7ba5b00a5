/* SPDX-License-Identifier: Apache-2.0
 *
 * echelon init FOLDER|TEXTS [OUT.yaml]
 */
#include "program/command.h"
#include "program/options.h"
#include "app/setup/plugins.h"
#include "app/setup/template.h"
#include "base/file.h"
#include "base/writing.h"

static const char about[] =
    "Writes a run file in which each value has a comment with its origin. For a Hugging Face "
    "folder it trains that model, of which only config.json is read. For a text file or a folder "
    "of texts it trains a new model, whose size and steps suit the amount of text and what this "
    "machine computes in an hour. Without OUT.yaml it is printed.";

#define CONFIG "config.json" /* of a model's folder */

typedef struct init_arguments {
    const char *folder, *out, *plugins;
} init_arguments;

static const ech_option options[] = {ECH_PATHS(init_arguments, plugins, "plugins", 0, "FILES",
                                               "the model's plugins (as training.plugins)"),
                                     {0}};

static const ech_word words[] = {
    {offsetof(init_arguments, folder), "which model folder, or which texts?", true},
    {offsetof(init_arguments, out), NULL, true},
};

static ech_status init_texts(const char *texts, ech_text *out)
{
    ech_template_machine machine;
    ECH_TRY(ech_template_measure(&machine));
    return ech_template_of_texts(texts, &machine, out);
}

ech_status ech_command_init(int argc, char **argv, int *code)
{
    const ech_command_line line = {.usage = "FOLDER|TEXTS [OUT.yaml]",
                                   .about = about,
                                   .option = options,
                                   .word = words,
                                   .words = 2};
    init_arguments in = {0};
    ECH_FREED_TEXT text = {0};
    (void)code;
    ech_command_line_parse(&line, argc, argv, &in);
    if (in.plugins) ECH_TRY(ech_plugins_load(in.plugins));
    ECH_FREED char *parent = ech_file_parent(in.folder), *beside = ech_file_join(parent, CONFIG);
    const char *folder = ech_file_are_same(beside, in.folder) ? parent : in.folder;
    if (ech_file_has(folder, CONFIG))
        ECH_TRY(ech_template_of_model(folder, 1, &text));
    else
        ECH_TRY(init_texts(folder, &text));
    if (!in.out) {
        fwrite(text.at, 1, text.n, stdout);
        return ECH_OK;
    }
    if (ech_file_exists(in.out) || ech_file_is_link(in.out))
        ECH_FAIL(ECH_EUSAGE, "%s: exists already; name another file", in.out);
    return ech_file_write_inside(in.out, text.at, text.n);
}
