/* SPDX-License-Identifier: Apache-2.0
 *
 * What a command takes: a table of options, each of which sets a field of the command's arguments, and its words.
 */
#ifndef ECH_APP_OPTIONS_H
#define ECH_APP_OPTIONS_H

#include <argp.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef enum ech_option_kind {
    ECH_OPTION_HEADING, /* over the options that follow */
    ECH_OPTION_FLAG,    /* bool */
    ECH_OPTION_INT,     /* int or int64_t, from `low` to `high` */
    ECH_OPTION_REAL,    /* double */
    ECH_OPTION_TEXT     /* const char * */
} ech_option_kind;

typedef struct ech_option {
    ech_option_kind kind;
    const char *name;  /* "steps" of --steps */
    char letter;       /* "s" of -s; 0: none */
    const char *value; /* what its value is called; NULL: it has none */
    size_t at, bytes;  /* of the field */
    int64_t low, high; /* of ECH_OPTION_INT */
    const char *help;
} ech_option;

#define ECH_FIELD(type, field) offsetof(type, field), sizeof(((type *)NULL)->field)

#define ECH_HEADING(help)                                                                          \
    {                                                                                              \
        ECH_OPTION_HEADING, NULL, 0, NULL, 0, 0, 0, 0, help                                        \
    }
#define ECH_FLAG(type, field, name, letter, help)                                                  \
    {                                                                                              \
        ECH_OPTION_FLAG, name, letter, NULL, ECH_FIELD(type, field), 0, 0, help                    \
    }
#define ECH_INT(type, field, name, letter, value, low, high, help)                                 \
    {                                                                                              \
        ECH_OPTION_INT, name, letter, value, ECH_FIELD(type, field), low, high, help               \
    }
#define ECH_REAL(type, field, name, letter, value, help)                                           \
    {                                                                                              \
        ECH_OPTION_REAL, name, letter, value, ECH_FIELD(type, field), 0, 0, help                   \
    }
#define ECH_TEXT(type, field, name, letter, value, help)                                           \
    {                                                                                              \
        ECH_OPTION_TEXT, name, letter, value, ECH_FIELD(type, field), 0, 0, help                   \
    }

/* A word that is no option sets a const char *, NULL before. */
typedef struct ech_word {
    size_t at;
    const char *missing; /* what is asked where it is not given; NULL: it need not be */
} ech_word;

typedef struct ech_command_line {
    const char *usage, *about;
    const ech_option *option; /* the last: {0}; NULL: none */
    const ech_word *word;
    size_t words;
    const char *surplus; /* what helps against a word too many; NULL: nothing */
    /* NULL, or takes the words itself. */
    void (*take)(void *arguments, char *word, const struct argp_state *state);
    /* NULL, or looks at all in the end; what it refuses is told with argp_error. */
    void (*check)(void *arguments, const struct argp_state *state);
} ech_command_line;

/* Sets the fields of what was given. A word that is wrong ends the process with a message and ECH_EXIT_USAGE. */
void ech_command_line_parse(const ech_command_line *line, int argc, char **argv, void *arguments);

#endif
