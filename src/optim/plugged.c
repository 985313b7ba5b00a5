/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizers and learning-rate curves of plugins (echelon_plugin.h).
 */
#include "optim/plugged.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/added.h"
#include "config/strategy.h"
#include "layer/layers.h"

_Static_assert((int)ECHELON_MOST_DIMS >= (int)ECH_MAX_DIMS, "parameters fit");
_Static_assert((int)ECHELON_MOST_STATISTICS <= (int)ECH_MAX_STATISTICS, "so do statistics");
_Static_assert(2 + (int)ECHELON_MOST_STATES + (int)ECHELON_MOST_STATISTICS <= (int)ECH_USER_TENSORS,
               "and a call's tensors");

/* ---- rows ---- */

static ech_status check_keys(const char *plugin, const char *name, const char *reads)
{
    for (ECH_FREED_WORDS key = ech_words_in(reads); ech_words_next(&key);)
        if (strncmp(key.at, "optimizer.", strlen("optimizer.")) != 0 ||
            !ech_config_type_name(key.at))
            ECH_FAIL(ECH_EUSAGE,
                     "plugin %s: %s: reads: %.80s: not a key of the section optimizer; `echelon "
                     "help keys` lists them",
                     plugin, name, key.at);
    return ECH_OK;
}

ech_status ech_plugged_check_optimizer(const char *plugin, const echelon_optimizer *row)
{
    ECH_TRY(ech_added_check(plugin, row->name, "declare", row->declare));
    ECH_TRY(ech_added_check(plugin, row->name, "update", row->update));
    return check_keys(plugin, row->name, row->reads);
}

ech_status ech_plugged_check_curve(const char *plugin, const echelon_curve *row)
{
    ECH_TRY(ech_added_check(plugin, row->name, "rate", row->rate));
    return check_keys(plugin, row->name, row->reads);
}

/* ---- what functions are given ---- */

static echelon_numbers numbers_of(const ech_config *c)
{
    return (echelon_numbers){.learning_rate = c->optimizer.learning_rate,
                             .min_learning_rate = c->optimizer.min_learning_rate,
                             .weight_decay = c->optimizer.weight_decay,
                             .beta1 = c->optimizer.beta1,
                             .beta2 = c->optimizer.beta2,
                             .eps = c->optimizer.eps,
                             .momentum = c->optimizer.momentum,
                             .nesterov = c->optimizer.nesterov == 1,
                             .steps = c->training.steps,
                             .warmup_steps = c->optimizer.warmup_steps,
                             .decay_steps = c->optimizer.decay_steps};
}

static echelon_param param_of(const ech_param *one)
{
    echelon_param param = {.name = one->name, .dims = one->shape.dims};
    for (int d = 0; d < param.dims; d++) {
        param.shape[d] = one->shape.size[d];
        param.axis[d] = ech_axis_name(one->shape.axis[d]);
    }
    return param;
}

/* ---- declarations ---- */

/* The dimensions that `axes` does not name; *unknown: the first word that names none of them. */
static unsigned lacks_of(const char *axes, const ech_param *param, char unknown[64])
{
    unsigned all = (1u << param->shape.dims) - 1, has = 0;
    unknown[0] = '\0';
    if (!axes) return 0;
    for (ECH_FREED_WORDS word = ech_words_in(axes); ech_words_next(&word);) {
        unsigned of_word = 0;
        for (int d = 0; d < param->shape.dims; d++)
            if (strcmp(ech_axis_name(param->shape.axis[d]), word.at) == 0) of_word |= 1u << d;
        if (!of_word && !unknown[0]) snprintf(unknown, 64, "%s", word.at);
        has |= of_word;
    }
    return all & ~has;
}

static echelon_needs declared(const ech_config *config, const ech_param *one)
{
    echelon_needs needs = {0};
    echelon_numbers numbers = numbers_of(config);
    echelon_param param = param_of(one);
    ech_optimizer_of(config)->plugged->declare(&param, &numbers, &needs);
    return needs;
}

static bool counts_fit(const echelon_needs *needs)
{
    return needs->states >= 0 && needs->states <= ECHELON_MOST_STATES && needs->statistics >= 0 &&
           needs->statistics <= ECHELON_MOST_STATISTICS;
}

/* What is wrong with it is found by ech_optimizer_check_needs. */
static void declare(const ech_config *config, const ech_param *param, ech_optimizer_needs *out)
{
    char unknown[64];
    echelon_needs needs = declared(config, param);
    if (!counts_fit(&needs)) return;
    for (int i = 0; i < needs.states; i++)
        ech_optimizer_add_state(out, needs.state[i].name ? needs.state[i].name : "", param,
                                lacks_of(needs.state[i].axes, param, unknown));
    for (int i = 0; i < needs.statistics; i++) {
        const echelon_statistic *s = &needs.statistic[i];
        unsigned lacks = lacks_of(s->axes, param, unknown);
        bool maximum = s->fold == ECHELON_FOLD_MAXIMUM;
        ech_optimizer_add_statistic(out, s->round == 1, param, lacks, lacks,
                                    maximum ? ECH_SHARDS_MAXIMUM : ECH_SHARDS_SUM);
    }
}

/* ECH_OK, or an error that names optimizer, state and parameter. */
typedef struct declaration {
    const ech_config *config;
    const ech_param *param;
    const char *what, *name; /* "state", "exp_avg" */
} declaration;

static ech_status refuse(const declaration *d, const char *why, const char *hint)
{
    return ech_config_complain(d->config, "optimizer.name",
                               "of %s it declares the %s \"%.40s\": %s%s", d->param->name, d->what,
                               d->name ? d->name : "", why, hint);
}

static ech_status check_axes(const declaration *d, const char *axes)
{
    char unknown[64];
    ECH_FREED_TEXT why = {0};
    (void)lacks_of(axes, d->param, unknown);
    if (!unknown[0]) return ECH_OK;
    ech_text_append(&why, "the parameter has no axis %s; it has", unknown);
    for (int i = 0; i < d->param->shape.dims; i++)
        ech_text_append(&why, " %s", ech_axis_name(d->param->shape.axis[i]));
    return refuse(d, why.at, "");
}

static ech_status check_state(const declaration *d, const echelon_needs *needs, int i)
{
    const char *name = d->name, *letters = "abcdefghijklmnopqrstuvwxyz0123456789_";
    if (!name || !*name || strlen(name) > 40 || name[strspn(name, letters)] ||
        !strcmp(name, "master"))
        return refuse(d, "not a name of a state",
                      "; use lower-case letters, digits and _, and another name than master");
    for (int other = 0; other < i; other++)
        if (strcmp(needs->state[other].name, name) == 0)
            return refuse(d, "another state has this name", "");
    return check_axes(d, needs->state[i].axes);
}

static ech_status check_statistic(const declaration *d, const echelon_statistic *s, bool computes)
{
    char unknown[64];
    if (!computes) return refuse(d, "the function statistics is missing (NULL)", "");
    if (s->round != 0 && s->round != 1) return refuse(d, "its round is neither 0 nor 1", "");
    if (s->fold != ECHELON_FOLD_SUM && s->fold != ECHELON_FOLD_MAXIMUM)
        return refuse(d, "its fold is neither a sum nor a maximum", "");
    if (ech_strategy_servers(d->config) > 0)
        return refuse(d, "its sum is over shards, and each server updates its shard alone",
                      "; use parallel.strategy = synchronous, or optimizer.name = adamw");
    if (!s->axes || !lacks_of(s->axes, d->param, unknown))
        return refuse(d, "it has all axes of the parameter, so it combines nothing", "");
    return check_axes(d, s->axes);
}

ech_status ech_optimizer_check_needs(const ech_config *config, const ech_param *param)
{
    const echelon_optimizer *row = ech_optimizer_of(config)->plugged;
    if (!row || param->commit) return ECH_OK;
    ech_param one = ech_optimizer_one(param);
    echelon_needs needs = declared(config, &one);
    declaration d = {config, &one, "state", NULL};
    if (!counts_fit(&needs))
        return ech_config_complain(config, "optimizer.name",
                                   "of %s it declares %d states and %d statistics; at most %d and "
                                   "%d are possible",
                                   param->name, needs.states, needs.statistics, ECHELON_MOST_STATES,
                                   ECHELON_MOST_STATISTICS);
    for (int i = 0; i < needs.states; i++) {
        d.name = needs.state[i].name;
        ECH_TRY(check_state(&d, &needs, i));
    }
    d.what = "statistic of the axes";
    for (int i = 0; i < needs.statistics; i++) {
        d.name = needs.statistic[i].axes;
        ECH_TRY(check_statistic(&d, &needs.statistic[i], row->statistics));
    }
    return ECH_OK;
}

/* ---- updates ---- */

/* Numbers of a call, and its pointers. */
enum { STATES, STATISTICS, ROUND };
enum { ROW, CONFIG, PARAM };
/* Its tensors: weights, gradient, states, statistics. */
enum { WEIGHTS, GRADIENT, FIRST_STATE };

/* On the side that can access the tensors. */
static void run(const ech_user_call *call)
{
    const echelon_optimizer *row = call->own[ROW];
    echelon_numbers numbers = numbers_of(call->own[CONFIG]);
    ech_param one = ech_optimizer_one(call->own[PARAM]);
    echelon_param param = param_of(&one);
    echelon_array array[ECH_USER_TENSORS];
    for (int i = 0; i < call->tensors; i++) array[i] = ech_plugged_array(&call->tensor[i]);
    echelon_optimizer_work work = {.param = &param,
                                   .weights = array[WEIGHTS],
                                   .gradient = array[GRADIENT],
                                   .state = &array[FIRST_STATE],
                                   .statistic = &array[FIRST_STATE + call->number[STATES]],
                                   .gradient_scale = call->update.grad_scale,
                                   .learning_rate = call->update.learning_rate,
                                   .weight_decay = call->update.weight_decay,
                                   .update = call->update.count,
                                   .numbers = &numbers,
                                   .threads = call->threads};
    if (call->number[ROUND] < ECH_MAX_ROUNDS)
        row->statistics(&work, (int)call->number[ROUND]);
    else
        row->update(&work);
}

/* The tensors that the plugin has declared: not the program's own states and statistics, which
 * follow. */
static void call(const ech_optimizer_work *w, int round)
{
    const echelon_optimizer *row = w->row->plugged;
    echelon_needs needs = declared(w->config, w->of);
    ech_user_call user = {.name = row->name,
                          .run = run,
                          .own = {[ROW] = row, [CONFIG] = w->config, [PARAM] = w->whole},
                          .number = {[STATES] = needs.states, [ROUND] = round},
                          .updates = true,
                          .update = *w->update};
    bool is_update = round == ECH_MAX_ROUNDS;
    if (w->param) user.tensor[WEIGHTS] = *w->param;
    user.tensor[GRADIENT] = *w->gradient;
    user.tensors = FIRST_STATE;
    for (int i = 0; i < needs.states; i++) user.tensor[user.tensors++] = w->state[i];
    if (is_update) user.writes = (1u << user.tensors) - 1 - (1u << GRADIENT);
    for (int i = 0; i < needs.statistics; i++) {
        bool is_of_round = needs.statistic[i].round == round;
        if (is_of_round) user.writes |= 1u << user.tensors;
        if (is_update || needs.statistic[i].round <= round)
            user.tensor[user.tensors] = w->statistic[i];
        user.tensors++;
    }
    w->kernels->user(w->context, &user);
}

static void compute(const ech_optimizer_work *w, int round)
{
    call(w, round);
}

static void apply(const ech_optimizer_work *w)
{
    call(w, ECH_MAX_ROUNDS);
    if (!w->rounded) return;
    int64_t shape[] = {1, 1, 1, ech_tensor_count(w->param)};
    ech_tensor param = ech_tensor_view(w->param->data, w->param->dtype, 4, shape);
    ech_tensor rounded = ech_tensor_view(w->rounded->data, w->rounded->dtype, 4, shape);
    w->kernels->copy(w->context, &param, &rounded);
}

/* All numbers come from the configuration when the plugin is called. */
static void configure(const ech_config *config, ech_update *update)
{
    (void)config, (void)update;
}

const ech_optimizer *ech_plugged_optimizer(const echelon_optimizer *row)
{
    ech_optimizer *own = ech_calloc(1, sizeof *own);
    *own = (ech_optimizer){.name = row->name,
                           .reads = row->reads ? row->reads : "",
                           .declare = declare,
                           .configure = configure,
                           .round = compute,
                           .update = apply,
                           .plugged = row};
    return own;
}

/* ---- learning-rate curves ---- */

static double rate(const ech_config *config, double t, double steps)
{
    echelon_numbers numbers = numbers_of(config);
    return ech_curve_of(config)->plugged->rate(&numbers, t, steps);
}

const ech_curve *ech_plugged_curve(const echelon_curve *row)
{
    ech_curve *own = ech_calloc(1, sizeof *own);
    *own = (ech_curve){row->name, row->reads ? row->reads : "", rate, row};
    return own;
}
