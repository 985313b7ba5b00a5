/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of the start of a run that other files of src/app use. Private to app. Nothing is
 * collective.
 */
#ifndef ECH_APP_SETUP_PARTS_H
#define ECH_APP_SETUP_PARTS_H

#include "app/setup/setup.h"

/* ---- all ranks' lists against each other (check_ranks.c) ---- */

/* At the start of a run, the most steps of all lists that are checked: half a second, 150 MB. */
enum { ECH_CHECKED_STEPS = 1 << 20 };

/* Makes all lists of the first rank of each class (ech_classes) and checks each kind of list
 * (ech_design_check_plans): one rank checks the lists of all. With a log of serves, the train lists
 * are checked for each span. A single rank's list is not checked alone; its own rank does that
 * (ech_design_plan). If the lists have more than most_steps steps, they are not checked, and the
 * log says so. */
ech_status ech_design_check_ranks(const ech_design *design, int64_t most_steps);

/* ---- the communicators that a rank of a plan joins (communicators.c) ---- */

typedef struct ech_communicators {
    int n;         /* one per channel, and one per boundary, kind of message and peer */
    int64_t bytes; /* of the GPU, at most (ech_comm_library_bytes), with the library's code */
} ech_communicators;

/* All 0 where messages need none: on the processor, with other backends than nccl, or one rank. */
ech_communicators ech_communicators_of(const ech_design *design, const ech_plan *plan);
/* Appends a line below ech_print_memory's; nothing without communicators. */
void ech_communicators_print(const ech_communicators *joined, ech_text *out);

/* ---- for app/setup alone ---- */

/* Reads design->serves, if the run has a log of serves. Errors: as for ech_serve_log_read;
 * ECH_EUSAGE: no such file. */
ech_status ech_design_read_serves(ech_design *design);

/* A rank's practice before the first step: runs each of its training and validation lists once, on
 * an arena of its own and without messages, if a library's kernels will move messages on a GPU. A
 * kernel's first call loads it, a library's first product chooses an algorithm and may allocate
 * memory, and both wait until the GPU is idle. Before the first step it is; later, kernels that
 * receive may wait there for ranks that wait for this one. Errors of a kernel that the build lacks
 * appear here, too. Other runs: does nothing. Servers take pushes in turn here. */
ech_status ech_practise(const ech_design *design, const ech_comm *comm);

/* Appends settings with which the run fits into memory, each with a comma after it, for example
 * "parallel.zero=3, memory.recompute=full, ". If no single one suffices, several of them together;
 * nothing if none was found, or if the plan, which was refused, needs far too much or is too
 * long to make others like it. Plans are made and discarded; nothing is logged. */
void ech_remedies_print(const ech_design *design, const ech_plan *plan, ech_text *out);

#endif
