/* SPDX-License-Identifier: Apache-2.0
 *
 * Adafactor's keys that are named as transformers' options: what goes together, and what a resolved
 * run file from before optimizer.scale_parameter means.
 */

#include <string.h>
#include <unistd.h>

#include "app/fixture.h"
#include "app/setup/setup.h"
#include "base/log.h"
#include "config/rules.h"
#include "unit.h"

static const char run[] =
    "model: {architecture: gpt2, hidden_size: 16, num_hidden_layers: 2, num_attention_heads: 2,"
    " vocab_size: 300}\n"
    "data: {train: x, sequence_length: 8}\n"
    "training: {steps: 6, global_batch_size: 8}\n"
    "parallel: {comm: local, threads: 1}\n"
    "log: {directory: runs/x}\n"
    "optimizer: {name: adafactor";

/* As saved: of a checkpoint, or of a run directory; otherwise a file that someone wrote. */
static ech_status read_run(const char *optimizer, bool saved, ech_config **out)
{
    char text[700], path[400];
    snprintf(text, sizeof text, "%s%s}\n", run, optimizer);
    if (saved) return ech_setup_config_text(text, "run.yaml", NULL, 0, out);
    snprintf(path, sizeof path, "%s/run.yaml", fixture_folder);
    assert_int_equal(ech_file_write(path, text, strlen(text)), ECH_OK);
    return ech_setup_config(path, NULL, 0, out);
}

TEST(saved_files_keep_their_meaning)
{
    static const struct {
        const char *optimizer;
        int scale, relative;
        double rate; /* of the second step; the curve is cosine, after no warmup */
    } files[] = {
        {", learning_rate: 0.05, relative_step: true, schedule: constant", 1, 0, 0.05},
        {", learning_rate: 0.05, relative_step: false, schedule: constant", 0, 0, 0.05},
        {", learning_rate: 0.05, schedule: constant", 1, 0, 0.05},
        {", scale_parameter: true, relative_step: true, warmup_init: false", 1, 1, 0.01},
        {", scale_parameter: false, relative_step: true, warmup_init: true", 0, 1, 2e-6},
        {", scale_parameter: true, relative_step: false, learning_rate: 2, schedule: constant", 1,
         0, 2},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        ech_config *config, *again;
        ECH_FREED_TEXT printed = {0};
        assert_int_equal(read_run(files[i].optimizer, true, &config), ECH_OK);
        assert_int_equal(config->optimizer.scale_parameter == 1, files[i].scale);
        assert_int_equal(config->optimizer.relative_step == 1, files[i].relative);
        assert_true(ech_learning_rate(config, ech_curve_of(config), 2) == files[i].rate);
        assert_int_equal(ech_optimizer_check_keys(config), ECH_OK);
        assert_int_equal(ech_curve_check_keys(config), ECH_OK);
        /* What is printed says the same, with no key that is not read. */
        ech_config_print(config, &printed);
        assert_true((strstr(printed.at, " learning_rate:") == NULL) == files[i].relative);
        assert_non_null(strstr(printed.at, " scale_parameter:"));
        assert_int_equal(ech_setup_config_text(printed.at, "again", NULL, 0, &again), ECH_OK);
        assert_int_equal(again->optimizer.scale_parameter == 1, files[i].scale);
        assert_int_equal(again->optimizer.relative_step == 1, files[i].relative);
        ech_config_destroy(again);
        ech_config_destroy(config);
    }
}

/* In a run file the key means the same as the option of transformers, and combinations that
 * transformers refuses are errors. */
TEST(combinations_are_refused)
{
    static const struct {
        const char *optimizer, *said; /* NULL: it is accepted */
    } files[] = {
        {", relative_step: true", NULL},
        {", relative_step: true, scale_parameter: false, warmup_init: true", NULL},
        {", learning_rate: 0.05, scale_parameter: false", NULL},
        {", learning_rate: 0.05, relative_step: false", NULL},
        {", relative_step: true, learning_rate: 0.05",
         "optimizer.learning_rate = 0.05: not read by optimizer.relative_step = true (multiplying "
         "by the size of weights is optimizer.scale_parameter); remove it"},
        {", relative_step: true, schedule: cosine", "optimizer.schedule"},
        {", relative_step: true, warmup_steps: 10", "optimizer.warmup_steps"},
        {", relative_step: true, min_learning_rate: 0.1", "optimizer.min_learning_rate"},
        {", learning_rate: 0.05, warmup_init: true", "optimizer.learning_rate = 0.05: not read"},
        {"", "required but not set: optimizer.learning_rate"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        ech_config *config = NULL;
        ech_status status = read_run(files[i].optimizer, false, &config);
        if (status == ECH_OK) status = ech_rules_check(config);
        if (status == ECH_OK) status = ech_optimizer_check_keys(config);
        if (status == ECH_OK) status = ech_curve_check_keys(config);
        assert_int_equal(status, files[i].said ? ECH_EUSAGE : ECH_OK);
        if (files[i].said && !strstr(ech_last_error(), files[i].said))
            fail_msg("%s: %s", files[i].optimizer, ech_last_error());
        ech_config_destroy(config);
    }
}

ALL_TESTS(fixture_setup, fixture_teardown)
