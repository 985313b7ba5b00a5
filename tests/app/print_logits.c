/* SPDX-License-Identifier: Apache-2.0
 *
 * print_logits DIR ID...         prints a line of logits after each of the tokens, as sampling sees
 *                                them. DIR is whatever `echelon sample` accepts.
 * print_logits DIR... -- ID...   prints for each folder a line "folder DIR", and then its logits,
 *                                or a line "refused", which is no failure
 *
 * For the scripts that compare with other programs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/train/trained.h"

typedef struct wanted {
    char **ids;
    int n;
} wanted;

static ech_status print(ech_trained *trained, void *context)
{
    const wanted *in = context;
    for (int i = 0; i < in->n; i++) {
        ech_exec_set_token(trained->session.exec, (int32_t)atoi(in->ids[i]), i);
        ECH_TRY(ech_exec_run(trained->session.exec, ECH_LIST_GENERATE, 0));
        const double *logits = ech_exec_logits(trained->session.exec);
        for (int64_t v = 0; v < trained->config->model.vocab_size; v++) printf("%.9g ", logits[v]);
        printf("\n");
    }
    return ECH_OK;
}

static ech_status print_folder(const char *path, wanted *in)
{
    const ech_trained_options options = {.path = path, .samples = 1, .ids_do = true};
    return ech_trained_run(&options, print, in);
}

/* Each line goes out before the next folder is read, so that messages on standard error can share
 * the reader's pipe. */
static void print_folders(char **folders, int n, wanted *in)
{
    for (int i = 0; i < n; i++) {
        printf("folder %s\n", folders[i]);
        fflush(stdout);
        if (print_folder(folders[i], in) != ECH_OK) printf("refused\n");
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    int dashes = 1;
    if (argc < 3) return 2;
    while (dashes < argc && strcmp(argv[dashes], "--") != 0) dashes++;
    if (dashes == argc) {
        wanted in = {argv + 2, argc - 2};
        return print_folder(argv[1], &in) == ECH_OK ? 0 : 1;
    }
    wanted in = {argv + dashes + 1, argc - dashes - 1};
    print_folders(argv + 1, dashes - 1, &in);
    return 0;
}
