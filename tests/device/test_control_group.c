/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits of control groups, in folders of both versions that the test makes.
 */

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/control_group.h"
#include "unit.h"

static char folder[64], list[80];
static const ech_control_groups groups = {list, folder};

static void write_file(const char *path, const char *text)
{
    char full[256];
    snprintf(full, sizeof full, "%s/%s", folder, path);
    for (char *slash = full + strlen(folder); (slash = strchr(slash + 1, '/'));) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int begin(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/echelon-groups-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(list, sizeof list, "%s/list", folder);
    return 0;
}

static int drop(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info, (void)kind, (void)at;
    return remove(path);
}

static int end(void **state)
{
    (void)state;
    return nftw(folder, drop, 8, FTW_DEPTH | FTW_PHYS);
}

TEST(test_second_version)
{
    assert_int_equal(ech_control_cores(&groups, 64), 64); /* no list */
    write_file("list", "0::/pods/one\n");
    assert_int_equal(ech_control_cores(&groups, 64), 64); /* no files */
    write_file("pods/one/cpu.max", "max 100000\n");
    write_file("pods/one/memory.max", "max\n");
    assert_int_equal(ech_control_cores(&groups, 64), 64);
    assert_int_equal(ech_control_memory(&groups, 1 << 30), 1 << 30);
    write_file("pods/one/cpu.max", "450000 100000\n");
    write_file("pods/one/memory.max", "4096\n");
    assert_int_equal(ech_control_cores(&groups, 64), 4); /* whole cores */
    assert_int_equal(ech_control_cores(&groups, 2), 2);
    assert_int_equal(ech_control_memory(&groups, 1 << 30), 4096);
    write_file("pods/cpu.max", "150000 50000\n"); /* a group above */
    assert_int_equal(ech_control_cores(&groups, 64), 3);
    write_file("cpu.max", "50000 100000\n"); /* a container's own group is its root */
    assert_int_equal(ech_control_cores(&groups, 64), 1);
}

TEST(test_first_version)
{
    write_file("list", "4:memory:/one\n2:cpu,cpuacct:/one\n1:cpuset:/two\n0::/\n");
    write_file("cpu/one/cpu.cfs_quota_us", "-1\n");
    write_file("cpu/one/cpu.cfs_period_us", "100000\n");
    assert_int_equal(ech_control_cores(&groups, 8), 8);
    write_file("cpu/one/cpu.cfs_quota_us", "200000\n");
    write_file("memory/memory.limit_in_bytes", "8192\n");
    assert_int_equal(ech_control_cores(&groups, 8), 2);
    assert_int_equal(ech_control_memory(&groups, 1 << 30), 8192);
    write_file("unified/cpu.max", "100000 100000\n");
    assert_int_equal(ech_control_cores(&groups, 8), 1);
    write_file("list", "1:cpuset:/one\n"); /* another controller's group */
    assert_int_equal(ech_control_cores(&groups, 8), 8);
}

EACH_TEST(begin, end)
