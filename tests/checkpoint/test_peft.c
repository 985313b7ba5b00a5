/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders of adapters in PEFT's format: what is read, and what is refused by name.
 */
#include "checkpoint/peft.h"

#include <math.h>

#include "base/file.h"
#include "checkpoint/scratch.h"
#include "checkpoint/stored.h"
#include "checkpoint/whole.h"
#include "unit.h"

#define BASE   "0123456789abcdef0123456789abcdef"
#define CONFIG "\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 6, \"lora_dropout\": 0.5"

static ech_status parse(const char *text, ech_peft_settings *out)
{
    return ech_peft_settings_parse("FILE", text, strlen(text), out);
}

TEST(a_config_is_read)
{
    ech_peft_settings config;
    assert_int_equal(parse("{" CONFIG ", \"base_model_name_or_path\": \"x/y\", \"bias\": \"none\", "
                           "\"use_dora\": false, \"rank_pattern\": {}, \"modules_to_save\": null, "
                           "\"init_lora_weights\": \"gaussian\"}",
                           &config),
                     ECH_OK);
    assert_int_equal(config.rank, 2);
    assert_true(config.alpha == 6 && config.dropout == 0.5);
    assert_string_equal(config.base, "x/y");
    ech_peft_settings_free(&config);
    assert_int_equal(parse("{" CONFIG ", \"use_rslora\": true}", &config), ECH_OK);
    assert_true(config.alpha == 6 * sqrt(2)); /* alpha / sqrt(r) */
    assert_string_equal(config.base, "");
    ech_peft_settings_free(&config);
}

static void refuse(const char *text, ech_status status, const char *part)
{
    ech_peft_settings config;
    assert_int_equal(parse(text, &config), status);
    assert_error_has("FILE");
    assert_error_has(part);
    ech_peft_settings_free(&config);
}

TEST(options_that_are_not_built_are_refused_by_name)
{
    refuse("{" CONFIG ", \"use_dora\": true}", ECH_EUNSUPPORTED, "use_dora = true");
    refuse("{" CONFIG ", \"bias\": \"lora_only\"}", ECH_EUNSUPPORTED, "bias = \"lora_only\"");
    refuse("{" CONFIG ", \"modules_to_save\": [\"lm_head\"]}", ECH_EUNSUPPORTED,
           "modules_to_save = [\"lm_head\"]");
    refuse("{" CONFIG ", \"rank_pattern\": {\"q_proj\": 4}}", ECH_EUNSUPPORTED, "rank_pattern");
    refuse("{" CONFIG ", \"alpha_pattern\": {\"q_proj\": 4}}", ECH_EUNSUPPORTED, "alpha_pattern");
    refuse("{" CONFIG ", \"lora_bias\": true}", ECH_EUNSUPPORTED, "lora_bias");
    refuse("{" CONFIG ", \"of_a_later_version\": 1}", ECH_EUNSUPPORTED, "of_a_later_version = 1");
    refuse("{" CONFIG ", \"init_lora_weights\": \"pissa\"}", ECH_EUNSUPPORTED,
           "init_lora_weights = \"pissa\"");
    refuse("{\"peft_type\": \"IA3\"}", ECH_EUNSUPPORTED, "peft_type = \"IA3\"");
    refuse("{}", ECH_EUNSUPPORTED, "peft_type");
    refuse("{\"peft_type\": \"LORA\", \"r\": 0}", ECH_EINPUT, "r is no integer");
    refuse("{\"peft_type\": \"LORA\", \"r\": 1}", ECH_EINPUT, "lora_alpha is no number");
    refuse("{\"peft_type\": \"LORA\", \"r\": 1", ECH_EINPUT, "FILE");
}

/* ---- folders ---- */

enum { TENSORS = 4 };
static const ech_saved_tensor tensors[TENSORS] = {
    {.name = "base_model.model.a.q.lora_A.weight", .dtype = ECH_F32, .dims = 2, .shape = {2, 3}},
    {.name = "base_model.model.a.q.lora_B.weight", .dtype = ECH_F32, .dims = 2, .shape = {4, 2}},
    {.name = "base_model.model.b.q.lora_A.weight", .dtype = ECH_F32, .dims = 2, .shape = {2, 3}},
    {.name = "base_model.model.b.v.lora_B.weight", .dtype = ECH_F32, .dims = 2, .shape = {4, 2}},
};

/* Writes a folder of adapters with element values 0, 1, ... in each tensor. */
static char *write_folder(const char *base)
{
    char *folder = scratch_make();
    char *path = ech_file_join(folder, "adapter_model.safetensors");
    float values[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    ech_saved_tensor whole[TENSORS];
    ech_stored stored;
    int fd;
    for (int i = 0; i < TENSORS; i++) {
        whole[i] = tensors[i];
        whole[i].file = ECH_FILE_ADAPTER;
        saved_whole(&whole[i], values);
    }
    free(scratch_write(folder, ECH_PEFT_CONFIG, "{" CONFIG "}", strlen("{" CONFIG "}")));
    assert_int_equal(ech_stored_plan(whole, TENSORS, ECH_FILE_ADAPTER, base, &stored), ECH_OK);
    assert_int_equal(stored.n, TENSORS);
    assert_int_equal(ech_stored_begin(&stored, path, &fd), ECH_OK);
    ech_status status = ECH_OK;
    for (int i = 0; i < TENSORS && status == ECH_OK; i++)
        status = ech_safetensors_write(fd, path, &stored.tensors[i], stored.offsets[i], NULL);
    assert_int_equal(ech_stored_finish(fd, path, status), ECH_OK);
    ech_stored_free(&stored);
    free(path);
    return folder;
}

TEST(a_folder_is_read)
{
    char *folder = write_folder(BASE), *found = NULL;
    ech_peft *adapters;
    ECH_FREED_TEXT targets = {0};
    double data[8];
    assert_int_equal(ech_peft_find(folder, &found), ECH_OK);
    assert_int_equal(ech_peft_open(found, true, &adapters), ECH_OK);
    assert_string_equal(ech_peft_base(adapters), BASE);
    ech_peft_append_targets(adapters, &targets);
    assert_string_equal(targets.at, "q v");
    assert_true(ech_peft_has(adapters, "a.q.lora_A.weight"));
    assert_false(ech_peft_has(adapters, "b.q.lora_B.weight"));
    assert_int_equal(ech_peft_check(adapters, tensors, TENSORS), ECH_OK);
    ech_saved_tensor second = tensors[1];
    second.dtype = ECH_F64;
    saved_whole(&second, data);
    assert_int_equal(ech_peft_load(adapters, &second, 1), ECH_OK);
    for (int i = 0; i < 8; i++) assert_true(data[i] == i);
    ech_peft_close(adapters);
    free(found);
    scratch_remove(folder);
    folder = write_folder(NULL);
    assert_int_equal(ech_peft_open(folder, true, &adapters), ECH_OK);
    assert_null(ech_peft_base(adapters));
    ech_peft_close(adapters);
    scratch_remove(folder);
}

TEST(what_does_not_fit_is_named)
{
    char *folder = write_folder(BASE);
    ech_peft *adapters;
    ech_saved_tensor wanted[TENSORS];
    assert_int_equal(ech_peft_open(folder, false, &adapters), ECH_OK);
    assert_int_equal(ech_peft_check(adapters, tensors, TENSORS - 1), ECH_EINPUT);
    assert_error_has("'base_model.model.b.v.lora_B.weight' belongs to no adapter");
    memcpy(wanted, tensors, sizeof wanted);
    wanted[3].name = "base_model.model.c.q.lora_B.weight";
    assert_int_equal(ech_peft_check(adapters, wanted, TENSORS), ECH_EINPUT);
    assert_error_has("no adapter 'base_model.model.c.q.lora_B.weight'");
    memcpy(wanted, tensors, sizeof wanted);
    wanted[1].shape[1] = 3;
    assert_int_equal(ech_peft_check(adapters, wanted, TENSORS), ECH_EINPUT);
    assert_error_has("'base_model.model.a.q.lora_B.weight' has shape [4, 2]");
    ech_peft_close(adapters);
    scratch_remove(folder);
}

TEST(a_folder_that_lacks_a_file)
{
    char *folder = scratch_make(), *found = NULL;
    ech_peft *adapters;
    free(scratch_write(folder, "config.json", "{}", 2));
    assert_int_equal(ech_peft_find(folder, &found), ECH_EUSAGE);
    assert_error_has("has no adapter_config.json");
    free(scratch_write(folder, ECH_PEFT_CONFIG, "{" CONFIG "}", strlen("{" CONFIG "}")));
    assert_int_equal(ech_peft_open(folder, false, &adapters), ECH_EINPUT);
    assert_error_has("has no adapter_model.safetensors");
    free(scratch_write(folder, "adapter_model.safetensors", "12345678", 8));
    assert_int_equal(ech_peft_open(folder, false, &adapters), ECH_EINPUT);
    assert_error_has("adapter_model.safetensors");
    scratch_remove(folder);
}
