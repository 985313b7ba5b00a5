/* SPDX-License-Identifier: Apache-2.0
 *
 * print_logits DIR ID...: a line of logits behind each of the tokens, as sampling sees them. DIR is
 * whatever `echelon sample` takes. For the scripts that compare with other programs.
 */
#include <stdio.h>
#include <stdlib.h>

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

int main(int argc, char **argv)
{
    if (argc < 3) return 2;
    wanted in = {argv + 2, argc - 2};
    const ech_trained_options options = {.path = argv[1], .samples = 1, .ids_do = true};
    return ech_trained_run(&options, print, &in) == ECH_OK ? 0 : 1;
}
