/* SPDX-License-Identifier: Apache-2.0
 *
 * A vocabulary from texts, with a line that says how far it is.
 */
#include "app/learn_tokens.h"

#include <stdio.h>

#include "app/count.h"
#include "app/status_line.h"
#include "data/data.h"

/* The callbacks take no context. */
static ech_status_line line;

static void show_read(int64_t done, int64_t all)
{
    char text[160], so_far[32], whole[32];
    snprintf(text, sizeof text, "%s of %s read", ech_text_from_bytes(done, so_far, sizeof so_far),
             ech_text_from_bytes(all, whole, sizeof whole));
    ech_status_line_draw(&line, text, done >= all);
}

static void show_learnt(int64_t done, int64_t all)
{
    char text[160], so_far[ECH_COUNT_BYTES], whole[ECH_COUNT_BYTES];
    snprintf(text, sizeof text, "%s of %s tokens learnt", ech_count_text(done, so_far),
             ech_count_text(all, whole));
    ech_status_line_draw(&line, text, done >= all);
}

ech_status ech_learn_tokens(const ech_text_source *texts, const char *out, int64_t vocabulary,
                            const char *pattern)
{
    char count[ECH_COUNT_BYTES];
    const ech_bpe_training training = {.texts = *texts,
                                       .out = out,
                                       .pattern = pattern ? pattern : "gpt2",
                                       .vocabulary = vocabulary,
                                       .progress = show_read,
                                       .learnt = show_learnt};
    ech_status_line_begin(&line);
    ech_status status = ech_data_train_bpe(&training);
    ech_status_line_end(&line);
    ECH_TRY(status);
    printf("%s/tokenizer.json: %s tokens\nnext: echelon data %s TOKENS --tokenizer %s\n", out,
           ech_count_text(vocabulary, count), texts->in, out);
    return ECH_OK;
}
