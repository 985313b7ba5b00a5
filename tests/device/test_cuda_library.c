/* SPDX-License-Identifier: Apache-2.0
 *
 * Libraries that are opened at run time, with a stand-in for one: where they are looked for, and
 * what is said of those that are missing or too old.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "device/cuda_library.h"
#include "device/device.h"
#include "unit.h"

enum { PLACES = 5 };
/* Each with a library of its own name, which is found nowhere else. */
static const struct {
    const char *variable, *folder;
} places[PLACES] = {
    {"CUDA_HOME", "lib64"},
    {"CUDA_PATH", "lib"},
    {"VIRTUAL_ENV", "lib/python3.9/site-packages/nvidia/stand/lib"},
    {"CONDA_PREFIX", "lib/python3.12/site-packages/nvidia/cu13/lib"},
    {"PATH", "lib/python3.13/site-packages/nvidia/none/lib"}, /* beside bin/python3 */
};
static char root[] = "/tmp/echelon-library-XXXXXX";

static void make_folders(char *path)
{
    for (char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = '\0';
        (void)mkdir(path, 0755);
        *at = '/';
    }
}

static int setup(void **state)
{
    (void)state;
    char path[256], command[1024];
    if (!mkdtemp(root)) return 1;
    for (int p = 0; p < PLACES; p++) {
        snprintf(path, sizeof path, "%s/%d/%s/libech_stand_in_%d.so", root, p, places[p].folder, p);
        make_folders(path);
        snprintf(command, sizeof command, "cp '%s' '%s'", ECH_STAND_IN, path);
        if (system(command) != 0) return 1;
        snprintf(path, sizeof path, "%s/%d", root, p);
        if (strcmp(places[p].variable, "PATH") != 0) setenv(places[p].variable, path, 1);
    }
    snprintf(path, sizeof path, "%s/%d/bin/python3", root, PLACES - 1);
    make_folders(path);
    snprintf(command, sizeof command, "touch %s; chmod +x %s", path, path);
    if (system(command) != 0) return 1;
    snprintf(command, sizeof command, "%s/nowhere:%s/%d/bin:%s", root, root, PLACES - 1,
             getenv("PATH"));
    setenv("PATH", command, 1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", root);
    return system(command);
}

TEST(test_every_place_is_looked_at)
{
    for (int p = 0; p < PLACES; p++) {
        int (*twice)(int n) = NULL;
        char file[32], where[512];
        const char *path = NULL;
        snprintf(file, sizeof file, "libech_stand_in_%d.so", p);
        bool is_beside = strcmp(places[p].variable, "PATH") == 0;
        snprintf(where, sizeof where, "%s/%d/%s%s/%s", root, p, is_beside ? "bin/../" : "",
                 places[p].folder, file);
        const ech_library library = {.name = "Stand-in", .file = file, .from = "make it"};
        const ech_library_symbol symbol = {"ech_stand_in_twice", &twice};
        assert_int_equal(ech_library_open(&library, &symbol, 1, &path), ECH_OK);
        assert_string_equal(path, where);
        assert_int_equal(twice(21), 42);
        assert_null(ech_library_lacks(&library, &path));
    }
}

TEST(test_what_is_missing)
{
    const char *path = "as before";
    void (*function)(void) = NULL;
    const ech_library none = {.name = "None", .file = "libech_is_nowhere.so.7", .from = "grow it"};
    const ech_library old = {.name = "Old", .file = "libech_stand_in_0.so", .from = "buy it"};
    const ech_library_symbol symbol = {"ech_stand_in_thrice", &function};
    assert_int_equal(ech_library_open(&none, &symbol, 1, &path), ECH_EUNSUPPORTED);
    assert_non_null(strstr(ech_last_error(), "None (libech_is_nowhere.so.7) is neither"));
    assert_non_null(strstr(ech_last_error(), "install it (grow it)"));
    assert_string_equal(ech_library_lacks(&none, &path), ech_last_error());
    assert_int_equal(ech_library_open(&old, &symbol, 1, &path), ECH_EUNSUPPORTED);
    assert_non_null(strstr(ech_last_error(), "libech_stand_in_0.so: has no ech_stand_in_thrice"));
    assert_non_null(strstr(ech_last_error(), "install a newer Old (buy it)"));
    assert_null(function);
    assert_string_equal(path, "as before");
}

/* What the device says stays the same, and is one line. */
TEST(test_device)
{
    const char *lacks = ech_device_lacks("cuda"), *says = ech_device_describe("cuda");
    if (lacks) assert_string_equal(says, lacks);
    assert_non_null(says);
    assert_null(strchr(says, '\n'));
    assert_null(ech_device_lacks("cpu"));
    assert_string_equal(ech_device_describe("cpu"), "cpu");
    if (!ech_device_find("cuda")) assert_non_null(strstr(lacks, "ECH_CUDA=ON"));
}

ALL_TESTS(setup, teardown)

int main(void)
{
    if (access(ECH_STAND_IN, R_OK) != 0) { /* a program that is elsewhere now than it was built */
        printf("skipped: there is no %s\n", ECH_STAND_IN);
        return 77;
    }
    return unit_run(NULL);
}
