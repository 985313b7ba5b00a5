/* SPDX-License-Identifier: Apache-2.0
 *
 * The identity of a corpus, whatever the names of its files. Each source is TOKENS*COUNT:HASH, and
 * blanks separate sources. COUNT is how often the source occurs in a period of the blend. HASH
 * covers its runs (documents and prompts) and samples of its tokens. Other kinds of samples state
 * their units in place of tokens.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/corpus.h"

enum { DIGITS = 16 };

static ech_status append_source(const ech_corpus *corpus, int k, ech_text *out)
{
    ECH_FREED_TEXT text = {0};
    char hash[ECH_TOKENIZER_HASH];
    int64_t units;
    ECH_TRY(corpus->kind->identify(&corpus->source.at[k], &units, &text));
    ech_data_hash(&text, hash);
    ech_text_append(out, "%s%" PRId64 "*%" PRId64 ":%.*s", out->n ? " " : "", units,
                    corpus->blend.count[k], (int)DIGITS, hash);
    return ECH_OK;
}

ech_status ech_corpus_identity(const ech_corpus *corpus, ech_text *out)
{
    for (int k = 0; k < corpus->blend.sources; k++) ECH_TRY(append_source(corpus, k, out));
    return ECH_OK;
}

/* ---- comparing ---- */

static int count_sources(const char *identity)
{
    int n = 1;
    for (const char *at = identity; (at = strchr(at, ' ')); at++) n++;
    return n;
}

typedef struct stated {
    int64_t tokens, count;
    char hash[DIGITS + 1];
} stated;

/* Reads a source and moves *at after it. Returns false if it is not well formed. */
static bool read_source(const char **at, stated *out)
{
    int n = 0;
    if (sscanf(*at, "%" SCNd64 "*%" SCNd64 ":%16[0-9a-f]%n", &out->tokens, &out->count, out->hash,
               &n) != 3)
        return false;
    *at += n;
    while (**at == ' ') ++*at;
    return true;
}

void ech_corpus_print_change(const char *before, const char *now, ech_text *out)
{
    int had = count_sources(before), has = count_sources(now);
    stated a, b;
    if (had != has) {
        ech_text_append(out, "%s, where there were %d", ECH_COUNT(has, "source"), had);
        return;
    }
    const char *rest[] = {before, now};
    for (int i = 1; read_source(&rest[0], &a) && read_source(&rest[1], &b); i++) {
        bool others = strcmp(a.hash, b.hash) != 0;
        if (a.tokens == b.tokens && !others && a.count == b.count) continue;
        if (has > 1) ech_text_append(out, "source %d has ", i);
        if (a.tokens != b.tokens)
            ech_text_append(out, "%" PRId64 " tokens, where there were %" PRId64, b.tokens,
                            a.tokens);
        else
            ech_text_append(out, others ? "the same number of tokens, but others or other documents"
                                        : "another weight");
        return;
    }
    ech_text_append(out, "%s, where there was %s", now, before);
}
