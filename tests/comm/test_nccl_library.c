/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL itself, where a machine has it (beside CUDA, or in a Python package such as PyTorch's):
 * its version, an id, and the error of a start without a driver. Skipped without the library.
 */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "comm/nccl_library.h"
#include "device/cuda_library.h"
#include "unit.h"

static const ech_nccl *nccl;

/* Python's own libraries are found beside a python3 of PATH. */
static void add_oracle(void)
{
    const char *python = getenv("ECHELON_ORACLE_PYTHON"), *path = getenv("PATH");
    const char *end = python ? strrchr(python, '/') : NULL;
    ECH_FREED_TEXT both = {0};
    if (!end) return;
    ech_text_append(&both, "%.*s:%s", (int)(end - python), python, path ? path : "");
    assert_int_equal(setenv("PATH", both.at, 1), 0);
}

static int open_library(void **state)
{
    const char *path = NULL;
    (void)state;
    add_oracle();
    if (ech_library_lacks(&ech_library_nccl, &path)) return 0;
    assert_int_equal(setenv("ECHELON_NCCL", path, 1), 0);
    assert_int_equal(setenv("NCCL_SOCKET_IFNAME", "lo", 1), 0);
    if (ech_nccl_open(ech_device_find("queued"), &nccl) != ECH_OK)
        print_message("%s\n", ech_last_error());
    return 0;
}

TEST(test_version_and_id)
{
    int version = 0;
    ech_nccl_id one = {{0}}, two = {{0}};
    if (!nccl) skip();
    assert_int_equal(nccl->GetVersion(&version), ECH_NCCL_SUCCESS);
    assert_true(version >= ECH_NCCL_OLDEST);
    assert_int_equal(nccl->GetUniqueId(&one), ECH_NCCL_SUCCESS);
    assert_int_equal(nccl->GetUniqueId(&two), ECH_NCCL_SUCCESS);
    assert_int_not_equal(memcmp(&one, &two, sizeof one), 0);
    print_message("NCCL %d\n", version);
}

TEST(test_start_without_a_driver)
{
    ech_nccl_id id = {{0}};
    ech_nccl_comm comm = NULL;
    ech_nccl_config config = ECH_NCCL_CONFIG;
    if (!nccl || !ech_device_lacks("cuda")) skip();
    assert_int_equal(nccl->GetUniqueId(&id), ECH_NCCL_SUCCESS);
    int result = nccl->CommInitRankConfig(&comm, 1, id, 0, &config);
    assert_int_not_equal(result, ECH_NCCL_SUCCESS);
    assert_int_not_equal(result, ECH_NCCL_IN_PROGRESS);
    assert_null(comm);
    if (!strstr(nccl->GetErrorString(result), "cuda error") ||
        !strstr(nccl->GetLastError(NULL), "driver"))
        fail_msg("%s: %s", nccl->GetErrorString(result), nccl->GetLastError(NULL));
}

ALL_TESTS(open_library, NULL)

int main(void)
{
    return unit_run(NULL);
}
