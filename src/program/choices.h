/* SPDX-License-Identifier: Apache-2.0
 *
 * Multiple choice: files of items, and the accuracy of a model that scores each choice.
 *
 * A file has an item a line, a JSON object. Its prompt: `context`, `ctx` or `query` as it is; then
 * "Question: ...\nAnswer:" of `question` or `goal`. Its choices: `choices`, `endings` or `options`,
 * a list of texts or of objects with `text` and `label`, or an object with the lists `text` and
 * `label`; or `sol1` and `sol2`. The right one: `answer`, `answerKey`, `label` or `gold`, which is
 * an index from 0, a label of the choices, or a letter from A. The question may be an object with
 * `stem` and `choices` (ARC). These are the shapes of ARC, HellaSwag, PIQA and MMLU.
 */
#ifndef ECH_PROGRAM_CHOICES_H
#define ECH_PROGRAM_CHOICES_H

#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"
#include "base/status.h"

typedef struct ech_choice {
    char *text;     /* as the file has it */
    char *appended; /* the same with the blank that divides it from the prompt */
    char *name;     /* "FILE:12: choice 3" */
} ech_choice;

typedef struct ech_choice_item {
    int64_t line; /* in the file, from 1 */
    char *prompt;
    int64_t first; /* its choices are ech_choices.choice [first, first + n) */
    int n, answer; /* 0 <= answer < n */
} ech_choice_item;

typedef struct ech_choices {
    ECH_LIST(ech_choice_item) item;
    ECH_LIST(ech_choice) choice; /* of all items */
} ech_choices;

enum { ECH_CHOICES_MOST = 64 }; /* of an item */

/* Parses the n bytes of a file. `path` is for errors, which name the line: no object, no prompt,
 * fewer than two choices, an empty choice, no answer or one that is none of the choices; no items.
 * Release *out with ech_choices_free, also after errors. */
ech_status ech_choices_parse(const char *path, const char *text, size_t n, ech_choices *out);
/* The same of a file of at most 1 GiB. */
ech_status ech_choices_read(const char *path, ech_choices *out);
void ech_choices_free(ech_choices *choices); /* accepts {0} */

/* Accuracies of EleutherAI's lm-evaluation-harness, which differ in what a choice's log-likelihood
 * is divided by. */
typedef enum ech_accuracy {
    ECH_ACC,       /* 1 */
    ECH_ACC_NORM,  /* the choice's length in characters */
    ECH_ACC_BYTES, /* in bytes of UTF-8 */
    ECH_ACCURACIES
} ech_accuracy;
/* "acc", "acc_norm", "acc_bytes". */
const char *ech_accuracy_name(ech_accuracy which);

/* The index of the item's choice with the largest quotient; of equal ones the first.
 * log_likelihood: of each choice, in the order of choices->choice. */
int ech_choices_pick(const ech_choices *choices, const ech_choice_item *item,
                     const double *log_likelihood, ech_accuracy which);
/* The share of items whose answer is picked. *error: the standard error of this mean; NaN: there is
 * one item. */
double ech_choices_score(const ech_choices *choices, const double *log_likelihood,
                         ech_accuracy which, double *error);

#endif
