/* SPDX-License-Identifier: Apache-2.0
 *
 * The result of a verification as text.
 */
#include "app/count.h"
#include "app/verify/verify.h"

/* What was not compared since it is not finite. */
static void print_withheld(const ech_verification *v, ech_text *out)
{
    if (v->withheld)
        ech_text_append(out,
                        "skipped    gradients of %lld of %lld updates in %s: both sides withheld "
                        "these, since gradients were not finite\n",
                        (long long)v->withheld, (long long)v->updates, v->precision);
    if (v->not_finite)
        ech_text_append(out,
                        "skipped    losses and reports in %s that were not finite on both sides: "
                        "%lld\n",
                        v->precision, (long long)v->not_finite);
}

static void print_main(const ech_verification *v, ech_text *out)
{
    ech_text_append(out, "layout     %s (%s): %s\n", ECH_COUNT(v->ranks, "rank"), v->comm,
                    v->layout);
    ech_text_append(out, "against    1 rank, %s, in %s\n",
                    v->merged > 1 ? "the micro-batches of all replicas as one, in order"
                    : v->replayed ? "the serial replay of its delayed updates"
                    : v->open
                        ? "each micro-batch with the weights that its rank had read, then their sum"
                        : "the same micro-batches in order",
                    v->precision);
    if (v->open)
        ech_text_append(
            out, "skipped    the order in which ranks add their updates, which is not recorded\n");
    if (v->carried)
        ech_text_append(
            out, "skipped    final weights: they depend on the timing of the ring exchange\n");
    ech_text_append(out, "steps      %lld\n", (long long)v->done);
    ech_text_append(out, "errors     loss       %.1e\n", v->worst_loss);
    ech_text_append(out, "           gradients  %.1e\n", v->worst_gradient);
    ech_text_append(out, "           weights    %.1e\n", v->worst_weight);
    ech_text_append(out, "           states     %.1e\n", v->worst_state);
    if (v->reports) ech_text_append(out, "           reports    %.1e\n", v->worst_report);
    if (v->validated) ech_text_append(out, "           validation %.1e\n", v->worst_validation);
    ech_text_append(out, "unit       %.1e  the change by a random last bit of each weight\n",
                    v->unit);
    ech_text_append(out, "compared   %s elements\n", ECH_DIGITS(v->compared));
    if (v->worst_at[0]) ech_text_append(out, "worst      %.1e  at %s\n", v->worst, v->worst_at);
    print_withheld(v, out);
}

static void print_own(const ech_verification *v, ech_text *out)
{
    ech_text_append(out, "in %s    ", v->precision);
    if (v->worst > 0)
        ech_text_append(out, "worst %.1e  at %s\n", v->worst, v->worst_at);
    else
        ech_text_append(out, "the same bits\n");
    print_withheld(v, out);
}

static void print_ill(const ech_verification *v, ech_text *out)
{
    ech_text_append(out, "ILL-CONDITIONED  ");
    if (ech_verification_is_void(v))
        ech_text_append(out,
                        "every update in %s was withheld, so no gradient was compared; use a "
                        "smaller precision.loss_scale or initial weights\n",
                        v->precision);
    else if (v->own_precision)
        ech_text_append(out,
                        "a random last bit of each weight makes numbers overflow in %s; use a "
                        "smaller precision.loss_scale or initial weights\n",
                        v->precision);
    else
        ech_text_append(out,
                        "with a unit above %g the comparison proves nothing; lower "
                        "optimizer.learning_rate or dropout, or use more tokens\n",
                        ECH_MOST_UNIT);
}

/* One line: the verdict of the comparison that failed, or of both. */
static void print_verdict(const ech_verification *v, const ech_verification *own, ech_text *out)
{
    const ech_verification *bad = !v->passed ? v : own && !own->passed ? own : NULL;
    if (bad && bad->ill)
        print_ill(bad, out);
    else if (bad && bad->tolerance > 0)
        ech_text_append(out, "FAILED     not within %.2g in %s, first at %s\n", bad->tolerance,
                        bad->precision, bad->first_bad);
    else if (bad)
        ech_text_append(out, "FAILED     not the same bits in %s, first at %s\n", bad->precision,
                        bad->first_bad);
    else if (own && own->tolerance > 0)
        ech_text_append(out, "PASSED     within %.2g, and %.2g in %s\n", v->tolerance,
                        own->tolerance, own->precision);
    else
        ech_text_append(out, "PASSED     within %.2g\n", v->tolerance);
}

void ech_verify_print(const ech_verifications *both, ech_text *out)
{
    const ech_verification *own = both->own_compared ? &both->own : NULL;
    print_main(&both->main, out);
    if (own) print_own(own, out);
    print_verdict(&both->main, own, out);
}
