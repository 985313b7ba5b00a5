/* SPDX-License-Identifier: Apache-2.0
 *
 * Warnings of what a run was told to do and will not do, since a count is 0 that probably should
 * not be.
 * */
#include "app/train/trainer.h"
#include "base/log.h"

static void check_curve(const ech_config *config)
{
    long long steps = config->training.steps, warmup = config->optimizer.warmup_steps;
    long long decay = config->optimizer.decay_steps, left = steps - warmup;
    bool decays = ech_config_is_set(config, "optimizer.decay_steps");
    if (warmup > steps)
        ech_log_warn("optimizer.warmup_steps = %lld of training.steps = %lld: the learning rate "
                     "ends at %.3g and never reaches %.3g; use fewer",
                     warmup, steps,
                     config->optimizer.learning_rate * (double)steps / (double)warmup,
                     config->optimizer.learning_rate);
    else if (decays && decay > left)
        ech_log_warn("optimizer.decay_steps = %lld, and training.steps = %lld leave %lld after the "
                     "warmup: the decay begins before the warmup ends; use fewer",
                     decay, steps, left);
}

static void check_documents(const ech_config *config, const ech_corpus *corpus)
{
    const char *path = corpus ? ech_corpus_undivided(corpus) : NULL;
    if (config->data.document_mask == 1 && path)
        ech_log_warn("data.document_mask: %s is one document, without an end of text before its "
                     "last token: there is nothing to mask",
                     path);
}

static void check_split(const ech_config *config)
{
    int64_t bound[4];
    if (!config->data.split[0] || !ech_text_to_bounds(config->data.split, bound)) return;
    if (bound[1] == bound[3])
        ech_log_warn("data.split = %s leaves all documents to train on: it does nothing",
                     config->data.split);
}

void ech_trainer_warn_of_nothing(const ech_trainer *t)
{
    check_curve(t->config);
    check_split(t->config);
    check_documents(t->config, t->train);
    check_documents(t->config, t->valid);
}
