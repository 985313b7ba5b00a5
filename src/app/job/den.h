/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder for what a job's MPI makes outside of the run's folders (Open MPI: the launcher's session
 * folder, and the memory that ranks of a machine share), which a killed launcher leaves behind. Whoever
 * watches over the job removes it at the end of each start; if that one is killed too, the next start of
 * any job does.
 */
#ifndef ECH_APP_JOB_DEN_H
#define ECH_APP_JOB_DEN_H

#include "base/status.h"

typedef struct ech_den ech_den;

/* Makes one and tells MPI by the environment. *out NULL: a job on several machines, of which the others
 * would not have the folder. */
ech_status ech_den_create(ech_den **out);
void ech_den_destroy(ech_den *den); /* with all it holds; accepts NULL */

#endif
