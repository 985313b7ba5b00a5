/* SPDX-License-Identifier: Apache-2.0
 *
 * Greedy choice, and draws with temperature, top-k and top-p (Holtzman et al. 2020, "The curious
 * case of neural text degeneration").
 */
#include "app/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

typedef struct candidate {
    double weight; /* logit, then the unnormalized probability */
    int32_t id;
} candidate;

ech_status ech_sampler_check(const ech_sampler *sampler)
{
    if (!(sampler->temperature >= 0) || !isfinite(sampler->temperature))
        ECH_FAIL(ECH_EUSAGE, "temperature %g: must be 0 or more; 0 takes the most likely token",
                 sampler->temperature);
    if (sampler->top_k < 0)
        ECH_FAIL(ECH_EUSAGE, "top-k %lld: must be 0 (all) or more", (long long)sampler->top_k);
    if (!(sampler->top_p > 0 && sampler->top_p <= 1))
        ECH_FAIL(ECH_EUSAGE, "top-p %g: must be above 0 and at most 1 (all)", sampler->top_p);
    return ECH_OK;
}

static ech_status find_greatest(const double *logits, int64_t V, int32_t *out)
{
    int64_t best = 0;
    for (int64_t i = 0; i < V; i++) {
        if (isnan(logits[i]) || (isinf(logits[i]) && logits[i] > 0))
            ECH_FAIL(ECH_ENUMERIC,
                     "the logit of token %lld is %g: the model's weights are damaged; try an older "
                     "checkpoint",
                     (long long)i, ech_unsigned_nan(logits[i]));
        if (logits[i] > logits[best]) best = i;
    }
    if (V < 1 || isinf(logits[best]))
        ECH_FAIL(ECH_ENUMERIC,
                 "all %lld logits are -infinity: the model's weights are damaged, or training "
                 "diverged; try an older checkpoint",
                 (long long)V);
    *out = (int32_t)best;
    return ECH_OK;
}

static int by_weight(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->weight > y->weight) return -1;
    if (x->weight < y->weight) return 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Most likely first; returns how many remain, at least one, and the sum of their weights. */
static int64_t narrow(const ech_sampler *sampler, candidate *all, int64_t V, double *sum)
{
    int64_t n = sampler->top_k > 0 && sampler->top_k < V ? sampler->top_k : V;
    double greatest, total = 0;
    qsort(all, (size_t)V, sizeof *all, by_weight);
    greatest = all[0].weight;
    for (int64_t i = 0; i < n; i++) {
        all[i].weight = exp((all[i].weight - greatest) / sampler->temperature);
        total += all[i].weight;
    }
    *sum = total;
    if (sampler->top_p >= 1) return n;
    *sum = 0;
    for (int64_t i = 0; i < n; i++) {
        *sum += all[i].weight;
        if (*sum >= sampler->top_p * total) return i + 1;
    }
    return n;
}

/* The token where the running sum passes `unit` of the sum; never one of weight 0. */
static int32_t draw(const candidate *all, int64_t n, double sum, double unit)
{
    double passed = 0;
    int32_t id = all[0].id;
    for (int64_t i = 0; i < n && all[i].weight > 0; i++) {
        id = all[i].id;
        passed += all[i].weight;
        if (passed > unit * sum) break;
    }
    return id;
}

ech_status ech_sampler_choose(const ech_sampler *sampler, const double *logits, int64_t V,
                              double unit, int32_t *out)
{
    int32_t greatest;
    ECH_TRY(find_greatest(logits, V, &greatest));
    if (sampler->temperature <= 0) {
        *out = greatest;
        return ECH_OK;
    }
    ECH_FREED candidate *all = ech_calloc((size_t)V, sizeof *all);
    for (int64_t i = 0; i < V; i++) all[i] = (candidate){logits[i], (int32_t)i};
    double sum;
    int64_t n = narrow(sampler, all, V, &sum);
    *out = draw(all, n, sum, unit);
    return ECH_OK;
}

ech_status ech_sampler_prompt(const ech_tokenizer *tokenizer, const char *text, int begins,
                              bool special, ech_ids *out, size_t *front)
{
    ech_ids ids = {0};
    ech_coder *coder = ech_coder_create(tokenizer);
    ech_coder_keep_special(coder, !special);
    ech_status status = ech_coder_encode(coder, text, strlen(text), true, &ids);
    ech_coder_destroy(coder);
    ech_tokenizer_begin(tokenizer, begins, out);
    if (out->n > 0 && ids.n > 0 && ids.at[0] == out->at[out->n - 1]) out->n = 0;
    *front = out->n;
    for (size_t i = 0; i < ids.n && status == ECH_OK; i++) ECH_PUSH(*out, ids.at[i]);
    free(ids.at);
    return status;
}
