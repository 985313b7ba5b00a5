/* SPDX-License-Identifier: Apache-2.0
 *
 * Which of the surveys' techniques (techniques.def) run together, according to config/rules.def.
 */
#ifndef ECH_PROGRAM_TECHNIQUES_H
#define ECH_PROGRAM_TECHNIQUES_H

#include "config/rules.h"

enum {
    ECH_TECHNIQUES = 0
#define X(name, keys, needs) +1
#include "program/techniques.def"
};

typedef struct ech_technique {
    const char *name;
    const char *keys;  /* assignments that choose it, separated by blanks */
    const char *needs; /* other assignments without which it cannot run; `keys` follow them */
} ech_technique;
extern const ech_technique ech_techniques[ECH_TECHNIQUES];

typedef enum ech_pair {
    ECH_PAIR_RUNS,
    ECH_PAIR_CHOICE,    /* both are values of the same key */
    ECH_PAIR_FORBIDDEN, /* by a rule of that kind (config/rules.h) */
    ECH_PAIR_UNBUILT,
    ECH_PAIRS
} ech_pair;

/* Appends the assignments of a small run with both techniques, b <= a, and returns the outcome. */
ech_pair ech_technique_pair(int a, int b, ech_text *assignments);
/* Appends the matrix of all pairs in Markdown. */
void ech_techniques_print(ech_text *out);

#endif
