/* SPDX-License-Identifier: Apache-2.0
 *
 * Log-likelihoods: each list of ids is a sample of its own, whose loss is the list's.
 */
#include "app/likelihood.h"

#include <stdlib.h>
#include <string.h>

#include "app/train/trained.h"
#include "comm/comm.h"

/* A window: ids [first, first + n) of scoring.ids. Its last `targets` ids are scored for text
 * `of`. */
typedef struct window {
    size_t first, n, targets;
    int64_t of;
} window;

typedef struct scoring {
    const char *path;
    const ech_scored_text *texts;
    int64_t n;
    const ech_likelihood_options *in;
    ech_likelihood *out;
    ech_ids ids;
    ECH_LIST(window) window;
    size_t most; /* the most ids of a window: one more than tokens that the model reads */
    ech_corpus *corpus;
} scoring;

static void free_scoring(scoring *s)
{
    ech_corpus_close(s->corpus);
    free(s->ids.at);
    free(s->window.at);
}

/* ---- texts to windows ---- */

static ech_status refuse(const scoring *s, int64_t of, size_t tokens)
{
    ECH_FAIL(ECH_EUSAGE,
             "%s: %zu tokens with the context, but %s reads at most %zu; shorten it, or remove it",
             s->texts[of].name, tokens, s->path, s->most - 1);
}

/* Without a context: the first window begins with the begin of text. Each other window begins as
 * many ids early as it needs to be full. */
static void add_rolling(scoring *s, int64_t of, size_t first)
{
    size_t end = s->ids.n - first, most = s->most - 1;
    for (size_t done = 1; done < end;) {
        size_t n = end - done < most ? end - done : most, stop = done + n;
        size_t from = stop > s->most ? stop - s->most : 0;
        ECH_PUSH(s->window,
                 (window){.first = first + from, .n = stop - from, .targets = n, .of = of});
        done = stop;
    }
}

/* `own`: ids of the text, the last ones from `first` on. */
static ech_status add_window(scoring *s, int64_t of, size_t first, size_t own)
{
    size_t n = s->ids.n - first, cut = n > s->most ? n - s->most : 0;
    if (cut && (!s->in->truncates || own >= s->most)) return refuse(s, of, n);
    ECH_PUSH(s->window, (window){.first = first + cut, .n = n - cut, .targets = own, .of = of});
    return ECH_OK;
}

static ech_status fail_empty(const scoring *s, int64_t of)
{
    ECH_FAIL(ECH_EUSAGE, "%s: has no tokens, so it has no likelihood; remove it",
             s->texts[of].name);
}

/* The bytes of a context without blanks at its end, which tokenizers join to the text. */
static size_t strip(const char *context)
{
    size_t n = context ? strlen(context) : 0;
    while (n > 0 && strchr(" \t\n\v\f\r", context[n - 1])) n--;
    return n;
}

/* *n: the number of ids of a context. */
static ech_status count_ids(ech_coder *coder, const char *context, size_t bytes, size_t *n)
{
    ech_ids ids = {0};
    ech_status status = bytes ? ech_coder_encode(coder, context, bytes, true, &ids) : ECH_OK;
    *n = ids.n;
    free(ids.at);
    return status;
}

/* Context and text are encoded together, since a token may have the end of one and the begin of the
 * other. */
static ech_status add_text(scoring *s, const ech_trained *trained, ech_coder *coder, int64_t of)
{
    const ech_scored_text *text = &s->texts[of];
    size_t first = s->ids.n, before, lead;
    ECH_FREED_TEXT whole = {0};
    ech_text_append(&whole, "%s%s", text->context ? text->context : "", text->text);
    ECH_TRY(count_ids(coder, text->context, strip(text->context), &before));
    if (before)
        ech_tokenizer_begin(trained->tokenizer, s->in->begins, &s->ids);
    else
        ECH_PUSH(s->ids, trained->ends.begin);
    lead = s->ids.n - first;
    ECH_TRY(ech_coder_encode(coder, whole.at, whole.n, true, &s->ids));
    if (s->ids.n - first <= lead + before) return fail_empty(s, of);
    if (text->context) return add_window(s, of, first, s->ids.n - first - lead - before);
    add_rolling(s, of, first);
    return ECH_OK;
}

static ech_status add_texts(scoring *s, const ech_trained *trained)
{
    ech_coder *coder = ech_coder_create(trained->tokenizer);
    ech_status status = ECH_OK;
    ech_coder_keep_special(coder, true);
    for (int64_t i = 0; i < s->n && status == ECH_OK; i++) status = add_text(s, trained, coder, i);
    ech_coder_destroy(coder);
    return status;
}

/* As short as the longest window, in steps that ranks divide. Experts with a capacity drop rows by
 * the sequence length, which stays. */
static int64_t length_of(const ech_trained *trained, size_t longest)
{
    const ech_config *c = trained->config;
    int64_t unit = 2 * c->parallel.context * c->parallel.tensor;
    int64_t tokens = ((int64_t)longest - 2 + unit) / unit * unit;
    bool stays = c->model.moe_capacity_factor > 0 && tokens < c->data.sequence_length;
    if (stays) return c->data.sequence_length;
    return tokens < trained->window ? tokens : trained->window;
}

/* ech_trained_options.fit. */
static ech_status fit(ech_trained *trained, void *context)
{
    scoring *s = context;
    ech_config *c = trained->config;
    size_t longest = 0;
    if (!ech_model_reads_texts(c))
        ECH_FAIL(ECH_EUSAGE, "%s: a model of %s gives texts no likelihood; name a model of texts",
                 s->path, ech_sample_row_of(ech_family_of(c)->samples)->name);
    if (!trained->tokenizer)
        ECH_FAIL(ECH_EUSAGE, "%s: has no tokenizer for texts; name one (--tokenizer SOURCE)",
                 s->path);
    s->most = (size_t)trained->window + 1;
    ECH_TRY(add_texts(s, trained));
    for (size_t i = 0; i < s->window.n; i++)
        if (s->window.at[i].n > longest) longest = s->window.at[i].n;
    c->data.sequence_length = length_of(trained, longest);
    c->data.packing = ECH_PACKING_STREAM; /* a sample has one text */
    c->data.document_mask = 0;
    ECH_FREED ech_item *items = ech_calloc(s->window.n, sizeof *items);
    for (size_t i = 0; i < s->window.n; i++)
        items[i] = (ech_item){&s->ids.at[s->window.at[i].first], s->window.at[i].n,
                              s->window.at[i].targets};
    return ech_corpus_of_items(items, (int64_t)s->window.n, c->data.sequence_length, &s->corpus);
}

/* ---- windows to numbers ---- */

/* The ids that are in the KV cache. */
typedef struct cache {
    const int32_t *ids;
    size_t n;
} cache;

static int32_t most_likely(const double *logits, int64_t V)
{
    int64_t best = 0;
    for (int64_t i = 1; i < V; i++)
        if (logits[i] > logits[best]) best = i;
    return (int32_t)best;
}

/* Reads the window token by token until a token is not the most likely one. What two windows have
 * in common is read once. */
static ech_status find_greedy(const scoring *s, ech_trained *trained, const window *w, cache *in,
                              int *greedy)
{
    const int32_t *ids = &s->ids.at[w->first];
    size_t common = 0, first = w->n - w->targets - 1;
    while (common < first && common < in->n && in->ids[common] == ids[common]) common++;
    *in = (cache){ids, common};
    for (; in->n < w->n - 1; in->n++) {
        ech_exec_set_token(trained->session.exec, ids[in->n], (int64_t)in->n);
        ECH_TRY(ech_exec_run(trained->session.exec, ECH_LIST_GENERATE, 0));
        if (in->n < first) continue;
        const double *logits = ech_exec_logits(trained->session.exec);
        bool same = most_likely(logits, trained->config->model.vocab_size) == ids[in->n + 1];
        if (same) continue;
        *greedy = 0;
        in->n++;
        break;
    }
    return ECH_OK;
}

/* On every rank. */
static ech_status score(ech_trained *trained, void *context)
{
    scoring *s = context;
    const ech_likelihood_options *in = s->in;
    bool first = ech_comm_rank(trained->comm) == 0;
    int64_t windows = (int64_t)s->window.n;
    cache cached = {0};
    ECH_CLEANUP(ech_loader_destroy_at) ech_loader *loader = NULL;
    if (in->greedy && trained->design.model->logits < 0)
        ECH_FAIL(ECH_EUSAGE, "%s: a model of the family %s writes no text, so no text is greedy",
                 s->path, trained->design.model->family->name);
    if (in->greedy && ech_comm_size(trained->comm) > 1)
        ECH_FAIL(ECH_EUSAGE, "%s: greedy texts are found on one rank; use no --parallel", s->path);
    ECH_TRY(ech_session_read(&trained->session, &trained->design, s->corpus, ECH_EVALUATE, 0,
                             windows, &loader));
    for (int64_t i = 0; i < windows; i++) {
        const window *w = &s->window.at[i];
        if (first && in->progress) in->progress(i, windows, in->context);
        ECH_TRY(ech_exec_run(trained->session.exec, ECH_LIST_VALIDATE, i));
        if (!first) continue;
        ech_likelihood *out = &s->out[w->of];
        out->sum -= ech_exec_readings(trained->session.exec)->loss_sum;
        out->tokens += (int64_t)w->targets;
        if (in->greedy && out->greedy) ECH_TRY(find_greedy(s, trained, w, &cached, &out->greedy));
    }
    return ECH_OK;
}

ech_status ech_likelihoods(const char *path, const ech_scored_text *texts, int64_t n,
                           const ech_likelihood_options *options, ech_likelihood *out)
{
    ECH_CLEANUP(free_scoring)
    scoring s = {.path = path, .texts = texts, .n = n, .in = options, .out = out};
    const ech_trained_options wanted = {.path = path,
                                        .samples = 1,
                                        .tokenizer = options->tokenizer,
                                        .device = options->device,
                                        .plugins = options->plugins,
                                        .parallel = options->parallel,
                                        .fit = fit};
    if (n < 1) ECH_FAIL(ECH_EUSAGE, "%s: no texts to score; give at least one", path);
    for (int64_t i = 0; i < n; i++) out[i] = (ech_likelihood){.greedy = options->greedy ? 1 : -1};
    return ech_trained_run(&wanted, score, &s);
}
