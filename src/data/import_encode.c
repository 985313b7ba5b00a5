/* SPDX-License-Identifier: Apache-2.0
 *
 * From a piece of text, or of lines of JSON, to ids.
 */
#include <stdlib.h>

#include "base/log.h"
#include "data/import.h"

typedef struct encoding {
    ech_coder *coder;
    int32_t end_of_text;
    ech_import_piece *piece;
} encoding;

static ech_status encode(const ech_piece_stretch *stretch, void *context)
{
    const encoding *e = context;
    ech_ids *ids = &e->piece->ids;
    size_t before = ids->n;
    ECH_TRY((stretch->begins ? ech_coder_encode : ech_coder_continue)(e->coder, stretch->bytes,
                                                                      stretch->n, ids));
    if (stretch->ends) ECH_PUSH(*ids, e->end_of_text);
    ECH_PUSH(e->piece->stretch, (ech_import_stretch){.n = ids->n - before,
                                                     .valid = stretch->valid,
                                                     .prompt = stretch->prompt,
                                                     .ends = stretch->ends});
    return ECH_OK;
}

void ech_import_encode(const ech_import_options *options, ech_coder *coder, ech_import_piece *piece)
{
    encoding e = {coder, ech_tokenizer_end_of_text(options->tokenizer), piece};
    bool quiet = ech_log_set_quiet(true);
    piece->ids.n = piece->stretch.n = 0;
    free(piece->message);
    piece->message = NULL;
    piece->status = ech_piece_each(&options->texts, &piece->read, encode, &e);
    if (piece->status != ECH_OK) piece->message = ech_strdup(ech_last_error());
    ech_log_set_quiet(quiet);
}
