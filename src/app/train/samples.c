/* SPDX-License-Identifier: Apache-2.0
 *
 * Rank 0's copy of the model, and the texts that it writes.
 */
#include "app/train/samples.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "app/generation.h"
#include "app/train/trainer.h"
#include "base/file.h"
#include "base/log.h"
#include "base/utf8.h"
#include "base/writing.h"

struct ech_samples {
    ech_comm *alone; /* of one rank */
    ech_config *config;
    ech_design design;
    ech_session session; /* forward-only */
    ech_stops stops;
};

/* ---- the copy ---- */

static ech_status open(const ech_trainer *t, ech_samples *s)
{
    s->config = ech_config_copy(t->design->config);
    s->config->training.global_batch_size = s->config->training.micro_batch_size = 1;
    s->config->model.moe_group_samples = 1; /* a sampled text has no balance group */
    ECH_TRY(ech_design_create_evaluator(t->design, 0, s->config, &s->design));
    ECH_TRY(ech_comm_open(ech_comm_find("local"), 1, s->config->parallel.deadline, &s->alone));
    ECH_TRY(ech_session_create_on(&s->design, s->alone, ech_comm_local_rank(t->comm), true,
                                  &s->session));
    return ech_exec_run(s->session.exec, ECH_LIST_INIT, 0);
}

/* The same tokens end a text as in a checkpoint of the run. */
static ech_status find_stops(const ech_trainer *t, ech_stops *out)
{
    static const ech_checkpoint_file files[] = {ECH_FILE_CONFIG, ECH_FILE_GENERATION_CONFIG};
    ECH_PUSH(*out, t->design->tokenizer->end_of_text);
    for (int i = 0; i < 2; i++) {
        const char *text = t->texts.text[files[i]].at;
        if (text)
            ECH_TRY(ech_model_read_stops(ech_checkpoint_text_name(files[i]), text,
                                         t->texts.text[files[i]].n, t->config->model.vocab_size,
                                         out));
    }
    return ECH_OK;
}

ech_status ech_samples_create(const ech_trainer *t, ech_samples **out)
{
    if (!t->config->log.sample[0] || !ech_trainer_is_first(t)) return ECH_OK;
    if (!t->design->tokenizer)
        return ech_config_complain(t->config, "log.sample",
                                   "no tokenizer is known, so there are no texts; set "
                                   "data.tokenizer, or remove log.sample");
    ech_samples *s = *out = ech_calloc(1, sizeof *s);
    ECH_TRY(open(t, s));
    return find_stops(t, &s->stops);
}

void ech_samples_destroy(ech_samples *s)
{
    if (!s) return;
    ech_session_destroy(&s->session);
    ech_design_destroy(&s->design);
    if (s->alone) ech_comm_close(s->alone);
    ech_config_destroy(s->config);
    free(s->stops.at);
    free(s);
}

bool ech_samples_are_due(const ech_trainer *t)
{
    int64_t every = t->config->log.sample_every, before = t->step - t->turns;
    bool last = t->exhausted || t->step >= t->config->training.steps;
    if (!t->config->log.sample[0]) return false;
    return last || (every > 0 && t->step / every > before / every);
}

/* Copies one parameter. */
static ech_status take_weights(ech_samples *s, ech_exec *from, int param)
{
    ech_exec_whole there, here;
    if (!s) return ech_exec_read_whole(from, param, NULL);
    ECH_ASSERT(ech_exec_whole_at(from, param, &there) &&
               ech_exec_whole_at(s->session.exec, param, &here));
    int64_t n = there.bytes / (int64_t)ech_dtype_bytes(there.dtype);
    ECH_ASSERT(strcmp(there.name, here.name) == 0 &&
               here.bytes / (int64_t)ech_dtype_bytes(here.dtype) == n);
    ECH_FREED void *read = ech_calloc((size_t)there.bytes + 1, 1);
    ECH_FREED void *written = ech_calloc((size_t)here.bytes + 1, 1);
    ECH_TRY(ech_exec_read_whole(from, param, read));
    ech_convert(read, there.dtype, written, here.dtype, n);
    return ech_exec_write_whole(s->session.exec, param, written);
}

/* ---- texts ---- */

static bool add_token(const ech_generated *token, void *context)
{
    if (!token->is_prompt) ech_text_append_bytes(context, token->bytes, token->n);
    return true;
}

/* Bytes that are not UTF-8, as of a character that was cut, become U+FFFD. */
static char *make_valid(const ech_text *text)
{
    ech_text out = {0};
    for (size_t at = 0; at < text->n;) {
        size_t n = ech_utf8_valid(text->at + at, text->n - at);
        ech_text_append_bytes(&out, text->at + at, n);
        at += n;
        if (at == text->n) break;
        ech_text_append(&out, "\xef\xbf\xbd");
        at++;
    }
    return out.at ? out.at : ech_strdup("");
}

static ech_status write_one(const ech_samples *s, ech_trainer *t, const char *prompt, int index,
                            ech_text *file)
{
    const ech_generation_model generator = {.path = "log.sample",
                                            .exec = s->session.exec,
                                            .config = s->config,
                                            .tokenizer = t->design->tokenizer,
                                            .begin = t->design->tokenizer->begin_of_text,
                                            .stops = s->stops};
    const ech_generation_options greedy = {.tokens = t->config->log.sample_tokens,
                                           .begins = ECH_AUTO,
                                           .sampler = {.temperature = 0, .top_p = 1}};
    ECH_FREED_TEXT text = {0};
    ECH_TRY(ech_generate_from(&generator, prompt, &greedy, add_token, &text));
    ech_note note = {.kind = ECH_NOTE_SAMPLE,
                     .sample = {.step = t->step,
                                .index = index,
                                .prompt = ech_strdup(prompt),
                                .text = make_valid(&text)}};
    ech_text_append(file, "%s%s%s\n", index > 1 ? "\n" : "", prompt, note.sample.text);
    ech_progress_submit(t->progress, &note);
    return ECH_OK;
}

static ech_status write_texts(const ech_samples *s, ech_trainer *t)
{
    ECH_FREED_TEXT file = {0}, name = {0};
    ECH_FREED char *folder = ech_file_join(t->config->log.directory, "samples");
    ECH_FREED char *prompts = ech_strdup(t->config->log.sample);
    char *rest = NULL;
    int n = 0;
    for (char *prompt = strtok_r(prompts, "\n", &rest); prompt;
         prompt = strtok_r(NULL, "\n", &rest))
        ECH_TRY(write_one(s, t, prompt, ++n, &file));
    ech_text_append(&name, "step-%08" PRId64 ".txt", t->step);
    ECH_FREED char *path = ech_file_join(folder, name.at);
    bool quiet = ech_log_set_quiet(true);
    bool written = ech_file_make_folder(folder) == ECH_OK &&
                   ech_file_write_inside(path, file.at ? file.at : "", file.n) == ECH_OK;
    ech_log_set_quiet(quiet);
    if (!written) ech_log_warn("the sampled texts are lost: %s", ech_last_error());
    return ECH_OK;
}

ech_status ech_samples_take(ech_samples *s, ech_trainer *t)
{
    int params = (int)t->design->model->param.n;
    for (int p = 0; p < params; p++) ECH_TRY(take_weights(s, t->session.exec, p));
    return s ? write_texts(s, t) : ECH_OK;
}
