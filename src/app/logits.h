/* SPDX-License-Identifier: Apache-2.0
 *
 * What a model says of tokens, position by position, as a file.
 */
#ifndef ECH_APP_LOGITS_H
#define ECH_APP_LOGITS_H

#include "app/train/trained.h"

/* Writes the first `samples` samples of the corpus, S of them, into the new file `path`, of
 * safetensors: logits F32 (S,T,V), tokens and targets I32 (S,T), and weights F32 (S,T), 0 where
 * a target does not count. The model reads token by token. Errors: more than 16 GiB, a file that
 * is there. */
ech_status ech_logits_write(const ech_trained *trained, const ech_corpus *corpus, int64_t samples,
                            const char *path);

#endif
