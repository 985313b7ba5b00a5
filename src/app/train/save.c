/* SPDX-License-Identifier: Apache-2.0
 *
 * Saving, and logging a checkpoint once it is complete: it is written while training continues.
 */
#include <stdio.h>
#include <string.h>

#include "app/setup/adapters.h"
#include "app/setup/initial.h"
#include "app/train/card.h"
#include "app/train/trainer.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"

/* ---- texts that are copied ---- */

static ech_status read_text(const char *path, ech_checkpoint_file file, ech_checkpoint_info *out)
{
    if (!ech_file_exists(path)) return ECH_OK;
    return ech_file_read(path, ECH_TEXT_LIMIT, &out->text[file].at, &out->text[file].n);
}

static ech_status read_from(const char *folder, ech_checkpoint_file file, ech_checkpoint_info *out)
{
    ECH_FREED char *path = ech_file_join(folder, ech_checkpoint_text_name(file));
    return read_text(path, file, out);
}

/* ---- the tokenizer's ---- */

/* The others describe a tokenizer without being one. */
static bool is_vocabulary(ech_checkpoint_file file)
{
    return file != ECH_FILE_TOKENIZER_CONFIG && file != ECH_FILE_SPECIAL_TOKENS &&
           file != ECH_FILE_ADDED_TOKENS && file != ECH_FILE_CHAT_TEMPLATE;
}

/* Takes over the text, unless there is one. */
static void put(ech_text text, ech_checkpoint_file file, ech_checkpoint_info *out)
{
    if (out->text[file].at) {
        ech_text_free(&text);
        return;
    }
    out->text[file].at = text.at;
    out->text[file].n = text.n;
}

/* The file that holds the tokenizer itself. */
static ech_checkpoint_file file_of(const ech_tokenizer *tokenizer)
{
    const char *sentencepiece = ech_checkpoint_text_name(ECH_FILE_SENTENCEPIECE);
    bool same = strcmp(tokenizer->file, sentencepiece) == 0;
    return same ? ECH_FILE_SENTENCEPIECE : ECH_FILE_TOKENIZER;
}

/* Exports a tokenizer that was not read from such files. */
static void add_exported(const ech_tokenizer *tokenizer, ech_checkpoint_info *out)
{
    ech_text bytes = {0}, config = {0};
    ech_checkpoint_file file = file_of(tokenizer);
    if (out->text[file].at && out->text[ECH_FILE_TOKENIZER_CONFIG].at) return;
    ech_tokenizer_export(tokenizer, &bytes, &config);
    put(bytes, file, out);
    put(config, ECH_FILE_TOKENIZER_CONFIG, out);
}

static ech_status read_tokenizer(const ech_tokenizer *tokenizer, const char *folder,
                                 ech_checkpoint_info *out)
{
    ECH_FREED char *opened = tokenizer ? ech_tokenizer_folder(tokenizer) : NULL;
    const char *from = tokenizer ? opened : folder;
    if (opened && !ech_file_is_folder(tokenizer->name))
        ECH_TRY(read_text(tokenizer->name, file_of(tokenizer), out));
    for (int f = ECH_FILE_TOKENIZER; from && f < ECH_FILES; f++) {
        ech_checkpoint_file file = (ech_checkpoint_file)f;
        /* A tokenizer.json beside a named tokenizer.model would take precedence over it. */
        bool wanted = tokenizer ? file != ECH_FILE_TOKENIZER || file == file_of(tokenizer)
                                : !is_vocabulary(file);
        if (wanted && !out->text[f].at) ECH_TRY(read_from(from, file, out));
    }
    if (tokenizer) add_exported(tokenizer, out);
    return ECH_OK;
}

/* Fills the texts of checkpoints. `folder` has the config.json that the model came from; NULL: the
 * model is new. Keys of config.json that Echelon does not write are kept. generation_config.json is
 * copied, and so is the family's mapping file. The tokenizer's files are copied from where it was
 * opened; a tokenizer without such files is exported, and NULL writes none. On failure some texts
 * may be set. */
static ech_status read_texts(const ech_design *design, const char *folder, ech_dtype dtype,
                             ech_checkpoint_info *out)
{
    const ech_config *config = design->config;
    const ech_tokenizer *tokenizer = design->tokenizer;
    ech_text text = {0}, mapping = {0}, adapters = {0};
    ech_model_text_ends ends = {0};
    size_t n = 0;
    const char *stated = ech_family_mapping(ech_family_of(config), &n);
    if (tokenizer) {
        ends.begin = tokenizer->begin_of_text;
        ends.end = tokenizer->end_of_text;
    }
    ECH_TRY(ech_initial_export(config, folder, dtype, tokenizer ? &ends : NULL,
                               ech_config_is_auto(config->data.tokenizer), &text));
    put(text, ECH_FILE_CONFIG, out);
    if (config->lora.rank) ECH_TRY(ech_setup_export_adapters(config, design->model, &adapters));
    if (config->lora.rank) put(adapters, ECH_FILE_ADAPTER_CONFIG, out);
    if (stated) ech_text_append_bytes(&mapping, stated, n);
    if (stated) put(mapping, ECH_FILE_MAPPING, out);
    if (folder) ECH_TRY(read_from(folder, ECH_FILE_GENERATION_CONFIG, out));
    return read_tokenizer(tokenizer, folder, out);
}

/* Logs the last checkpoint, if it was completed since the last call. */
static void log_saved(ech_trainer *t)
{
    ech_exec_saved saved;
    if (!ech_exec_take_saved(t->session.exec, &saved) || !ech_trainer_is_first(t)) return;
    ech_note note = {.kind = ECH_NOTE_CHECKPOINT,
                     .checkpoint = {.step = saved.step,
                                    .bytes = saved.bytes,
                                    .seconds = saved.seconds,
                                    .stall_seconds = saved.step == t->saved_step ? t->stall_seconds
                                                                                 : t->stall_before,
                                    .waited_seconds = saved.waited_seconds}};
    snprintf(note.checkpoint.name, sizeof note.checkpoint.name, "step-%08lld",
             (long long)saved.step);
    ech_progress_submit(t->progress, &note);
    if (t->evaluations) ech_evaluations_add(t->evaluations, saved.step);
}

ech_status ech_trainer_follow_save(ech_trainer *t, bool failed)
{
    if (failed) ECH_TRY(ech_exec_finish_save(t->session.exec));
    if (failed) return ECH_EABORTED;
    log_saved(t);
    return ECH_OK;
}

ech_status ech_trainer_finish_save(ech_trainer *t)
{
    double start = ech_clock_now();
    ECH_TRY(ech_exec_finish_save(t->session.exec));
    t->stall_seconds += ech_clock_now() - start;
    log_saved(t);
    return ECH_OK;
}

/* On rank 0. */
static void append_card(const ech_trainer *t, ech_text *out)
{
    const ech_card card = {.config = t->config,
                           .run_yaml = t->texts.run_yaml,
                           .parameters = ech_model_params(t->design->model),
                           .step = t->step,
                           .tokens = t->tokens,
                           .loss = t->loss,
                           .valid_loss = t->validated.loss,
                           .valid_step = t->validated.is ? t->validated.step : -1};
    if (ech_trainer_is_first(t)) ech_card_append(&card, out);
}

/* The list may wait for the checkpoint before, which is logged then. */
ech_status ech_trainer_save(ech_trainer *t)
{
    if (t->saved_step == t->step) return ECH_OK;
    double start = ech_clock_now();
    ECH_FREED_TEXT card = {0};
    ech_checkpoint_info info = t->texts;
    memcpy(info.base, t->session.base, sizeof info.base);
    info.step = t->step;
    info.optimizer_count = ech_exec_updates(t->session.exec);
    info.samples = t->step * t->config->training.global_batch_size;
    info.skipped_steps = t->skipped;
    info.has_scaler = ech_scaler_is_dynamic(t->config);
    info.scaler = ech_exec_scaler(t->session.exec);
    info.clock = (int64_t *)ech_exec_clocks(t->session.exec); /* borrowed, to be copied */
    info.clocks = info.clock ? ech_layout_workers(t->design->layout) : 0;
    info.loss = t->loss;
    info.validated = t->validated;
    info.ranks = t->design->world;
    append_card(t, &card);
    info.card = card.at; /* borrowed, too */
    ech_exec_set_save(t->session.exec, t->config->checkpoint.directory, &info,
                      t->config->checkpoint.keep, t->calendar.best, t->proven);
    ECH_TRY(ech_exec_run(t->session.exec, ECH_LIST_SAVE, t->step));
    t->stall_before = t->stall_seconds;
    t->stall_seconds = ech_clock_now() - start;
    t->saved_step = t->step;
    log_saved(t);
    return ECH_OK;
}

/* A folder that was moved must not be created anew: the run would save to a new folder without its
 * own checkpoints, or into another run's folder, and a restart would not find its checkpoints. */
static ech_status check_folders(ech_trainer *t)
{
    const ech_config *c = t->config;
    bool one = t->lock[1] < 0; /* for both */
    if (!ech_file_is_same(c->checkpoint.directory, t->lock[one ? 0 : 1])) {
        ech_comm_forbid_restart(t->comm);
        ECH_FAIL(ECH_EIO,
                 "%s: the folder was moved, removed or replaced during the run, so nothing can be "
                 "saved; move it back, and the same command resumes from its newest checkpoint",
                 c->checkpoint.directory);
    }
    if (!one && !t->told_moved && !ech_file_is_same(c->log.directory, t->lock[0])) {
        t->told_moved = true;
        ech_log_warn("%s: the folder was moved, removed or replaced during the run; log records go "
                     "to its new place, or are lost",
                     c->log.directory);
    }
    return ECH_OK;
}

/* Metrics of all steps before a checkpoint are written before it is committed. */
static ech_status open_gate(void *context)
{
    ech_trainer *t = context;
    ech_progress_settle(t->progress);
    return check_folders(t);
}

/* Made once: a vocabulary of many thousand words takes its time. */
ech_status ech_trainer_begin_saves(ech_trainer *t)
{
    ech_text yaml = {0};
    if (!ech_trainer_is_first(t)) return ECH_OK;
    ech_config_print(t->config, &yaml);
    t->texts.run_yaml = yaml.at;
    ECH_TRY(
        read_texts(t->design, t->model_folder, ech_exec_saved_dtype(t->session.exec), &t->texts));
    bool has_tokenizer = t->design->tokenizer || t->texts.text[ECH_FILE_TOKENIZER].at != NULL;
    if (!has_tokenizer && ech_model_reads_texts(t->config))
        ech_progress_say(
            t->progress,
            "no tokenizer is known, so checkpoints have none; data.tokenizer names one");
    ech_exec_gate_saves(t->session.exec, open_gate, t);
    return ECH_OK;
}
