/* SPDX-License-Identifier: Apache-2.0
 *
 * Exit codes of the process.
 */
#ifndef ECH_APP_EXIT_CODE_H
#define ECH_APP_EXIT_CODE_H

enum {
    ECH_EXIT_DONE = 0,
    ECH_EXIT_FAILED = 1,
    ECH_EXIT_USAGE = 2,
    ECH_EXIT_ILL_CONDITIONED = 3, /* `echelon verify`: results are too sensitive to rounding */
    ECH_EXIT_STOPPED = 75         /* stopped early with a checkpoint; the same command resumes */
};

#endif
