/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables of options translated for argp.
 */
#include "program/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/path.h"
#include "base/text.h"
#include "config/config.h"
#include "config/alias.h"
#include "program/run_line.h"

enum { NO_LETTER = 256 }; /* and up: keys of options without one */

typedef struct input {
    const ech_command_line *line;
    char *arguments;
} input;

static int64_t take_int(const ech_option *option, const char *text, const struct argp_state *state)
{
    int64_t value;
    if (!ech_text_to_int(text, &value) || value < option->low || value > option->high)
        argp_error(state, "--%s %s: must be a whole number, %lld to %lld", option->name, text,
                   (long long)option->low, (long long)option->high);
    return value;
}

/* A path as it is meant, until the process ends. A shell has mostly expanded it: what exists is
 * taken as it is. */
static char *take_path(const char *text, bool words, const struct argp_state *state)
{
    static ECH_LIST(char *) expanded; /* reachable, so that nothing counts as leaked */
    ECH_FREED_TEXT path = {0}, why = {0};
    bool exists = !words && ech_file_exists(text);
    if (!exists && !ech_path_expand(text, words, &path, &why))
        argp_error(state, "%s: %s", text, why.at);
    ECH_PUSH(expanded, ech_strdup(path.n > 0 ? path.at : text));
    return expanded.at[expanded.n - 1];
}

static void set(const ech_option *option, const char *text, char *field,
                const struct argp_state *state)
{
    if (option->kind == ECH_OPTION_REFUSED)
        argp_error(state, "--%s %s: %s", option->name, text, option->help);
    double real = 0;
    int64_t value = option->kind == ECH_OPTION_INT ? take_int(option, text, state) : 1;
    int narrow = (int)value;
    bool flag = true;
    int truth = text && strcmp(text, "true") == 0;
    if (option->kind == ECH_OPTION_TRUTH && !truth && strcmp(text, "false") != 0)
        argp_error(state, "--%s %s: must be true or false", option->name, text);
    if (option->kind == ECH_OPTION_REAL && !ech_text_to_real(text, &real))
        argp_error(state, "--%s %s: must be a number, like 0.5 or 1e-5", option->name, text);
    bool words = option->kind == ECH_OPTION_PATHS;
    if (words || option->kind == ECH_OPTION_PATH) text = take_path(text, words, state);
    const void *const from[] = {[ECH_OPTION_FLAG] = &flag,
                                [ECH_OPTION_INT] =
                                    option->bytes == sizeof narrow ? (const void *)&narrow : &value,
                                [ECH_OPTION_REAL] = &real,
                                [ECH_OPTION_TRUTH] = &truth,
                                [ECH_OPTION_TEXT] = &text,
                                [ECH_OPTION_PATH] = &text,
                                [ECH_OPTION_PATHS] = &text};
    memcpy(field, from[option->kind], option->bytes);
}

static void take_word(const input *in, char *text, const struct argp_state *state)
{
    const ech_command_line *line = in->line;
    if (line->take) {
        line->take(in->arguments, text, state);
        return;
    }
    if (state->arg_num >= line->words)
        argp_error(state, "%s: one word too many%s", text, line->surplus ? line->surplus : "");
    const ech_word *word = &line->word[state->arg_num];
    if (word->path) text = take_path(text, false, state);
    memcpy(in->arguments + word->at, &text, sizeof text);
}

static void finish(const input *in, const struct argp_state *state)
{
    for (size_t i = 0; i < in->line->words; i++) {
        const ech_word *word = &in->line->word[i];
        const char *given;
        memcpy(&given, in->arguments + word->at, sizeof given);
        if (!given && word->missing) argp_error(state, "%s", word->missing);
    }
    if (in->line->check) in->line->check(in->arguments, state);
}

static int key_of(const ech_option *options, size_t i)
{
    return options[i].letter ? options[i].letter : NO_LETTER + (int)i;
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    const input *in = state->input;
    const ech_option *options = in->line->option;
    if (key == ARGP_KEY_ARG) {
        take_word(in, text, state);
        return 0;
    }
    if (key == ARGP_KEY_END) {
        finish(in, state);
        return 0;
    }
    for (size_t i = 0; options && options[i].help; i++)
        if (options[i].kind != ECH_OPTION_HEADING && key == key_of(options, i)) {
            set(&options[i], text, in->arguments + options[i].at, state);
            return 0;
        }
    return ARGP_ERR_UNKNOWN;
}

static bool is_option(const ech_option *options, const char *name, size_t n)
{
    static const char *const all[] = {"help", "usage", "version"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strncmp(all[i], name, n) == 0) return true;
    for (; options && options->help; options++) /* argp accepts beginnings of names */
        if (options->name && strncmp(options->name, name, n) == 0) return true;
    return false;
}

static void replace_all(char *text, char from, char to)
{
    for (; *text; text++)
        if (*text == from) *text = to;
}

/* Our option in another spelling, top_k for --top-k; NULL: none. */
static const char *find_respelled(const ech_option *options, const char *name)
{
    ECH_FREED char *wanted = ech_strdup(name);
    replace_all(wanted, '_', '-');
    for (; options && options->help; options++)
        if (options->name && strcmp(options->name, wanted) == 0) return options->name;
    return NULL;
}

/* The value of "--lr=3" or "--lr 3"; NULL: none. The next word may also be an assignment or the run
 * file, and a switch of another tool has no value. */
static const char *value_of(const ech_alias *ours, const char *word, const char *next)
{
    const char *equals = strchr(word, '='), *type = ech_config_type_name(ours->ours);
    if (equals) return equals + 1;
    if (type && strcmp(type, "BOOL") == 0)
        return next && ech_text_find_word("true false auto", next) >= 0 ? next
               : ours->note                                             ? NULL
                                                                        : "true";
    bool is_value = next && next[0] != '-' && !strchr(next, '=') && !ech_file_exists(next);
    return is_value ? next : NULL;
}

/* Appends what another tool's option is here, or one with the name of a key: "--lr 3" is
 * optimizer.learning_rate=3. Nothing: unknown. */
static void append_ours(const ech_command_line *line, const char *word, const char *next,
                        ech_text *out)
{
    ECH_FREED char *name = ech_strdup(word + 2);
    ech_config_about about;
    name[strcspn(name, "=")] = '\0';
    const ech_alias *foreign = ech_alias_find(name);
    if (foreign && (foreign->ours[0] != '-' || is_option(line->option, "ranks", 5)))
        ech_alias_print(foreign, value_of(foreign, word, next), out);
    if (foreign) return;
    replace_all(name, '-', '_');
    for (int k = 0; ech_config_about_key(k, &about); k++) {
        ECH_FREED_TEXT path = {0};
        ech_text_append(&path, "%s.%s", about.section, about.name);
        if (strcmp(name, about.name) != 0 && strcmp(name, path.at) != 0) continue;
        const ech_alias same = {.ours = path.at};
        if (out->n) ech_text_append(out, " or ");
        ech_alias_print(&same, value_of(&same, word, next), out);
    }
}

/* Options of other tools and keys written as options, for which argp has no hint. */
static void refuse_foreign(const ech_command_line *line, int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        ECH_FREED char *name = ech_strdup(argv[i]);
        ECH_FREED_TEXT ours = {0};
        if (strncmp(name, "--", 2) != 0) continue;
        name[strcspn(name, "=")] = '\0';
        if (is_option(line->option, name + 2, strlen(name + 2))) continue;
        const char *own = find_respelled(line->option, name + 2);
        if (own)
            ech_text_append(&ours, "did you mean --%s?", own);
        else if (line->take == ech_run_take_word)
            append_ours(line, argv[i], i + 1 < argc ? argv[i + 1] : NULL, &ours);
        if (!ours.n) continue;
        fprintf(stderr, "%s: %s: no such option; %s%s\n", argv[0], name, own ? "" : "here that is ",
                ours.at);
        exit(argp_err_exit_status);
    }
}

void ech_command_line_parse(const ech_command_line *line, int argc, char **argv, void *arguments)
{
    ECH_LIST(struct argp_option) rows = {0};
    int group = 0;
    refuse_foreign(line, argc, argv);
    for (size_t i = 0; line->option && line->option[i].help; i++) {
        const ech_option *option = &line->option[i];
        bool heading = option->kind == ECH_OPTION_HEADING;
        bool hidden = option->kind == ECH_OPTION_REFUSED;
        group += heading;
        ECH_PUSH(rows, (struct argp_option){.name = option->name,
                                            .key = heading ? 0 : key_of(line->option, i),
                                            .arg = option->value,
                                            .flags = hidden ? OPTION_HIDDEN : 0,
                                            .doc = option->help,
                                            .group = group});
    }
    if (group > 0) ECH_PUSH(rows, (struct argp_option){.doc = "Other options:", .group = -1});
    /* glibc leaks what an empty table takes */
    if (rows.n > 0) ECH_PUSH(rows, (struct argp_option){0});
    const struct argp argp = {
        .options = rows.at, .parser = parse, .args_doc = line->usage, .doc = line->about};
    input in = {.line = line, .arguments = arguments};
    argp_parse(&argp, argc, argv, 0, NULL, &in);
    free(rows.at);
}
