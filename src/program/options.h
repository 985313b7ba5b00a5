/* SPDX-License-Identifier: Apache-2.0
 *
 * Parsing a command line with tables of options and of positional words; each option or word sets a
 * field of the command's struct of arguments.
 */
#ifndef ECH_PROGRAM_OPTIONS_H
#define ECH_PROGRAM_OPTIONS_H

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ech_option_kind {
    ECH_OPTION_HEADING, /* heads the options that follow, in --help */
    ECH_OPTION_FLAG,    /* bool */
    ECH_OPTION_INT,     /* int or int64_t, from `low` to `high` */
    ECH_OPTION_REAL,    /* double */
    ECH_OPTION_TRUTH,   /* int: 1 for true, 0 for false */
    ECH_OPTION_TEXT,    /* const char * */
    ECH_OPTION_PATH,    /* the same, expanded (base/path.h) unless the unexpanded path exists */
    ECH_OPTION_PATHS,   /* the same, expanded word by word */
    ECH_OPTION_REFUSED  /* another command's; not in --help, `help` is the error */
} ech_option_kind;

typedef struct ech_option {
    ech_option_kind kind;
    const char *name;  /* "steps" of --steps */
    char letter;       /* "s" of -s; 0: none */
    const char *value; /* the value's name in --help; NULL: the option takes none */
    size_t at, bytes;  /* offset and size of the field in the struct of arguments */
    int64_t low, high; /* of ECH_OPTION_INT, both allowed */
    const char *help;
} ech_option;

#define ECH_FIELD(type, field) offsetof(type, field), sizeof(((type *)NULL)->field)

#define ECH_OPTION_ROW(...)                                                                        \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define ECH_HEADING(help) ECH_OPTION_ROW(ECH_OPTION_HEADING, NULL, 0, NULL, 0, 0, 0, 0, help)
#define ECH_FLAG(type, field, name, letter, help)                                                  \
    ECH_OPTION_ROW(ECH_OPTION_FLAG, name, letter, NULL, ECH_FIELD(type, field), 0, 0, help)
#define ECH_INT(type, field, name, letter, value, low, high, help)                                 \
    ECH_OPTION_ROW(ECH_OPTION_INT, name, letter, value, ECH_FIELD(type, field), low, high, help)
#define ECH_REAL(type, field, name, letter, value, help)                                           \
    ECH_OPTION_ROW(ECH_OPTION_REAL, name, letter, value, ECH_FIELD(type, field), 0, 0, help)
#define ECH_TRUTH(type, field, name, letter, help)                                                 \
    ECH_OPTION_ROW(ECH_OPTION_TRUTH, name, letter, "true|false", ECH_FIELD(type, field), 0, 0, help)
#define ECH_TEXT(type, field, name, letter, value, help)                                           \
    ECH_OPTION_ROW(ECH_OPTION_TEXT, name, letter, value, ECH_FIELD(type, field), 0, 0, help)

#define ECH_PATH(type, field, name, letter, value, help)                                           \
    ECH_OPTION_ROW(ECH_OPTION_PATH, name, letter, value, ECH_FIELD(type, field), 0, 0, help)
#define ECH_PATHS(type, field, name, letter, value, help)                                          \
    ECH_OPTION_ROW(ECH_OPTION_PATHS, name, letter, value, ECH_FIELD(type, field), 0, 0, help)

#define ECH_REFUSED(name, value, error)                                                            \
    ECH_OPTION_ROW(ECH_OPTION_REFUSED, name, 0, value, 0, 0, 0, 0, error)

/* A positional word. It sets a field of type const char *, which is NULL before. */
typedef struct ech_word {
    size_t at;           /* offset of the field */
    const char *missing; /* the error if it is not given; NULL: it is optional */
    bool path;           /* expanded as an ECH_OPTION_PATH */
} ech_word;

typedef struct ech_command_line {
    const char *usage, *about; /* for --help: the words, and what the command does */
    const ech_option *option;  /* ends with {0}; NULL: no options */
    const ech_word *word;      /* [words] in their order */
    size_t words;
    const char *surplus; /* hint of the error for a word too many; NULL: none */
    /* NULL, or is called for each word and sets fields itself; then the table `word` only says
     * which are missing. */
    void (*take)(void *arguments, char *word, const struct argp_state *state);
    /* NULL, or is called after the last word; reports errors with argp_error. */
    void (*check)(void *arguments, const struct argp_state *state);
} ech_command_line;

/* Sets the fields of the options and words that are given. An error ends the process with a message
 * and ECH_EXIT_USAGE. */
void ech_command_line_parse(const ech_command_line *line, int argc, char **argv, void *arguments);

#endif
