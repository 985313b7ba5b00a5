/* SPDX-License-Identifier: Apache-2.0
 *
 * From documents to samples that have whole ones.
 */
#include "data/documents.h"

#include <stdlib.h>

typedef ECH_LIST(ech_document) document_list;

/* Each document that is used, in the order of the stream. */
static void list_documents(const ech_token_runs *runs, int64_t T, bool drop_longer,
                           document_list *documents, ech_documents *out)
{
    size_t n = runs->run.n;
    for (size_t i = 0, next; i < n; i = next) {
        for (next = i + 1; next < n && !runs->run.at[next].opens;) next++;
        int64_t first = runs->run.at[i].first;
        int64_t tokens = ech_token_run_end(runs, next - 1) - first;
        bool longer = tokens > T;
        out->longer += longer;
        if (longer && drop_longer) continue;
        ECH_PUSH(*documents, (ech_document){first, longer ? T : tokens});
    }
}

/* Sorts the documents by their bins. */
static void sort_documents(const document_list *documents, const int64_t *bin, int64_t bins,
                           ech_documents *out)
{
    out->begin.at = ech_calloc((size_t)bins + 2, sizeof *out->begin.at);
    out->begin.n = (size_t)bins + 1;
    out->document.at = ech_calloc(documents->n + 1, sizeof *out->document.at);
    out->document.n = documents->n;
    int64_t *at = out->begin.at + 1; /* at[b]: where the next document of bin b goes */
    for (size_t i = 0; i < documents->n; i++) at[bin[i] + 1]++;
    for (int64_t b = 1; b < bins; b++) at[b] += at[b - 1];
    for (size_t i = 0; i < documents->n; i++) out->document.at[at[bin[i]]++] = documents->at[i];
}

void ech_documents_pack(const ech_token_runs *runs, int64_t T, bool drop_longer, ech_documents *out)
{
    document_list documents = {0};
    *out = (ech_documents){0};
    list_documents(runs, T, drop_longer, &documents, out);
    ECH_FREED int32_t *length = ech_calloc(documents.n + 1, sizeof *length);
    ECH_FREED int64_t *bin = ech_calloc(documents.n + 1, sizeof *bin);
    for (size_t i = 0; i < documents.n; i++) {
        length[i] = (int32_t)documents.at[i].n;
        out->tokens += documents.at[i].n;
        out->targets += ech_token_runs_targets(runs, documents.at[i].first + 1,
                                               documents.at[i].first + documents.at[i].n, true);
    }
    sort_documents(&documents, bin, ech_best_fit(length, (int64_t)documents.n, (int32_t)T, bin),
                   out);
    free(documents.at);
}

void ech_documents_free(ech_documents *documents)
{
    free(documents->document.at);
    free(documents->begin.at);
    *documents = (ech_documents){0};
}
