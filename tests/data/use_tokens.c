/* SPDX-License-Identifier: Apache-2.0
 *
 * use_tokens PREFIX: a line for each token of the stream: its id, whether it begins a document,
 * whether it is not trained on.
 */
#include <inttypes.h>
#include <stdio.h>

#include "data/token_file.h"

static ech_status print_tokens(const ech_token_file *file)
{
    const ech_token_runs *runs = &file->runs;
    for (size_t i = 0; i < runs->run.n; i++) {
        ech_token_run run = runs->run.at[i];
        for (int64_t at = run.first; at < ech_token_run_end(runs, i); at++) {
            int32_t id;
            ECH_TRY(ech_token_file_read(file, at, 1, INT32_MAX, &id));
            printf("%" PRId32 " %d %d\n", id, at == run.first && run.opens, run.silent);
        }
    }
    return ECH_OK;
}

int main(int argc, char **argv)
{
    ech_token_file *file;
    ech_token_options options = {.documents = true};
    if (argc != 2 || ech_token_file_open(argv[1], &options, &file) != ECH_OK) return 1;
    ech_status status = print_tokens(file);
    ech_token_file_close(file);
    return status == ECH_OK ? 0 : 1;
}
