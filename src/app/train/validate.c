/* SPDX-License-Identifier: Apache-2.0
 *
 * Validation: after each, its loader reads the first batches of the next one ahead.
 */
#include "app/train/trainer.h"
#include "base/clock.h"

/* Samples of each validation. */
static int64_t count_samples(const ech_trainer *t)
{
    int64_t all = ech_corpus_samples(t->valid), wanted = t->config->training.validate_samples;
    return wanted > 0 && wanted < all ? wanted : all;
}

ech_status ech_trainer_begin_validation(ech_trainer *t)
{
    if (!t->calendar.validates) return ECH_OK;
    ech_loader_options options =
        ech_design_reads(t->design, ech_comm_rank(t->comm), false, count_samples(t));
    ECH_TRY(ech_loader_create(t->valid, &options, 0, &t->valid_loader));
    ech_exec_set_loader(t->session.exec, ECH_EVALUATE, t->valid_loader);
    return ECH_OK;
}

ech_status ech_trainer_validate(ech_trainer *t)
{
    double start = ech_clock_now(), loss = 0, tokens = 0;
    int64_t G = t->config->training.global_batch_size, samples = count_samples(t);
    for (int64_t step = 0; step * G < samples; step++) {
        ECH_TRY(ech_exec_run(t->session.exec, ECH_LIST_VALIDATE, step));
        loss += ech_exec_readings(t->session.exec)->loss_sum;
        tokens += ech_exec_readings(t->session.exec)->tokens;
    }
    ech_loader_rewind(t->valid_loader, 0); /* the next one's first batches will be there */
    const ech_validation_metrics metrics = {.step = t->step,
                                            .loss = tokens > 0 ? loss / tokens : 0,
                                            .tokens = (int64_t)tokens,
                                            .seconds = ech_clock_now() - start};
    if (ech_trainer_is_first(t)) ech_progress_validation(t->progress, &metrics);
    return ECH_OK;
}
