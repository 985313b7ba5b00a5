/* SPDX-License-Identifier: Apache-2.0
 *
 * echelon init FOLDER [OUT.yaml]
 */
#include "app/command.h"
#include "app/options.h"
#include "app/setup/template.h"
#include "base/file.h"
#include "base/writing.h"

static const char about[] =
    "Writes the run file that trains the model of a Hugging Face folder. It reads only config.json "
    "of the folder. Each value has a comment with its origin. Without OUT.yaml it is printed.";

typedef struct init_arguments {
    const char *folder, *out;
} init_arguments;

static const ech_word words[] = {
    {offsetof(init_arguments, folder), "which model folder?", true},
    {offsetof(init_arguments, out), NULL, true},
};

ech_status ech_command_init(int argc, char **argv, int *code)
{
    const ech_command_line line = {
        .usage = "FOLDER [OUT.yaml]", .about = about, .word = words, .words = 2};
    init_arguments in = {0};
    ECH_FREED_TEXT text = {0};
    (void)code;
    ech_command_line_parse(&line, argc, argv, &in);
    ECH_TRY(ech_template_of_model(in.folder, 1, &text));
    if (!in.out) {
        fwrite(text.at, 1, text.n, stdout);
        return ECH_OK;
    }
    if (ech_file_exists(in.out) || ech_file_is_link(in.out))
        ECH_FAIL(ECH_EUSAGE, "%s: exists already; name another file", in.out);
    return ech_file_write_inside(in.out, text.at, text.n);
}
