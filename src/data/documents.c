/* SPDX-License-Identifier: Apache-2.0
 *
 * From documents to samples that have whole ones.
 */
#include "data/documents.h"

#include <stdlib.h>


typedef ECH_LIST(ech_piece) piece_list;

/* One piece for each document that is used, in the order of the stream. */
static void list_pieces(const ech_token_runs *runs, int64_t T, bool drop_longer, piece_list *pieces,
                        ech_documents *out)
{
    size_t n = runs->run.n;
    for (size_t i = 0, next; i < n; i = next) {
        for (next = i + 1; next < n && !runs->run.at[next].opens;) next++;
        int64_t first = runs->run.at[i].first;
        int64_t tokens = ech_token_run_end(runs, next - 1) - first;
        bool longer = tokens > T;
        out->longer += longer;
        if (longer && drop_longer) continue;
        ECH_PUSH(*pieces, (ech_piece){first, longer ? T : tokens});
    }
}

/* Sorts the pieces by their bins. */
static void sort_pieces(const piece_list *pieces, const int64_t *bin, int64_t bins,
                        ech_documents *out)
{
    out->begin.at = ech_calloc((size_t)bins + 2, sizeof *out->begin.at);
    out->begin.n = (size_t)bins + 1;
    out->piece.at = ech_calloc(pieces->n + 1, sizeof *out->piece.at);
    out->piece.n = pieces->n;
    int64_t *at = out->begin.at + 1; /* at[b]: where the next piece of bin b goes */
    for (size_t i = 0; i < pieces->n; i++) at[bin[i] + 1]++;
    for (int64_t b = 1; b < bins; b++) at[b] += at[b - 1];
    for (size_t i = 0; i < pieces->n; i++) out->piece.at[at[bin[i]]++] = pieces->at[i];
}

void ech_documents_pack(const ech_token_runs *runs, int64_t T, bool drop_longer, ech_documents *out)
{
    piece_list pieces = {0};
    *out = (ech_documents){0};
    list_pieces(runs, T, drop_longer, &pieces, out);
    ECH_FREED int32_t *length = ech_calloc(pieces.n + 1, sizeof *length);
    ECH_FREED int64_t *bin = ech_calloc(pieces.n + 1, sizeof *bin);
    for (size_t i = 0; i < pieces.n; i++) {
        length[i] = (int32_t)pieces.at[i].n;
        out->tokens += pieces.at[i].n;
        out->targets += ech_token_runs_targets(runs, pieces.at[i].first + 1,
                                               pieces.at[i].first + pieces.at[i].n, true);
    }
    sort_pieces(&pieces, bin, ech_best_fit(length, (int64_t)pieces.n, (int32_t)T, bin), out);
    free(pieces.at);
}

void ech_documents_free(ech_documents *documents)
{
    free(documents->piece.at);
    free(documents->begin.at);
    *documents = (ech_documents){0};
}
