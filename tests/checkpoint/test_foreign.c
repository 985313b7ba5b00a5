/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights in forms that are not read: the error says which, and what converts them.
 */
#include "checkpoint/scratch.h"

#include <sys/stat.h>

#include "checkpoint/folder.h"
#include "checkpoint/foreign.h"
#include "checkpoint/raw.h"
#include "checkpoint/shards.h"
#include "unit.h"

static const ech_family family = {.prefix = "", .buffers = ""};

/* The error of opening the weights of a folder with that file, with config.json and without. */
static void refuse(const char *file, const char *part)
{
    char *folder = scratch_make(), *found = NULL;
    ech_shards *weights = NULL;
    ech_folders listed = {0};
    free(scratch_write(folder, file, "{}", 2));
    assert_int_equal(ech_shards_find(folder, &found), ECH_EUNSUPPORTED);
    assert_error_has(part);
    assert_error_has(folder);
    assert_int_equal(ech_folder_find(folder, &listed), ECH_EUNSUPPORTED);
    assert_error_has(part);
    free(scratch_write(folder, "config.json", "{}", 2));
    assert_int_equal(ech_shards_find(folder, &found), ECH_OK); /* a plan needs no weights */
    assert_int_equal(ech_shards_open(folder, &family, false, false, &weights), ECH_EUNSUPPORTED);
    assert_error_has(part);
    ech_folders_free(&listed);
    free(found);
    scratch_remove(folder);
}

TEST(folders)
{
    refuse("adapter_config.json", "adapters (PEFT, LoRA)");
    refuse("adapter_config.json", "echelon convert --merge ");
    refuse("pytorch_model.bin", "pytorch_model.bin: a pickle");
    refuse("pytorch_model.bin.index.json", ".save_pretrained(\"NEW\")");
    refuse("quantize_config.json", "dequantize_model(\"");
    refuse("quant_config.json", "AWQ, integers of 4 bits, which are not read; name the folder");
    refuse("x.Q4_K_M.gguf", "gguf_file=\"x.Q4_K_M.gguf\", quantization_config=GgufConfig(");
}

TEST(of_several_files_the_first)
{
    char *folder = scratch_make();
    free(scratch_write(folder, "b.gguf", "", 0));
    free(scratch_write(folder, "a.gguf", "", 0));
    free(scratch_write(folder, "gguf", "", 0));
    assert_int_equal(ech_foreign_check(folder), ECH_EUNSUPPORTED);
    assert_error_has("/a.gguf: a GGUF file");
    scratch_remove(folder);
}

TEST(a_file)
{
    char *folder = scratch_make(), *found = NULL;
    char *path = scratch_write(folder, "x.gguf", "GGUF", 4);
    ech_raw raw = {.fd = -1};
    assert_int_equal(ech_shards_find(path, &found), ECH_EUNSUPPORTED);
    assert_error_has("x.gguf: a GGUF file");
    assert_int_equal(ech_raw_open(path, NULL, &raw), ECH_EUNSUPPORTED);
    assert_error_has("gguf_file=\"x.gguf\"");
    free(path);
    scratch_remove(folder);
}

/* What no other form is has the errors that it had. */
TEST(none_of_them)
{
    char *folder = scratch_make(), *found = NULL;
    assert_int_equal(ech_foreign_check(folder), ECH_OK);
    assert_int_equal(ech_foreign_check("/nowhere/at all"), ECH_OK);
    assert_int_equal(ech_shards_find(folder, &found), ECH_EUSAGE);
    assert_error_has("has no config.json");
    scratch_remove(folder);
}

TEST(pointers_of_git_lfs)
{
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\n"
                                  "oid sha256:4d7a214614ab2935c943f9e0ff69d22e\nsize 12345\n";
    static const char *const files[] = {"model.safetensors", "model.safetensors.index.json"};
    for (int i = 0; i < 2; i++) {
        char *folder = scratch_make(), *path, *text;
        ech_shards *weights = NULL;
        ech_raw raw = {.fd = -1};
        size_t n;
        path = scratch_write(folder, files[i], pointer, sizeof pointer - 1);
        assert_int_equal(ech_shards_open(folder, &family, false, false, &weights), ECH_EINPUT);
        assert_error_has("a Git LFS pointer");
        assert_error_has("lfs pull");
        assert_error_has(folder);
        assert_int_equal(ech_file_read(path, 1 << 20, &text, &n), ECH_EINPUT);
        assert_error_has(files[i]);
        assert_int_equal(ech_raw_open(path, NULL, &raw), ECH_EINPUT);
        assert_error_has("a Git LFS pointer");
        free(path);
        scratch_remove(folder);
    }
}
