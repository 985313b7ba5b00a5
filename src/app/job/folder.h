/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder for what a job's MPI makes outside of the run's folders (Open MPI: the launcher's session
 * folder, and the memory that ranks of a machine share), which a killed launcher leaves behind. Whoever
 * watches over the job removes it at the end of each start; if that one is killed too, the next start of
 * any job does.
 */
#ifndef ECH_APP_JOB_FOLDER_H
#define ECH_APP_JOB_FOLDER_H

#include "base/status.h"

typedef struct ech_job_folder ech_job_folder;

/* Makes one and tells MPI by the environment. *out NULL: a job on several machines, of which the others
 * would not have the folder. */
ech_status ech_job_folder_create(ech_job_folder **out);
void ech_job_folder_destroy(ech_job_folder *folder); /* with all it holds; accepts NULL */

#endif
