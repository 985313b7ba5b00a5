/* SPDX-License-Identifier: Apache-2.0
 *
 * The job folder: a temporary folder for the files that MPI makes for a job (Open MPI: the launcher's session
 * folder and the memory that ranks of a machine share), which a killed launcher would leave behind. The
 * process that started the job removes it; if that is killed too, the next start of any job does
 * (comm/transient.h).
 */
#ifndef ECH_APP_JOB_FOLDER_H
#define ECH_APP_JOB_FOLDER_H

#include "comm/transient.h"

/* Makes the folder and sets the environment variables that point MPI to it, where the user has not. hold is
 * -1 for a job on several machines: it has no folder, since the other machines would not see it. Errors:
 * ECH_EIO. */
ech_status ech_job_folder_create(ech_transient *out);
void ech_job_folder_destroy(const ech_transient *folder);

#endif
