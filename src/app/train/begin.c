/* SPDX-License-Identifier: Apache-2.0
 *
 * The beginning of a training run: data, session, and the newest checkpoint or initial parameters.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/count.h"
#include "app/machine.h"
#include "app/metrics.h"
#include "app/plan/report.h"
#include "app/setup/cards.h"
#include "app/setup/parts.h"
#include "app/setup/initial.h"
#include "app/setup/plugins.h"
#include "app/train/trainer.h"
#include "app/train/validation.h"
#include "base/file.h"
#include "base/log.h"
#include "base/writing.h"
#include "checkpoint/agree.h"
#include "device/card.h"
#include "schedule/calendar.h"

/* Keys on which an asynchronous schedule's updates depend may only change together with the
 * schedule. Spans of delayed updates, and of ranks whose weights meet at their ends, begin anew
 * with all that was saved: another length is another run from there on, as other numbers of workers
 * are. */
static const char *fixed_by_schedule(const ech_config *saved, const ech_trainer *now)
{
    bool same = strcmp(saved->parallel.schedule, now->config->parallel.schedule) == 0;
    ech_weights weights = now->design->schedule->weights;
    bool asynchronous = weights != ECH_WEIGHTS_FLUSHED && weights != ECH_WEIGHTS_DELAYED &&
                        weights != ECH_WEIGHTS_PULLED;
    return same && asynchronous
               ? "parallel.flush_every parallel.vertical_sync parallel.weight_stashing"
               : "";
}

/* Whether two tokenizers are written alike. */
static bool is_same(const ech_tokenizer *a, const ech_tokenizer *b)
{
    ECH_FREED_TEXT tokens = {0}, config = {0}, other = {0}, other_config = {0};
    if (!a) return false;
    ech_tokenizer_export(a, &tokens, &config);
    ech_tokenizer_export(b, &other, &other_config);
    bool same = tokens.n == other.n && memcmp(tokens.at, other.at, other.n) == 0 &&
                strcmp(config.at, other_config.at) == 0;
    return same;
}

/* A checkpoint has the tokenizer itself, so its file may have moved, but ids must mean the same.
 * Where none was known, one may be named now. */
static ech_status check_same_tokenizer(const ech_trainer *t, const ech_checkpoint *checkpoint)
{
    ECH_FREED char *folder = ech_file_join(ech_checkpoint_path(checkpoint), "model");
    ECH_CLEANUP(ech_tokenizer_close_at) ech_tokenizer *saved = NULL;
    ECH_TRY(ech_initial_open_folder(folder, &saved));
    if (!saved || is_same(t->design->tokenizer, saved)) return ECH_OK;
    return ech_config_complain(t->config, "data.tokenizer",
                               "differs from the tokenizer of the checkpoint; use %s/model, or "
                               "start a run in another directory",
                               ech_checkpoint_path(checkpoint));
}

/* Fills in data.identity by what data.train contains, which a run file may state. On rank 0, whose
 * run file is saved. */
static ech_status find_identity(ech_trainer *t)
{
    ECH_FREED_TEXT found = {0}, change = {0};
    const char *stated = t->config->data.identity;
    ECH_TRY(ech_corpus_identity(t->train, &found));
    t->accepts_data = strcmp(stated, "any") == 0;
    if (!t->accepts_data && !ech_config_is_auto(stated) && strcmp(stated, found.at) != 0) {
        ech_corpus_print_change(stated, found.at, &change);
        return ech_config_complain(t->config, "data.identity",
                                   "data.train = %s has other data: %s; name the data that the "
                                   "run file was made for, or set data.identity=any",
                                   t->config->data.train, change.at);
    }
    ech_config_replace_text(&t->config->data.identity, found.at);
    return ECH_OK;
}

/* Fills in training.plugin_hashes. On rank 0, whose run file is saved. */
static void find_plugins(ech_trainer *t)
{
    ECH_FREED_TEXT hashes = {0};
    char **key = &t->config->training.plugin_hashes;
    t->accepts_plugins = strcmp(*key, "any") == 0;
    ech_plugins_describe(t->config, &hashes);
    ech_config_replace_text(key, hashes.n ? hashes.at : "auto");
}

/* A checkpoint's states are of the plugins that made them. */
static ech_status check_same_plugins(const ech_trainer *t, const ech_config *saved)
{
    const char *before = saved->training.plugin_hashes, *now = t->config->training.plugin_hashes;
    if (t->accepts_plugins || strcmp(before, now) == 0) return ECH_OK;
    ECH_FAIL(ECH_EUSAGE,
             "training.plugins: the checkpoint was made with %s, and this run uses %s; name the "
             "same files, accept others with training.plugin_hashes=any, or start a run in another "
             "directory",
             strcmp(before, "auto") == 0 ? "no plugin" : before,
             strcmp(now, "auto") == 0 ? "no plugin" : now);
}

/* The data may have moved, but must be what the checkpoint was trained on. One that is older than
 * data.identity has only their name. */
static ech_status check_same_data(const ech_trainer *t, const ech_config *saved)
{
    ECH_FREED_TEXT change = {0};
    const char *before = saved->data.identity, *now = t->config->data.identity;
    if (t->accepts_data) return ECH_OK;
    if (ech_config_is_auto(before)) {
        if (strcmp(saved->data.train, t->config->data.train) == 0) return ECH_OK;
        return ech_config_complain(t->config, "data.train",
                                   "%s in the checkpoint, which does not say what that contained; "
                                   "if these are the same data, set data.identity=any",
                                   saved->data.train);
    }
    if (strcmp(before, now) == 0) return ECH_OK;
    ech_corpus_print_change(before, now, &change);
    return ech_config_complain(t->config, "data.train",
                               "differs from the data of the checkpoint (%s): %s; name the same "
                               "data in their present place, accept others with data.identity=any, "
                               "or start a run in another directory",
                               saved->data.train, change.at);
}

/* A run that goes on has states for the rows that it has; only one that begins can add rows. */
static ech_status check_vocabulary(const ech_trainer *t, const ech_config *saved,
                                   const ech_checkpoint *checkpoint)
{
    int64_t had = saved->model.vocab_size, V = t->config->model.vocab_size;
    if (V <= had) return ECH_OK;
    return ech_config_complain(
        t->config, "model.vocab_size",
        "%lld in %s, whose optimizer states have as many rows; set it back, or begin a run with "
        "new states and added rows: model.init_from=%s log.directory=NEW",
        (long long)had, ech_checkpoint_path(checkpoint), ech_checkpoint_path(checkpoint));
}

/* Residuals in the checkpoint are gradients that have not been sent yet. */
static void tell_compression(const ech_trainer *t, const ech_config *saved)
{
    ECH_FREED_TEXT before = {0}, now = {0};
    ech_config_format(saved, "parallel.compression", &before);
    ech_config_format(t->config, "parallel.compression", &now);
    if (strcmp(before.at, now.at) == 0) return;
    ech_log_info("gradients were compressed by parallel.compression = %s until now, and by %s from "
                 "here on%s",
                 before.at, now.at,
                 t->config->parallel.compression == ECH_COMPRESSION_NONE
                     ? "; what has not been sent yet is discarded"
                     : "");
}

static ech_status check_saved(const ech_trainer *t, const ech_checkpoint *checkpoint)
{
    ECH_CLEANUP(ech_config_destroy_at) ech_config *saved = NULL;
    int64_t step = ech_checkpoint_get_info(checkpoint)->step;
    int turns = t->design->schedule->turns;
    if (step >= t->design->schedule->delayed_from && step % turns)
        return ech_config_complain(t->config, "parallel.flush_every",
                                   "%s is of step %lld, within a span of %d steps; use a number "
                                   "that divides it",
                                   ech_checkpoint_path(checkpoint), (long long)step, turns);
    ECH_TRY(ech_setup_config_saved(checkpoint, &saved));
    ECH_TRY(check_same_tokenizer(t, checkpoint)); /* a vocabulary that follows from it */
    ECH_TRY(check_same_data(t, saved));
    ECH_TRY(check_same_plugins(t, saved));
    ECH_TRY(ech_model_resolve(saved, 1));         /* keys that are newer than it */
    ECH_TRY(check_vocabulary(t, saved, checkpoint));
    ECH_TRY(ech_config_check_resume(saved, t->config, fixed_by_schedule(saved, t)));
    for (size_t i = 0; i < t->design->model->param.n; i++)
        ECH_TRY(ech_optimizer_check_resume(saved, t->config, &t->design->model->param.at[i]));
    tell_compression(t, saved);
    return ech_optimizer_check_frozen(saved, t->config, t->design->model->param.at,
                                      t->design->model->param.n);
}

/* Whether a path is, or lies in, the folder; links are followed. */
static bool lies_in(const char *path, const char *folder)
{
    ECH_FREED char *a = realpath(path, NULL), *b = realpath(folder, NULL);
    size_t n = b ? strlen(b) : 0;
    bool lies = a && b && strncmp(a, b, n) == 0 && (a[n] == '/' || a[n] == '\0');
    return lies;
}

/* checkpoint.resume is a path, and the run has checkpoints of its own. If the path is not one of
 * these, it was for the run's beginning, and the same command now resumes the run. One of its own
 * must be the newest. */
static ech_status check_named(const ech_trainer *t, const ech_checkpoint *newest)
{
    const char *named = t->config->checkpoint.resume, *own = ech_checkpoint_path(newest);
    bool is_newest = lies_in(named, own) || lies_in(own, named);
    if (is_newest) return ECH_OK;
    if (!lies_in(named, t->config->checkpoint.directory)) {
        ech_log_info("this run has checkpoints of its own, so checkpoint.resume = %s is not used",
                     named);
        return ECH_OK;
    }
    return ech_config_complain(t->config, "checkpoint.resume",
                               "a run resumes from its newest valid checkpoint, which is %s; to go "
                               "back, move newer ones away, or use another log.directory",
                               own);
}

/* The checkpoint to resume from; NULL: none; the caller closes it also after a failure. On rank 0
 * only, and before the other ranks learn of an error: one of them that exits could make the
 * launcher end the job before rank 0 has logged it. A restart of the job goes on from its own,
 * whatever the first start began with. */
static ech_status find_start(const ech_trainer *t, ech_checkpoint **out)
{
    const ech_config *c = t->config;
    const char *resume = c->checkpoint.resume;
    bool never = strcmp(resume, "never") == 0, named = !never && !ech_config_is_auto(resume);
    bool again = t->training->elapsed > 0;
    ECH_TRY(ech_checkpoint_open_newest(c->checkpoint.directory, true, out));
    if (*out && never && !again)
        return ech_config_complain(c, "checkpoint.resume",
                                   "%s exists; remove it, choose another checkpoint.directory, or "
                                   "set checkpoint.resume to auto",
                                   ech_checkpoint_path(*out));
    if (*out && named && !again) ECH_TRY(check_named(t, *out));
    if (!*out && named) ECH_TRY(ech_checkpoint_find(resume, true, out));
    return *out ? check_saved(t, *out) : ECH_OK;
}

static ech_status resume_from(ech_trainer *t, const ech_checkpoint *checkpoint)
{
    const ech_checkpoint_info *info = ech_checkpoint_get_info(checkpoint);
    ECH_TRY(ech_exec_run(t->session.exec, ECH_LIST_INIT, 0));
    ECH_TRY(ech_exec_restore(t->session.exec, checkpoint));
    t->step = info->step;
    memcpy(t->session.base, info->base, sizeof info->base);
    /* a checkpoint of another run is not saved by this one */
    bool own = lies_in(ech_checkpoint_path(checkpoint), t->config->checkpoint.directory);
    t->saved_step = own ? info->step : -1;
    t->skipped = info->skipped_steps;
    t->loss = info->loss;
    if (own) t->validated = info->validated;
    t->tokens = info->samples * t->design->sample_units;
    if (ech_trainer_is_first(t))
        ech_log_info("resuming from %s (saved by %s)", ech_checkpoint_path(checkpoint),
                     ECH_COUNT(info->ranks, "rank"));
    return ECH_OK;
}

/* Creates and locks the folders: an unwritable one must show now, not at the first save, and two
 * runs at once would truncate each other's metrics and remove each other's unfinished checkpoints.
 * */
static ech_status claim_folders(ech_trainer *t)
{
    const char *folder[] = {t->config->log.directory, t->config->checkpoint.directory};
    /* Seconds for the locks of a job that is ending, since restarts follow at once; the other ranks
     * wait. */
    double patience = fmin(t->config->parallel.deadline / 2, 10);
    if (!ech_trainer_is_first(t)) return ECH_OK;
    for (int i = 0; i < 2; i++) {
        ECH_TRY(ech_file_make_folder(folder[i]));
        if (i == 0 || !ech_file_is_same(folder[1], t->lock[0]))
            ECH_TRY(ech_file_lock_folder(folder[i], patience, &t->lock[i]));
    }
    return ECH_OK;
}

/* The start's checkpoint (NULL: none) and the folder of its weights; on rank 0. */
static ech_status choose_start(ech_trainer *t, ech_checkpoint **out)
{
    ECH_TRY(find_start(t, out));
    ECH_TRY(ech_design_check_repeat(t->design, *out ? ech_checkpoint_get_info(*out)->step : 0));
    if (*out)
        t->model_folder = ech_file_join(ech_checkpoint_path(*out), "model");
    else if (t->config->model.init_from[0])
        ECH_TRY(ech_shards_find(t->config->model.init_from, &t->model_folder));
    return ECH_OK;
}

/* Restores a checkpoint that verifies, or sets initial parameters. Rank 0 finds and checks the
 * checkpoint, which may take longer than the deadline; the others open it. */
static ech_status restore(ech_trainer *t)
{
    char path[4096] = "";
    ech_joint joint;
    ech_group *world = ech_exec_world(t->session.exec);
    ECH_CLEANUP(ech_checkpoint_close_at) ech_checkpoint *checkpoint = NULL;
    t->saved_step = t->proven = -1;
    ech_joint_begin(&joint, world);
    ech_status status = ech_trainer_is_first(t) ? choose_start(t, &checkpoint) : ECH_OK;
    ECH_TRY(ech_joint_end_or_fail(&joint, status));
    if (checkpoint) snprintf(path, sizeof path, "%s", ech_checkpoint_path(checkpoint));
    ECH_TRY(ech_group_broadcast(world, 0, path, sizeof path));
    if (path[0] && !checkpoint) ECH_TRY(ech_checkpoint_open(path, false, &checkpoint));
    return checkpoint ? resume_from(t, checkpoint) : ech_session_initialise(&t->session, t->config);
}

/* Some tensor ranks of this rank's group are on other machines. */
static bool is_far(const ech_trainer *t)
{
    const ech_layout *layout = t->design->layout;
    ECH_FREED int *members = ech_calloc((size_t)layout->world, sizeof *members);
    int n = ech_layout_members(layout, t->design->model, ech_comm_rank(t->comm), ECH_GROUP_TENSOR,
                               members);
    bool near = ech_comm_is_near(t->comm, members, n);
    return !near;
}

/* FLOP/s of all ranks, the denominator of mfu: measured on the processor, of a GPU by its card's
 * data sheet, 0 if there is none. */
static double peak_of(const ech_trainer *t)
{
    const ech_device *device = ech_device_find(ech_config_name(t->config, "parallel.device"));
    ech_dtype dtype = t->design->kernels->dtype;
    double own = 0, world = t->design->world;
    if (ech_device_is_processor(device))
        own = ech_peak_flops(dtype, (int)t->config->parallel.threads);
    else if (dtype != ECH_F64)
        own = ech_card_flops(ech_device_describe(device->name), dtype != ECH_F32 ? ECH_CARD_HALVES
                                                                : t->config->precision.tf32 == 1
                                                                    ? ECH_CARD_TF32
                                                                    : ECH_CARD_FP32);
    return own * world /
           (ech_device_is_processor(device)
                ? 1
                : ech_cards_sharers(t->config, device, ech_comm_local_size(t->comm)));
}

/* The load of the last minute, which the run's own ranks have only just begun to add to; 0: below
 * half a core, or the peak is of a data sheet. */
static double load_of(const ech_trainer *t)
{
    double load;
    const ech_device *device = ech_device_find(ech_config_name(t->config, "parallel.device"));
    bool measured = ech_device_is_processor(device) && getloadavg(&load, 1) == 1;
    return measured && load >= 0.5 ? load : 0;
}

static ech_status open_progress(ech_trainer *t, const char *axes)
{
    ECH_FREED_TEXT yaml = {0}, serves = {0};
    ECH_FREED char *path = ech_file_join(t->config->log.directory, "run.yaml"),
                   *beside = ech_file_join(t->config->log.directory, ECH_MAPPING_FILE);
    size_t n = 0;
    const char *mapping = ech_family_mapping(ech_family_of(t->config), &n);
    ech_config_print(t->config, &yaml);
    if (ech_trainer_pushes(t))
        ech_serve_log_begin(t->config, t->design->layout, t->design->schedule, t->step, &serves);
    ech_progress_setup setup = {.directory = t->config->log.directory,
                                .steps = t->config->training.steps,
                                .first_step = t->step,
                                .every = t->config->log.every,
                                .validates = t->calendar.validates,
                                .validate_every = t->calendar.validate_every,
                                .load = load_of(t),
                                .peak_flops = peak_of(t),
                                .ranks = ech_layout_ranks(t->design->layout),
                                .layout = axes,
                                .run_yaml = yaml.at,
                                .serves = serves.at,
                                .samples = t->design->model->family->samples,
                                .tensorboard = t->config->log.tensorboard == 1};
    ECH_TRY(ech_file_write_inside(path, yaml.at, yaml.n));
    if (mapping) ECH_TRY(ech_file_write_inside(beside, mapping, n));
    return ech_progress_create(&setup, &t->progress);
}

static void say_what_runs(const ech_trainer *t, const double arena_bytes[ECH_SPACES], bool far,
                          const char *axes)
{
    char active[48] = "";
    int64_t all = ech_model_params(t->design->model), used = ech_model_active(t->design->model);
    if (used < all) snprintf(active, sizeof active, " (%lld active in a token)", (long long)used);
    bool on_disk = arena_bytes[ECH_SPACE_DISK] > 0, in_shared = arena_bytes[ECH_SPACE_SHARED] > 0;
    ech_progress_say(
        t->progress,
        "%s, %lld parameters%s, on %s of %s (%s, %s, %s)%s%s; %s%s and %s of the host%s%s%s%s%s",
        t->design->model->family->name, (long long)all, active,
        ECH_COUNT(ech_layout_ranks(t->design->layout), "rank"),
        ECH_COUNT(t->config->parallel.threads, "thread"),
        ech_kernels_architecture(t->design->kernels), ech_comm_name(t->comm),
        ech_exec_binding(t->session.exec), axes[0] ? ": " : "", axes,
        t->design->world > 1 ? "at most " : "", ECH_BYTES((int64_t)arena_bytes[ECH_SPACE_DEVICE]),
        ECH_BYTES((int64_t)arena_bytes[ECH_SPACE_HOST]), on_disk ? ", " : "",
        on_disk ? ECH_BYTES((int64_t)arena_bytes[ECH_SPACE_DISK]) : "", on_disk ? " on disk" : "",
        in_shared ? ", and of all together shared memory of " : "",
        in_shared ? ECH_BYTES((int64_t)arena_bytes[ECH_SPACE_SHARED]) : "");
    if (far)
        ech_progress_say(t->progress,
                         "tensor ranks of one group are on several machines; a parallel.tensor "
                         "that divides a machine's ranks would be faster");
}

/* Warns of matrices whose shorter side is below parallel.compression_rank. */
static void say_whose_rank_is_lower(const ech_trainer *t)
{
    const ech_model *model = t->design->model;
    const ech_param *first = NULL;
    int64_t asked = t->config->parallel.compression_rank;
    int n = 0;
    for (size_t p = 0; p < model->param.n; p++) {
        const ech_param *param = &model->param.at[p];
        int64_t rank = ech_compression_rank(t->config, param);
        if (rank == 0 || rank == asked) continue;
        if (n++ == 0) first = param;
    }
    if (n == 0) return;
    ech_shape one = ech_shape_of_one(&first->shape);
    ech_progress_say(
        t->progress,
        "parallel.compression_rank = %lld exceeds the shorter side of %d matrices, such as %s, "
        "%lld x %lld; that side is their rank, and only a lower rank sends less than the whole "
        "matrix",
        (long long)asked, n, first->name, (long long)one.size[0], (long long)one.size[1]);
}

/* Warns of matrices with less than one number per line at parallel.compression_density. */
static void say_whose_density_is_higher(const ech_trainer *t)
{
    const ech_model *model = t->design->model;
    const ech_param *first = NULL;
    double asked = t->config->parallel.compression_density;
    int n = 0;
    for (size_t p = 0; p < model->param.n; p++) {
        const ech_param *param = &model->param.at[p];
        if (ech_compression_chosen(t->config, param) != 1) continue;
        if (asked * (double)ech_compression_line(param) < 1 && n++ == 0) first = param;
    }
    if (n == 0) return;
    ech_progress_say(t->progress,
                     "parallel.compression_density = %g is less than one number per row or column "
                     "of %d matrices, such as %s, whose lines have %lld; one number per line is "
                     "sent",
                     asked, n, first->name, (long long)ech_compression_line(first));
}

/* Rank 0 logs the largest arenas of all ranks. Collective. */
static ech_status begin_progress(ech_trainer *t)
{
    ECH_FREED_TEXT axes = {0};
    double most[ECH_SPACES + 1] = {[ECH_SPACES] = is_far(t)};
    for (int space = 0; space < ECH_SPACES; space++)
        most[space] = (double)t->session.plan->arena_bytes[space];
    ECH_TRY(ech_group_fold(ech_exec_world(t->session.exec), ECH_FOLD_MAX, most, ECH_SPACES + 1));
    if (!ech_trainer_is_first(t)) return ECH_OK;
    ech_print_axes(t->design, &axes);
    ECH_TRY(open_progress(t, axes.n ? axes.at : ""));
    say_what_runs(t, most, most[ECH_SPACES] > 0, axes.n ? axes.at : "");
    say_whose_rank_is_lower(t);
    say_whose_density_is_higher(t);
    return ECH_OK;
}

static bool has_step(const ech_metrics_steps *steps, int64_t step)
{
    for (size_t i = 0; i < steps->n; i++)
        if (steps->at[i] == step) return true;
    return false;
}

/* Earlier starts may have ended before the checkpoints up to this start's were evaluated; one that
 * was removed since is reported by its evaluator. Starts without evaluators may have saved
 * checkpoints before the first evaluation. */
static void add_left(const ech_trainer *t, const ech_metrics_steps *saved,
                     const ech_metrics_steps *evaluated)
{
    int64_t first = t->saved_step, before = 0;
    for (size_t i = 0; i < evaluated->n; i++)
        if (evaluated->at[i] < first) first = evaluated->at[i];
    for (size_t i = 0; i < saved->n; i++) {
        int64_t step = saved->at[i];
        if (step >= t->saved_step || has_step(evaluated, step)) continue;
        before += step < first;
        if (step > first) ech_evaluations_add(t->evaluations, step);
    }
    if (!has_step(evaluated, t->saved_step)) ech_evaluations_add(t->evaluations, t->saved_step);
    if (before)
        ech_progress_say(t->progress, "not evaluated: %s before step-%08lld",
                         ECH_COUNT(before, "checkpoint"), (long long)first);
}

static ech_status begin_evaluations(ech_trainer *t)
{
    ECH_FREED char *path = ech_file_join(t->config->log.directory, "metrics.jsonl");
    ech_metrics_steps saved = {0}, evaluated = {0};
    ECH_TRY(ech_evaluations_create(t->comm, t->design->layout, t->config, t->progress,
                                   &t->evaluations));
    if (t->saved_step < 0) return ECH_OK;
    ech_status status = ech_metrics_find(path, "checkpoint", &saved);
    if (status == ECH_OK) status = ech_metrics_find(path, "evaluation", &evaluated);
    if (status == ECH_OK) add_left(t, &saved, &evaluated);
    free(saved.at);
    free(evaluated.at);
    return status;
}

/* Recordings are of the train list. */
static int64_t first_traced(const ech_trainer *t)
{
    int64_t from = t->design->schedule->delayed_from;
    return t->step < from ? from : t->step;
}

/* What packing has left out must be seen. */
static void say_documents(const ech_trainer *t)
{
    ECH_FREED_TEXT text = {0};
    ech_corpus_counts counts;
    if (t->config->data.packing != ECH_PACKING_DOCUMENTS) return;
    ech_design_count_data(t->design, t->train, &counts);
    ech_print_data(t->design, &counts, "; ", &text);
    ech_log_info("%s", text.at);
}

/* What is validated on must be seen where it is not all. */
static void say_validation(const ech_trainer *t)
{
    int64_t all = ech_corpus_samples(t->valid), n = ech_validation_samples(t->config, t->valid);
    if (n == all) return;
    ech_progress_say(t->progress,
                     "validation uses a random sample of the validation data, the same each time: "
                     "%lld of %lld samples, %s %ss; training.validate_samples = 0 uses all",
                     (long long)n, (long long)all, ECH_DIGITS(n * t->design->sample_units),
                     ech_sample_row_of(t->design->model->family->samples)->unit);
}

ech_status ech_trainer_begin(ech_trainer *t)
{
    ECH_TRY(ech_design_open_data(t->design, ECH_SPLIT_TRAIN, &t->train));
    ECH_TRY(ech_design_open_data(t->design, ECH_SPLIT_VALID, &t->valid));
    if (ech_trainer_is_first(t)) ECH_TRY(find_identity(t));
    if (ech_trainer_is_first(t)) find_plugins(t);
    if (ech_trainer_is_first(t)) ech_trainer_warn_of_nothing(t);
    if (ech_trainer_is_first(t)) say_documents(t);
    if (ech_trainer_is_first(t)) ECH_TRY(ech_design_check_ranks(t->design, ECH_CHECKED_STEPS));
    ECH_TRY(ech_session_create(t->design, t->comm, false, &t->session));
    t->calendar = ech_calendar_of(t->config);
    t->flops = t->design->sample_flops * (double)t->config->training.global_batch_size;
    if (t->config->log.histograms > 0) t->histograms = ech_histograms_create(t->session.plan);
    ECH_TRY(claim_folders(t));
    ECH_TRY(restore(t));
    if (ech_trainer_is_first(t)) ECH_TRY(ech_trainer_check_clocks(t));
    ECH_TRY(begin_progress(t));
    ECH_TRY(ech_trainer_begin_saves(t));
    ECH_TRY(ech_samples_create(t, &t->samples));
    if (ech_trainer_is_first(t) && ech_layout_roles(t->design->layout).evaluate.n)
        ECH_TRY(begin_evaluations(t));
    if (t->config->log.trace == 1)
        ECH_TRY(ech_trace_open(t->config, t->session.plan, t->comm, first_traced(t), &t->trace));
    ECH_TRY(ech_session_read(&t->session, t->design, t->train, ECH_TRAIN, t->step, INT64_MAX,
                             &t->loader));
    if (!t->calendar.validates) return ECH_OK;
    ECH_TRY(ech_trainer_begin_validations(t));
    if (ech_trainer_is_first(t)) say_validation(t);
    return ech_validation_open(&t->session, t->design, t->valid, &t->valid_loader);
}
