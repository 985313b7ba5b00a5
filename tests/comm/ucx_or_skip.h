/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of UCX, which are skipped where a build is without it. After processes.h.
 */
#ifndef ECH_TESTS_COMM_UCX_OR_SKIP_H
#define ECH_TESTS_COMM_UCX_OR_SKIP_H

static const ech_comm_backend *ucx;

/* How many ranks are lost: as many as usual, or what the environment asks for over `part`. */
static inline int ucx_kills(int usual, int part)
{
    const char *asked = getenv("ECHELON_UCX_KILLS");
    return asked ? atoi(asked) / part : usual;
}

int main(void)
{
    ucx = ech_comm_find("ucx");
    if (!ucx) {
        puts("skipped: this build is without UCX");
        return 77;
    }
    return unit_run(NULL);
}

#endif
