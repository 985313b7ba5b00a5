/* SPDX-License-Identifier: Apache-2.0
 *
 * After a step whose update was withheld: where the first NaN or infinity was, and whether the run
 * continues.
 */

#include <math.h>

#include "app/train/trainer.h"

static bool skips(const ech_trainer *t)
{
    return t->config->training.on_nonfinite == ECH_ON_NONFINITE_SKIP;
}

/* More consecutive updates were withheld than training.nonfinite_limit. */
static bool is_beyond(const ech_trainer *t)
{
    int64_t most = t->config->training.nonfinite_limit;
    return skips(t) && most > 0 && t->withheld > most;
}

static ech_status refuse_more(const ech_trainer *t, const char *what)
{
    ECH_FAIL(ECH_ENUMERIC,
             "step %lld: NaN or infinity, %s; update %lld in a row would be skipped, and "
             "training.nonfinite_limit is %lld (%lld skipped in all); lower "
             "optimizer.learning_rate and resume from the newest checkpoint",
             (long long)t->step + 1, what, (long long)t->withheld,
             (long long)t->config->training.nonfinite_limit, (long long)t->skipped);
}

/* What is said where a list is a span. */
static ech_skipping words_of(const ech_design *design)
{
    ech_skipping words = ech_protocol_skipping(design->layout);
    if (design->schedule->weights != ECH_WEIGHTS_DELAYED) return words;
    words.skipped = "update skipped";
    words.instead = "memory.offload_delayed_from=0";
    return words;
}

static ech_status refuse_asynchronous(const ech_trainer *t, ech_skipping words)
{
    if (skips(t)) return refuse_more(t, "in the loss or in gradients");
    ECH_FAIL(ECH_ENUMERIC,
             "step %lld: NaN or infinity in the loss or in gradients; lower "
             "optimizer.learning_rate, set training.on_nonfinite=skip, or find its place with %s",
             (long long)t->step + 1, words.instead);
}

/* The run ends. Rank 0 has said why before any rank returns: one that does ends the others wherever
 * they are. */
static ech_status end_run(const ech_trainer *t, ech_status status)
{
    (void)ech_group_barrier(
        ech_exec_world(t->session.exec)); /* whoever has left may have ended it */
    return status;
}

/* In such a list later steps have begun by then, so the step cannot be repeated. */
static ech_status explain_asynchronous(ech_trainer *t)
{
    bool first = ech_trainer_is_first(t);
    ech_skipping words = words_of(t->design);
    if (!skips(t) || is_beyond(t))
        return end_run(t, first ? refuse_asynchronous(t, words) : ECH_EABORTED);
    if (first)
        ech_progress_say(t->progress, "step %lld: NaN or infinity; %s", (long long)t->step + 1,
                         words.skipped);
    return ECH_OK;
}

static void describe(const ech_trainer *t, const ech_finding *finding, ech_text *out)
{
    if (finding->rank < 0)
        ech_text_append(out, "not found again when the step was repeated (a passing fault of the "
                             "machine?)");
    else if (finding->summed)
        ech_text_append(out, "in rank %d after all micro-batches: %s", finding->rank,
                        finding->what);
    else if (finding->block < 0)
        ech_text_append(out, "in rank %d before the first micro-batch: %s", finding->rank,
                        finding->what);
    else
        ech_text_append(out, "first in rank %d, block %s, micro-batch %d: %s", finding->rank,
                        t->design->model->block.at[finding->block]->name, finding->micro,
                        finding->what);
}

/* The weights themselves have a NaN or infinity: no later step can be right. */
static bool is_lost(const ech_finding *finding)
{
    return finding->rank >= 0 && finding->block < 0 && !finding->summed;
}

/* What else may mend it: where the loss is finite the gradient left the type's range, otherwise the
 * forward did, which no loss scale changes. */
static const char *other_remedy(const ech_trainer *t, bool finite_loss)
{
    if (finite_loss)
        return ech_exec_scaler(t->session.exec).scale > 1 ? " or precision.loss_scale" : "";
    if (t->config->precision.compute != ECH_COMPUTE_FP16) return "";
    return ", train with precision.compute=bf16 or fp32 (fp16 ends at 65,504)";
}

/* The error that ends the run; its hint depends on the state of the weights. */
static ech_status refuse(const ech_trainer *t, const ech_finding *finding, const char *what,
                         bool finite_loss)
{
    if (is_lost(finding))
        ECH_FAIL(
            ECH_ENUMERIC,
            "step %lld: NaN or infinity, %s; the weights already contain it, and no checkpoint "
            "does; lower optimizer.learning_rate and resume from the newest checkpoint, or "
            "start from other weights (model.init_from)",
            (long long)t->step + 1, what);
    if (is_beyond(t)) return refuse_more(t, what);
    ECH_FAIL(ECH_ENUMERIC,
             "step %lld: NaN or infinity, %s; the update was withheld. Lower "
             "optimizer.learning_rate%s%s",
             (long long)t->step + 1, what, other_remedy(t, finite_loss),
             ech_protocol_skipping(t->design->layout).remedy);
}

ech_status ech_trainer_explain_nonfinite(ech_trainer *t)
{
    ech_finding finding;
    bool finite_loss = isfinite(ech_exec_readings(t->session.exec)->loss);
    t->skipped++;
    t->withheld++;
    if (t->design->schedule->weights != ECH_WEIGHTS_FLUSHED) return explain_asynchronous(t);
    ECH_TRY(ech_exec_find_nonfinite(t->session.exec, t->step, &finding));
    bool goes_on = skips(t) && !is_beyond(t) && !is_lost(&finding);
    ECH_FREED_TEXT what = {0};
    if (!ech_trainer_is_first(t)) return goes_on ? ECH_OK : end_run(t, ECH_EABORTED);
    describe(t, &finding, &what);
    if (!goes_on) return end_run(t, refuse(t, &finding, what.at, finite_loss));
    ech_progress_say(t->progress, "step %lld: NaN or infinity, %s; update skipped",
                     (long long)t->step + 1, what.at);
    return ECH_OK;
}
