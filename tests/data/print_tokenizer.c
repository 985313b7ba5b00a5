/* SPDX-License-Identifier: Apache-2.0
 *
 * For check_tokenizer.py: writes a tokenizer's Hugging Face files into a folder.
 */
#include <stdio.h>

#include "base/file.h"
#include "data/data.h"

int main(int argc, char **argv)
{
    ech_tokenizer *tokenizer;
    if (argc != 3 || ech_tokenizer_open(argv[1], &tokenizer) != ECH_OK) {
        fprintf(stderr, "usage: %s TOKENIZER FOLDER\n", argv[0]);
        return 2;
    }
    ech_text tokens = {0}, config = {0};
    ech_tokenizer_export(tokenizer, &tokens, &config);
    char *tokens_path = ech_file_join(argv[2], "tokenizer.json");
    char *config_path = ech_file_join(argv[2], "tokenizer_config.json");
    ech_status st = ech_file_write(tokens_path, tokens.at, tokens.n);
    if (st == ECH_OK) st = ech_file_write(config_path, config.at, config.n);
    return st == ECH_OK ? 0 : 1;
}
