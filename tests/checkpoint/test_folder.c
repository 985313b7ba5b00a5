/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of checkpoint folders: exactly those, newest first.
 */
#include "checkpoint/folder.h"

#include "checkpoint/scratch.h"

TEST(test_names)
{
    static const struct {
        const char *name;
        int64_t step;
        ech_folder_kind kind;
    } good[] = {{"step-00000000", 0, ECH_FOLDER_FINAL},
                {"step-00000100", 100, ECH_FOLDER_FINAL},
                {"step-99999999.old", 99999999, ECH_FOLDER_OLD},
                {"step-123456789.tmp", 123456789, ECH_FOLDER_TEMPORARY}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        int64_t step = -1;
        ech_folder_kind kind = ECH_FOLDER_FINAL;
        assert_true(ech_folder_parse(good[i].name, &step, &kind));
        assert_int_equal(step, good[i].step);
        assert_int_equal(kind, good[i].kind);
        char *path = ech_folder_path("d", step, kind);
        assert_string_equal(path + 2, good[i].name);
        free(path);
    }
    static const char *const bad[] = {
        "",
        "step-",
        "step-100",
        "step-0000100",
        "step-000000100",
        "step-0000010x",
        "step-00000100.TMP",
        "step-00000100.tmp.old",
        "step-00000100 ",
        " step-00000100",
        "step- 0000100",
        "step--0000100",
        "step-+0000100",
        "Step-00000100",
        "step-00000100.old2",
        "step-99999999999999999999",
        "latest",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int64_t step = -1;
        ech_folder_kind kind = ECH_FOLDER_FINAL;
        if (ech_folder_parse(bad[i], &step, &kind)) fail_msg("'%s' taken", bad[i]);
        assert_int_equal(step, -1);
    }
}

static void make_folder(const char *directory, const char *name)
{
    char *path = ech_file_join(directory, name);
    assert_int_equal(ech_file_make_folder(path), ECH_OK);
    free(path);
}

TEST(test_lists)
{
    char *directory = scratch_make();
    static const char *const names[] = {
        "step-00000007",     "step-00000100.tmp", "step-00000030.old", "step-100000000",
        "step-00000007.old", "step-00000031",     "step-31",           "other"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) make_folder(directory, names[i]);
    ech_folders folders = {0};
    assert_int_equal(ech_folder_list(directory, &folders), ECH_OK);
    assert_int_equal(folders.n, 6);
    const int64_t all[] = {100000000, 100, 31, 30, 7, 7};
    for (size_t i = 0; i < folders.n; i++) assert_int_equal(folders.at[i].step, all[i]);
    assert_int_equal(folders.at[4].kind, ECH_FOLDER_FINAL);
    assert_int_equal(folders.at[5].kind, ECH_FOLDER_OLD);
    ech_folders_free(&folders);

    assert_int_equal(ech_folder_list_complete(directory, &folders), ECH_OK);
    assert_int_equal(folders.n, 4);
    const int64_t complete[] = {100000000, 31, 30, 7};
    for (size_t i = 0; i < folders.n; i++) assert_int_equal(folders.at[i].step, complete[i]);
    assert_int_equal(folders.at[2].kind, ECH_FOLDER_OLD);
    assert_int_equal(folders.at[3].kind, ECH_FOLDER_FINAL);
    ech_folders_free(&folders);
    scratch_remove(directory);

    assert_int_equal(ech_folder_list("/nonexistent/echelon", &folders), ECH_OK);
    assert_int_equal(folders.n, 0);
    ech_folders_free(&folders);
}
