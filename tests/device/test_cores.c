/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets of cores, the order in which they are taken, and binding threads to them, on whatever this
 * machine has.
 */

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/cores.h"
#include "device/device.h"
#include "unit.h"

static ech_core_set set_of(const int *core, int n)
{
    ech_core_set set = {{0}};
    for (int i = 0; i < n; i++) set.word[core[i] / 64] |= UINT64_C(1) << (core[i] % 64);
    return set;
}

static ech_core_set read_from(const char *text)
{
    char path[] = "/tmp/echelon-test-cores-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    ech_core_set set = ech_cores_read(path);
    unlink(path);
    return set;
}

TEST(sets_are_read)
{
    const int some[] = {0, 1, 2, 7, 63, 64, 65, 4095};
    const ech_core_set want = set_of(some, 8), none = {{0}};
    ech_core_set found = read_from("0-2,7,63-65,4095\n");
    assert_true(ech_cores_are_same(&found, &want));
    static const char *const bad[] = {"",      "\n",   "0-4096\n", "3-1\n",  "-1\n",
                                      "0,a\n", "0-\n", "0 1\n",    "1-2-3\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        found = read_from(bad[i]);
        if (!ech_cores_are_same(&found, &none)) fail_msg("\"%s\" is a set of cores", bad[i]);
    }
    found = ech_cores_read("/nowhere");
    assert_true(ech_cores_are_same(&found, &none));
    const ech_core_set few = set_of(some + 2, 3), both = ech_cores_common(&few, &want);
    assert_true(ech_cores_are_same(&both, &few));
}

TEST(sets_are_compared)
{
    const int low[] = {0, 1}, high[] = {63, 64, 4095}, mixed[] = {1, 64};
    ech_core_set a = set_of(low, 2), b = set_of(high, 3), c = set_of(mixed, 2);
    assert_int_equal(ech_cores_count(&b), 3);
    assert_true(ech_cores_are_same(&a, &a) && !ech_cores_are_same(&a, &b));
    assert_false(ech_cores_overlap(&a, &b));
    assert_true(ech_cores_overlap(&a, &c) && ech_cores_overlap(&c, &b));
}

/* Each core at most once, and as many as are wanted, or all. */
TEST(cores_are_ordered)
{
    static int core[ECH_MOST_CORES];
    ech_core_set mine = ech_cores_mine();
    int all = ech_cores_count(&mine);
    assert_in_range(ech_device_find("cpu")->cores(), 1, all); /* a quota may leave fewer */
    for (int wanted = 1; wanted <= all + 1; wanted++) {
        int n = ech_cores_order(&mine, wanted, core);
        assert_true(n <= all && (n >= wanted || n == all));
        ech_core_set taken = set_of(core, n);
        assert_int_equal(ech_cores_count(&taken), n);
        for (int i = 0; i < n; i++) {
            ech_core_set one = set_of(&core[i], 1);
            assert_true(ech_cores_overlap(&one, &mine));
        }
    }
}

typedef struct observed {
    ech_core_set inherited, released;
} observed;

static void *observe(void *argument)
{
    observed *seen = argument;
    seen->inherited = ech_cores_mine();
    ech_cores_release();
    seen->released = ech_cores_mine();
    return NULL;
}

TEST(threads_are_bound_and_released)
{
    static int core[ECH_MOST_CORES];
    ech_core_set before = ech_cores_mine();
    ech_cores_order(&before, 1, core);
    ech_core_set one = set_of(core, 1);
    ech_cores_bind(core, 1);
    ech_core_set bound = ech_cores_mine();
    assert_true(ech_cores_are_same(&bound, &one));
    observed seen;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, observe, &seen), 0);
    pthread_join(thread, NULL);
    assert_true(ech_cores_are_same(&seen.inherited, &one));
    assert_true(ech_cores_are_same(&seen.released, &before));
    ech_cores_bind_set(&before);
    bound = ech_cores_mine();
    assert_true(ech_cores_are_same(&bound, &before));
}
