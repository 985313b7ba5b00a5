/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes that live, have died, or cannot be shown for want of descriptors.
 */

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/life.h"
#include "unit.h"

static pid_t start_child(void)
{
    pid_t child = fork();
    if (child == 0)
        for (;;) pause();
    assert_true(child > 0);
    return child;
}

static void end_child(pid_t child)
{
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

TEST(test_life_and_death)
{
    int fd = -1, none = -1;
    pid_t child = start_child();
    ech_life life = ech_life_open(child, ech_life_space(), &fd);
    if (life == ECH_LIFE_HIDDEN) {
        end_child(child);
        skip(); /* this kernel has no such descriptors */
    }
    assert_int_equal(life, ECH_LIFE_SHOWN);
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&polled, 1, 0), 0);
    end_child(child);
    assert_int_equal(poll(&polled, 1, 0), 1);
    struct pollfd over = {.events = POLLIN};
    assert_int_equal(ech_life_open(child, ech_life_space(), &over.fd), ECH_LIFE_OVER);
    assert_int_equal(poll(&over, 1, 0), 1);
    close(over.fd);
    assert_int_equal(ech_life_open(child, ech_life_space() + 1, &none), ECH_LIFE_HIDDEN);
    assert_int_equal(none, -1);
    close(fd);
}

TEST(test_no_descriptor_left)
{
    int fd = -1;
    struct rlimit before, none;
    pid_t child = start_child();
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    ech_life life = ech_life_open(child, ech_life_space(), &fd);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    if (life != ECH_LIFE_HIDDEN) assert_int_equal(life, ECH_LIFE_LATER);
    assert_int_equal(fd, -1);
    end_child(child);
}
