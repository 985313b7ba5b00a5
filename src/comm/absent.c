/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that do not come, as far as this machine shows them.
 */
#include "comm/absent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/life.h"

enum { ENVIRONMENT_BYTES = 1 << 17 };

/* What its launcher calls it, as a label only; -1: not shown. */
static int label_of(int process)
{
    char path[64];
    int label = -1;
    char *text = malloc(ENVIRONMENT_BYTES);
    snprintf(path, sizeof path, "/proc/%d/environ", process);
    FILE *file = text ? fopen(path, "re") : NULL;
    size_t n = file ? fread(text, 1, ENVIRONMENT_BYTES - 1, file) : 0;
    if (file) fclose(file);
    if (text) text[n] = '\0';
    for (size_t at = 0; at < n && label < 0; at += strlen(text + at) + 1)
        if (sscanf(text + at, "PMIX_RANK=%d", &label) != 1 &&
            sscanf(text + at, "PMI_RANK=%d", &label) != 1)
            label = -1;
    free(text);
    return label;
}

static void add_stopped(int process, int rank, ech_text *out)
{
    ech_life_signs signs;
    ech_life_look(process, &signs);
    if (signs.state != 'T') return;
    if (out->n) ech_text_append(out, ", ");
    if (rank >= 0) ech_text_append(out, "rank %d ", rank);
    ech_text_append(out, "(process %d) is stopped", process);
}

/* Of the processes that this one's launcher has started. */
static void find_stopped(ech_text *out)
{
    char path[64];
    int child, parent = (int)getppid();
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", parent, parent);
    FILE *file = fopen(path, "re");
    if (!file) return;
    while (fscanf(file, "%d", &child) == 1) add_stopped(child, label_of(child), out);
    fclose(file);
}

/* Of a job at its end: who has not left the board. */
static void find_present(const ech_board *board, ech_text *out)
{
    for (int i = 0; i < board->slots; i++) {
        if (atomic_load(&board->slot[i].process) == 0) continue;
        int rank = atomic_load(&board->slot[i].rank);
        ech_text_append(out, "%srank %d: ", out->n ? "; " : "", rank);
        ech_board_describe(board, rank, out);
    }
}

void ech_absent_describe(const ech_board *board, ech_text *out)
{
    find_stopped(out);
    if (!out->n && board) find_present(board, out);
    if (!out->n)
        ech_text_append(out, "none of this machine is stopped; see whether all processes and "
                             "machines of the job are up");
}
